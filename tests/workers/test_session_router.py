"""One worker hands requests to another: what a client sends, sees and breaks off, and what either end's death does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
import uvloop
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.contract import unguessable
from gateway.core.errors import InterlinguaError, NotFound
from gateway.transport.asgi import HttpRequest
from gateway.transport.asgi.uvicorn import HandedProtocol
from gateway.workers.session_router import KEPT_CONNECTIONS, SessionRouter
from tests.support.aio import on, run
from tests.support.scripted import until

THEIRS, OURS = f"{unguessable()}-w1", f"{unguessable()}-w2"
WITHIN = 30.0

Serve = Callable[[HttpRequest], Awaitable[None]]


class Seat:
    """See `WorkerLink`: worker 2 of two."""

    number = 2

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def socket_of(self, number: int) -> str:
        return str(self._folder / f"{number}.sock")


@dataclass
class Pair:
    """Worker 2, which clients connect to, and worker 1. `serve` is what worker 1 does with a request."""

    url: str
    port: int
    router: SessionRouter
    server: asyncio.Server
    connections: set[Any]
    front: uvicorn.server.ServerState
    seen: list[Scope] = field(default_factory=list)

    def client(self, **options: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=WITHIN, **options)

    def die(self) -> None:
        """Worker 1 ends as if it was killed: its connections are cut, and its socket refuses."""
        self.server.close()
        for connection in list(self.connections):
            connection.transport.abort()

    async def raw(self, request: str, session: str = THEIRS) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{request} HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\n".encode())
        return reader, writer


async def told(request: HttpRequest) -> None:
    """Answer with what came."""
    body = b"".join([piece async for piece in request.chunks()])
    scope = request.scope
    headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
    said = {key: scope[key] for key in ("client", "scheme", "method", "path", "server")}
    said |= {"headers": headers, "query": scope["query_string"].decode(), "body": len(body)}
    await JSONResponse(said, headers={"x-worker": "1"})(scope, request.receive, request.send)


def refusal(path: str, error: InterlinguaError) -> Response:
    return PlainTextResponse(str(error), 404 if isinstance(error, NotFound) else 503)


async def here(scope: Scope, receive: Receive, send: Send) -> None:
    """Worker 2 itself."""
    await PlainTextResponse("here", headers={"x-worker": "2"})(scope, receive, send)


@contextlib.asynccontextmanager
async def pair(folder: Path, serve: Serve = told) -> AsyncIterator[Pair]:
    found: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)
        await serve(HttpRequest(scope, receive, send))

    seat: Any = Seat(folder)
    router = SessionRouter(here, refusal, seat)
    front, state = _server(router), uvicorn.server.ServerState()
    make = partial(HandedProtocol, app, config=front.config, server_state=state, app_state={})
    inside = await asyncio.get_running_loop().create_unix_server(make, seat.socket_of(1))
    task = asyncio.create_task(front.serve())
    await until(lambda: front.started)
    port = front.servers[0].sockets[0].getsockname()[1]
    try:
        yield Pair(f"http://127.0.0.1:{port}", port, router, inside, state.connections, front.server_state, found)
    finally:
        for connection in list(front.server_state.connections):
            connection.transport.abort()
        await until(lambda: not (front.server_state.tasks or state.tasks))
        router.close()
        inside.close()
        await until(lambda: not state.connections)
        front.should_exit = front.force_exit = True
        await task


def _server(app: ASGIApp) -> uvicorn.Server:
    http: Any = "gateway.transport.asgi.uvicorn:PieceProtocol"
    config = uvicorn.Config(app, "127.0.0.1", 0, interface="asgi3", http=http, lifespan="off", log_config=None)
    return uvicorn.Server(config)


@pytest.mark.parametrize("where", ["header", "query", "path"])
@on(uvloop.new_event_loop)
async def test_a_request_goes_to_the_worker_that_its_id_names(where: str, tmp_path: Path) -> None:
    async with pair(tmp_path) as both, both.client() as client:
        for id, worker in ((THEIRS, "1"), (OURS, "2"), ("other", "2"), (f"{unguessable()}-w9", "2")):
            headers = {"x-some-id": id} if where == "header" else {}
            path = {"query": f"/messages?a=1&session_id={id}", "path": f"/-/mcp/{id}"}.get(where, "/mcp")
            answer = await client.get(path, headers=headers)
            assert answer.headers["x-worker"] == worker, id


@on(uvloop.new_event_loop)
async def test_a_websocket_stays_where_it_is(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope: Any = {"type": "websocket", "path": f"/{THEIRS}", "headers": [], "query_string": b""}
        nothing: Any = None
        await both.router(scope, nothing, send)
        assert sent[0]["type"].startswith("websocket.") and not both.connections


@on(uvloop.new_event_loop)
async def test_a_request_arrives_as_it_was_sent_and_from_whom(tmp_path: Path) -> None:
    async with pair(tmp_path) as both, both.client() as client:
        there = {"connection": "close", "te": "trailers", "expect": "100-continue"}
        forged = there | {"interlingua-from": '[["10.0.0.1", 1], ["10.0.0.2", 2], "https"]'}
        headers = [*forged.items(), ("Authorization", "Bearer x"), ("Mcp-Session-Id", THEIRS), ("x-two", "1")]
        answer = await client.post("/a%20b/c?d=%20e&f", headers=[*headers, ("x-two", "2")], content=b"12345")
        said = answer.json()
        assert (said["client"][0], said["scheme"]) == ("127.0.0.1", "http")
        assert said["server"] == ["127.0.0.1", both.port]
        assert (said["method"], said["path"], said["query"]) == ("POST", "/a b/c", "d=%20e&f")
        got = [tuple(each) for each in said["headers"]]
        assert [value for name, value in got if name == "x-two"] == ["1", "2"]
        assert ("authorization", "Bearer x") in got and ("content-length", "5") in got
        assert ("te", "trailers") in got and not {"connection", "expect"} & {name for name, _ in got}
        assert len(both.connections) == 1, "which is kept"
        assert [name for name, _ in got].count("interlingua-from") == 1, "the client's, which counts for nothing"
        assert answer.headers.get_list("date") and len(answer.headers.get_list("date")) == 1


@on(uvloop.new_event_loop)
async def test_a_client_of_tls_is_one_at_the_other_worker_too(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        there = httpx2.ASGITransport(app=both.router, client=("2001:db8::1", 7))
        async with httpx2.AsyncClient(transport=there, base_url="https://gateway.example") as client:
            said = (await client.get("/", headers={"mcp-session-id": THEIRS})).json()
        assert (said["client"], said["scheme"]) == (["2001:db8::1", 7], "https")
        assert said["server"] == ["gateway.example", None]


@pytest.mark.parametrize("chunked", [False, True])
@on(uvloop.new_event_loop)
async def test_a_large_body_passes_whole(chunked: bool, tmp_path: Path) -> None:
    size = 5_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield bytes(size // 50)

    async with pair(tmp_path) as both, both.client() as client:
        content: Any = pieces() if chunked else bytes(size)
        headers = {"mcp-session-id": THEIRS, "expect": "100-continue"}
        answer = await client.post("/", headers=headers, content=content)
        assert answer.json()["body"] == size


@on(uvloop.new_event_loop)
async def test_connections_between_workers_are_kept_and_as_many_as_are_needed(tmp_path: Path) -> None:
    go = asyncio.Event()
    go.set()

    async def serve(request: HttpRequest) -> None:
        await go.wait()
        await told(request)

    async with pair(tmp_path, serve) as both, both.client() as client:
        headers = {"mcp-session-id": THEIRS}
        for _ in range(10):
            assert (await client.post("/", headers=headers, content=b"x")).status_code == 200
        assert len(both.connections) == 1
        go.clear()
        asking = [asyncio.create_task(client.post("/", headers=headers, content=b"x")) for _ in range(50)]
        await until(lambda: len(both.connections) == 50)
        go.set()
        assert [each.json()["body"] for each in await asyncio.gather(*asking)] == [1] * 50
        await until(lambda: len(both.connections) == KEPT_CONNECTIONS)
        both.router.close()
        await until(lambda: not both.connections)


@on(uvloop.new_event_loop)
async def test_an_answer_comes_piece_by_piece_and_nobody_waits_for_its_end(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def serve(request: HttpRequest) -> None:
        await request.begin(
            200, [(b"content-type", b"text/event-stream"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]
        )
        await request.sent(b"data: 1\n\n")
        await go.wait()
        await request.end(b"data: 2\n\n")

    async with (
        pair(tmp_path, serve) as both,
        both.client() as client,
        client.stream("GET", "/", headers={"mcp-session-id": THEIRS}) as answer,
    ):
        assert answer.headers.get_list("set-cookie") == ["a", "b"]
        pieces = answer.aiter_raw()
        assert await anext(pieces) == b"data: 1\n\n"
        go.set()
        assert b"".join([piece async for piece in pieces]) == b"data: 2\n\n"


@on(uvloop.new_event_loop)
async def test_a_client_that_does_not_read_holds_the_answer_back(tmp_path: Path) -> None:
    sent = 0

    async def serve(request: HttpRequest) -> None:
        nonlocal sent
        await request.begin(200, [])
        for _ in range(1000):
            await request.sent(bytes(100_000))
            sent += 1
        await request.end()

    async with pair(tmp_path, serve) as both:
        reader, writer = await both.raw("GET /")
        writer.write(b"\r\n")
        await until(lambda: any(each.flow.write_paused for each in both.connections) and sent > 10)
        assert sent < 300, "of 1000: some megabytes are in the sockets"
        while await reader.read(1 << 20):
            if sent == 1000:
                break
        writer.close()
        await until(lambda: sent == 1000)


@on(uvloop.new_event_loop)
async def test_a_worker_that_does_not_read_holds_the_client_back(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def serve(request: HttpRequest) -> None:
        await go.wait()
        await told(request)

    async with pair(tmp_path, serve) as both:
        reader, writer = await both.raw("POST /")
        size = 50_000_000
        writer.write(f"content-length: {size}\r\n\r\n".encode())
        sending = asyncio.create_task(_all(writer, size))
        await until(lambda: any(each.flow.read_paused for each in both.connections))
        assert not sending.done()
        go.set()
        await sending
        body = (await reader.readuntil(b"}")).partition(b"\r\n\r\n")[2]
        assert json.loads(body)["body"] == size
        writer.close()


async def _all(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size // 100_000):
        writer.write(bytes(100_000))
        await writer.drain()


WHOLE = {
    "answer": b"content-length: 3\r\n\r\n123",
    "answer to much": b"content-length: 100000\r\n\r\n" + bytes(100_000),
    "stream": b"content-length: 3\r\n\r\n123",
}
PART = {
    "little": b"content-length: 3\r\n\r\n1",
    "much": b"content-length: 100000\r\n\r\n1",
    "chunks": b"transfer-encoding: chunked\r\n\r\n1\r\n1\r\n",
}


@pytest.mark.parametrize("when", [*WHOLE, *PART])
@on(uvloop.new_event_loop)
async def test_a_client_that_goes_is_gone_at_the_other_worker_too(
    when: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    left: list[str] = []

    async def serve(request: HttpRequest) -> None:
        try:
            if when == "stream":
                await request.begin(200, [])
                await request.sent(b"x")
            async for _ in request.chunks():
                pass
            await request.gone()
            left.append("gone")
        except Exception as error:
            left.append(type(error).__name__)

    async with pair(tmp_path, serve) as both:
        reader, writer = await both.raw("POST /")
        writer.write((WHOLE | PART)[when])
        await until(lambda: bool(both.connections if when == "little" else both.seen))
        if when == "stream":
            assert (await reader.readuntil(b"x\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        await until(lambda: not both.connections)
        await until(lambda: len(left) == len(both.seen))
        assert left == ([] if when == "little" else ["ClientGone" if when in PART else "gone"])
        assert "ended" not in caplog.text, "the other worker has not"
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        async with both.client() as client:  # and nothing of it is in the way of the next
            assert (await client.get("/")).text == "here"


@on(uvloop.new_event_loop)
async def test_a_worker_that_dies_cuts_its_answers_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def serve(request: HttpRequest) -> None:
        await request.begin(200, [])
        await request.sent(b"data: 1\n\n")
        await request.gone()

    async with pair(tmp_path, serve) as both, both.client() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("GET", "/", headers={"mcp-session-id": THEIRS}) as answer:
                async for piece in answer.aiter_raw():
                    assert piece == b"data: 1\n\n"
                    both.die()
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "the supervisor says so"


@on(uvloop.new_event_loop)
async def test_a_request_that_the_server_ends_ends_at_the_other_worker_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where it outlasts the time for open requests."""
    async with pair(tmp_path, HttpRequest.gone) as both, both.client() as client:
        asking = asyncio.create_task(client.post("/", headers={"mcp-session-id": THEIRS}, content=b"x"))
        await until(lambda: bool(both.seen))
        (task,) = both.front.tasks
        task.cancel()
        assert (await asking).status_code == 500
        await until(lambda: not both.connections)
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [asyncio.CancelledError]


