"""Options: who may come in by a door, or operate the gateway; whose tokens are accepted, and what is there for whom."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, StringConstraints, model_validator

from gateway.access.patterns import Patterns
from gateway.contract.options import EVERY_OTHER, ClientLimits, HttpUrl, InboundOptions, Options

Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]

ANONYMOUS: Final = "anonymous"
"""The name of a client that has shown no token. No client of the options may have it."""
KINDS: Final = {"HS": "secret", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "Ed25519"}
SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""RFC 7518, 3.2."""


def digest(token: str) -> bytes:
    """SHA-256 of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Credentials(Options):
    """Somebody with a token of their own.

    name: who it is; `sub` of its JWT.
    token: what it sends as `Authorization: Bearer`.
    token_sha256: SHA-256 of that, in hexadecimal digits, so that the file need not have the token itself.
    """

    name: Annotated[str, Field(min_length=1)]
    token: Annotated[SecretStr, Field(min_length=1)] | None = None
    token_sha256: Sha256 | None = None

    @property
    def digest(self) -> bytes | None:
        """SHA-256 of its token; None if it has none."""
        if self.token_sha256 is not None:
            return bytes.fromhex(self.token_sha256)
        return None if self.token is None else digest(self.token.get_secret_value())

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.token is not None and self.token_sha256 is not None:
            raise ValueError("name one of token and token_sha256")
        return self


class JwtOptions(Options):
    """JSON Web Tokens (RFC 7519) instead of tokens of the list. `exp`, `nbf`, `aud` and `iss` are checked.

    key: secret (HS...) or public key in PEM of whoever signs them.
    key_file: a file with it instead.
    discovery: URL of an issuer instead that publishes its keys (OpenID Connect Discovery): asked for, kept current.
    keep: seconds for which keys are trusted that the issuer cannot be asked for anew.
    algorithms: those that are accepted, all of one kind; with `discovery` of any kinds with public keys.
    issuer: what `iss` must be. Left out: as the issuer of `discovery` calls itself, else not looked at.
    audience: what `aud` must be or have among them.
    leeway: seconds by which clocks may differ.
    """

    key: Annotated[SecretStr, Field(min_length=1)] | None = None
    key_file: Path | None = None
    discovery: HttpUrl | None = None
    keep: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3600.0
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    issuer: Annotated[str, Field(min_length=1)] | None = None
    audience: Annotated[str, Field(min_length=1)]
    leeway: Annotated[float, Field(ge=0)] = 0.0

    _keys: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, Any]:
        """The key, prepared for each algorithm; none with `discovery`."""
        return self._keys

    @model_validator(mode="after")
    def _usable_key(self) -> Self:
        if [self.key, self.key_file, self.discovery].count(None) != 2:
            raise ValueError("name one of key, key_file and discovery")
        if self.discovery is not None:
            if any(name in SECRET_BYTES for name in self.algorithms):
                raise ValueError("algorithms: no issuer publishes a secret: name those with public keys, such as RS256")
            return self
        if len({KINDS[each[:2]] for each in self.algorithms}) > 1:
            raise ValueError("one key is never for both: name algorithms of one kind")
        if self.key is not None:
            key = self.key.get_secret_value().encode()
        else:
            assert self.key_file is not None
            try:
                key = self.key_file.read_bytes().strip()
            except OSError as error:
                raise ValueError(f"key_file: {error.strerror or 'cannot be read'}") from None
        from jwt.algorithms import get_default_algorithms  # costs as much as all of the gateway's options
        from jwt.exceptions import InvalidKeyError

        known = get_default_algorithms()
        for name in self.algorithms:
            if name in SECRET_BYTES and len(key) < SECRET_BYTES[name]:
                raise ValueError(f"the key is too short: {name} needs {SECRET_BYTES[name]} bytes")
            try:
                self._keys[name] = known[name].prepare_key(key)
            except (InvalidKeyError, ValueError, TypeError):
                raise ValueError(f"the key is none for {name}") from None
        return self


def each_its_own(clients: Iterable[Credentials]) -> None:
    """Raises ValueError where two clients have one name or one token, or a client is called ANONYMOUS."""
    clients = tuple(clients)
    if any(client.name == ANONYMOUS for client in clients):
        raise ValueError(f"clients: nobody may be called {ANONYMOUS}")
    twice = [name for name, times in Counter(client.name for client in clients).items() if times > 1]
    if twice:
        raise ValueError(f"clients: {twice[0]!r} is there twice")
    tokens = [digest for client in clients if (digest := client.digest) is not None]
    if len(set(tokens)) < len(tokens):
        raise ValueError("clients: two have the same token")


class ClientCredentials(Credentials):
    """Somebody who may connect.

    limits: what it may ask for.
    """

    limits: ClientLimits = ClientLimits()


class ClientTokens(JwtOptions):
    """JSON Web Tokens of clients.

    limits: what each bearer may ask for that is no client of the list.
    """

    limits: ClientLimits = ClientLimits()


def limits_of(clients: Iterable[ClientCredentials], jwt: ClientTokens | None) -> Mapping[str | None, ClientLimits]:
    found: dict[str | None, ClientLimits] = {client.name: client.limits for client in clients}
    return found if jwt is None else {**found, EVERY_OTHER: jwt.limits}


# --- clients of a door: the same section below each protocol's own ----------------------------------------------------


class Person(ClientCredentials):
    """Somebody who may connect.

    roles: what it is besides its name: by them it may approve what a governed agent asks approval for.
    agents: patterns of the names of the agents that are there for it.
    tools: patterns of the names of the tools that governed agents may call for it, of those that they may call at all.
    oversees: whether what all other clients made (sessions, threads, tasks, runs) is there for it as well, as far as
        their agents are: it may look at it, and answer what is asked there.
    """

    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    agents: Patterns = ("*",)
    tools: Patterns = ("*",)
    oversees: bool = False


class Signed(ClientTokens):
    """JSON Web Tokens (RFC 7519) instead of tokens of the list. `exp`, `nbf`, `aud` and `iss` are checked.

    Whose `sub` a client of the list has is that client.

    roles: the claim that names the roles: a list, or a text with blanks between them.
    agents: patterns of the names of the agents that are there for every other bearer.
    tools: patterns of the names of the tools that governed agents may call for every other bearer.
    """

    roles: Annotated[str, Field(min_length=1)] = "roles"
    agents: Patterns = ("*",)
    tools: Patterns = ("*",)


class Authentication(Options):
    """Who may connect over the network, and what is there for whom. Whoever has no valid token may do nothing.

    clients: who there is.
    jwt: for tokens that are JWTs.
    grace: seconds that a connection may last before its client has said who it is, where the protocol has a message for
        that. Everywhere else it has to say so with its first request.
    """

    clients: tuple[Person, ...] = ()
    jwt: Signed | None = None
    grace: Annotated[float, Field(gt=0)] = 60.0

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        each_its_own(self.clients)
        if not self.clients and self.jwt is None:
            raise ValueError("name clients, or jwt: else nobody could connect")
        return self


class AuthenticatingOptions(InboundOptions):
    """The options of an inbound half that can ask who its clients are.

    authentication: who may connect over the network. Left out: everybody, and what anybody makes is everybody's.
    """

    authentication: Authentication | None = None

    @property
    def authenticates(self) -> bool:
        return self.authentication is not None

    @property
    def client_limits(self) -> Mapping[str | None, ClientLimits]:
        return {} if self.authentication is None else limits_of(self.authentication.clients, self.authentication.jwt)

    @property
    def by_request(self) -> bool:
        """Whether each request shows who sends it, so that it is found out in front of the routes (`identifying`).

        Else the inbound half finds it out itself, also from what a message says, and is `Knowing`.
        """
        return self.authenticates


# --- operators of the gateway ---------------------------------------------------------------------------------------


class OperatorClient(Credentials):
    """Somebody who operates the gateway.

    roles: by them an operator may approve what a governed agent asks approval for.
    """

    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class OperatorTokens(JwtOptions):
    """JSON Web Tokens (RFC 7519) of operators. `exp`, `nbf`, `aud` and `iss` are checked: choose an audience that no
    client's token has.

    roles: the claim that names the roles: a list, or a text with blanks between them.
    """

    roles: Annotated[str, Field(min_length=1)] = "roles"


class OperatorOptions(Options):
    """Who may use `/admin`: look at every run, answer and cancel it. Tokens of protocols' clients open nothing here.

    clients: who there is.
    jwt: for tokens that are JWTs.
    """

    clients: tuple[OperatorClient, ...] = ()
    jwt: OperatorTokens | None = None

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        each_its_own(self.clients)
        if not self.clients and self.jwt is None:
            raise ValueError("name clients, or jwt: else nobody could operate the gateway")
        return self
