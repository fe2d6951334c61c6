"""WebSocket servers in the test's own loop: uvicorn as the gateway runs it, the `websockets` library, bare TCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.server import ServerConnection, serve

from gateway.transport.websocket import HARD_LIMIT
from gateway.transport.websocket.uvicorn import MessageProtocol


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def uvicorn_serving(endpoint: Callable[[WebSocket], Awaitable[None]], **options: Any) -> AsyncIterator[str]:
    """The URL of a server with `endpoint` at /ws. Options as in `interlingua serve`, unless they are given."""

    async def call(websocket: WebSocket) -> None:
        await endpoint(websocket)

    app = Starlette(routes=[WebSocketRoute("/ws", call)])
    settings = {"ws": MessageProtocol, "ws_per_message_deflate": False, "ws_max_size": HARD_LIMIT, **options}
    server = _Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=30, **settings))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.wait_for(server.up.wait(), 30)
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}/ws"
        finally:
            server.should_exit = True
            await asyncio.wait([running], timeout=60)


@asynccontextmanager
async def library_serving(handler: Callable[[ServerConnection], Awaitable[None]], **options: Any) -> AsyncIterator[str]:
    """The URL of a server of the `websockets` library."""
    async with serve(handler, "127.0.0.1", 0, **{"max_size": None, "close_timeout": 10.0, **options}) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/ws"


@asynccontextmanager
async def tcp_serving(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """The URL of a server that speaks what `handler` writes."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2)
