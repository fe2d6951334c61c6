"""Run one coroutine of a test to its end, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

T = TypeVar("T")


def on(*loops: Callable[[], asyncio.AbstractEventLoop]) -> pytest.MarkDecorator:
    """A mark: a test that is a coroutine is run on a loop of each of these kinds."""
    return pytest.mark.loop.with_args(*loops)


EACH_LOOP = on(asyncio.new_event_loop, uvloop.new_event_loop)


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time a test puts forward, by `ahead`. Give `run` more seconds than that."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Still(Clock):
    """One whose time stands still but for that, however slow the machine is."""

    def time(self) -> float:
        return self.ahead


async def later(seconds: float) -> float:
    """Put the `Clock` forward, and let what is due then happen; what time it is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    loop.ahead += seconds
    for _ in range(20):
        await asyncio.sleep(0)
    return loop.time()


def run(
    coro: Coroutine[Any, Any, T],
    timeout: float = 120,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """`asyncio.run(coro)`, with TimeoutError after `timeout` seconds and on the loop asked for."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout):
            return await coro

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(bounded())
