"""What JSON-RPC runs over: a two-way stream of whole messages, whatever carries them (a subprocess, a socket, ...)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from gateway.wire.ndjson import Unreadable

__all__ = ["LIMIT", "Direct", "Eager", "Pipe", "Unreadable"]

LIMIT = 64 * 1024 * 1024
"""Bytes of the greatest message that a pipe takes unless told otherwise."""


class Pipe(Protocol):
    """One connection. Used by one reader and any number of writers; made open, closed once."""

    @property
    def name(self) -> str:
        """What is at the other end, for logs and error messages."""

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write messages (one JSON text each, no line breaks inside) in one go; waits while the peer reads slowly.

        Raises AgentGone when the other end has gone.
        """

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """The next messages, everything that has arrived by now; empty once the other end has closed.

        Raises AgentGone where the connection broke and there is more to say than that it ended.
        """

    async def aclose(self) -> None:
        """Close it, bounded in time; `receive` then returns empty. Idempotent."""


@runtime_checkable
class Eager(Protocol):
    """Offered by pipes that can write without waiting as long as the peer keeps up."""

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write messages as `send` does, now. False where that would have to wait or cannot be done: `send` them then.

        They are small together (64 KiB): what the peer does not take at once, the pipe holds. Never raises.
        """


@runtime_checkable
class Direct(Protocol):
    """Offered by pipes that can show messages as they are read, before whoever receives has woken."""

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        """From now on what comes while `receive` waits is shown to `take` first; `receive` gets what that returns.

        `take` returns the last of them, as many as it has not handled. It must not raise.
        """
