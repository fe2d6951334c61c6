"""How long the server waits for the rest of a request, on a real socket."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from gateway.transport.asgi import uvicorn as ours
from tests.support.scripted import until
from tests.transport.asgi_support import (
    BODY_LOOKS,
    HEAD_LOOKS,
    MANY,
    OK,
    UPLOAD,
    WHOLE,
    Application,
    connected,
    no_time,
)


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    no_time(monkeypatch)


def is_refusal(answer: bytes) -> bool:
    head, _, said = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 408 Request Timeout"
    assert b"connection: close" in lines and b"content-length: %d" % len(said) in lines
    return said.startswith(
        (b"The request's head was not whole after ", b"Nothing more of the request's body came for ")
    )


@pytest.mark.parametrize("nothing", [b"", b"\r\n"])
async def test_a_connection_that_begins_no_request_is_closed_without_a_word(nothing: bytes) -> None:
    async with connected(Application()) as client:
        await client.send(nothing)
        assert client.looks(HEAD_LOOKS - 1)
        assert not client.looks(1)
        assert await client.rest() == b""


@pytest.mark.parametrize(("begun", "more"), [(b"G", b"E"), (b"GET / HTTP/1.1\r\nX: ", b"y"), (WHOLE[:-2], b"X")])
async def test_half_a_head_is_refused_whatever_still_comes_of_it(begun: bytes, more: bytes) -> None:
    async with connected(Application()) as client:
        assert client.looks(HEAD_LOOKS - 1)
        await client.send(begun)  # its time begins now
        assert client.looks(HEAD_LOOKS - 1)
        await client.send(more)
        assert not client.looks(1)
        assert is_refusal(await client.rest())


async def test_half_a_second_head_is_refused_too() -> None:
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


async def test_any_number_of_heads_may_take_their_time_one_after_the_other() -> None:
    application = Application()
    application.told.set()
    async with connected(application) as client:
        for _ in range(MANY):
            await client.send(WHOLE[:-2])
            assert client.looks(1)
            await client.send(b"\r\n")
            assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)


async def test_bytes_between_requests_that_begin_none_keep_no_connection() -> None:
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


@pytest.mark.parametrize("begun", [b"", b"x"])
async def test_a_body_that_falls_silent_is_refused_and_the_application_is_told(begun: bytes) -> None:
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


async def test_a_body_that_is_slow_and_lives_may_take_any_time() -> None:
    application = Application()
    application.told.set()
    async with connected(application) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            assert client.looks(BODY_LOOKS - 1)
            await client.send(b"x")
        assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)


@pytest.mark.parametrize("more", [b"", WHOLE[:-2], WHOLE, WHOLE + WHOLE[:-2]])
async def test_whoever_waits_for_an_answer_may_wait_any_time(more: bytes) -> None:
    application = Application()
    async with connected(application) as client:
        await client.send(WHOLE + more)
        await application.asked.wait()
        assert client.looks(MANY)
        application.told.set()
        assert await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)


async def test_an_answer_may_go_on_for_any_time_also_before_the_body_is_whole() -> None:
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


@pytest.mark.parametrize("request_", [UPLOAD + b"\r\n" + b"x" * 500_000, UPLOAD + b"Expect: 100-continue\r\n\r\n"])
async def test_nobody_owes_a_body_that_is_not_read_or_not_asked_for(request_: bytes) -> None:
    application = Application(reads=False)
    async with connected(application) as client:
        client.writer.write(request_)
        await application.asked.wait()
        await until(lambda: client.server.flow.read_paused or client.server.cycle.waiting_for_100_continue)
        assert client.looks(MANY)


async def test_nobody_owes_a_body_while_an_earlier_request_is_being_answered() -> None:
    application = Application()
    async with connected(application) as client:
        await client.send(WHOLE + UPLOAD + b"\r\nx")
        await application.asked.wait()
        await until(lambda: not client.server.flow.read_paused)  # the application listens
        assert client.looks(MANY)
        application.told.set()
        await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)
        await until(lambda: not client.server.pipeline)
        assert not client.looks(BODY_LOOKS)
        assert is_refusal(await client.rest())


async def test_whoever_was_given_up_and_does_not_read_is_cut_off() -> None:
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


async def test_a_websocket_is_not_looked_at() -> None:
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


async def test_the_looks_come_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ours, "HEAD_SECONDS", 0.05)

    async with connected(Application()) as client:
        assert await client.rest() == b""
