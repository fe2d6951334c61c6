"""`gateway.transport.http` against real sockets that answer well, badly, slowly and not at all."""

from __future__ import annotations

import asyncio
import gzip
import math
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, Invalid, Unavailable
from gateway.transport.guard import Guard
from gateway.transport.http import FilePart, HttpAuth, HttpClient, StreamResponse, Unreachable, segment
from gateway.transport.http.response import PIECE, Gunzip
from tests.support import aio
from tests.support.aio import EACH_LOOP
from tests.support.processes import free_port
from tests.support.raw_http import Exchange, serving

pytestmark = EACH_LOOP

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def turns() -> None:
    """Let everything that has already happened on the sockets be noticed."""
    for _ in range(20):
        await asyncio.sleep(0)


async def hello(exchange: Exchange) -> None:
    await exchange.answer(b"hello", Content_Type="text/plain")


def says(*pieces: bytes, reset: bool = False) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
    """A server that says this and closes."""

    async def handler(exchange: Exchange) -> None:
        await exchange.say(*pieces)
        exchange.reset() if reset else exchange.writer.close()

    return handler


async def collect(response: StreamResponse) -> tuple[bytes, Exception | None]:
    got = b""
    try:
        async for piece in response.chunks():
            got += piece
    except Exception as exc:
        return got, exc
    return got, None


# -- request ---------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_asked_for() -> None:
    async with (
        serving(hello) as server,
        HttpClient(f"{server.url}/base/", headers={"X-A": "1"}, auth=HttpAuth(bearer="tok")) as client,
    ):
        answer = await client.request(
            "POST",
            "/runs/" + segment("a/b c"),
            json=b'{"x":1}',
            params={"n": 2},
            headers={"traceparent": "00-1", "x-a": "2"},
        )
        assert (answer.status, answer.body, answer.content_type) == (200, b"hello", "text/plain")
        assert answer.headers["CONTENT-LENGTH"] == "5"
        (seen,) = server.seen
        assert (seen.method, seen.target, seen.body) == ("POST", "/base/runs/a%2Fb%20c?n=2", b'{"x":1}')
        expected = {
            "content-type": "application/json",
            "authorization": "Bearer tok",
            "x-a": "2",
            "traceparent": "00-1",
            "accept-encoding": "gzip",
            "user-agent": "interlingua",
        }
        assert expected.items() <= seen.headers.items()


async def test_an_api_key_goes_in_the_header_that_the_agent_wants() -> None:
    async with serving(hello) as server, HttpClient(server.url, auth=HttpAuth(api_key="k")) as client:
        await client.request("GET", "")
        assert server.seen[0].headers["x-api-key"] == "k"
        assert "authorization" not in server.seen[0].headers
    assert "secret" not in repr(HttpAuth(bearer="secret", api_key="secret"))


async def test_a_status_is_an_answer_and_not_an_error() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.answer(b"[1,", status="503 No")

    async with serving(handler) as server, HttpClient(server.url) as client:
        answer = await client.request("GET", "/")
        assert (answer.status, answer.body) == (503, b"[1,")
        with pytest.raises(AgentBroken, match="not JSON"):
            answer.json()


@pytest.mark.parametrize("body", ["bytes", "iterable", "large"])
async def test_a_body_may_be_bytes_or_come_in_pieces(body: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    large = b"x" * (3 << 20)
    sent: Any = {"bytes": b"onetwo", "iterable": pieces(), "large": large}[body]

    async with serving(hello) as server, HttpClient(server.url) as client:
        await client.request("PUT", "/", body=sent)
        assert server.seen[0].body == (large if body == "large" else b"onetwo")


async def test_requests_share_connections() -> None:
    async with serving(hello) as server, HttpClient(server.url) as client:
        for _ in range(5):
            await client.request("GET", "/")
        assert (server.connections, len(server.seen)) == (1, 5)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_answers_without_a_body_are_empty(method: str) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.method == "HEAD":
            gzipped = b"Content-Encoding: gzip\r\n" if exchange.target == "/gzip" else b""
            await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n" + gzipped + b"\r\n")
        else:
            await exchange.say(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with serving(handler) as server, HttpClient(server.url) as client:
        for path in ("/", "/gzip"):
            assert (await client.request(method, path, max_bytes=10)).body == b""
        assert server.connections == 1


@pytest.mark.parametrize("path", ["/../admin", "/x/../../admin", "/%2e%2e/admin", "admin", "/x/%2E%2e/.%2e/admin"])
async def test_a_path_cannot_leave_the_base(path: str) -> None:
    async with HttpClient("http://127.0.0.1:9/base") as client:
        with pytest.raises(Invalid):
            await client.request("GET", path)


async def test_a_path_cannot_change_the_host() -> None:
    async with HttpClient("http://127.0.0.1:9") as client:
        for path in ("@evil.test/", ".evil.test/", "9/"):
            with pytest.raises(Invalid):
                await client.request("GET", path)


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_segment_that_would_not_stay_one_is_refused(value: str) -> None:
    with pytest.raises(Invalid):
        segment(value)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "x", "http://x:99999", "http://h/?q=1", "http://h/#f"])
