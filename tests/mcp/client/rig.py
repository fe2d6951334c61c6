"""A listener that writes down what it hears, a server on a pipe that the test plays, and one over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from gateway.mcp.client import ClientSession, McpPool
from gateway.mcp.client.calls import Keyed, OutgoingCalls
from gateway.mcp.client.piped import PipedChannel
from gateway.mcp.client.pool import Connector
from gateway.mcp.options import McpTarget
from gateway.wire import jsonrpc
from tests.support.pipes import MemoryPipe, pair
from tests.support.raw_http import Exchange, Server, serving
from tests.support.rpc import hear, say, settled

INFO = {"name": "tests", "version": "1"}
CAPABILITIES: dict[str, Any] = {"elicitation": {}}
YES = {"action": "accept", "content": {"sure": True}}
PROGRESS = "notifications/progress"


class Listens:
    """`heard`: (method, params) in order; `asked`: what was asked, answered with `answer` or by `how`."""

    def __init__(self, how: Callable[[str, Any], Awaitable[Any]] | None = None) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.asked_for: list[tuple[str, Any]] = []
        self.how = how
        self.hold: asyncio.Event | None = None
        """Set: what is heard is waited for until it is."""

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        self.heard.append((method, jsonrpc.unpack(params) if params else None))
        return None if self.hold is None else self._held(self.hold)

    def again(self) -> None:
        self.heard.append(("again", {}))

    async def _held(self, until: asyncio.Event) -> None:
        await until.wait()

    async def asked(self, method: str, params: Raw) -> Any:
        self.asked_for.append((method, jsonrpc.unpack(params) if params else None))
        return YES if self.how is None else await self.how(method, self.asked_for[-1][1])

    @property
    def said(self) -> list[Any]:
        """The messages of all progress."""
        return [params.get("message") for _, params in self.heard]


def text(result: Raw) -> Any:
    """The first text of a tool's result."""
    return jsonrpc.unpack(result)["content"][0]["text"]


def target(**options: Any) -> McpTarget:
    return McpTarget(protocol="tests", **options)


@asynccontextmanager
async def pool(**options: Any) -> AsyncIterator[McpPool]:
    """A pool on a target of these options, closed at the end, of which no task is left then."""
    before = asyncio.all_tasks()
    made = McpPool(Connector(target(**options), capabilities=CAPABILITIES, info=INFO, name="the server"))
    try:
        yield made
    finally:
        await made.aclose()
        await settled()
        left = {task for task in asyncio.all_tasks() - before if "serve" not in repr(task)}
        assert not left, left


# --- over a pipe in memory --------------------------------------------------------------------------------------------


class Played:
    """A session, and the other end of its pipe for the test to play."""

    def __init__(self, session: ClientSession, there: MemoryPipe, news: list[str], unclaimed: list[str]) -> None:
        self.session = session
        self.unclaimed = unclaimed
        self.there = there
        self.news = news

    async def hear(self, count: int = 1) -> list[Any]:
        return await hear(self.there, count)

    async def say(self, *messages: Any) -> None:
        await say(self.there, *messages)

    def begin(self, listener: Listens | None = None, method: str = "tools/call", **more: Any) -> asyncio.Task[Raw]:
        return asyncio.create_task(self.session.call(method, {"name": "x"}, listener=listener, **more))

    async def began(self, listener: Listens | None = None, **more: Any) -> tuple[asyncio.Task[Raw], Any, Any]:
        """A call under way, its id and its token."""
        task = self.begin(listener, **more)
        (request,) = await self.hear()
        return task, request["id"], request["params"].get("_meta", {}).get("progressToken")


