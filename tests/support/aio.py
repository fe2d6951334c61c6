"""Run one coroutine of a test to its end, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(
    coro: Coroutine[Any, Any, T],
    timeout: float = 10,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """`asyncio.run(coro)`, with TimeoutError after `timeout` seconds and on the loop asked for."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout):
            return await coro

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(bounded())
