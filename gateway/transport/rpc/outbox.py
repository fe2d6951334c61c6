"""Writes the messages of one Peer in order: at once after a pause, otherwise all of a turn of the loop in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.core.errors import AgentGone
from gateway.transport.flag import Flag
from gateway.transport.pipe import Eager, Pipe

PAUSE = 0.001
"""Seconds after the last write from which on a message does not wait for others of the same turn of the loop."""
SMALL = 64 * 1024
"""The most bytes to offer to the pipe (see `Eager`). More are sent, waiting until the peer reads them."""


class Outbox:
    """Messages queued for `pipe`. `put` never waits; call `drain` after many.

    limit: bytes that may be queued before `drain` waits, until half of them are written. start: has a task `run`, and
    is called once, when something is to be written after `open` that the pipe does not take at once.
    """

    def __init__(self, pipe: Pipe, limit: int, start: Callable[[], None]) -> None:
        self._pipe = pipe
        self._start: Callable[[], None] | None = start
        self._offer = pipe.offer if isinstance(pipe, Eager) else None
        self._limit = limit
        self._waiting: list[bytes] = []
        self._size = 0  # of what waits and of what is being written
        self._gone: AgentGone | None = None
        self._due = 0.0  # the loop's time from which on a message goes at once
        self._idle = False  # `run` would wait for `_some`
        self._some = Flag()  # the pipe did not take all that it was offered
        self._room = Flag()
        self._room.set()
        self.flowing = True
        """Whether `drain` would neither wait nor raise."""
        self._empty: Flag | None = None  # once `flushed` waits for it
        self._note: Callable[[Sequence[bytes]], None] | None = None

    @property
    def size(self) -> int:
        """Bytes not yet written."""
        return self._size

    def put(self, *messages: bytes) -> None:
        """Send soon. Raises AgentGone when nothing can be sent any more."""
        if self._gone is not None:
            raise AgentGone.of(self._gone)
        if self._note is not None:
            self._note(messages)
        first = not self._waiting
        self._waiting += messages
        self._size += sum(map(len, messages))
        if first and self._offer is None:
            self._write()
        elif first:
            loop = asyncio.get_running_loop()
            if (now := loop.time()) < self._due:
                loop.call_soon(self._offered)
            else:
                self._due = now + PAUSE
                self._offered()
        if self._size > self._limit:
            self.flowing = False
            self._room.clear()

    def tap(self, note: Callable[[Sequence[bytes]], None] | None) -> None:
        """Have `note` called with what is queued, from now on."""
        self._note = note

    async def drain(self) -> None:
        """Wait until there is room. Raises AgentGone."""
        if self.flowing:
            return
        await self._room.wait()
        if self._gone is not None:
            raise AgentGone.of(self._gone)

    async def flushed(self) -> None:
        """Wait until everything is written, or nothing can be any more. Nothing is before `open`."""
        if self._size and (self._idle or self._start is None):
            self._empty = self._empty or Flag()
            await self._empty.wait()

    def close(self, why: AgentGone) -> None:
        """Drop what is queued and send nothing more. The first reason is kept."""
        if self._gone is None:
            self._gone = why
        self.flowing = False
        self._waiting.clear()
        self._written(self._size)

    def open(self) -> None:
        """Begin to write."""
        self._idle = True
        if self._waiting:
            self._write()

    async def run(self) -> None:
        """Write until cancelled. Raises AgentGone when the other end has gone."""
        while True:
            self._idle = True
            await self._some.wait()
            self._idle = False
            self._some.clear()
            while self._waiting:
                messages, self._waiting = self._waiting, []
                size = self._size
                await self._pipe.send(messages)
                del messages
                self._written(size)

    def _offered(self) -> None:
        """Offer the queue to the pipe. What it does not take is left to `run`."""
        if not self._waiting:  # closed meanwhile
            return
        if self._idle and self._size <= SMALL and self._offer is not None and self._offer(self._waiting):
            self._waiting = []
            self._written(self._size)
        else:
            self._write()

    def _write(self) -> None:
        self._some.set()
        if self._idle and self._start is not None:
            start, self._start = self._start, None
            start()

    def _written(self, size: int) -> None:
        self._size -= size
        if not self.flowing and self._size <= self._limit // 2:
            self.flowing = self._gone is None
            self._room.set()
        if not self._size and self._empty is not None:
            self._empty.set()
