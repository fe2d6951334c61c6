"""The messages of a pipe that have arrived and are not received yet."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.transport.pipe import Unreadable
from gateway.transport.waiting import Flag


class Inbox:
    """Filled by any number of writers, emptied by one reader.

    size: bytes that wait. ended: nothing more comes, though what was put in is still received.
    """

    __slots__ = ("_limit", "_messages", "_room", "_some", "ended", "size")

    def __init__(self, limit: int) -> None:
        """limit: bytes from which on `room` waits."""
        self.size = 0
        self.ended = False
        self._limit = limit
        self._messages: list[bytes | Unreadable] = []
        self._some = Flag()
        self._room = Flag()

    def put(self, messages: Sequence[bytes | Unreadable]) -> None:
        """Add messages, however many wait."""
        self._messages += messages
        self.size += sum(len(data) for data in messages if isinstance(data, bytes))
        self._some.set()

    async def room(self) -> None:
        """Wait until the reader has made room. Returns at the end, too."""
        while self.size > self._limit and not self.ended:
            self._room.clear()
            await self._room.wait()

    async def receive(self) -> list[bytes | Unreadable]:
        """All messages that have arrived by now, at least one; none once it has ended."""
        while not self._messages and not self.ended:
            self._some.clear()
            await self._some.wait()
        messages, self._messages, self.size = self._messages, [], 0
        self._room.set()
        return messages

    def end(self) -> None:
        """Nothing more comes. Again: no effect."""
        self.ended = True
        self._some.set()
        self._room.set()
