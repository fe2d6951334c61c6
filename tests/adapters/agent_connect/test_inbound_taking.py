"""Snapshots that go out by a call, from where the agent's words came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from adapters.agent_connect.codec_stream import SMALL
from adapters.agent_connect.inbound.runs import RunStream
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.runs import Engine
from gateway.transport.asgi import Headers, HttpRequest, Reply
from gateway.transport.asgi.request import EXTENSION
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted, engine, request, route, until

FIRST = "a" * (SMALL - 200)
BURST_OF = ["b"] * 100
LAST = "c" * 300


class Client:
    """A connection that takes pieces by a call. `taken`: what came by it; `sent`: what was awaited."""

    ready = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.taken: list[bytes] = []

    def put(self, piece: bytes) -> bool:
        if self.ready:
            self.taken.append(piece)
        return self.ready

    def answer(self, reply: Reply, extra: Headers) -> bool:
        return False

    def begin(self, status: int, headers: Headers) -> bool:
        return False

    def end(self, piece: bytes) -> bool:
        return False

    def watch(self, told: Callable[[], None] | None) -> None:
        """It never goes."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message.get("body", b""))

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    def request(self) -> HttpRequest:
        return HttpRequest({"headers": [], "extensions": {EXTENSION: self}}, self.receive, self.send)


def scene(agent: Callable[[Client, Engine, RunContext], Awaitable[None]]) -> Client:
    """A client of a run that is driven by `agent`."""
    client = Client()

    async def play() -> None:
        async def speak(context: RunContext) -> None:
            await agent(client, gateway, context)
            context.emit(e.RunFinished())

        async with engine((route(), Scripted(speak))) as gateway:
            started = await gateway.runs.start(request())
            await RunStream(gateway, 3600.0).send(client.request(), started, AGENT, ["values"], ())

    run(play())
    return client


async def say(client: Client, gateway: Engine, context: RunContext, *words: str) -> None:
    """In one burst, to a client that waits; goes on when the last of it has come."""
    await until(lambda: bool(gateway.live[context.run.id].log.waiting))
    context.emit(*[e.PartDelta(part="text", delta=word) for word in words])
    await until(lambda: any(words[-1].encode() in piece for piece in client.sent + client.taken), timeout=30.0)


def test_a_piece_goes_out_by_a_call_once_the_answer_has_begun() -> None:
    async def agent(*where: Any) -> None:
        for word in ("first", "second", "third"):
            await say(*where, word)

    client = scene(agent)
    assert [b"firstsecondthird" in piece for piece in client.taken] == [False, False, True]
    assert not client.sent[0], "the answer begins with its head"


def test_who_lags_is_not_called() -> None:
    async def agent(client: Client, *where: Any) -> None:
        await say(client, *where, "first")
        client.ready = False
        await say(client, *where, "second")
        client.ready = True
        await say(client, *where, "third")

    client = scene(agent)
    assert [b"third" in piece for piece in client.taken] == [False, True]
    assert any(b"firstsecond" in piece for piece in client.sent)


def test_after_a_burst_of_several_kinds_pieces_have_the_whole_document_again() -> None:
    async def agent(client: Client, gateway: Engine, context: RunContext) -> None:
        await say(client, gateway, context, "first")
        await say(client, gateway, context, "second")
        await until(lambda: bool(gateway.live[context.run.id].log.waiting))
        context.emit(e.PartReplaced(part="text", value="new"), e.PartDelta(part="text", delta="est"))
        await until(lambda: any(b"newest" in piece for piece in client.taken))
        await say(client, gateway, context, "third")

    client = scene(agent)
    assert b'"new"' in client.taken[2] and b'"newest"' in client.taken[2], "each is a snapshot of its own"
    assert [b'"newestthird"' in piece for piece in client.taken] == [False, False, False, True]


def test_the_snapshot_that_makes_a_document_too_large_for_every_delta_is_not_held_back_until_the_next_word() -> None:
    async def agent(*where: Any) -> None:
        await say(*where, FIRST)
        await say(*where, *BURST_OF, LAST)

    client = scene(agent)
    assert sum(LAST.encode() in piece for piece in client.sent + client.taken) == 2, "and once in the result"
