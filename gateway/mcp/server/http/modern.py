"""2026-07-28 over HTTP: a POST, its answer, and nothing beside it. Who goes away has cancelled the request."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import UNSET, Raw, Struct

from gateway.core.errors import Unsupported
from gateway.core.types import JsonObject
from gateway.mcp import wire
from gateway.mcp.server.call import read
from gateway.mcp.server.http.endpoint import answer
from gateway.mcp.server.http.stream import Answering
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.modern import ModernSession, check
from gateway.transport.asgi import ClientGone, Exchange, Reply
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Malformed, Notification, Request, RpcError

log = logging.getLogger(__name__)

END_SECONDS = 5.0
"""For a call to end after it was cancelled."""
HEADERS = (wire.VERSION_HEADER, wire.METHOD_HEADER, wire.NAME_HEADER)


class _Named(Struct, gc=False):
    name: Any = None
    uri: Any = None


async def serve(hub: Hub, exchange: Exchange, message: jsonrpc.Message) -> Reply | None:
    """Answer a POST whose header names such a revision. Raises ClientGone, Unavailable."""
    if isinstance(message, Notification):
        return Reply(202)  # there are none that mean anything: cancelling is leaving
    if isinstance(message, Malformed):
        return answer(400, None if message.id is UNSET else message.id, ErrorObject(message.code, message.reason))
    if not isinstance(message, Request) or message.id is None:
        return answer(400, None, ErrorObject(jsonrpc.INVALID_REQUEST, "one request with an id is wanted"))
    meta = wire.meta_of(message.params)
    try:
        _agree(exchange, message, meta)
        session = ModernSession(hub, exchange.agent, meta)
    except RpcError as error:
        return answer(wire.STATUS.get(error.error.code, 200), message.id, error.error)
    with hub.seated():
        return await _Exchange(hub, exchange, session, message, meta).run()


def _agree(exchange: Exchange, request: Request, meta: JsonObject) -> None:
    """The headers repeat what the body says, for who routes by them. Raises RpcError."""
    check(meta)
    said = exchange.header(wire.VERSION_HEADER)
    twice = [name for name in HEADERS if exchange.twice(name)]
    if twice:
        raise RpcError(wire.HEADER_MISMATCH, f"the header {twice[0]} was sent more than once")
    if said != meta[wire.META_VERSION]:
        raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.VERSION_HEADER} and params._meta do not agree")
    if exchange.header(wire.METHOD_HEADER) != request.method:
        raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.METHOD_HEADER} is not {request.method}")
    if (member := wire.NAMED.get(request.method)) is not None:
        named = getattr(read(request.params, _Named), member)
        if named is not None and wire.header_said(exchange.header(wire.NAME_HEADER)) != named:
            raise RpcError(wire.HEADER_MISMATCH, f"the header {wire.NAME_HEADER} is not the {member} of the params")


class _Exchange:
    """One request, and an Out for it: onto the response."""

    can_ask = False

    def __init__(
        self, hub: Hub, exchange: Exchange, session: ModernSession, request: Request, meta: JsonObject
    ) -> None:
        self._hub = hub
        self._exchange = exchange
        self._session = session
        self._request = request
        self._meta = meta
        self._stream = Answering("", 0)
        self._status = 200

    async def run(self) -> Reply | None:
        """As JSON where nothing is said before the answer, and it does not take long; else as a stream."""
        keep_alive = self._hub.options.keep_alive
        call = asyncio.create_task(self._call(), name=self._request.method)
        gone = asyncio.create_task(self._exchange.gone())
        silent = asyncio.create_task(self._stream.silent(keep_alive))
        try:
            with self._hub.told(lambda: self._stop(call)):
                await asyncio.wait([gone, silent], return_when=asyncio.FIRST_COMPLETED)
                if not silent.done():
                    raise ClientGone
                if silent.result():
                    return Reply(self._status, self._stream.answers[0])
                gone.cancel()
                await self._stream.write(self._exchange, keep_alive)
                return None
        finally:
            for task in (call, gone, silent):
                task.cancel()
            await asyncio.wait([call, gone, silent], timeout=END_SECONDS)

    def _stop(self, call: asyncio.Task[None]) -> None:
        """The gateway stops: who listens ends in good order, any other call is cut off."""
        if self._request.method != wire.LISTEN:
            call.cancel()

    async def _call(self) -> None:
        id = self._request.id
        try:
            self._stream.reply(jsonrpc.result(id, await self._session.serve(self, self._request, self._meta)))
        except RpcError as error:
            self._status = wire.STATUS.get(error.error.code, 200)
            self._stream.reply(jsonrpc.error(id, error.error))
        except asyncio.CancelledError:
            self._stream.reply(jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, "the gateway is stopping")))
            raise
        except Exception:
            log.exception("the answer of %s cannot be said", self._request.method)
            self._stream.reply(jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, "internal error")))

    @property
    def full(self) -> bool:
        """See `Out`."""
        return self._stream.full

    def put(self, message: bytes) -> None:
        """See `Out`."""
        self._stream.put(message)

    async def drain(self) -> None:
        """See `Out`."""
        await self._stream.drain()

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        """See `Out`."""
        raise Unsupported(f"{method} cannot be asked over this connection")
