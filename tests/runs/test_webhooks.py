"""Callbacks: owed after the commit, delivered at least once, never to addresses that are not allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.routing import BaseRoute

from gateway.contract import Callback
from gateway.core.errors import InterlinguaError
from gateway.core.types import Answer, Run, Webhook
from gateway.runs import Engine, webhooks
from gateway.runs.webhooks import Webhooks
from gateway.transport.guard import Guard
from gateway.transport.http import HttpClient
from tests.runs.test_questions_and_cancel import asking
from tests.support.scripted import Scripted, echo, engine, request, route, until


class Told:
    """An inbound adapter whose callbacks say the run's id and status."""

    def routes(self) -> Sequence[BaseRoute]:
        return []

    def refusal(self, error: InterlinguaError) -> Response:
        raise error

    def callback(self, run: Run) -> Callback:
        return Callback(json.dumps([run.id, run.status]).encode(), {"content-type": "application/json"})


class Receiver:
    """A server that takes callbacks and answers with the statuses it is given, then 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[list[str]] = []
        self.tried = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length"))
        body = json.loads(await reader.readexactly(length))
        self.tried += 1
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.got.append(body)
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[str]:
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()


@asynccontextmanager
async def delivering(gateway: Engine, *allow: str) -> AsyncIterator[None]:
    client = HttpClient(guard=Guard(allow))
    told = Webhooks(gateway.store, {"test": Told()}.get, client)
    gateway.on_owed(told.nudge)
    task = asyncio.create_task(told.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()


LOCAL = "127.0.0.0/8"


def hooked(url: str, **fields: object):  # type: ignore[no-untyped-def]
    return request(webhook=Webhook(url=url, protocol="test"), **fields)


async def test_every_stop_of_a_run_is_told_in_order() -> None:
    receiver = Receiver()
    async with receiving(receiver) as url, engine((route(), Scripted(asking))) as gateway, delivering(gateway, LOCAL):
        started = await gateway.runs.start(hooked(url))
        await until(lambda: receiver.got == [[started.id, "interrupted"]])
        await gateway.runs.answer(started.id, Answer(value={"ok": True}))
        await until(lambda: receiver.got[1:] == [[started.id, "success"]])


async def test_a_receiver_that_is_down_for_a_while_is_told_later() -> None:
    receiver = Receiver(500, 429)
    async with receiving(receiver) as url, engine((route(), Scripted(echo))) as gateway, delivering(gateway, LOCAL):
        started = await gateway.runs.start(hooked(url))
        await until(lambda: receiver.got == [[started.id, "success"]])
        assert receiver.tried == 3
        await until(lambda: not gateway.live)
    assert receiver.tried == 3


async def test_the_gaps_between_tries_are_kept_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_GAP_SECONDS", 0.1)
    tries: list[float] = []

    class Timed(Receiver):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tries.append(asyncio.get_running_loop().time())
            await super().serve(reader, writer)

    receiver = Timed(503, 503)
    async with receiving(receiver) as url, engine((route(), Scripted(echo))) as gateway, delivering(gateway, LOCAL):
        started = await gateway.runs.start(hooked(url))
        await until(lambda: receiver.got == [[started.id, "success"]])
    assert tries[1] - tries[0] >= 0.1 and tries[2] - tries[1] >= 0.2


async def test_what_comes_later_waits_for_what_is_tried_again() -> None:
    receiver = Receiver(503, 503)
    async with receiving(receiver) as url, engine((route(), Scripted(asking))) as gateway, delivering(gateway, LOCAL):
        started = await gateway.runs.start(hooked(url))
        await until(lambda: receiver.tried == 1)
        await gateway.runs.answer(started.id, Answer(value={"ok": True}))
        await gateway.runs.wait(started.id)
        await until(lambda: len(receiver.got) == 2)
        assert receiver.got == [[started.id, "interrupted"], [started.id, "success"]]


async def test_a_receiver_that_refuses_for_good_is_not_asked_again() -> None:
    receiver = Receiver(404)
    async with receiving(receiver) as url, engine((route(), Scripted(echo))) as gateway, delivering(gateway, LOCAL):
        await gateway.runs.start(hooked(url))
        await until(lambda: receiver.tried == 1)
        await _nothing_owed(gateway)
    assert receiver.tried == 1


async def test_an_internal_address_is_never_called_unless_it_is_allowed() -> None:
    receiver = Receiver()
    async with receiving(receiver) as url, engine((route(), Scripted(echo))) as gateway, delivering(gateway):
        started = await gateway.runs.start(hooked(url))
        await gateway.runs.wait(started.id, timeout=30)
        await _nothing_owed(gateway)
    assert receiver.tried == 0


async def test_what_was_owed_before_a_restart_is_delivered_after_it(tmp_path: Path) -> None:
    receiver = Receiver()
    async with receiving(receiver) as url:
        async with engine((route(), Scripted(echo)), file=tmp_path / "s.db") as gateway:
            started = await gateway.runs.start(hooked(url))
            await gateway.runs.wait(started.id, timeout=30)
        assert receiver.tried == 0
        async with engine((route(), Scripted(echo)), file=tmp_path / "s.db") as gateway, delivering(gateway, LOCAL):
            await until(lambda: receiver.got == [[started.id, "success"]])


async def _nothing_owed(gateway: Engine) -> None:
    async with asyncio.timeout(30):
        while await gateway.store.deliveries(2e10):  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.01)