def test_a_base_that_is_no_base_is_refused_when_the_client_is_made(url: str) -> None:
    with pytest.raises(Invalid):
        HttpClient(url)


async def test_values_that_no_request_can_carry_are_the_callers_fault() -> None:
    async with serving(hello) as server, HttpClient(server.url) as client:
        with pytest.raises(Invalid):
            await client.request("GET", "/", headers={"traceparent": "a\r\nX-Evil: 1"})
        with pytest.raises(Invalid):
            await client.upload("/", {}, [FilePart("file", "a\r\nX: y", b"x")])
        assert server.seen == []


# -- agents that are not there ---------------------------------------------------------------------


async def test_a_refused_connection_is_unreachable_and_named_without_secrets() -> None:
    port = free_port()

    async with HttpClient(f"http://user:secret@127.0.0.1:{port}/x?") as client:
        with pytest.raises(Unreachable) as caught:
            await client.request("GET", "/y?key=secret", headers={"X": "secret"})
        assert f"127.0.0.1:{port}" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert caught.value.retryable


async def test_an_unknown_name_is_unreachable() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async with HttpClient("http://agent.test:81", guard=Guard(resolve=nowhere)) as client:
        with pytest.raises(Unreachable, match=r"agent\.test:81 does not resolve"):
            await client.request("POST", "/")


async def test_tls_to_an_agent_that_has_none_is_unreachable() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpClient(f"https://127.0.0.1:{port}") as client:
            with pytest.raises(Unreachable, match="no TLS connection"):
                await client.request("GET", "/")


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_new_connection_closed_without_an_answer_is_gone_and_not_tried_again(reset: bool, method: str) -> None:
    async with serving(says(reset=reset)) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentGone) as caught:
            await client.request(method, "/")
        assert not isinstance(caught.value, Unreachable)
        assert len(server.seen) == 1


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("method", "said", "tries"),
    [("GET", b"", 2), ("DELETE", b"", 2), ("POST", b"", 1), ("PATCH", b"", 1), ("GET", b"HTTP/1.1 20", 1)],
)
async def test_only_an_idempotent_request_on_a_kept_connection_is_repeated_and_only_before_any_byte(
    reset: bool, method: str, said: bytes, tries: int
) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.target == "/first":
            await exchange.answer(b"1")
        elif exchange.connection == 1:
            await exchange.say(said)
            if said:
                await turns()  # a reset overtakes what was said before it unless that has been read
            exchange.reset() if reset else exchange.writer.close()
        else:
            await exchange.answer(b"2")

    async with serving(handler) as server, HttpClient(server.url) as client:
        await client.request("GET", "/first")
        if tries == 2:
            assert (await client.request(method, "/second", json=b"{}")).body == b"2"
        else:
            with pytest.raises(AgentGone):
                await client.request(method, "/second", json=b"{}")
        assert [seen.target for seen in server.seen].count("/second") == tries


async def test_a_repeat_that_fails_too_is_not_repeated_again() -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.target == "/first":
            await exchange.answer()
        else:
            exchange.writer.close()

    async with serving(handler) as server, HttpClient(server.url) as client:
        await client.request("GET", "/first")
        with pytest.raises(AgentGone):
            await client.request("GET", "/second")
        assert len(server.seen) == 3