@on(uvloop.new_event_loop)
async def test_a_worker_that_dies_cuts_an_answer_off_also_where_the_request_is_not_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(request: HttpRequest) -> None:
        await request.begin(200, [])
        await request.sent(b"early")
        await request.gone()

    async with pair(tmp_path, serve) as both:
        reader, writer = await both.raw("POST /")
        writer.write(b"content-length: 1000000\r\n\r\n" + bytes(100_000))
        assert (await reader.readuntil(b"early\r\n")).startswith(b"HTTP/1.1 200")
        both.die()
        assert await reader.read() == b"", "no last chunk"
        writer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@on(uvloop.new_event_loop)
async def test_what_a_dead_worker_had_is_not_there_in_the_words_of_the_door(tmp_path: Path) -> None:
    async def serve(request: HttpRequest) -> None:
        await request.gone()

    headers = {"mcp-session-id": THEIRS}
    async with pair(tmp_path, serve) as both, both.client() as client:
        asking = asyncio.create_task(client.post("/", headers=headers, content=b"x"))
        await until(lambda: bool(both.seen))
        both.die()
        answer = await asking
        assert (answer.status_code, answer.text.split(":")[0]) == (404, "no such session")
        assert (await client.post("/", headers=headers, content=b"x")).text == "here", "which knows no such session"


