"""Two people, Ana and Bob, and whoever an issuer vouches for, at a gateway that asks who they are."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.agent_client.inbound.visitor import METHOD, Visitor
from gateway.access import Authenticator
from tests.adapters.agent_client.editor import Editor
from tests.adapters.agent_client.inbound_rig import Rig
from tests.adapters.agent_context.security_keys import JWT, SECRET, token

__all__ = [
    "ANA",
    "AUTHENTICATION",
    "BOB",
    "JWT",
    "METHOD",
    "NOT_FOUND",
    "SECRET",
    "UNKNOWN",
    "known",
    "lasting",
    "later",
    "log_in",
    "token",
]

ANA, BOB = "ana-token-0123456789", "bob-token-0123456789"
AUTHENTICATION: dict[str, Any] = {
    "clients": [
        {"name": "ana", "token": ANA, "roles": ["lead"]},
        {"name": "bob", "token_sha256": hashlib.sha256(BOB.encode()).hexdigest().upper(), "agents": ["scripted", "b*"]},
    ],
    "jwt": {**JWT, "agents": ["scripted"]},
}
UNKNOWN, NOT_FOUND = -32000, -32002


def lasting(seconds: int) -> str:
    """A token that holds for so long."""
    return token(exp=int(time.time()) + seconds)


@contextlib.contextmanager
def later(people: Authenticator, seconds: float) -> Iterator[None]:
    """In the block it is later, for who tells whether a token still holds; who waits for that looks often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "now", lambda: time.time() + seconds)
        yield


async def known(rig: Rig, token: str | None, agent: str | None = "scripted", **options: Any) -> Editor:
    """A client that has shaken hands; its connection showed this token."""
    people = rig.inbound.clients.people
    visitor = Visitor(people, None if token is None else people.principal(token))
    editor = await rig.raw(agent, visitor=visitor, **options)
    await editor.initialize()
    return editor


async def log_in(editor: Editor, token: str) -> Any:
    """`authenticate`, with a token."""
    return await editor.request("authenticate", {"methodId": METHOD, "_meta": {"token": token}})
