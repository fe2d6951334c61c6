"""The short way for the pieces of a streamed answer, on a real socket."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.transport.asgi.uvicorn import PieceProtocol, short_way
from tests.support.aio import run
from tests.support.scripted import until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PIECE = b"x" * 4096
START = {"type": "http.response.start", "status": 200, "headers": []}


class Served:
    """An application that puts pieces while it may, and sends one more when it may not."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.put = 0
        self.behind = asyncio.Event()
        self.before_the_start: bool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        short = short_way(scope)
        assert short is not None
        self.before_the_start = short.ready
        await send(START)
        while self.put < self.most and short.ready:
            short.put(PIECE)
            self.put += 1
        if not short.ready:
            self.behind.set()
            await send({"type": "http.response.body", "body": b"late", "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})


async def served(application: Served, *, slow: bool = False) -> bytes:
    """What a client gets. A slow one reads only when the server has noticed that it is."""
    config = uvicorn.Config(application, lifespan="off", log_config=None, http=PieceProtocol, ws="none")
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1024)
        writer.write(REQUEST)
        if slow:
            await asyncio.wait_for(application.behind.wait(), 30)
        await reader.readuntil(b"\r\n\r\n")
        got = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            got += (await reader.readexactly(size + 2))[:-2]
        writer.close()
        server.should_exit = True
        await asyncio.wait([running], timeout=30)
    return got


def test_pieces_that_are_put_arrive_in_order_between_start_and_end() -> None:
    async def scene() -> None:
        application = Served(most=3)
        assert await served(application) == PIECE * 3 + b"end"
        assert application.before_the_start is False

    run(scene())


def test_a_client_that_reads_slowly_is_behind_and_gets_the_rest_by_the_long_way() -> None:
    async def scene() -> None:
        application = Served(most=100_000)
        got = await served(application, slow=True)
        assert application.put < application.most
        assert got == PIECE * application.put + b"lateend"

    run(scene())
