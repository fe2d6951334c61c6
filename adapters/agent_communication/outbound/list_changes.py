"""A session that stays open to hear that the list of agents has changed."""

from __future__ import annotations

import asyncio
import logging

from adapters.agent_communication.outbound.server import Server
from gateway.core.errors import InterlinguaError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class ListChanges:
    """Of one target. A new session counts as a change, too: the list may have changed while there was none."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on, until `aclose`. Again: nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="agents/list_changed")

    async def aclose(self) -> None:
        """Let go of the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _listen(self) -> None:
        target = self._server.target
        heard = False
        while True:
            try:
                async with self._server.lease(alone=False) as session:
                    if heard:
                        self._server.changed()
                    heard = True
                    await asyncio.wait([session.closed], timeout=target.idle if target.url else None)
            except InterlinguaError as error:
                log.info("no news of the agents: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
