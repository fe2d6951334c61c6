"""The handler that an adapter gives a Peer, and the counts that it can read from one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw

from gateway.transport.pipe import Unreadable
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, Request

Canceller: TypeAlias = Callable[[Id], tuple[str, Any]]
"""Makes the notification (method, params) that cancels the request with this id."""


class Handler(Protocol):
    """Serves what the other end sends. One per Peer, called by it only."""

    def request(self, method: str, params: Raw, id: Id) -> Awaitable[Any]:
        """A request, in a task of its own; what it returns is the answer (any value msgspec encodes, or a Raw).

        It runs up to its first wait before the next message is handled, so a cancel that follows at once sees the state
        that it sets there. Raise RpcError for an error answer; other exceptions go through the Peer's `errors`.
        `Peer.cancel_incoming(id)` cancels it, answered with -32800 unless it returns a value all the same; so does the
        end of the connection. `params` is empty (false) if there were none.
        """

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """Handle a notification, in the order of arrival. An awaitable that it returns is awaited before the next
        message.

        A slow handler therefore slows the sender, and the pipe bounds the memory held. Never wait here for an answer
        from the same peer: it could not be read. An exception is logged.
        """

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """Log input that is not a message. The Peer has dealt with it already. Must not raise."""


@runtime_checkable
class Swift(Protocol):
    """Implemented by handlers that can handle many messages of a common kind at once, undecoded."""

    def take(self, messages: Sequence[bytes | Unreadable], start: int) -> int:
        """Handle messages, undecoded, from index `start` on. Returns the index of the first that it did not handle.

        Take only notifications, and stop at one that would make the next one wait. The message at the returned index
        goes to `request` or `notification`; later ones may be offered here again. Also called outside the reader's
        task. Must not raise.
        """


@runtime_checkable
class RequestWitness(Protocol):
    """Implemented by handlers that trace requests, and so want to know of those that the Peer answers itself."""

    def refused(self, request: Request, error: ErrorObject) -> None:
        """Too many are under way: this one is answered with `error` and not handled. Must not raise."""


class PeerCounts(NamedTuple):
    """Irregular messages of one connection, for logs and metrics."""

    unreadable: int
    """Input that was not a message."""
    late: int
    """Answers to requests that were given up."""
    unknown: int
    """Answers to requests that were never made."""
    refused: int
    """Requests answered with an error because too many were under way."""
