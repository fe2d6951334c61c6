"""How signatures of agents are checked. Nothing here says which part of one was wrong."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

from adapters.agent_context.options import Client
from gateway.core.types import JsonObject

_SIGNATURE_BYTES: Final = 64


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
