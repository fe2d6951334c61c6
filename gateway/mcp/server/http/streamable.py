"""Streamable HTTP: POST, GET and DELETE of one endpoint, for clients that shake hands (2025-03-26 and later).

A request that names 2026-07-28, or neither a session nor a revision, is served by modern.py.
"""

from __future__ import annotations

import contextlib
import logging

from gateway.access import Visit, bearer
from gateway.core.errors import NotFound
from gateway.mcp import versions, wire
from gateway.mcp.server.call import Nowhere
from gateway.mcp.server.http import modern
from gateway.mcp.server.http.endpoint import McpEndpoint, accepts, answer, json, no_message, not_served, refusal, same
from gateway.mcp.server.http.session import Message, StreamableSession, StreamableSessions
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.modern import unsupported
from gateway.transport.asgi import HttpRequest, Reply
from gateway.transport.streamable_http import EVENTS, JSON
from gateway.transport.streamable_http.server import MessageStream
from gateway.wire import jsonrpc, sse
from gateway.wire.jsonrpc import ErrorObject, Malformed, MessageBatch, Request, RpcError

log = logging.getLogger(__name__)

_ENVELOPED = wire.META_VERSION.encode()
SESSION = wire.SESSION_HEADER.lower().encode()


class StreamableEndpoint(McpEndpoint):
    """For the paths `/mcp` and `/mcp/{agent}`."""

    allowed = "POST, GET, DELETE"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._sessions = StreamableSessions(hub)

    async def aclose(self) -> None:
        """Wait until nothing is left of the sessions that have ended."""
        await self._sessions.aclose()

    async def answer(self, exchange: HttpRequest, visit: Visit | None) -> Reply | None:
        version = exchange.header(wire.VERSION_HEADER)
        if version in versions.MODERN and exchange.method != "POST":
            raise not_served(exchange, "POST")
        if exchange.method == "POST":
            return await self._post(exchange, version, visit)
        self._known(version)
        session = self._session(exchange, visit)
        if exchange.method == "DELETE":
            session.end()
            return Reply(200)
        accepts(exchange, EVENTS)
        with self._sessions.used(session):
            await self._get(exchange, session)
        return None

    # --- POST ------------------------------------------------------------------------------------------------------

    async def _post(self, exchange: HttpRequest, version: str | None, visit: Visit | None) -> Reply | None:
        plain = version is None and exchange.header(wire.SESSION_HEADER) is None
        accepts(exchange, JSON, *(() if plain else (EVENTS,)))
        data = await self.body(exchange)
        message = jsonrpc.decode(data)
        if version in versions.MODERN:
            return await modern.serve(self.hub, exchange, message, visit)
        self._known(version, message, data)
        if isinstance(message, Malformed) and not message.answer:
            raise no_message(message)
        if isinstance(message, Request) and message.method == wire.INITIALIZE:
            return await self._initialize(exchange, message, visit)
        if plain:
            return await modern.serve(self.hub, exchange, message, visit, plain=True)
        session = self._session(exchange, visit, message)
        session.authorize(bearer(exchange.scope["headers"]))
        with self._sessions.used(session):
            answer = session.take(_taken(message, session))
            if answer is None:
                return Reply(202)
            if await answer.silent(self.options.keep_alive):  # nothing is said before the answers
                return json(answer.messages if isinstance(message, MessageBatch) else answer.messages[0])
            await self._stream(exchange, session, answer.stream)
            return None

    async def _initialize(self, exchange: HttpRequest, request: Request, visit: Visit | None) -> Reply:
        """The first request of a session, or once more."""
        accepts(exchange, JSON, EVENTS)
        if request.id is None:
            raise refusal(400, "the id is null")
        again = exchange.header(wire.SESSION_HEADER) is not None
        shown = bearer(exchange.scope["headers"])
        session = (
            self._session(exchange, visit, request) if again else self._sessions.open(exchange.agent, visit, shown)
        )
        session.authorize(shown)
        call = session.call(Nowhere(), request, wire.meta_of(request.params), session.bearer)
        try:
            result = await session.serve(call)
        except RpcError as error:
            if not again:
                session.end()
            status = 404 if isinstance(error.__cause__, NotFound) else 200
            return answer(status, request.id, error.error)
        return Reply(200, jsonrpc.result(request.id, result), [(SESSION, session.id.encode())])

    async def _stream(self, exchange: HttpRequest, session: StreamableSession, stream: MessageStream) -> None:
        """What is said before the answers to a POST, and the answers."""
        session.carry(stream)
        first = _primer(session, stream)
        longest = self.options.max_stream if first else None  # others may have no event yet to go on behind
        await stream.write(exchange, self.options.keep_alive, first=first, longest=longest)
        session.keep(stream)

    # --- GET -------------------------------------------------------------------------------------------------------

    async def _get(self, exchange: HttpRequest, session: StreamableSession) -> None:
        """The standalone stream, or the rest of a stream that broke off."""
        event = exchange.header(wire.RESUME_HEADER)
        found = (session.standalone.stream, None) if event is None else session.find(event)
        if found is None:
            raise refusal(400, f"no stream has the event {event} (any more)")
        stream, number = found
        await stream.vacate()
        if number is not None and not stream.rewind(number):
            raise refusal(400, f"there was no event {event}")
        first = b"" if number is not None else _primer(session, stream)
        with session.standalone.reading() if stream is session.standalone.stream else contextlib.nullcontext():
            await stream.write(exchange, self.options.keep_alive, first=first, longest=self.options.max_stream)
        session.keep(stream)

    # --- what is refused -------------------------------------------------------------------------------------------

    def _session(
        self, exchange: HttpRequest, visit: Visit | None, message: jsonrpc.Message | None = None
    ) -> StreamableSession:
        """Return the session of a request; a session of another client is none. Raises a Reply."""
        name = exchange.header(wire.SESSION_HEADER)
        id = message.id if isinstance(message, Request) else None
        if name is None:
            why = f"the header {wire.SESSION_HEADER} is missing"
            raise answer(400, id, ErrorObject(jsonrpc.INVALID_REQUEST, why))
        session = self._sessions.get(name)
        if session is None or session.agent != exchange.agent or not same(session.visit, visit):
            raise answer(404, id, ErrorObject(jsonrpc.INVALID_REQUEST, "no such session; it may have ended"))
        return session

    def _known(self, version: str | None, message: jsonrpc.Message | None = None, data: bytes = b"") -> None:
        """Raises a Reply for a revision that there is not, and for one that only the message names."""
        id = message.id if isinstance(message, Request) else None
        if isinstance(message, Request) and message.method != wire.INITIALIZE and _ENVELOPED in data:
            named = wire.meta_of(message.params).get(wire.META_VERSION, version)
            if named != version:
                why = f"the header {wire.VERSION_HEADER} does not name the revision that the message does"
                raise answer(400, id, ErrorObject(wire.HEADER_MISMATCH, why))
        if version is not None and version not in (*versions.HANDSHAKE, *self.hub.dialects):
            raise answer(400, id, unsupported(version, self.hub).error)


def _primer(session: StreamableSession, stream: MessageStream) -> bytes:
    """The beginning of a stream: an event without a message, whose id a client that loses the stream can resume at."""
    if session.client.version < versions.V2025_11_25:
        return b""
    return sse.encode(b"", id=f"{stream.name}-{stream.next - 1}")


def _taken(message: jsonrpc.Message, session: StreamableSession) -> list[Message]:
    """The messages of a POST. Raises a Reply for several that may not come at once."""
    if not isinstance(message, MessageBatch):
        return [message]
    if not versions.has_batches(session.client.version):
        raise refusal(400, f"several messages in an array are not taken in {session.client.version}")
    if any(isinstance(one, Request) and one.method == wire.INITIALIZE for one in message.messages):
        raise refusal(400, f"{wire.INITIALIZE} must come alone")
    return list(message.messages)
