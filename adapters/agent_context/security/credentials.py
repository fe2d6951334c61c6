"""How credentials are checked. Nothing here says which part of one was wrong."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

from adapters.agent_context.options import Client, Jwt
from gateway.core.types import JsonObject

_SIGNATURE_BYTES: Final = 64
_REMEMBERED: Final = 1000
"""Tokens that held."""
_TOKEN_CHARACTERS: Final = 16 * 1024
"""Of a JWT; a longer one is not looked at."""


class Tokens:
    """The tokens of a list of clients, compared in the same time whatever they have in common."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self._digests = [
            (_digest(client.token.get_secret_value()), client) for client in clients if client.token is not None
        ]

    def client(self, token: str) -> Client | None:
        """Whose it is."""
        given, found = _digest(token), None
        for digest, client in self._digests:
            if hmac.compare_digest(digest, given):
                found = client
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Subjects:
    """Who JSON Web Tokens stand for. One that held is remembered (by its digest) until it expires."""

    def __init__(self, options: Jwt, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def name(self, token: str) -> str | None:
        """`sub` of a token that is valid now; None for anything else."""
        digest = _digest(token)
        known = self._known.get(digest)
        if known is not None and self._now() < known[1] + self._options.leeway:
            return known[0]
        self._known.pop(digest, None)
        found = subject(token, self._options)
        if found is None:
            return None
        self._known[digest] = found
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found[0]


def subject(token: str, options: Jwt) -> tuple[str, float] | None:
    """`sub` of a JWT that is valid now, and when it expires (epoch seconds); None for anything else.

    Only the algorithms of the options are accepted, whatever its header says. `exp`, `sub` and `aud` must be there.
    """
    import jwt  # with it comes the library of its algorithms, which most gateways need not load

    if len(token) > _TOKEN_CHARACTERS or not token.isascii():
        return None
    try:
        algorithm = jwt.get_unverified_header(token).get("alg")
        if not isinstance(algorithm, str) or algorithm not in options.keys:
            return None
        claims = jwt.decode(
            token,
            options.keys[algorithm],
            algorithms=[algorithm],
            audience=options.audience,
            issuer=options.issuer,
            leeway=options.leeway,
            options={"require": ["exp", "sub", "aud"], "verify_iss": options.issuer is not None},
        )
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    name = claims.get("sub")
    if not isinstance(name, str) or not name or not name.isprintable():
        return None
    return name, float(claims["exp"])


def canonical(agent: JsonObject) -> bytes | None:
    """What is signed: `params.agent` less `auth.signature`, in canonical form (RFC 8785).

    Less `auth` too, if nothing else is in it. None where it has none: a number that JavaScript would not read as it is
    written, half a surrogate pair.
    """
    import rfc8785

    auth = agent.get("auth")
    if isinstance(auth, dict):
        rest = {key: value for key, value in auth.items() if key != "signature"}
        agent = {**agent, "auth": rest} if rest else {key: agent[key] for key in agent if key != "auth"}
    try:
        return rfc8785.dumps(agent)
    except (rfc8785.CanonicalizationError, ValueError, RecursionError):
        return None


class Verifier:
    """The public keys of a list of clients."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients = [client for client in clients if client.public_key is not None]
        self._keys: dict[str, Any] = {}

    def signed(self, agent: JsonObject, signature: str, client: Client | None = None) -> Client | None:
        """Whose signature of the agent it is: this client's, if one is named. None: it is nobody's."""
        try:
            raw = base64.b64decode(signature, validate=True)
        except (binascii.Error, ValueError):
            return None
        message = canonical(agent)
        if message is None or len(raw) != _SIGNATURE_BYTES:
            return None
        among = self._clients if client is None else [client]
        return next((each for each in among if self._verifies(each, raw, message)), None)

    def _verifies(self, client: Client, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if client.public_key is None:
            return False
        key = self._keys.get(client.name)
        try:
            if key is None:
                key = Ed25519PublicKey.from_public_bytes(base64.b64decode(client.public_key))
                self._keys[client.name] = key
            key.verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True