async def test_a_repeat_that_finds_a_second_closed_connection_is_not_repeated_again() -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.target == "/first":
            await both.wait()
            await exchange.answer()
        elif exchange.connection <= 2:
            exchange.writer.close()
        else:
            await exchange.answer(b"a third try")

    both = asyncio.Barrier(2)

    async with serving(handler) as server, HttpClient(server.url) as client:
        await asyncio.gather(client.request("GET", "/first"), client.request("GET", "/first"))
        with pytest.raises(AgentGone):
            await client.request("GET", "/second")
        assert len(server.seen) == 4


async def test_an_agent_that_never_answers_times_out() -> None:
    async def once(exchange: Exchange) -> None:
        await (exchange.answer(b"hello") if len(server.seen) == 1 else exchange.gone())

    async with serving(once) as server, HttpClient(server.url, timeout=0.1) as client:
        await client.request("GET", "/", timeout=30)  # so that connecting takes nothing of the time
        with pytest.raises(AgentTimeout, match=rf"127\.0\.0\.1:{server.port} did not answer within 0\.1 s"):
            await client.request("POST", "/")
        with pytest.raises(AgentTimeout):
            async with client.stream("GET", "/", timeout=0.1):
                raise AssertionError("no head ever came")


async def test_the_timeout_of_a_request_covers_the_body() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell")
        await exchange.gone()

    async with serving(handler) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentTimeout):
            await client.request("GET", "/", timeout=0.1)


def test_waiting_for_the_pool_is_limited_by_the_connect_timeout() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED)
        await exchange.gone()

    async def test() -> None:
        async with (
            serving(handler) as server,
            HttpClient(server.url, pool_size=1, connect_timeout=10) as client,
            client.stream("GET", "/"),
        ):
            waiting = asyncio.create_task(client.request("GET", "/", timeout=math.inf))
            await turns()
            assert not waiting.done()
            await aio.later(11)
            with pytest.raises(AgentTimeout, match="did not accept a connection"):
                await asyncio.wait_for(waiting, 30)

    aio.run(test(), timeout=1000, loop_factory=aio.Clock)


# -- agents that lie -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"hello there\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_broken(said: bytes) -> None:
    async with serving(says(said)) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentBroken):
            await client.request("GET", "/")


@pytest.mark.parametrize("reset", [False, True])
async def test_less_than_the_announced_length_is_gone(reset: bool) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"

    async with serving(says(said, reset=reset)) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentGone):
            await client.request("GET", "/")


async def test_more_than_the_announced_length_is_no_second_answer() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )

    async with serving(handler) as server, HttpClient(server.url) as client:
        for _ in range(2):
            with suppress(AgentBroken):  # it may be found while the first is read
                assert (await client.request("POST", "/")).body == b"hello"
        assert server.connections == 2


async def test_what_is_said_before_it_is_asked_for_is_no_answer() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.answer(b"good")
        if exchange.connection == 1:
            await read.wait()
            await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await exchange.gone()

    read = asyncio.Event()

    async with serving(handler) as server, HttpClient(server.url) as client:
        assert (await client.request("POST", "/")).body == b"good"
        read.set()
        await turns()
        for _ in range(2):
            with suppress(AgentGone):  # the request may be on its way when that comes
                assert (await client.request("POST", "/")).body == b"good"
        assert (await client.request("POST", "/")).body == b"good"


@pytest.mark.parametrize(
    ("begin", "end"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngo", b"od"), (CHUNKED, chunk(b"good") + b"0\r\n\r\n")],
)
async def test_what_comes_in_one_piece_with_the_end_of_an_answer_is_no_second_answer(begin: bytes, end: bytes) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.connection > 1:
            return await exchange.answer(b"good")
        await exchange.say(begin)
        await turns()
        await exchange.say(end + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    async with serving(handler) as server, HttpClient(server.url) as client:
        for _ in range(3):
            assert (await client.request("POST", "/")).body == b"good"
        assert server.connections == 2


async def test_a_malformed_chunk_breaks_at_once_after_what_came_before_it() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED, chunk(b"hello"))
        await read.wait()
        await exchange.say(b"zz\r\nhello\r\n")
        await exchange.gone()

    read = asyncio.Event()

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"hello"
        read.set()
        with pytest.raises(AgentBroken, match="malformed"):
            await anext(chunks)


async def test_a_malformed_chunk_that_comes_with_the_head_is_broken() -> None:
    async with serving(says(CHUNKED + chunk(b"hello") + b"zz\r\n")) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentBroken):
            await client.request("GET", "/")


