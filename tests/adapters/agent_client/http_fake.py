"""A server of Streamable HTTP that behaves as a test wants: on bytes, without any of our code."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.support.raw_http import Exchange, serving

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Fake:
    """What was asked, and what is answered. `left`: streams that have been closed, by either end.

    cookie: the header that sets one with the first answer.
    initialize, post, get: called for each such request, and answer it; tests replace them.
    """

    def __init__(self) -> None:
        self.url = ""
        self.posts: list[dict[str, Any]] = []
        self.requests: list[Exchange] = []
        self.streams: dict[str | None, Exchange] = {}
        self.left: list[str | None] = []
        self.opened = asyncio.Event()
        self.cookie: dict[str, str] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self.handle: Callable[[Exchange], Awaitable[None]] = self._handle
        self.initialize: Callable[[Exchange], Awaitable[None]] = self._initialize
        self.post: Callable[[Exchange, dict[str, Any]], Awaitable[None]] = self.accept
        self.get: Callable[[Exchange, str | None], Awaitable[None]] = self.stream

    async def __call__(self, exchange: Exchange) -> None:
        await self.handle(exchange)

    async def _handle(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        if exchange.method == "POST":
            message = json.loads(exchange.body)
            if message.get("method") == "initialize":
                await self.initialize(exchange)
            else:
                self.posts.append(message)
                await self.post(exchange, message)
        elif exchange.method == "GET":
            await self.get(exchange, exchange.headers.get("acp-session-id"))
        else:
            await exchange.answer(status="202 Accepted")

    async def _initialize(self, exchange: Exchange) -> None:
        body = {"jsonrpc": "2.0", "id": json.loads(exchange.body)["id"], "result": {"protocolVersion": 1}}
        told = {"Content_Type": "application/json", "Acp_Connection_Id": "c1", **self.cookie}
        await exchange.answer(json.dumps(body).encode(), **told)

    async def accept(self, exchange: Exchange, message: dict[str, Any]) -> None:
        """Take a message. A request is answered with its params, on the stream of its session or the connection's."""
        await exchange.answer(status="202 Accepted")
        if "id" in message and "method" in message:
            self.tell(exchange.headers.get("acp-session-id"), {"id": message["id"], "result": message["params"]})

    async def stream(self, exchange: Exchange, session: str | None) -> None:
        """Open a stream, until either end closes it."""
        await exchange.say(HEAD)
        self.streams[session] = exchange
        self.opened.set()
        await exchange.gone()
        self.left.append(session)

    async def say(self, session: str | None, *messages: dict[str, Any]) -> None:
        """Send messages on an open stream, once it is."""
        while session not in self.streams:
            self.opened.clear()
            await self.opened.wait()
        frames = [f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n" for message in messages]
        await self.streams[session].say("".join(frames).encode())

    def tell(self, session: str | None, *messages: dict[str, Any]) -> None:
        """The same, without waiting, or caring who hears it: the connection of a POST is free once that is answered."""

        async def said() -> None:
            with contextlib.suppress(ConnectionError):
                await self.say(session, *messages)

        task = asyncio.create_task(said())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def drop(self, session: str | None) -> None:
        """Cut a stream."""
        self.streams.pop(session).writer.close()

    def of(self, method: str) -> list[Exchange]:
        """The requests with that HTTP method."""
        return [exchange for exchange in self.requests if exchange.method == method]


def update(session: str, text: str) -> dict[str, Any]:
    """A `session/update`."""
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": session, "update": said}}


@contextlib.asynccontextmanager
async def fake() -> AsyncIterator[Fake]:
    """One such server, while the block lasts."""
    state = Fake()
    async with serving(state) as server:
        state.url = f"{server.url}/agent"
        yield state
