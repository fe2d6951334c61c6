"""A handler that writes down what comes in and does what a test tells it, and peers that use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from gateway.transport.pipe import Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Malformed
from tests.support.pipes import LIMIT, MemoryPipe, pair

Answer = Callable[[Raw, Id], Awaitable[Any]]


class Recorder:
    """`heard` is what came, in order: ("notify", method, params), ("request", ...), ("unreadable", reason).

    Requests are answered by `on[method]`, else with their own params.
    """

    def __init__(self, **on: Answer) -> None:
        self.on = on
        self.heard: list[tuple[Any, ...]] = []
        self.hold: asyncio.Event | None = None
        """Set: notifications are awaited until it is."""

    async def request(self, method: str, params: Raw, id: Id) -> Any:
        """See Handler."""
        self.heard.append(("request", method, value(params)))
        return await self.on[method](params, id) if method in self.on else params

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """See Handler."""
        self.heard.append(("notify", method, value(params)))
        return None if self.hold is None else self._held(self.hold)

    async def _held(self, until: asyncio.Event) -> None:
        await until.wait()

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """See Handler."""
        self.heard.append(("unreadable", what.reason))


def value(raw: Raw) -> Any:
    """What is inside, None where there is nothing."""
    return jsonrpc.unpack(raw) if raw else None


@asynccontextmanager
async def two(
    left: Any = None, right: Any = None, *, limit: int = LIMIT, eager: bool = False, **options: Any
) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two peers talking to each other; `options` are the left one's. No task of theirs is left behind."""
    before = asyncio.all_tasks()
    here, there = pair(limit, eager=eager)
    a, b = Peer(here, left or Recorder(), **{"grace": 30.0, **options}), Peer(there, right or Recorder(), grace=30.0)
    try:
        async with a, b:
            yield a, b
    finally:
        await settled()
        assert not asyncio.all_tasks() - before


@asynccontextmanager
async def one(
    handler: Any = None, *, limit: int = LIMIT, eager: bool = False, **options: Any
) -> AsyncIterator[tuple[Peer, MemoryPipe]]:
    """A peer, and the other end of its pipe for the test to play. No task is left behind."""
    before = asyncio.all_tasks()
    here, there = pair(limit, eager=eager)
    try:
        async with Peer(here, handler or Recorder(), **{"grace": 30.0, **options}) as peer:
            yield peer, there
    finally:
        await settled()
        assert not asyncio.all_tasks() - before


async def say(pipe: MemoryPipe, *messages: bytes | Any) -> None:
    """Send messages as they are (bytes) or as JSON."""
    await pipe.send([m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages])


async def hear(pipe: MemoryPipe, count: int) -> list[Any]:
    """The next `count` messages that come out of a pipe, decoded; fewer if it ends."""
    heard: list[Any] = []
    while len(heard) < count and (arrived := await pipe.receive()):
        heard += [json.loads(m) for m in arrived if isinstance(m, bytes)]
    return heard


async def settled(turns: int = 20) -> None:
    """Let everything that can run now do so."""
    for _ in range(turns):
        await asyncio.sleep(0)
