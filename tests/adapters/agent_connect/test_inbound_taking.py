"""Snapshots that go out by a call, from where the agent's words came."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from adapters.agent_connect.codec_stream import BURST, SMALL
from adapters.agent_connect.inbound.call import Call
from adapters.agent_connect.inbound.stream import Stream
from gateway.adapter import RunContext
from gateway.core import events as e
from gateway.transport.asgi.uvicorn import EXTENSION
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted, engine, request, route, until

FIRST = "a" * (SMALL - 200)
BURST_OF = ["b"] * (BURST // len(FIRST) + 10)
LAST = "c" * 300


class Client:
    """A connection with the short way. `put`: what came by it; `sent`: by the long one."""

    ready = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.taken: list[bytes] = []
        self.scope = {"extensions": {EXTENSION: self}}

    def put(self, piece: bytes) -> None:
        self.taken.append(piece)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message.get("body", b""))

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    def call(self) -> Call:
        return cast(Call, SimpleNamespace(send=self.send, receive=self.receive, scope=self.scope))


def test_the_snapshot_that_makes_a_document_too_large_for_every_delta_is_not_held_back_until_the_next_word() -> None:
    async def scene() -> None:
        client, over = Client(), asyncio.Event()
        came = client.taken

        async def agent(context: RunContext) -> None:
            context.emit(e.PartDelta(part="text", delta=FIRST))
            await until(lambda: any(FIRST.encode() in piece for piece in client.sent + came))
            await until(lambda: bool(gateway.live[context.run.id].log.waiting))
            context.emit(*[e.PartDelta(part="text", delta=word) for word in BURST_OF])
            context.emit(e.PartDelta(part="text", delta=LAST))
            await over.wait()
            context.emit(e.RunFinished())

        async with engine((route(), Scripted(agent))) as gateway:
            started = await gateway.start(request())
            sending = asyncio.ensure_future(
                Stream(gateway, 3600.0).send(client.call(), started, AGENT, ["values"], None)
            )
            await until(lambda: any(LAST.encode() in piece for piece in came), timeout=20.0)
            over.set()
            await sending
            assert sum(LAST.encode() in piece for piece in came) == 1

    run(scene())
