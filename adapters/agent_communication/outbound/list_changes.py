"""A session that stays open to hear that the list of agents has changed."""

from __future__ import annotations

import asyncio

from adapters.agent_communication.outbound.server import Server
from gateway.mcp.client.news import listen


class ListChanges:
    """Of one target."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on, until `aclose`. Again: nothing."""
        if self._task is None:
            news = listen(self._server.target, lambda: self._server.lease(alone=False), self._server.changed)
            self._task = asyncio.create_task(news, name="agents/list_changed")

    async def aclose(self) -> None:
        """Let go of the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