@asynccontextmanager
async def played(
    answer: dict[str, Any] | None = None,
    *,
    limit: int = 1024 * 1024,
    keyed: Keyed | None = None,
    dialects: dict[str, str] | None = None,
) -> AsyncIterator[Played]:
    """Initialized; `answer` is the server's result, 2025-11-25 unless it says otherwise. No task is left behind."""
    before = asyncio.all_tasks()
    here, there = pair(limit)
    news: list[str] = []
    calls = OutgoingCalls("the server", lambda method, params: news.append(method), keyed)
    unclaimed: list[str] = []
    if keyed is not None:
        calls.on_unclaimed(lambda method, params: unclaimed.append(method))
    session = ClientSession(PipedChannel(here, calls), calls, CAPABILITIES, INFO, dialects)
    starting = asyncio.create_task(session.start())
    (hello,) = await hear(there, 1)
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "0"}}
    await say(there, result(hello["id"], {**said, **(answer or {})}))
    await starting
    assert (await hear(there, 1))[0]["method"] == "notifications/initialized"
    try:
        yield Played(session, there, news, unclaimed)
    finally:
        await session.aclose()
        await settled()
        assert not asyncio.all_tasks() - before


def result(id: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


# --- over HTTP --------------------------------------------------------------------------------------------------------

Answerer = Callable[[Exchange, Any], Awaitable[None]]


class HttpServer:
    """A Streamable HTTP server. `on[METHOD]` answers a message of that method, or an HTTP method where it is no POST.

    It knows `initialize` (with `session` as the session's id, unless that is empty), takes every notification and
    answer (202), and refuses GET (405).
    """

    def __init__(self, on: Mapping[str, Answerer], session: str) -> None:
        self.on = on
        self.session = session
        self.messages: list[Any] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.changed = asyncio.Condition()
        self.server: Server

    @property
    def url(self) -> str:
        return f"{self.server.url}/mcp"

    async def handle(self, exchange: Exchange) -> None:
        message = json.loads(exchange.body) if exchange.method == "POST" else None
        async with self.changed:
            self.requests.append((exchange.method, exchange.headers))
            if message is not None:
                self.messages.append(message)
            self.changed.notify_all()
        answerer = self.on.get(exchange.method if message is None else message.get("method", "answer"))
        if answerer is not None:
            await answerer(exchange, message)
        elif message is None:
            await exchange.answer(status="405 Method Not Allowed" if exchange.method == "GET" else "200 OK")
        elif message.get("method") == "initialize":
            await self.initialized(exchange, message)
        else:
            await exchange.answer(status="202 Accepted")

    async def initialized(self, exchange: Exchange, message: Any) -> None:
        said = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO}
        headers = {"Mcp_Session_Id": self.session} if self.session else {}
        await answer(exchange, result(message["id"], said), **headers)

    async def until(self, done: Callable[[], Any]) -> None:
        """Wait until it has got what is waited for."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(done)

    def got(self, method: str) -> list[Any]:
        """The messages of that method, "answer" for answers."""
        return [message for message in self.messages if message.get("method", "answer") == method]


@asynccontextmanager
async def http(on: Mapping[str, Answerer] | None = None, *, session: str = "s1") -> AsyncIterator[HttpServer]:
    made = HttpServer(on or {}, session)
    async with serving(made.handle) as made.server:
        yield made


@asynccontextmanager
async def one(
    on: Mapping[str, Answerer], *, session: str = "s1", **options: Any
) -> AsyncIterator[tuple[HttpServer, McpPool, ClientSession]]:
    """A server, a pool for it and a session that is leased from that."""
    async with http(on, session=session) as server, pool(url=server.url, **options) as made, made.lease() as leased:
        yield server, made, leased


async def answer(exchange: Exchange, message: Any, status: str = "200 OK", **headers: str) -> None:
    """One JSON document as the whole answer."""
    await exchange.answer(json.dumps(message).encode(), status, Content_Type="application/json", **headers)


async def stream(exchange: Exchange, *messages: Any, ids: bool = False, first: int = 1, end: bool = True) -> None:
    """A stream of events, one a message; `ids` from `first` on."""
    await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    await events(exchange, *messages, ids=ids, first=first)
    if end:
        exchange.writer.close()


async def events(exchange: Exchange, *messages: Any, ids: bool = False, first: int = 1) -> None:
    """More events of a stream."""
    for number, message in enumerate(messages, first):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        await exchange.say((f"id: e{number}\n".encode() if ids else b"") + b"data: " + data + b"\n\n")
