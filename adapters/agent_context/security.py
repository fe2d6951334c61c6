"""Principals: who a client is by its credentials, and what it may do (sections 5.3 and 7.1); Ed25519 signatures.

Tokens and JSON Web Tokens are gateway.access's. Whatever does not hold is Denied (-32003), in words that say nothing of
a token, key or signature. Nothing is logged.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from adapters.agent_context.options import RIGHTS, AccessOptions, Client, Right
from gateway.access import ANONYMOUS, TokenOwners, bearer, roles_of
from gateway.access.patterns import fits
from gateway.core.errors import Denied
from gateway.core.types import JsonObject

_WORDS: Final[dict[Right, str]] = {
    "register": "register {}",
    "message": "send messages to {}",
    "delegate": "delegate tasks to {}",
    "read": "read about {}",
    "evaluate": "evaluate {}",
    "sample": "ask {} for samples",
    "revoke": "revoke the access of {}",
}


class ClientPrincipal(msgspec.Struct, frozen=True):
    """A client and its rights: `may`, for the agents whose ids fit one of the patterns. `roles`: by which they
    may approve tool calls that wait for approval.

    Two principals of the same name are the same somebody, and own the same agents.
    """

    name: str
    may: frozenset[str] = frozenset()
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()

    def can(self, right: Right, agent_id: str | None = None) -> bool:
        return right in self.may and (agent_id is None or fits(agent_id, self.agents))

    def check(self, right: Right, agent_id: str | None = None) -> None:
        if not self.can(right, agent_id):
            whom = agent_id if self.can(right) else "agents"
            raise Denied(f"{self.name} may not {_WORDS[right].format(whom)}")


ANYBODY: Final = ClientPrincipal(ANONYMOUS, frozenset(RIGHTS))
"""The principal of every client, where no access is configured."""


class Access:
    """`inbound.agent_context.access`; without it everybody is `anonymous` and may do everything."""

    def __init__(self, options: AccessOptions | None) -> None:
        self._options = options
        clients: Iterable[Client] = options.clients if options is not None else ()
        self._holders = TokenOwners(clients, options.jwt if options is not None else None)
        self._keys: dict[str, Any] = {}

    def principal(self, bearer: str | None, record: JsonObject | None = None) -> ClientPrincipal:
        """The principal that sent `Authorization: Bearer ...`, or registers an agent (`record`, as it was sent).

        Every credential that is given must hold, and all must be the same client's; a client with a public key has to
        sign, and a signature that nobody can check is none. Without any it is `anonymous`. Raises Denied.
        """
        if self._options is None:
            return ANYBODY
        auth = (record or {}).get("auth") or {}
        shown = [self._bearer(each) for each in (bearer, auth.get("token")) if each is not None]
        if len({each.name for each in shown}) > 1:
            raise Denied("the token of the connection and that of the agent are different clients'")
        known = shown[0] if shown else None
        if record is not None:
            name = known.name if known is not None else None
            signer = self._signer(name, record, auth.get("signature"))
            if signer is not None and signer != name:
                known = _listed(self._holders.clients[signer])
        return known or ClientPrincipal(ANONYMOUS, frozenset(self._options.anonymous))

    def shown(self, headers: Iterable[tuple[bytes, bytes]]) -> ClientPrincipal | None:
        """The principal whose token is in the headers (as in ASGI); None without a valid one, or without access."""
        token = bearer(headers)
        if self._options is None or token is None:
            return None
        with contextlib.suppress(Denied):
            return self._bearer(token)
        return None

    def _bearer(self, token: str) -> ClientPrincipal:
        """A client of the list has the rights that the list gives it, others those of the token."""
        found = self._holders.find(token)
        if found is None:
            raise Denied("the token is not valid")
        if found.client is not None:
            return _listed(found.client)
        jwt = self._options.jwt if self._options is not None else None
        assert jwt is not None and found.subject is not None, "a name that no client of the list has is a JWT's"
        roles = roles_of(found.subject.claims.get(jwt.roles))
        return ClientPrincipal(found.subject.name, frozenset(jwt.may), jwt.agents, roles)

    def _signer(self, name: str | None, record: JsonObject, signature: str | None) -> str | None:
        """Name of the registering client: `name` by its token; None if it showed none."""
        client = self._holders.clients.get(name) if name is not None else None
        if signature is None:
            if client is not None and client.public_key is not None:
                raise Denied("the signature is missing")
            return name
        if name is not None and (client is None or client.public_key is None):
            raise Denied("there is no public key to check the signature with")
        message = canonical(record)
        for each in self._holders.clients.values() if client is None else [client]:
            if message is not None and self._verifies(each, signature, message):
                return each.name
        raise Denied("the signature is not valid")

    def _verifies(self, client: Client, signature: str, message: bytes) -> bool:
        """Whether it is the client's. Nothing says what is wrong with one that is not."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if client.public_key is None:
            return False
        key = self._keys.get(client.name)
        try:
            if key is None:
                key = Ed25519PublicKey.from_public_bytes(base64.b64decode(client.public_key))
                self._keys[client.name] = key
            key.verify(base64.b64decode(signature, validate=True), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def _listed(client: Client) -> ClientPrincipal:
    return ClientPrincipal(client.name, frozenset(client.may), client.agents, client.roles)


def canonical(agent: JsonObject) -> bytes | None:
    """The signed bytes: `params.agent` less `auth.signature`, in canonical form (RFC 8785).

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
