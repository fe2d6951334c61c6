"""Connections that are futures, and what opens them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.core.errors import AgentGone
from gateway.transport.stdio import Supervisor
from gateway.transport.stdio.supervisor import Backoff
from tests.support import aio

SOON = Backoff(first=0.01, most=0.01)
NEVER = Backoff(first=3600.0, most=3600.0)
BROKEN = AgentGone("agent exited with 1: no key", detail="much more")


class Line:
    """A connection."""

    def __init__(self) -> None:
        self.alive = True
        self.closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def die(self, why: object = None) -> None:
        self.alive = False
        self.closed.set_result(why)

    async def aclose(self) -> None:
        self.alive = False
        if not self.closed.done():
            self.closed.set_result(None)
        await self.hold.wait()
        self.ended.set()


class Opener:
    """What opens connections: fails with what is in `failures`, one after the other, then succeeds."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.opened: list[Line] = []
        self.calls = 0
        self.cancelled = 0
        self.gate, self.cleaned = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.cleaned.set()

    async def __call__(self) -> Line:
        self.calls += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await self.cleaned.wait()
            self.cancelled += 1
            raise
        if self.failures:
            raise self.failures.pop(0)
        self.opened.append(Line())
        return self.opened[-1]


def supervisor(opener: Opener, **options: Any) -> Supervisor[Line]:
    return Supervisor(opener, name="agent", **({"backoff": SOON} | options))


def run(scene: Callable[[], Awaitable[None]]) -> None:
    """The scene; no task of it may be left."""

    async def bounded() -> None:
        await scene()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    aio.run(bounded())
