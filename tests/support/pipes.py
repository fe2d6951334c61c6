"""Two ends of a connection in memory, for tests of what runs over a `Pipe`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.core.errors import AgentGone
from gateway.transport.pipe import Unreadable

LIMIT = 1024 * 1024


class _Way:
    """One direction. Holds at most about `limit` bytes; who sends more waits for the reader."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: list[bytes | Unreadable] = []
        self.size = 0
        self.most = 0
        self.ended = False
        self.broken: AgentGone | None = None
        self.some = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def put(self, message: bytes | Unreadable) -> None:
        self.held.append(message)
        self.size += len(message) if isinstance(message, bytes) else 0
        self.most = max(self.most, self.size)
        self.some.set()
        if self.size > self.limit:
            self.room.clear()

    def end(self, broken: AgentGone | None = None) -> None:
        self.ended, self.broken = True, self.broken or broken
        self.some.set()
        self.room.set()


class MemoryPipe:
    """One end. What `send` was given is in `sends`, write by write, if `record` is set."""

    def __init__(self, name: str, out: _Way, into: _Way) -> None:
        self.name = name
        self.record = False
        self.sends: list[list[bytes]] = []
        self._out = out
        self._into = into
        self._closed = False

    async def send(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            assert b"\n" not in message and b"\r" not in message
            await self._out.room.wait()
            if self._out.ended:
                raise self._out.broken or AgentGone(f"{self.name} has gone")
            self._out.put(message)
        if self.record:
            self.sends.append(list(messages))

    async def receive(self) -> Sequence[bytes | Unreadable]:
        if not self._into.held and not self._into.ended:
            await self._into.some.wait()
        held, self._into.held, self._into.size = self._into.held, [], 0
        self._into.some.clear()
        self._into.room.set()
        if not held and self._into.broken is not None and not self._closed:
            raise self._into.broken
        return [] if self._closed else held

    async def aclose(self) -> None:
        self._closed = True
        self._out.end()
        self._into.end()

    # --- what only a test does ------------------------------------------------------------------------------------

    def inject(self, message: bytes | Unreadable) -> None:
        """Send it without waiting, whatever it is."""
        self._out.put(message)

    def half_close(self) -> None:
        """This end says nothing more but listens on."""
        self._out.end()

    def deafen(self) -> None:
        """This end hears nothing more: what is sent to it fails. What it has sent can still be read."""
        self._into.end()

    def cut(self, why: str = "connection reset") -> None:
        """Break the connection: both ends learn it once they have read what had arrived."""
        self._out.end(AgentGone(why))
        self._into.end(AgentGone(why))

    @property
    def most_unread(self) -> int:
        """The largest number of bytes that ever waited for this end's reader."""
        return self._into.most

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called here."""
        return self._closed


class EagerPipe(MemoryPipe):
    """See `gateway.transport.pipe.Eager`."""

    def offer(self, messages: Sequence[bytes]) -> bool:
        if self._out.ended or not self._out.room.is_set():
            return False
        for message in messages:
            self._out.put(message)
        if self.record:
            self.sends.append(list(messages))
        return True


def pair(limit: int = LIMIT, *, eager: bool = False) -> tuple[MemoryPipe, MemoryPipe]:
    """The two ends. `limit`: unread bytes from which on a sender waits. Each end's name is the other's."""
    forth, back = _Way(limit), _Way(limit)
    made = EagerPipe if eager else MemoryPipe
    return made("the right end", forth, back), made("the left end", back, forth)
