"""An application on a free port, in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