# -- streams ---------------------------------------------------------------------------------------


async def test_every_chunk_is_handed_over_before_the_next_is_sent() -> None:
    got: asyncio.Event

    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED)
        for number in range(50):
            got.clear()
            await exchange.say(chunk(b"%d" % number))
            await got.wait()
        await exchange.say(b"0\r\n\r\n")

    got = asyncio.Event()
    async with (
        serving(handler) as server,
        HttpClient(server.url) as client,
        client.stream("GET", "/", idle_timeout=30) as response,
    ):
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert server.seen[0].headers["accept-encoding"] == "identity"
        pieces = []
        async for piece in response.chunks():
            pieces.append(piece)
            got.set()
        assert pieces == [b"%d" % number for number in range(50)]


async def test_a_stream_that_comes_byte_by_byte_is_whole() -> None:
    wire = CHUNKED + chunk(b"hello") + chunk(b"world") + b"0\r\n\r\n"

    async def handler(exchange: Exchange) -> None:
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(wire)):
            await exchange.say(wire[place : place + 1])
            await asyncio.sleep(0)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        assert await collect(response) == (b"helloworld", None)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    "head",
    [CHUNKED, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["chunked", "length", "until the end"],
)
async def test_an_agent_that_dies_in_mid_stream_is_gone_after_what_it_said(head: bytes, reset: bool) -> None:
    """Also when the reader was slow, and death came before it looked."""
    body = chunk(b"hello") if head == CHUNKED else b"hello"
    told, died = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.say(head, body)
        await told.wait()
        exchange.reset() if reset else exchange.writer.close()
        died.set()

    async with (
        serving(handler) as server,
        HttpClient(server.url) as client,
        client.stream("GET", "/", idle_timeout=30) as response,
    ):
        told.set()
        await died.wait()
        await turns()
        got, error = await collect(response)
        assert got == b"hello"
        if head.endswith(b"OK\r\n\r\n") and not reset:
            assert error is None  # a body without length ends where the connection does
        else:
            assert isinstance(error, AgentGone)


def test_only_silence_times_out_and_neither_a_slow_stream_nor_a_slow_reader() -> None:
    """`idle_timeout` counts from the moment that the reader waits, anew for every chunk."""

    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED)
        while await more.acquire():
            await exchange.say(chunk(b"x"))

    more = asyncio.Semaphore(0)

    async def test() -> None:
        clock = asyncio.get_running_loop()
        assert isinstance(clock, aio.Clock)
        async with (
            serving(handler) as server,
            HttpClient(server.url, timeout=math.inf) as client,
            client.stream("GET", "/", idle_timeout=10) as response,
        ):
            chunks = response.chunks()
            for _ in range(5):  # silent for 9 s, five times over
                waiting = asyncio.ensure_future(anext(chunks))
                await turns()
                clock.ahead += 9
                await turns()
                more.release()
                assert await waiting == b"x"
            clock.ahead += 100  # nobody reads
            await turns()
            more.release()
            assert await anext(chunks) == b"x"
            waiting = asyncio.ensure_future(anext(chunks))
            await turns()
            clock.ahead += 9
            await turns()
            assert not waiting.done()
            clock.ahead += 2
            with pytest.raises(AgentTimeout, match="nothing for 10 s"):
                await waiting

    aio.run(test(), timeout=1000, loop_factory=aio.Still)


async def test_silence_in_a_stream_times_out_after_what_was_said() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED, chunk(b"hello"))
        await exchange.gone()
        closed.set()

    closed = asyncio.Event()

    async with serving(handler) as server, HttpClient(server.url) as client:
        async with client.stream("GET", "/", idle_timeout=0.1) as response:
            got, error = await collect(response)
            assert got == b"hello"
            assert isinstance(error, AgentTimeout)
        await closed.wait()


