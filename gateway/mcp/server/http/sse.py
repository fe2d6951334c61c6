"""HTTP+SSE (2024-11-05): a GET that stays open for all that is said, and POSTs to an address that it names first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import parse_qs

from msgspec import UNSET

from gateway.access import Visit, bearer
from gateway.core.errors import AgentGone
from gateway.mcp.server.http.endpoint import McpEndpoint, accepts, no_message, refusal, same
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.pipe import PipeSession
from gateway.transport.asgi import HttpRequest, Reply
from gateway.transport.pipe import Inbox, Unreadable
from gateway.transport.streamable_http import EVENTS
from gateway.transport.streamable_http.server import EVENTS_HEADERS
from gateway.wire import jsonrpc, sse
from gateway.wire.jsonrpc import Malformed

log = logging.getLogger(__name__)

MESSAGES = "/messages"
NAMES = ("session_id", "sessionId")
"""How SDKs call the parameter that names the session."""
INBOX_BYTES = 4 * 1024 * 1024
END_SECONDS = 1.0


class EventPipe:
    """See `gateway.transport.pipe.Pipe`."""

    def __init__(self, id: str, exchange: HttpRequest, visit: Visit | None) -> None:
        self.id = id
        self.visit = visit
        self._exchange = exchange
        self._inbox = Inbox(INBOX_BYTES)
        self._turn = asyncio.Lock()
        self._spoke = True

    @property
    def name(self) -> str:
        return f"client {self.id[:8]} (HTTP+SSE)"

    async def open(self) -> None:
        """Begin the response: it says first where messages go."""
        await self._exchange.begin(200, EVENTS_HEADERS)
        address = self._exchange.link(f"{MESSAGES}?{NAMES[0]}={self.id}")
        await self._say(sse.encode(address.encode(), event="endpoint"))

    async def send(self, messages: Sequence[bytes]) -> None:
        frames = [sse.encode(sse.escape_separators(one), event="message", one_line=True) for one in messages]
        await self._say(b"".join(frames))

    async def _say(self, body: bytes) -> None:
        async with self._turn:
            if self._inbox.ended:
                raise AgentGone(f"{self.name} has gone")
            self._spoke = True
            await self._exchange.sent(body)

    async def keep_alive(self, seconds: float) -> None:
        """Break long silences, until cancelled or all is over."""
        with suppress(AgentGone):
            while True:
                self._spoke = False
                await asyncio.sleep(seconds)
                if not self._spoke:
                    await self._say(sse.KEEPALIVE)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        return await self._inbox.receive()

    async def deliver(self, data: bytes) -> None:
        """Hand over what was POSTed. Waits while earlier messages are not taken. Raises AgentGone."""
        await self._inbox.room()
        if self._inbox.ended:
            raise AgentGone("the session has ended")
        self._inbox.put([data])

    def hang_up(self) -> None:
        """Nothing more comes, and nothing goes out."""
        self._inbox.end()

    async def aclose(self) -> None:
        self.hang_up()


class SseEndpoint(McpEndpoint):
    """For the paths `/sse` and `/sse/{agent}`."""

    allowed = "GET"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.pipes: dict[str, EventPipe] = {}

    async def answer(self, exchange: HttpRequest, visit: Visit | None) -> Reply | None:
        """See `McpEndpoint`. One connection, from its beginning to its end, or that of its client's token."""
        accepts(exchange, EVENTS)
        token = bearer(exchange.scope["headers"])
        session = PipeSession(self.hub, exchange.agent, bearer=token, visit=visit).admitted()
        with self.hub.connected():
            await self._serve(exchange, EventPipe(self.hub.new_id(), exchange, visit), session)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await exchange.end()
        return None

    async def _serve(self, exchange: HttpRequest, pipe: EventPipe, session: PipeSession) -> None:
        self.pipes[pipe.id] = pipe
        if pipe.visit is not None:
            pipe.visit.enter(pipe.hang_up)
        stop_watching = exchange.watch(pipe.hang_up)
        beside = asyncio.create_task(pipe.keep_alive(self.options.keep_alive))
        try:
            with self.hub.stopping(pipe.hang_up), suppress(AgentGone):
                await pipe.open()
                await session.run(pipe)
        finally:
            del self.pipes[pipe.id]
            if pipe.visit is not None:
                pipe.visit.leave()
            pipe.hang_up()
            stop_watching()
            beside.cancel()
            await asyncio.wait([beside])


class SsePostEndpoint(McpEndpoint):
    """For the path `/messages`, where the clients of Events POST."""

    allowed = "POST"

    def __init__(self, hub: Hub, events: SseEndpoint) -> None:
        super().__init__(hub)
        self._events = events

    async def answer(self, exchange: HttpRequest, visit: Visit | None) -> Reply | None:
        query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
        names = [query[name][0] for name in NAMES if name in query]
        if not names:
            raise refusal(400, f"the parameter {NAMES[0]} is missing")
        pipe = self._events.pipes.get(names[0])
        if pipe is None or not same(pipe.visit, visit):
            raise refusal(404, "no such session; it may have ended")
        data = await self.body(exchange)
        message = jsonrpc.decode(data)
        if isinstance(message, Malformed) and message.id is UNSET:
            raise no_message(message)
        try:
            await pipe.deliver(data)
        except AgentGone as error:
            raise refusal(404, str(error)) from None
        return Reply(202, b"Accepted", kind=b"text/plain")
