"""Clients that leave, or ask for another protocol, in the middle of something: on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gateway.transport.asgi import ClientGone, HttpRequest, WhileConnected
from gateway.transport.asgi.request import EXTENSION
from gateway.transport.asgi.uvicorn import PIPELINED
from tests.support.scripted import until
from tests.transport.asgi_support import OK, UPLOAD, WHOLE, Application, connected, no_time


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    no_time(monkeypatch)


@pytest.mark.parametrize("later", [WHOLE, WHOLE + WHOLE, UPLOAD + b"\r\nx", WHOLE[:-2]])
async def test_an_application_is_told_that_its_client_has_gone_also_when_more_was_asked(later: bytes) -> None:
    heard = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({**OK, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        heard.set()

    async with connected(application) as client:
        await client.send(WHOLE + later)
        await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 60)
        client.writer.close()
        await asyncio.wait_for(heard.wait(), 60)


@pytest.mark.parametrize("before", [b"", WHOLE, WHOLE[:-2]])
@pytest.mark.parametrize("after", [b"", WHOLE, WHOLE + WHOLE[:-2]])
async def test_who_serves_a_request_is_told_that_its_client_has_gone(before: bytes, after: bytes) -> None:
    entered, heard = asyncio.Event(), asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send)
        await until(lambda: scope["extensions"][EXTENSION].got >= len(WHOLE + before))
        with pytest.raises(ClientGone), WhileConnected(request):
            entered.set()
            await asyncio.Event().wait()
        heard.set()

    async with connected(application) as client:
        await client.send(WHOLE + before)
        await asyncio.wait_for(entered.wait(), 60)
        await client.send(after)
        client.writer.close()
        if after:  # the next request has paused the reading
            client.server.look()
        await asyncio.wait_for(heard.wait(), 60)


@pytest.mark.parametrize("before", [10, 100_000])
async def test_who_serves_a_request_without_reading_its_large_body_is_told_that_its_client_has_gone(
    before: int,
) -> None:
    entered, heard = asyncio.Event(), asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await until(lambda: scope["extensions"][EXTENSION].got >= len(UPLOAD) + 2)
        with pytest.raises(ClientGone), WhileConnected(HttpRequest(scope, receive, send)):
            entered.set()
            await asyncio.Event().wait()
        heard.set()

    async with connected(application) as client:
        client.writer.write(UPLOAD + b"\r\n" + b"x" * before)
        await asyncio.wait_for(entered.wait(), 60)
        client.writer.write(b"x" * 500_000)
        await until(lambda: client.server.got > 500_000)
        client.writer.close()
        await asyncio.wait_for(heard.wait(), 60)


async def test_who_serves_a_request_is_told_of_a_client_that_went_before_anybody_asked() -> None:
    heard = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await until(lambda: scope["extensions"][EXTENSION].lost)
        for _ in range(2):
            with pytest.raises(ClientGone), WhileConnected(HttpRequest(scope, receive, send)):
                await asyncio.Event().wait()
        with WhileConnected(HttpRequest(scope, receive, send)):
            pass
        await asyncio.sleep(0)
        heard.set()

    async with connected(application) as client:
        await client.send(WHOLE)
        client.writer.close()
        await asyncio.wait_for(heard.wait(), 60)


async def test_who_watches_its_client_may_read_the_request_and_an_open_stream_has_no_queues_of_its_connection() -> None:
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        protocol = scope["extensions"][EXTENSION]
        await until(lambda: protocol.got >= len(WHOLE))
        with pytest.raises(ClientGone), WhileConnected(HttpRequest(scope, receive, send)):
            message = await receive()
            waiting = protocol.flow._is_writable_event, protocol.pipeline
            heard.set_result((message, [type(each).__name__ for each in waiting]))
            await receive()

    async with connected(application) as client:
        await client.send(WHOLE)
        message, waiting = await asyncio.wait_for(heard, 60)
        assert (message["type"], message["more_body"]) == ("http.request", False)
        assert waiting == ["Flag", "Pipeline"]
        client.writer.close()
        await until(lambda: client.server.cycle.disconnected)


@pytest.mark.parametrize("more", [WHOLE * (PIPELINED + 1), UPLOAD + b"\r\n" + b"x" * 100_000], ids=["many", "large"])
async def test_what_is_asked_beside_a_request_that_takes_its_time_is_not_kept_without_bound(more: bytes) -> None:
    entered = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        with WhileConnected(HttpRequest(scope, receive, send)):
            entered.set()
            await asyncio.Event().wait()

    async with connected(application) as client:
        await client.send(WHOLE)
        await entered.wait()
        await client.send(more)
        client.server.look()
        assert client.server.flow.read_paused


async def test_any_number_of_requests_may_be_sent_at_once_and_all_are_answered() -> None:
    application = Application()
    async with connected(application) as client:
        await client.send(WHOLE * 5 * PIPELINED)
        client.writer.write(WHOLE * 5 * PIPELINED)
        application.told.set()
        for _ in range(10 * PIPELINED):
            await asyncio.wait_for(client.reader.readuntil(b"ok"), 60)


async def test_an_upgrade_in_the_middle_of_an_answer_ends_the_connection() -> None:
    application = Application()
    async with connected(application, "gateway.transport.websocket.uvicorn:MessageProtocol") as client:
        await client.send(WHOLE + WHOLE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert await client.rest() == b""
        await until(lambda: client.server.cycle.disconnected)
