"""How long the server waits for the rest of a request, on a real socket. Time is told by the tests: `look` is called
as the timer would call it, which itself is set to times that no test lasts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.transport.asgi import uvicorn as ours
from gateway.transport.asgi.uvicorn import PieceProtocol
from tests.support.aio import run
from tests.support.scripted import until

LOOK, HEAD, SILENT = 1000.0, 6000.0, 12000.0
HEAD_LOOKS, BODY_LOOKS, MANY = 7, 13, 50
"""The look that finds so much time gone, counted from the first; and more than any of them."""

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
OK: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK", LOOK), ("HEAD", HEAD), ("SILENT", SILENT)):
        monkeypatch.setattr(ours, f"{name}_SECONDS", seconds)


class Client:
    """A connection, and the server's end of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Seen) -> None:
        self.reader = reader
        self.writer = writer
        self.server = server
        self.sent = 0

    async def send(self, data: bytes) -> None:
        """Returns once the server has it."""
        self.sent += len(data)
        self.writer.write(data)
        await until(lambda: self.server.got == self.sent)

    def looks(self, times: int) -> bool:
        """Let so much time go by; whether the connection is still open."""
        for _ in range(times):
            self.server.look()
        return not self.server.transport.is_closing()

    async def rest(self) -> bytes:
        """All that comes before the end."""
        return await asyncio.wait_for(self.reader.read(), 60)


class Seen(PieceProtocol):
    """Tells how many bytes it got, and whether its connection is lost."""

    made: list[Seen]
    got = 0
    lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made.append(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.got += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost = True


@asynccontextmanager
async def connected(application: ASGIApp, ws: str = "none") -> AsyncIterator[Client]:
    made: list[Seen] = []
    protocol = type("Seen", (Seen,), {"made": made})
    config = uvicorn.Config(
        application, lifespan="off", log_config=None, http=protocol, ws=ws, timeout_keep_alive=10_000
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1024)
        try:
            await until(lambda: bool(made))
            yield Client(reader, writer, made[0])
        finally:
            writer.close()
            server.should_exit = server.force_exit = True
            await asyncio.wait([running], timeout=30)


class Application:
    """Reads the body, if it `reads`, then answers once it is `told`."""

    def __init__(self, *, reads: bool = True, body: bytes = b"ok") -> None:
        self.told = asyncio.Event()
        self.heard: list[str] = []
        self.asked = asyncio.Event()
        self._reads = reads
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        while self._reads:
            message = await receive()
            self.heard.append(message["type"])
            if message["type"] == "http.disconnect":
                return
            if not message.get("more_body"):
                break
        await self.told.wait()
        await send({**OK, "headers": [(b"content-length", b"%d" % len(self._body))]})
        await send({"type": "http.response.body", "body": self._body})


def is_refusal(answer: bytes) -> bool:
    head, _, said = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 408 Request Timeout"
    assert b"connection: close" in lines and b"content-length: %d" % len(said) in lines
    return said.startswith(
        (b"The request's head was not whole after ", b"Nothing more of the request's body came for ")
    )


@pytest.mark.parametrize("nothing", [b"", b"\r\n"])
def test_a_connection_that_begins_no_request_is_closed_without_a_word(nothing: bytes) -> None:
    async def scene() -> None:
        async with connected(Application()) as client:
            await client.send(nothing)
            assert client.looks(HEAD_LOOKS - 1)
            assert not client.looks(1)
            assert await client.rest() == b""

    run(scene())


@pytest.mark.parametrize(("begun", "more"), [(b"G", b"E"), (b"GET / HTTP/1.1\r\nX: ", b"y"), (WHOLE[:-2], b"X")])
def test_half_a_head_is_refused_whatever_still_comes_of_it(begun: bytes, more: bytes) -> None:
    async def scene() -> None:
        async with connected(Application()) as client:
            assert client.looks(HEAD_LOOKS - 1)
            await client.send(begun)  # its time begins now
            assert client.looks(HEAD_LOOKS - 1)
            await client.send(more)
            assert not client.looks(1)
            assert is_refusal(await client.rest())

    run(scene())


def test_half_a_second_head_is_refused_too() -> None:
    async def scene() -> None:
        application = Application()
        application.told.set()
        async with connected(application) as client:
            await client.send(WHOLE)
            await client.reader.readuntil(b"ok")
            assert client.looks(MANY)  # between requests it is uvicorn that waits
            await client.send(WHOLE[:-2])
            assert client.looks(HEAD_LOOKS - 1)
            assert not client.looks(1)
            assert is_refusal(await client.rest())

    run(scene())


def test_any_number_of_heads_may_take_their_time_one_after_the_other() -> None:
    async def scene() -> None:
        application = Application()
        application.told.set()
        async with connected(application) as client:
            for _ in range(MANY):
                await client.send(WHOLE[:-2])
                assert client.looks(1)
                await client.send(b"\r\n")
                assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)

    run(scene())