def test_a_worker_for_which_as_many_wait_as_may_has_not_ended(tmp_path: Path) -> None:
    async def work() -> None:
        seat: Any = Seat(tmp_path)
        there = httpx2.ASGITransport(app=SessionRouter(here, refusal, seat))
        async with httpx2.AsyncClient(transport=there, base_url="http://gateway.example") as client:
            answer = await client.get("/", headers={"mcp-session-id": THEIRS})
        assert (answer.status_code, answer.text) == (503, "the gateway is busy; try again later")

    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(tmp_path / "1.sock"))
        busy.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(tmp_path / "1.sock"))
        run(work(), loop_factory=uvloop.new_event_loop)


@on(uvloop.new_event_loop)
async def test_a_worker_that_stops_ends_streams_that_it_passes_on_and_no_answers(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def serve(request: HttpRequest) -> None:
        await request.begin(200, [])
        await request.sent(b"first")
        await go.wait()
        await request.end(b" last")

    headers = {"mcp-session-id": THEIRS}
    async with pair(tmp_path, serve) as both, both.client() as client:
        async with (
            client.stream("GET", "/", headers=headers) as stream,
            client.stream("POST", "/", headers=headers) as answer,
        ):
            read, got = stream.aiter_raw(), answer.aiter_raw()
            assert [await anext(read), await anext(got)] == [b"first", b"first"]
            both.router.quiet()
            assert [piece async for piece in read] == []
            go.set()
            assert [piece async for piece in got] == [b" last"]
        assert (await client.get("/", headers=headers)).text == "here", "no stream begins any more"