async def test_leaving_a_stream_early_closes_the_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED, chunk(b"hello"))
        await exchange.gone()
        closed.set()

    closed = asyncio.Event()

    async with serving(handler) as server, HttpClient(server.url) as client:
        async with client.stream("GET", "/") as response:
            async for _ in response.chunks():
                break
        await closed.wait()
        with pytest.raises(AgentGone):
            await response.read()


async def test_cancelling_the_reader_closes_the_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(CHUNKED, chunk(b"hello"))
        await exchange.gone()
        closed.set()

    closed, reading = asyncio.Event(), asyncio.Event()

    async def read(client: HttpClient) -> None:
        async with client.stream("GET", "/") as response:
            async for _ in response.chunks():
                reading.set()

    async with serving(handler) as server, HttpClient(server.url) as client:
        task = asyncio.ensure_future(read(client))
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed.wait()


async def test_cancelling_a_request_closes_the_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()
        closed.set()

    closed, asked = asyncio.Event(), asyncio.Event()

    async with serving(handler) as server, HttpClient(server.url) as client:
        task = asyncio.ensure_future(client.request("GET", "/"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed.wait()


async def test_the_error_body_of_a_stream_can_be_read_with_a_limit() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.answer(b"x" * 100, status="404 Not Found")

    async with serving(handler) as server, HttpClient(server.url) as client:
        async with client.stream("GET", "/") as response:
            assert (response.status, await response.read()) == (404, b"x" * 100)
        async with client.stream("GET", "/") as response:
            with pytest.raises(AgentBroken, match="larger than 99 bytes"):
                await response.read(99)


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head", [CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"]
)
async def test_an_answer_over_the_limit_is_broken_before_it_is_collected(head: bytes) -> None:
    async def handler(exchange: Exchange) -> None:
        piece = b"x" * 65536
        await exchange.say(head)
        while not exchange.writer.is_closing():
            await exchange.say(chunk(piece) if head == CHUNKED else piece)

    async with serving(handler) as server, HttpClient(server.url, max_bytes=1_000_000) as client:
        with pytest.raises(AgentBroken, match="larger than 1000000 bytes"):
            await client.request("GET", "/")
        with pytest.raises(AgentBroken, match="larger than 5 bytes"):
            await client.request("GET", "/", max_bytes=5)


def zipped(*members: bytes, keep: int | None = None) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
    body = b"".join(members)[:keep]

    async def handler(exchange: Exchange) -> None:
        await exchange.answer(body, Content_Encoding="gzip")

    return handler


async def test_gzip_is_undone() -> None:
    text = b"hello " * 100_000

    two = zipped(gzip.compress(text), gzip.compress(b"!"))
    async with serving(two) as server, HttpClient(server.url) as client:
        assert (await client.request("GET", "/")).body == text + b"!"
        async with client.stream("GET", "/") as response:
            assert await collect(response) == (text + b"!", None)


async def test_a_gzip_bomb_is_stopped_at_the_limit() -> None:
    bomb = gzip.compress(b"\0" * (1 << 26))

    async with serving(zipped(bomb)) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentBroken, match="larger than 1000000 bytes"):
            await client.request("GET", "/", max_bytes=1_000_000)


def test_compressed_data_is_unpacked_in_small_pieces() -> None:
    gunzip = Gunzip()
    gunzip.feed(gzip.compress(b"\0" * (1 << 24)))
    sizes = []
    while piece := gunzip.take():
        sizes.append(len(piece))
    gunzip.finish()
    assert sum(sizes) == 1 << 24
    assert max(sizes) <= PIECE


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (zipped(gzip.compress(b"hello" * 99), keep=-4), "too early"),
        (zipped(gzip.compress(b"hello"), b"garbage"), "cannot be decompressed"),
        (zipped(b"plain text"), "cannot be decompressed"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx"), "not asked for"),
        (zipped(*[gzip.compress(b"")] * 1000), "too many pieces"),
    ],
)
async def test_broken_gzip_is_broken(handler: Any, message: str) -> None:
    async with serving(handler) as server, HttpClient(server.url) as client:
        with pytest.raises(AgentBroken, match=message):
            await client.request("GET", "/")


# -- files -----------------------------------------------------------------------------------------


