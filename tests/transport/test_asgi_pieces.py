"""The short way for the pieces of a streamed answer, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.core.errors import TooLarge
from gateway.transport.asgi import HttpRequest, Reply
from gateway.transport.asgi.request import AT_ONCE, EventStream
from gateway.transport.asgi.uvicorn import HEAD_LIMIT, OneWrite, PieceProtocol, behind_proxies
from gateway.transport.websocket.uvicorn import MessageProtocol
from tests.support.aio import run
from tests.support.scripted import until
from tests.transport.asgi_support import WHOLE, connected

PIECE = b"x" * 4096
START = {"type": "http.response.start", "status": 200, "headers": []}


class Served:
    """An application that writes pieces until it has to wait, and then ends."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.put = 0
        self.behind = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send)
        await request.begin(200, [])
        waiting = None
        while self.put < self.most and waiting is None:
            waiting = request.write(PIECE)
            self.put += 1
        if waiting is not None:
            self.behind.set()
            await waiting
        await request.end(b"end")


async def served(application: Served, *, slow: bool = False) -> bytes:
    """What a client gets. A slow one reads only when the server has noticed that it is."""
    async with connected(application) as client:
        reader = client.reader
        client.writer.write(WHOLE)
        if slow:
            await asyncio.wait_for(application.behind.wait(), 30)
        await reader.readuntil(b"\r\n\r\n")
        got = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            got += (await reader.readexactly(size + 2))[:-2]
    return got


async def test_pieces_arrive_in_order_between_start_and_end() -> None:
    application = Served(most=3)
    assert await served(application) == PIECE * 3 + b"end"


async def test_a_client_that_reads_slowly_is_waited_for_and_gets_all() -> None:
    application = Served(most=100_000)
    got = await served(application, slow=True)
    assert application.put < application.most
    assert got == PIECE * application.put + b"end"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of what it got."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({**START, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"%9d" % size})


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nX: ",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\nX: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["address", "header", "second request", "trailer"],
)
async def test_whoever_sends_a_head_that_does_not_end_is_cut_off(begun: bytes) -> None:
    async with connected(echo) as client, asyncio.timeout(60):
        client.writer.write(begun)
        with pytest.raises(ConnectionError):  # what has been read by then is bounded; the rest finds nobody
            while True:
                client.writer.write(b"x" * HEAD_LIMIT)
                await client.writer.drain()