def test_bytes_between_requests_that_begin_none_keep_no_connection() -> None:
    async def scene() -> None:
        application = Application()
        application.told.set()
        async with connected(application) as client:
            await client.send(WHOLE)
            await client.reader.readuntil(b"ok")
            await client.send(b"\r\n")
            assert client.looks(HEAD_LOOKS - 1)
            await client.send(b"\r\n")
            assert not client.looks(1)
            assert await client.rest() == b""

    run(scene())


@pytest.mark.parametrize("begun", [b"", b"x"])
def test_a_body_that_falls_silent_is_refused_and_the_application_is_told(begun: bytes) -> None:
    async def scene() -> None:
        application = Application()
        async with connected(application) as client:
            await client.send(UPLOAD)
            assert client.looks(HEAD_LOOKS - 1)
            await client.send(b"\r\n" + begun)
            await application.asked.wait()
            assert client.looks(BODY_LOOKS - 1)
            assert not client.looks(1)
            assert is_refusal(await client.rest())
            await until(lambda: application.heard[-1:] == ["http.disconnect"])

    run(scene())


def test_a_body_that_is_slow_and_lives_may_take_any_time() -> None:
    async def scene() -> None:
        application = Application()
        application.told.set()
        async with connected(application) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
            for _ in range(10):
                assert client.looks(BODY_LOOKS - 1)
                await client.send(b"x")
            assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)

    run(scene())


@pytest.mark.parametrize("more", [b"", WHOLE[:-2], WHOLE, WHOLE + WHOLE[:-2]])
def test_whoever_waits_for_an_answer_may_wait_any_time(more: bytes) -> None:
    async def scene() -> None:
        application = Application()
        async with connected(application) as client:
            await client.send(WHOLE + more)
            await application.asked.wait()
            assert client.looks(MANY)
            application.told.set()
            assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)

    run(scene())


def test_an_answer_may_go_on_for_any_time_also_before_the_body_is_whole() -> None:
    async def scene() -> None:
        started, told = asyncio.Event(), asyncio.Event()

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await send({**OK, "headers": []})
            started.set()
            await told.wait()
            await send({"type": "http.response.body", "body": b"ok"})

        async with connected(application) as client:
            await client.send(UPLOAD + b"\r\nx")
            await started.wait()
            assert client.looks(MANY)
            told.set()
            assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)

    run(scene())


@pytest.mark.parametrize("request_", [UPLOAD + b"\r\n" + b"x" * 500_000, UPLOAD + b"Expect: 100-continue\r\n\r\n"])
def test_nobody_owes_a_body_that_is_not_read_or_not_asked_for(request_: bytes) -> None:
    async def scene() -> None:
        application = Application(reads=False)
        async with connected(application) as client:
            client.writer.write(request_)
            await application.asked.wait()
            await until(lambda: client.server.flow.read_paused or client.server.cycle.waiting_for_100_continue)
            assert client.looks(MANY)

    run(scene())


def test_whoever_was_given_up_and_does_not_read_is_cut_off() -> None:
    async def scene() -> None:
        application = Application(body=b"x" * 50_000_000)
        application.told.set()
        async with connected(application) as client:
            await client.send(WHOLE)
            await until(lambda: bool(client.server.cycle and client.server.cycle.response_complete))
            await client.send(WHOLE[:-2])
            assert not client.looks(HEAD_LOOKS)
            assert not client.server.lost  # what is still to be sent is waited for
            client.looks(1)
            await until(lambda: client.server.lost)

    run(scene())


def test_a_websocket_is_not_looked_at() -> None:
    async def scene() -> None:
        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "websocket"
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass

        async with connected(application, "gateway.transport.websocket.uvicorn:MessageProtocol") as client:
            key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            await client.send(WHOLE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + key)
            head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 60)
            assert head.startswith(b"HTTP/1.1 101 ")
            assert client.server._timer is None

    run(scene())


def test_the_looks_come_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ours, "HEAD_SECONDS", 0.05)

    async def scene() -> None:
        async with connected(Application()) as client:
            assert await client.rest() == b""

    run(scene())
