"""The contract between what calls MCP servers and the adapters that do.

adapter -> UpstreamPool.lease() -> UpstreamSession.call(method, params, CallListener) -> transport -> server
adapter <- CallListener.notification / CallListener.asked <- transport <- server
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

import msgspec

from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import Id


class CallListener(Protocol):
    """Receives what happens on the way to one answer. Brought by the caller."""

    def notification(self, method: str, params: msgspec.Raw) -> Awaitable[None] | None:
        """A notification about the call: with its progress token or key, or on its HTTP stream, or a log message while
        it is the session's only one; in order, and all of them before the answer.

        What is returned is awaited before more is read, so a slow one slows the server; it is cancelled when the call
        ends first. Never wait here for an answer from the same server.
        """

    def again(self) -> None:
        """The call is sent again, with what was asked for (2026-07-28): all that was told may be told again."""

    async def asked(self, method: str, params: msgspec.Raw) -> Any:
        """A request of the server's that belongs to the call (elicitation/create, sampling/createMessage, roots/list).

        Returns the result; raise RpcError for an error answer. Cancelled when the server takes it back, or the call
        ends.
        """


class Hearing(Protocol):
    """A listener at work, for as long as the block of `UpstreamSession.hearing` lasts."""

    @property
    def token(self) -> str:
        """The progress token that goes along with each request."""

    @property
    def id(self) -> Id:
        """Id of the newest request, for `notifications/cancelled` of one that is answered; None before the first."""


Keyed = Callable[[str, msgspec.Raw], str | None]
"""(method, params) of a server's message -> the key that it is marked with, None if with none.

See `UpstreamSession.hearing`. Asked of everything that has no progress token, so cheap. Must not raise."""


class UpstreamSession(Protocol):
    """One initialized connection to a server."""

    @property
    def version(self) -> str:
        """The revision that is spoken."""

    @property
    def server(self) -> JsonObject:
        """The server's description of itself: the result of `initialize` (or of `server/discover`), whole."""

    @property
    def alive(self) -> bool:
        """False once nothing more can come of it."""

    @property
    def lasting(self) -> bool:
        """Whether the server may say something outside of its answers. Not in a revision without sessions, nor over
        Streamable HTTP where it has no standalone stream.
        """

    @property
    def closed(self) -> asyncio.Future[Any]:
        """Done when it has ended."""

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        listener: CallListener | Hearing | None = None,
        timeout: float | None = None,
    ) -> msgspec.Raw:
        """Send a request, see it through, return its result.

        With a listener a progress token goes along in `params._meta` (a non-empty string, unique in the session;
        `params` itself is not changed). In 2026-07-28 an `input_required` result is worked off through
        `listener.asked`, and the call sent again, until it is complete. Cancelling the wait, or `timeout` seconds,
        tells the server that nobody waits any more.

        Raises RpcError with the server's own error, AgentTimeout, AgentBroken for what cannot be read, AgentGone when
        the connection ends first; over HTTP also AgentFailed and Denied for a status that says no more. Asked about
        input where nobody listens, AgentFailed.
        """

    def hearing(self, listener: CallListener, key: str | None = None) -> AbstractContextManager[Hearing]:
        """Listen for longer than one call: give what this yields to `call` as its listener, for one or several.

        Until the end of the block, also after the answer, the listener gets what belongs to it: by the progress token,
        or by `key` where the pool knows how keys are marked (`Keyed`). Raises ValueError for a key in use.
        """

    async def tell(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raises AgentGone, and what the transport has for one that is not taken."""

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        """All pages of a list (`agents/list`, "agents"). Bounded: AgentBroken for a cursor that comes back, too many
        pages or items; AgentBroken for items that are no objects.
        """


class UpstreamPool(Protocol):
    """The connections to one server: made when needed, kept warm, made again after a failure."""

    def lease(self, *, alone: bool = True) -> AbstractAsyncContextManager[UpstreamSession]:
        """A session for one call, or some.

        A request from the server names no call, except on Streamable HTTP. With `alone` the session is therefore not
        shared meanwhile, while the pool's `most` sessions suffice. Beyond that, and over stdio where a session is a
        process, the least used session is shared. Requests that then fit more than one call are refused and counted.
        A server's request about a call that was just given up is not put to the next call.

        Raises AgentGone, AgentTimeout, AgentBroken, Denied; AgentFailed where the server refuses to shake hands, or
        speaks none of our revisions; Unavailable once the pool is closed.
        """

    @property
    def reachable(self) -> bool | None:
        """See `gateway.contract.Supervised`."""

    def on_notification(self, heard: Callable[[str, msgspec.Raw], None]) -> None:
        """Pass `heard` the notifications that belong to no call (list_changed), from any session."""

    async def aclose(self) -> None:
        """End every session and process. Leases that are still out fail."""
