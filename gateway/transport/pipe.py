"""The transport under JSON-RPC: a two-way stream of whole messages over a subprocess, a socket, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from gateway.transport.waiting import Flag
from gateway.wire.ndjson import Unreadable

__all__ = ["LIMIT", "Direct", "Eager", "Inbox", "Pipe", "Telling", "Unreadable", "hard", "judged"]

LIMIT = 64 * 1024 * 1024
"""The default limit for the bytes of a message."""


class Pipe(Protocol):
    """One connection, open when it is made. Has one reader and any number of writers."""

    @property
    def name(self) -> str:
        """The name of the other end, for logs and error messages."""

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write messages (JSON texts without line breaks) at once. Waits while the peer reads too slowly.

        Raises AgentGone when the other end has gone.
        """

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """Return everything that has arrived, waiting for the first message. Empty when the other end has closed.

        Raises AgentGone if the connection broke and there is a reason to tell.
        """

    async def aclose(self) -> None:
        """Close in bounded time. `receive` then returns empty. Idempotent."""


@runtime_checkable
class Eager(Protocol):
    """Implemented by pipes that can write without waiting as long as the peer keeps up."""

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write messages now. False if that is not possible without waiting: use `send` then.

        All together are at most 64 KiB: the pipe buffers what the peer does not take at once. Never raises.
        """


@runtime_checkable
class Direct(Protocol):
    """Implemented by pipes that can pass on messages as they are read, before the receiving task has woken."""

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        """Give messages that arrive while `receive` waits to `take` first. `receive` gets those that it returns.

        `take` returns the tail of the messages that it has not handled. It must not raise.
        """


@runtime_checkable
class Telling(Direct, Protocol):
    """Implemented by pipes that need no task which waits for them, as long as all that arrives is taken."""

    def when_left(self, receive: Callable[[], None]) -> None:
        """Call `receive` once, when something is there for `Pipe.receive`: what was not taken, or the end.

        Until then messages are given to `take` as if `Pipe.receive` waited. `receive` may be called at once.
        """


class Inbox:
    """The messages of a pipe that have arrived and are not received yet. Any number of writers, one reader.

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


def hard(limit: int) -> int:
    return limit + limit // 2


def judged(data: bytes, limit: int) -> bytes | Unreadable:
    """Return `data`, or an Unreadable if it is over the limit."""
    if len(data) <= limit:
        return data
    return Unreadable.of(f"a message of more than {limit} bytes", data)
