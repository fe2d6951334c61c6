"""What an adapter brings, and what it can read off a Peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw

from gateway.transport.pipe import Unreadable
from gateway.wire.jsonrpc import Id, Malformed

Canceller: TypeAlias = Callable[[Id], tuple[str, Any]]
"""From the id of a request nobody waits for any more to the notification (method, params) that says so."""


class Handler(Protocol):
    """Serves what the other end sends. One per Peer, called by it only."""

    def request(self, method: str, params: Raw, id: Id) -> Awaitable[Any]:
        """A request, in a task of its own; what it returns is the answer (any value msgspec encodes, or a Raw).

        It has run up to its first wait before the next message is looked at: state that it sets there is seen by a
        cancel that follows at once. Raise RpcError for an error answer; other exceptions go through the Peer's
        `errors`. It is cancelled by `Peer.cancel_incoming` (answered -32800 unless it returns something all the same)
        and when the connection ends. `params` is empty (false) where there were none. `id` is for cancelling.
        """

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """A notification, in the order of arrival. What it returns, if anything, is awaited before the next message.

        So a slow one slows the sender, and the memory held is bounded by the pipe's. Never wait here for an answer
        from the same peer: it could not be read. What is raised is logged.
        """

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """Something came that is no message: for the log. The Peer has dealt with it. Must not raise."""


@runtime_checkable
class Swift(Protocol):
    """Offered by handlers that know what nearly every message is, and deal with many of them at once."""

    def take(self, messages: Sequence[bytes | Unreadable], start: int) -> int:
        """Handle messages, undecoded, from that of index `start` on; return the index of the first that is left.

        Only notifications, and only as long as none of them makes the next one wait. What is left goes the usual way,
        and what comes after that may be offered here again. Called between turns of the loop, too; must not raise.
        """


@dataclass
class Counts:
    """What was odd on one connection, for logs and metrics."""

    unreadable: int = 0
    """Messages that were none."""
    late: int = 0
    """Answers to requests that were given up."""
    unknown: int = 0
    """Answers to nothing that was ever asked."""
    refused: int = 0
    """Requests answered with an error because too many were under way."""
