"""Clients that leave, or ask for another protocol, in the middle of something: on a real socket."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.aio import run
from tests.support.scripted import until
from tests.transport.asgi_support import OK, UPLOAD, WHOLE, Application, connected, no_time


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    no_time(monkeypatch)


@pytest.mark.parametrize("later", [WHOLE, WHOLE + WHOLE, UPLOAD + b"\r\nx", WHOLE[:-2]])
def test_an_application_is_told_that_its_client_has_gone_also_when_more_was_asked(later: bytes) -> None:
    async def scene() -> None:
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

    run(scene())


def test_an_upgrade_in_the_middle_of_an_answer_ends_the_connection() -> None:
    async def scene() -> None:
        application = Application()
        async with connected(application, "gateway.transport.websocket.uvicorn:MessageProtocol") as client:
            await client.send(WHOLE + WHOLE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert await client.rest() == b""
            await until(lambda: client.server.cycle.disconnected)

    run(scene())