async def test_bodies_and_any_number_of_requests_have_no_such_bound() -> None:
    async with connected(echo) as client, asyncio.timeout(60):
        size = 8 * HEAD_LIMIT
        plain = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
        chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
        chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + 2 * chunk + b"0\r\n\r\n"
        headed = b"POST / HTTP/1.1\r\nX: %b\r\nContent-Length: 0\r\n\r\n" % (b"x" * (HEAD_LIMIT // 2))
        for request, answer in [(plain, size), (chunked, 2 * size), *[(headed, 0)] * 8]:
            client.writer.write(request)
            await client.reader.readuntil(b"\r\n\r\n")
            assert int(await client.reader.readexactly(9)) == answer


class Recording(asyncio.Transport):
    """Keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes] = []

    def write(self, data: Any) -> None:
        self.said.append(bytes(data))

    def close(self) -> None:
        self.said.append(b"closed")

    def get_write_buffer_size(self) -> int:
        return len(self.said)


async def test_a_head_and_what_follows_it_are_one_write_and_a_head_alone_waits_no_longer_than_a_turn() -> None:
    transport = Recording()
    one = OneWrite(transport, asyncio.get_running_loop())
    one.write(b"HTTP/1.1 200 OK\r\n\r\n")
    one.write(b"body")
    one.write(b"more")
    await asyncio.sleep(0)
    assert transport.said == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    transport.said.clear()
    one.write(b"HTTP/1.1 200 OK\r\n\r\n")
    assert transport.said == []
    await asyncio.sleep(0)
    assert transport.said == [b"HTTP/1.1 200 OK\r\n\r\n"]
    one.write(b"HTTP/1.1 408 Late\r\n\r\n")
    one.close()
    assert transport.said[1:] == [b"HTTP/1.1 408 Late\r\n\r\n", b"closed"]
    assert one.get_write_buffer_size() == 3


@pytest.mark.parametrize("ended", [False, True], ids=["kept", "closed"])
def test_a_whole_answer_is_one_write(ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []
    monkeypatch.setattr(OneWrite, "write", lambda self, data: pytest.fail("a piece of it is written"))
    whole = OneWrite.whole

    def write(self: OneWrite, data: bytes) -> None:
        said.append(data)
        whole(self, data)

    monkeypatch.setattr(OneWrite, "whole", write)

    async def scene() -> None:
        async with connected(Answering()) as client:
            client.writer.write(asking("/one", **({"Connection": "close"} if ended else {})))
            answer = await (client.rest() if ended else client.reader.readuntil(b"/one"))
            assert (b"\r\nconnection: close\r\n" in answer) is ended

    run(scene())
    assert len(said) == 1


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_beginning_of_an_answer_is_written_with_its_head(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []

    def heard(written: Callable[[OneWrite, bytes], None]) -> Callable[[OneWrite, bytes], None]:
        def write(self: OneWrite, data: bytes) -> None:
            written(self, data)
            said.append(self.head)  # what is held after each

        return write

    monkeypatch.setattr(OneWrite, "write", heard(OneWrite.write))
    monkeypatch.setattr(OneWrite, "whole", heard(OneWrite.whole))

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(HttpRequest(scope, receive, send))
        for _ in range(pieces):
            await stream.sent(b"data: x\n\n")
        await stream.end()

    async def scene() -> None:
        async with connected(answers) as client:
            client.writer.write(WHOLE)
            await client.reader.readuntil(b"0\r\n\r\n")

    run(scene())
    assert said[0].startswith(b"HTTP/1.1 200") and len(said) > pieces and not any(said[1:])


async def test_a_body_that_has_come_whole_is_taken_without_a_message() -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send)
        if scope["path"] == "/whole":
            request.receive = lambda: pytest.fail("it is received")
        try:
            said = await request.body(5)
        except TooLarge as error:
            said = str(error).encode()
        await request.answer(Reply(200, said))

    async with connected(answers) as client:
        for path, body, said in (
            ("/whole", b"hello", b"hello"),
            ("/whole", b"", b""),
            ("/more", b"hello!", b"the body is larger than 5 bytes"),
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            await client.send(head.encode() + body)
            await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n" + said), 30)


async def test_a_connection_is_kept_so_long_after_its_last_request() -> None:
    async with connected(Answering()) as client:
        server = client.server
        await client.send(asking("/one"))
        await client.reader.readuntil(b"/one")
        server.look_whether_idle()
        assert not server.transport.is_closing(), "its time is not over"
        await client.send(b"GET /")
        server.timeout_keep_alive = 0
        server.look_whether_idle()
        assert not server.transport.is_closing(), "it begins another request"
        await client.send(asking("/two").removeprefix(b"GET /"))
        await client.reader.readuntil(b"/two")
        assert await client.rest() == b""


class Answering:
    """Answers each request with its path; `bad` with a header that no answer can have."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].encode()
        headers = [(b"x-said", b"one\r\nx-more: two")] if path == b"/bad" else []
        await HttpRequest(scope, receive, send).answer(Reply(204 if path == b"/none" else 200, path, headers))


def asking(path: str, method: str = "GET", **headers: str) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


async def test_requests_in_a_pipeline_are_answered_in_turn_and_the_last_one_ends_the_connection() -> None:
    async with connected(Answering()) as client:
        asked = [asking("/one"), asking("/two", "HEAD"), asking("/three"), asking("/last", Connection="close")]
        client.writer.write(b"".join(asked))
        said = (await client.rest()).split(b"HTTP/1.1 200 OK\r\n")[1:]
        assert [one.rpartition(b"\r\n\r\n")[2] for one in said] == [b"/one", b"", b"/three", b"/last"]
        assert all(b"content-length: %d\r\n" % size in one for size, one in zip((4, 4, 6, 5), said, strict=True))
        assert [b"connection: close" in one for one in said] == [False, False, False, True]
        assert all(one.count(b"date: ") == 1 for one in said)


async def test_a_header_that_would_begin_another_is_never_sent() -> None:
    async with connected(Answering()) as client:
        client.writer.write(asking("/bad"))
        said = await client.rest()
        assert b"x-more" not in said


class InPieces:
    """Answers in pieces, with the head that the path names, and not by the direct line where that is taken away."""

    HEADS: ClassVar[dict[str, tuple[int, list[tuple[bytes, bytes]]]]] = {
        "/plain": (200, [(b"content-type", b"text/plain"), (b"x-one", b"1")]),
        "/long": (200, [(b"Content-Length", b"6")]),
        "/chunked": (201, [(b"transfer-encoding", b"chunked")]),
        "/none": (204, []),
        "/last": (200, [(b"connection", b"close")]),
    }

    def __init__(self, *, direct: bool) -> None:
        self.direct = direct
        self.at_once: list[bool] = []
        self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.direct:
            scope["extensions"] = {}
        request = HttpRequest(scope, receive, send)
        status, headers = self.HEADS[scope["path"]]
        begins = request.begin(status, headers)
        await begins
        if status != 204:
            await EventStream(request).sent(b"abc")
        ends = request.end(b"end" if status != 204 else b"")
        await ends
        self.at_once.append((begins is AT_ONCE) and (ends is AT_ONCE))
        self.ended += 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/plain", "/long", "/chunked", "/none")),
        *(("HEAD", path) for path in ("/plain", "/long", "/none")),
    ],
)
async def test_an_answer_in_pieces_is_byte_for_byte_that_of_uvicorn(path: str, method: str) -> None:
    async def said(*, direct: bool) -> tuple[list[bytes], list[bool]]:
        application = InPieces(direct=direct)
        async with connected(application) as client:
            for number in range(2):
                await client.send(asking(path, method))
                await until(lambda awaited=number + 1: application.ended == awaited)
            client.writer.write(asking("/last"))
            lines = (await client.rest()).split(b"\r\n")
        return [line for line in lines if not line.startswith(b"date: ")], application.at_once

    (plain, never), (ours, directly) = await said(direct=False), await said(direct=True)
    assert [line.lower() for line in ours] == [line.lower() for line in plain]
    assert never == [False, False, False]
    assert directly == [path == "/plain" and method == "GET"] * 2 + [False]