async def test_an_upload_is_a_form_as_browsers_send_it() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"later "
        yield b"pieces"

    async with serving(hello) as server, HttpClient(server.url) as client:
        files = [
            FilePart("file", 'größe "1".txt', b"content", "text/plain"),
            FilePart("more", "b.bin", pieces()),
            FilePart("large", "c.bin", b"y" * (2 << 20)),
        ]
        answer = await client.upload("/artifacts", {"relative_path": "a/b"}, files)
        assert answer.body == b"hello"
        (seen,) = server.seen
        kind, _, boundary = seen.headers["content-type"].partition("; boundary=")
        assert kind == "multipart/form-data"
        parts = seen.body.split(b"--" + boundary.encode())[1:-1]
        assert b'name="relative_path"' in parts[0]
        assert parts[0].endswith(b"\r\n\r\na/b\r\n")
        assert 'name="file"; filename="größe \\"1\\".txt"'.encode() in parts[1]
        assert b"Content-Type: text/plain" in parts[1]
        assert parts[1].endswith(b"\r\n\r\ncontent\r\n")
        assert parts[2].endswith(b"\r\n\r\nlater pieces\r\n")
        assert len(parts[3]) > 2 << 20


async def test_an_agent_that_refuses_an_upload_before_reading_it_is_heard() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await over.wait()
        writer.close()

    over = asyncio.Event()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpClient(f"http://127.0.0.1:{port}") as client:
            answer = await client.request("POST", "/", body=endless())
            assert (answer.status, answer.body) == (413, b"no")
        over.set()


# -- what it does not do ---------------------------------------------------------------------------


async def test_cookies_are_not_kept_and_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)

    async def handler(exchange: Exchange) -> None:
        await exchange.answer(Set_Cookie="a=b; Path=/")

    async with serving(handler) as server, HttpClient(server.url) as client:
        await client.request("GET", "/")
        await client.request("GET", "/")
        assert "cookie" not in server.seen[1].headers


async def test_a_redirect_is_an_answer() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.answer(b"", status="302 Found", Location="/here")

    async with serving(handler) as server, HttpClient(server.url) as client:
        assert (await client.request("GET", "/")).status == 302
        assert len(server.seen) == 1


async def test_secrets_do_not_go_to_another_origin() -> None:
    async with serving(hello) as other, serving(hello) as server:
        secrets = {"x-one": "secret"}
        async with HttpClient(server.url, headers=secrets, auth=HttpAuth(api_key="secret")) as client:
            mine = {"x-two": "secret", "traceparent": "00-1"}
            await client.request("GET", "/", headers=mine)
            await client.request("GET", f"{other.url}/absolute")
            assert "secret" not in str(other.seen[0].headers)
            assert server.seen[0].headers["x-one"] == "secret"


# -- its life --------------------------------------------------------------------------------------


async def test_closing_the_client_ends_what_is_under_way() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(
            CHUNKED if exchange.target != "/head" else b"", *[chunk(b"a")] * (exchange.target == "/stream")
        )
        asked.release()
        await exchange.gone()

    asked = asyncio.Semaphore(0)

    async with serving(handler) as server:
        client = HttpClient(server.url)
        head = asyncio.ensure_future(client.request("GET", "/head"))
        body = asyncio.ensure_future(client.request("GET", "/body"))
        async with client.stream("GET", "/stream") as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"a"
            rest = asyncio.ensure_future(anext(chunks))
            for _ in range(3):
                await asked.acquire()
            await turns()
            await client.aclose()
            for task in (head, body, rest):
                with pytest.raises(AgentGone):
                    await task
        await client.aclose()
        with pytest.raises(Unavailable):
            await client.request("GET", "/")


def test_a_client_belongs_to_the_loop_of_its_first_call() -> None:
    client = HttpClient("http://127.0.0.1:9")

    async def first() -> None:
        with pytest.raises(Unreachable):
            await client.request("GET", "/")

    async def second() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            await client.request("GET", "/")

    with asyncio.Runner() as one:
        one.run(first())
        aio.run(second())
        one.run(client.aclose())


def test_the_parser_is_not_imported_before_the_first_call() -> None:
    code = (
        "import sys; from gateway.transport.http import HttpClient; from gateway.transport.guard import Guard;"
        "HttpClient('http://a', guard=Guard()); assert not {'httptools', 'aiohappyeyeballs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150)
