"""An application on a free port, in the loop of the test; or a plain HTTP server in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import uvicorn

from tests.support.scripted import until


@asynccontextmanager
async def serving(app: Any, listener: socket.socket | None = None, **options: Any) -> AsyncIterator[str]:
    """The URL of uvicorn with it, on `listener` if there is one. Clients let go of idle connections before it does."""
    options = {"lifespan": "off", "log_level": "warning", "ws": "websockets-sansio", **options}
    server = uvicorn.Server(uvicorn.Config(app, port=0, timeout_keep_alive=3600, **options))
    task = asyncio.create_task(server.serve(sockets=[listener] if listener else None))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await task


class Quiet(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def in_a_thread(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server that answers with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(60)
