"""What goes out of one Peer: in the order of calls, all that a turn of the loop brought in one write."""

from __future__ import annotations

import asyncio

from gateway.core.errors import AgentGone
from gateway.transport.pipe import Pipe


class Outbox:
    """Messages on their way to `pipe`. `put` never waits; who makes many calls `drain`.

    limit: bytes that may wait before `drain` does; it goes on once half of them are written.
    """

    def __init__(self, pipe: Pipe, limit: int) -> None:
        self._pipe = pipe
        self._limit = limit
        self._waiting: list[bytes] = []
        self._size = 0  # of what waits and of what is being written
        self._gone: AgentGone | None = None
        self._some = asyncio.Event()  # there is something to write
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def size(self) -> int:
        """Bytes not yet written."""
        return self._size

    def put(self, message: bytes) -> None:
        """Send soon. Raises AgentGone when nothing can be sent any more."""
        if self._gone is not None:
            raise AgentGone(str(self._gone), detail=self._gone.detail)
        if not self._waiting:
            self._some.set()
            self._empty.clear()
        self._waiting.append(message)
        self._size += len(message)
        if self._size > self._limit:
            self._room.clear()

    async def drain(self) -> None:
        """Wait until there is room. Raises AgentGone."""
        if not self._room.is_set():
            await self._room.wait()
        if self._gone is not None:
            raise AgentGone(str(self._gone), detail=self._gone.detail)

    async def flushed(self) -> None:
        """Wait until everything is written, or nothing can be any more."""
        await self._empty.wait()

    def close(self, why: AgentGone) -> None:
        """Nothing goes out any more; what waits is dropped. The first reason is kept."""
        if self._gone is None:
            self._gone = why
        self._waiting.clear()
        self._size = 0
        self._room.set()
        self._empty.set()

    async def run(self) -> None:
        """Write until cancelled. Raises AgentGone when the other end has gone."""
        while True:
            await self._some.wait()
            self._some.clear()
            messages, self._waiting = self._waiting, []
            before = self._size
            await self._pipe.send(messages)
            del messages
            self._size -= before
            if self._size <= self._limit // 2:
                self._room.set()
            if not self._waiting:
                self._empty.set()
