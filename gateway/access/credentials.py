"""Checks credentials. Nothing here says which part of one was wrong."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from gateway.access.issuer import IssuerKeys, Published
from gateway.access.options import ANONYMOUS, Credentials, JwtOptions, digest
from gateway.core.types import JsonObject

C = TypeVar("C", bound=Credentials)

AUTHORIZATION: Final = b"authorization"
_REMEMBERED: Final = 1000
"""Valid tokens that are remembered."""
_TOKEN_CHARACTERS: Final = 16 * 1024
"""The longest JWT that is read."""


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token in the `Authorization` header of a request, whose headers are as ASGI has them; None without one, or
    with more than one such header.
    """
    given = list(headers)
    if AUTHORIZATION not in dict(given):
        return None
    values = [value for name, value in given if name == AUTHORIZATION]
    scheme, _, token = values[0].decode("latin-1").partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() or None if scheme.lower() == "bearer" else None


class Tokens(Generic[C]):
    """The tokens of a list of clients, compared in constant time."""

    def __init__(self, clients: Iterable[C]) -> None:
        self._digests = [(known, client) for client in clients if (known := client.digest) is not None]

    def client(self, token: str) -> C | None:
        given, found = digest(token), None
        for known, client in self._digests:
            if hmac.compare_digest(known, given):
                found = client
        return found


@dataclass(frozen=True)
class Subject:
    """The subject of a JSON Web Token. `expires`: seconds since the epoch, without the leeway."""

    name: str
    expires: float
    claims: JsonObject = field(repr=False)


class Subjects:
    """The subjects of JSON Web Tokens. A valid token is remembered, by its digest, until it expires, or until its
    issuer publishes other keys.
    """

    def __init__(self, options: JwtOptions, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now
        self._known: OrderedDict[bytes, Subject] = OrderedDict()
        self._published: Published | None = None
        self.keys = IssuerKeys(options) if options.discovery is not None else None

    def find(self, token: str) -> Subject | None:
        """The subject of a token that is valid now; None for anything else. Raises AwaitsKeys, Unavailable."""
        key = digest(token)
        known = self._known.get(key)
        if known is not None and self.keys is not None and self.keys.current() is not self._published:
            self._known.clear()
            known = None
        if known is not None and self._now() < known.expires + self._options.leeway:
            return known
        self._known.pop(key, None)
        found = subject(token, self._options, self.keys)
        if found is None:
            return None
        if self.keys is not None:
            self._published = self.keys.current()
        self._known[key] = found
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found


def subject(token: str, options: JwtOptions, keys: IssuerKeys | None) -> Subject | None:
    """The subject of a JWT that is valid now, by the key of the options or of an issuer; None for anything else.

    Raises AwaitsKeys, Unavailable, where that cannot be said.

    Only the algorithms of the options are accepted, whatever its header says. `exp`, `sub` and `aud` must be there.
    """
    import jwt  # with it comes the library of its algorithms, which most gateways need not load

    if len(token) > _TOKEN_CHARACTERS or not token.isascii():
        return None
    try:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in options.algorithms:
            return None
        if keys is None:
            found = options.issuer, options.keys[algorithm]
        elif (published := keys.find(kid, algorithm)) is None:
            return None
        else:
            found = published
        issuer, key = found
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=options.audience,
            issuer=issuer,
            leeway=options.leeway,
            options={"require": ["exp", "sub", "aud"], "verify_iss": issuer is not None},
        )
        expires = float(claims["exp"])
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    name = claims.get("sub")
    if not isinstance(name, str) or not name or not name.isprintable():
        return None
    return Subject(name, expires, claims)


class TokenOwner(msgspec.Struct, Generic[C], frozen=True):
    """The owner of a token.

    client: the client of the list, found by its own token or by the `sub` of a JWT. subject: that of a JWT.
    """

    client: C | None
    subject: Subject | None


class TokenOwners(Generic[C]):
    """Finds the owners of tokens: those of a list of clients, and JSON Web Tokens where there are options for them.

    now: the clock, in seconds since the epoch.
    """

    def __init__(self, clients: Iterable[C], jwt: JwtOptions | None, now: Callable[[], float] = time.time) -> None:
        self.clients = {client.name: client for client in clients}
        self._tokens = Tokens(self.clients.values())
        self._subjects = Subjects(jwt, now) if jwt is not None else None

    def find(self, token: str) -> TokenOwner[C] | None:
        """The owner of a token that is valid now; None for anything else. Raises AwaitsKeys, Unavailable."""
        client = self._tokens.client(token)
        if client is not None:
            return TokenOwner(client, None)
        found = self._subjects.find(token) if self._subjects is not None else None
        if found is None or found.name == ANONYMOUS:
            return None
        return TokenOwner(self.clients.get(found.name), found)
