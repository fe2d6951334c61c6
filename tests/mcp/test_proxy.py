"""Who follows a resource of an MCP server behind a proxy, and what that server is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from gateway.mcp.proxy import SUBSCRIBE, UNSUBSCRIBE, Subscriptions
from tests.support.scripted import until


class Server:
    """A server of a revision with requests for each resource, which answers when it may."""

    version = "2025-11-25"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.may = asyncio.Event()

    async def call(self, method: str, params: dict[str, Any]) -> Raw:
        self.asked.append((method, params["uri"]))
        await self.may.wait()
        return Raw(b"{}")


class Client:
    """An MCP client that listens."""

    resources = frozenset({"file:///a"})


async def test_who_leaves_before_the_server_has_answered_follows_nothing() -> None:
    server: Any = Server()
    session: Any = Client()
    follows = Subscriptions(server)
    follows.joined(session)
    await until(lambda: bool(server.asked))
    follows.left(session)
    server.may.set()
    await until(lambda: not follows._work)
    assert server.asked == [(SUBSCRIBE, "file:///a"), (UNSUBSCRIBE, "file:///a")]
    assert not follows.follows(session, "file:///a")
