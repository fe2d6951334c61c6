"""Waits that end when the token does of whoever waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.access.visit import Visit
from gateway.contract.gateway import Batch, Take, Watch
from gateway.core.types import Run

T = TypeVar("T")


class LastingWatch:
    """See `gateway.contract.Watch`. `next` raises Unauthenticated once the token has expired."""

    def __init__(self, watch: Watch, visit: Visit) -> None:
        self._watch = watch
        self._visit = visit

    @property
    def run(self) -> Run:
        return self._watch.run

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        left = TimeLeft(timeout)
        while True:
            seconds = left.of(self._visit)
            try:
                return await self._watch.next(seconds, take)
            except TimeoutError:
                if left.over:
                    raise


async def waited(wait: Callable[[float | None], Awaitable[T | None]], timeout: float | None, visit: Visit) -> T | None:
    """`wait(timeout)`, which gives None when the time has passed. Raises Unauthenticated once the token has expired."""
    left = TimeLeft(timeout)
    while True:
        found = await wait(left.of(visit))
        if found is not None or left.over:
            return found


class TimeLeft:
    """How much of a time is left that somebody waits; None is for ever."""

    def __init__(self, timeout: float | None) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = math.inf if timeout is None else self._clock() + timeout

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self._clock() >= self._until

    def of(self, visit: Visit) -> float | None:
        """Seconds to wait now; None for ever. Raises Unauthenticated."""
        seconds = self._until - self._clock()
        if not visit.lasting:
            seconds = min(seconds, visit.left())
        return None if seconds == math.inf else max(seconds, 0.0)
