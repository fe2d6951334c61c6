"""2026-07-28 over HTTP: a POST, its answer, and nothing beside it. Who goes away has cancelled the request.

A plain JSON-RPC request, without handshake and without MCP's headers, is served the same way (see `serve`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import Struct

from gateway.access import EXPIRED, Visit, bearer
from gateway.core.errors import Invalid
from gateway.core.types import JsonObject
from gateway.mcp import wire
from gateway.mcp.server.call import Nowhere, read
from gateway.mcp.server.http.endpoint import answer, no_message
from gateway.mcp.server.http.streams import PostAnswer, ResponseOut
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.modern import PLAIN, ModernSession, check, notified
from gateway.transport.asgi import HttpRequest, Reply, WhileConnected
from gateway.transport.asgi.request import twice
from gateway.transport.streamable_http import EVENTS
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Malformed, Notification, Request, RpcError

log = logging.getLogger(__name__)

END_SECONDS = 5.0
"""For a call to end after it was cancelled."""
HEADERS = (wire.VERSION_HEADER, wire.METHOD_HEADER, wire.NAME_HEADER)


class _Named(Struct, gc=False):
    name: Any = None
    uri: Any = None


async def serve(
    hub: Hub, exchange: HttpRequest, message: jsonrpc.Message, visit: Visit | None = None, *, plain: bool = False
) -> Reply | None:
    """Answer a POST whose header names such a revision. `visit`: see `McpSession`. Raises ClientGone, Unavailable.

    plain: the request names no revision and no session. It is a session of its own all the same, of a client that
    cannot be asked; the answer is a JSON body, and a stream only where `Accept` names that.
    """
    if isinstance(message, Notification):
        said = wire.meta_of(message.params)
        notified(hub, exchange.agent, message, {**said, **PLAIN} if plain else said, _Post(exchange, visit))
        return Reply(202)
    if isinstance(message, Malformed):
        return no_message(message)
    if not isinstance(message, Request) or message.id is None:
        return answer(400, None, ErrorObject(jsonrpc.INVALID_REQUEST, "one request with an id is wanted"))
    meta = wire.meta_of(message.params)
    streams = not plain or EVENTS in (exchange.header("accept") or "")
    try:
        if plain:
            meta = {**meta, **PLAIN}
        else:
            _agree(exchange, message, meta)
        post = _Exchange(hub, exchange, visit, message, streams=streams)
        session = ModernSession(hub, exchange.agent, meta, post, plain=plain)
    except RpcError as error:
        return answer(wire.STATUS.get(error.error.code, 200), message.id, error.error)
    hub.connect()
    try:
        return await post.run(session, meta)
    finally:
        hub.disconnect()


def _agree(exchange: HttpRequest, request: Request, meta: JsonObject) -> None:
    """The headers repeat what the body says, for who routes by them. Raises RpcError."""
    check(meta)
    said = exchange.header(wire.VERSION_HEADER)
    for name in HEADERS:
        if twice(exchange.scope, name.lower().encode()):
            raise RpcError(wire.HEADER_MISMATCH, f"the header {name} was sent more than once")
    if said != meta[wire.META_VERSION]:
        raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.VERSION_HEADER} and params._meta do not agree")
    if exchange.header(wire.METHOD_HEADER) != request.method:
        raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.METHOD_HEADER} is not {request.method}")
    if (member := wire.NAMED.get(request.method)) is not None:
        try:
            named = getattr(read(request.params, _Named), member)
        except Invalid as wrong:
            raise RpcError(jsonrpc.INVALID_PARAMS, str(wrong)) from None
        if named is not None and wire.header_said(exchange.header(wire.NAME_HEADER)) != named:
            raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.NAME_HEADER} is not the {member} of the params")


class _Post:
    """See `Carrier`."""

    def __init__(self, exchange: HttpRequest, visit: Visit | None) -> None:
        self.alive = True
        self.visit = visit
        self.bearer = bearer(exchange.scope["headers"])


class _Exchange(_Post):
    """One request, until it is answered. Not alive once it is not its client that ends it.

    streams: whether the client takes a stream as well as a JSON body.
    """

    def __init__(
        self, hub: Hub, exchange: HttpRequest, visit: Visit | None, request: Request, *, streams: bool
    ) -> None:
        super().__init__(exchange, visit)
        self._hub = hub
        self._exchange = exchange
        self._request = request
        self._answer = PostAnswer("", 0)
        self._streams = streams
        self._status = 200
        self._why = "the gateway is stopping"

    async def run(self, session: ModernSession, meta: JsonObject) -> Reply | None:
        """As JSON where nothing is said before the answer, and it does not take long; else as a stream."""
        keep_alive = self._hub.options.keep_alive
        visit = self.visit if self._request.method == wire.LISTEN else None  # other calls see to its end themselves
        call = asyncio.create_task(self._call(session, meta), name=self._request.method)
        if visit is not None:
            visit.enter(lambda: self._expire(call))
        try:
            with self._hub.stopping(lambda: self._stop(call)):
                with WhileConnected(self._exchange):
                    silent = await self._answer.silent(keep_alive if self._streams else None)
                if silent:
                    return Reply(self._status, self._answer.messages[0])
                await self._answer.stream.write(self._exchange, keep_alive)
                return None
        finally:
            if visit is not None:
                visit.leave()
            if not call.done():
                call.cancel()
                await asyncio.wait([call], timeout=END_SECONDS)

    def _stop(self, call: asyncio.Task[None]) -> None:
        """The gateway stops: who listens ends in good order, any other call is cut off."""
        self.alive = False
        if self._request.method != wire.LISTEN:
            call.cancel()

    def _expire(self, call: asyncio.Task[None]) -> None:
        self._why = EXPIRED
        call.cancel()

    async def _call(self, session: ModernSession, meta: JsonObject) -> None:
        id = self._request.id
        out = ResponseOut(self._answer) if self._streams else Nowhere()
        try:
            result = await session.serve(out, self._request, meta)
            self._answer.reply(jsonrpc.result(id, result))
        except RpcError as error:
            self._status = wire.STATUS.get(error.error.code, 200)
            self._answer.reply(jsonrpc.error(id, error.error))
        except asyncio.CancelledError:
            self._answer.reply(jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, self._why)))
            raise
        except Exception:
            log.exception("the answer of %s cannot be said", self._request.method)
            self._answer.reply(jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, "internal error")))
