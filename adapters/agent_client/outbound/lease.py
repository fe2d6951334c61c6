"""How long a session keeps its connection: while it is in use, and beyond, as long as its client is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.connections import SharedConnection

log = logging.getLogger(__name__)


class ConnectionLease:
    """One session's. `connect` is called while it is `in_use`."""

    def __init__(self, idle: float, client_is_there: Callable[[], bool], unused: Callable[[], None]) -> None:
        """`unused` is called when it was not in use, and no client there, for `idle` seconds."""
        self._idle = idle
        self._client_is_there = client_is_there
        self._unused = unused
        self._users = 0
        self._held: AbstractAsyncContextManager[AgentConnection] | None = None
        self._of: SharedConnection | None = None
        self._connection: AgentConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None

    @property
    def used(self) -> bool:
        """Whether somebody works with the session now."""
        return self._users > 0

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """While somebody works with the session."""
        self._users += 1
        self.stop()
        try:
            yield
        finally:
            self._users -= 1
            await self._rest()

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Let work on the session go on by itself; its result is not wanted."""
        self._users += 1

        def done(task: asyncio.Task[Any]) -> None:
            self._users -= 1
            if not task.cancelled() and task.exception() is not None:
                log.info("a session that is not waited for any more: %s", task.exception())
            self._resting = asyncio.ensure_future(self._rest())

        task.add_done_callback(done)

    async def connect(self, shared: SharedConnection) -> AgentConnection:
        """The connection, started if need be. Raises as `Supervisor.use` does."""
        if (connection := self.connected(shared)) is not None:
            return connection
        await self.release()
        held = shared.use()
        connection = await held.__aenter__()
        self._held, self._of, self._connection = held, shared, connection
        return connection

    def connected(self, shared: SharedConnection) -> AgentConnection | None:
        """The connection, if it is held already and alive."""
        connection = self._connection
        return connection if self._of is shared and connection is not None and connection.alive else None

    async def release(self) -> None:
        """Let the connection go."""
        held, self._held, self._of, self._connection = self._held, None, None, None
        if held is not None:
            await held.__aexit__(None, None, None)

    def stop(self) -> None:
        """Watch no more whether it is unused."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _rest(self, *, late: bool = False) -> None:
        if self._users:
            return
        if not self._client_is_there():
            await self.release()
            if late:
                self._unused()
                return
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._idle, self._look)

    def _look(self) -> None:
        self._timer = None
        self._resting = asyncio.ensure_future(self._rest(late=True))