@pytest.mark.parametrize(
    ("client", "headers", "seen"),
    [
        ("127.0.0.1", [], ("127.0.0.1", "http")),
        ("127.0.0.1", [(b"x-forwarded-for", b"203.0.113.7")], ("203.0.113.7", "http")),
        ("127.0.0.1", [(b"x-forwarded-proto", b"https")], ("127.0.0.1", "https")),
        ("198.51.100.1", [(b"x-forwarded-for", b"203.0.113.7")], ("198.51.100.1", "http")),
    ],
)
def test_a_proxy_of_this_machine_says_who_asks(
    client: str, headers: list[tuple[bytes, bytes]], seen: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    told: list[tuple[str, str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told.append((scope["client"][0], scope["scheme"]))

    async def ask() -> None:
        scope = {"type": "http", "client": (client, 4000), "scheme": "http", "headers": headers}
        await behind_proxies(app)(scope, None, None)  # type: ignore[arg-type]

    run(ask())
    assert told == [seen]


@pytest.mark.parametrize("protocol", [PieceProtocol, MessageProtocol])
async def test_a_connections_attributes_are_kept_in_a_table_that_all_share(protocol: Any) -> None:
    config = uvicorn.Config(echo, ws=MessageProtocol, lifespan="off", log_config=None)
    config.load()
    made = protocol(config=config, server_state=ServerState(), app_state={})
    assert len(vars(made)) < 30, "CPython shares the names of so many"
