"""A client at the other end of a Pipe: standard input and output, a WebSocket, HTTP+SSE."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any, Self

from msgspec import UNSET, Raw

from gateway.access import Visit
from gateway.core.errors import AgentGone, Refused, Unavailable
from gateway.mcp import versions, wire
from gateway.mcp.server.call import cancelled
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.modern import ModernSession, enveloped, notified
from gateway.mcp.server.session import HandshakeSession
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, Notification, Request, RpcError

log = logging.getLogger(__name__)

QUEUE_BYTES = 1024 * 1024
"""Unwritten bytes from which on who says much waits, and what belongs to no request is dropped."""


async def converse(hub: Hub, pipe: Pipe, agent: str | None, linger: float = 0.0) -> None:
    """Serve a client until it has gone, then close the pipe. Raises Unavailable.

    linger: seconds that requests under way get to finish once the client says nothing more; it may still read.
    """
    try:
        with hub.connected():
            await PipeSession(hub, agent).run(pipe, linger)
    finally:
        with contextlib.suppress(AgentGone):
            await pipe.aclose()


class PipeSession(HandshakeSession):
    """One connection; a Handler of its Peer.

    A request that says the revision of a modern client is served as that, whatever came before it.
    """

    def __init__(
        self,
        hub: Hub,
        agent: str | None,
        *,
        bearer: str | None = None,
        visit: Visit | None = None,
        counted: bool = False,
    ) -> None:
        super().__init__(hub, agent)
        self._counted = counted
        self.bearer = bearer
        self.visit = visit
        self._live: set[Id] = set()
        self._cancelled: set[Id] = set()

    def admitted(self) -> Self:
        """For where a client can be refused before it is connected. Raises NotFound: there is no such agent."""
        self.hub.service.identity(self)
        return self

    async def run(self, pipe: Pipe, linger: float = 0.0) -> None:
        """Serve the client at the other end until it has gone."""
        options = self.hub.options
        self._peer = Peer(pipe, self, concurrency=options.max_calls, queue_bytes=QUEUE_BYTES, linger=linger)
        self._out = PeerOut(self._peer, can_ask=True)
        try:
            await self._peer.run()
        finally:
            self.over = True
            self.hub.leave(self)

    @property
    def busy(self) -> bool:
        """Whether anything is under way, once it is run."""
        return self._peer.busy

    @property
    def alive(self) -> bool:
        return self._peer.gone is None

    @property
    def can_ask(self) -> bool:
        return self.initialized and self.alive

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        if self._peer.pending >= self.hub.options.max_calls or self._out.full:
            raise Unavailable("the client has too many questions to answer; try again later")
        return await self._out.ask(method, params, timeout)

    def tell(self, method: str, params: Any = None) -> None:
        """See `McpSession`. A client that does not read is not told."""
        if not self._out.full:
            self._out.put(jsonrpc.notification(method, params))

    # --- gateway.transport.rpc.Handler -----------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: Id) -> Any:
        request = Request(id, method, params)
        if id is None:
            raise self.untaken(request, Refused("the id is null"))
        if id in self._live:
            raise self.untaken(request, Refused(f"request {id!r} is under way already"))
        try:
            if self._counted:
                self.hub.admit(self)
        except Unavailable as error:
            raise self.untaken(request, error) from None
        self._live.add(id)
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            if id not in self._cancelled:
                raise
            raise cancelled() from None
        finally:
            self._live.discard(id)
            self._cancelled.discard(id)

    def refused(self, request: Request, error: ErrorObject) -> None:
        with (
            contextlib.suppress(RpcError),
            self.hub.requests(request.method, request.params, request.id, session=self.id),
        ):
            raise RpcError(error.code, error.message)

    async def _answer(self, request: Request) -> Any:
        meta = wire.meta_of(request.params)
        if request.method != wire.INITIALIZE and enveloped(meta):
            return await ModernSession(self.hub, self.agent, meta, self).serve(
                PeerOut(self._peer, can_ask=False), request, meta
            )
        result = await self.serve(self.call(self._out, request, meta, self.bearer))
        if request.method == wire.INITIALIZE:
            self._peer.take_batches(versions.has_batches(self.client.version))
        return result

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == wire.CANCELLED:
            id = wire.cancelled_in(params)
            if id in self._live:
                self._cancelled.add(id)
                self._peer.cancel_incoming(id)
        elif self.initialized:
            self.heard(method, params)
        else:
            notified(self.hub, self.agent, Notification(method, params), wire.meta_of(params), self)
        return None

    def unreadable(self, what: Unreadable | Malformed) -> None:
        log.info("%s sends what is no message: %s", self._peer.pipe.name, what.reason)
        if isinstance(what, Unreadable) and not self._out.full:
            seen = jsonrpc.glimpse(what.start, what.end)
            if seen.id is UNSET or not (seen.method or seen.answer):
                # Nobody can be told that it was his: a binary message of a WebSocket, an id in the middle.
                self._out.put(jsonrpc.error(None, ErrorObject(jsonrpc.INVALID_REQUEST, what.reason)))


class PeerOut:
    """The `Out` of calls over a Peer. can_ask: whether the client is asked anything."""

    def __init__(self, peer: Peer, *, can_ask: bool) -> None:
        self._peer = peer
        self.can_ask = can_ask

    @property
    def full(self) -> bool:
        return self._peer.queued >= QUEUE_BYTES

    def put(self, message: bytes) -> None:
        with contextlib.suppress(AgentGone):
            self._peer.send(message)

    async def drain(self) -> None:
        with contextlib.suppress(AgentGone):
            await self._peer.drain()

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        return await self._peer.request(method, params, timeout=timeout, cancel=given_up)


def given_up(id: Id) -> tuple[str, Any]:
    return wire.CANCELLED, {"requestId": id, "reason": "no longer needed"}
