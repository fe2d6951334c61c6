"""Many turns at once, over connections that are there: each once, or one after the other for a while.

A turn is one prompt or one call with all its chunks; `Turn` does one, and has what comes of it noted in the `Pieces`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from bench.chunks import Pieces, Result, counts, paced, times

Turn = Callable[[Pieces], Coroutine[Any, Any, None]]


async def once(turns: Sequence[Turn]) -> Result:
    """Each once, all at the same time: the figures of `paced`, and `seconds`."""
    took = [Pieces() for _ in turns]
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for turn, reader in zip(turns, took, strict=True):
            group.create_task(turn(reader))
    return paced(took) | {"seconds": time.monotonic() - began}


async def repeated(turns: Sequence[Turn], seconds: float) -> Result:
    """Each again and again for so many seconds: the figures of `counts`, `seconds`, and `runs` that ended within them.

    What comes afterwards is read, too: `all` are the chunks of both, `after` is the processor time that the rest took.
    """
    open_now, done = set[Pieces](), list[Pieces]()
    began = time.monotonic()

    async def again(turn: Turn) -> None:
        while time.monotonic() - began < seconds:
            reader = Pieces()
            open_now.add(reader)
            await turn(reader)
            open_now.discard(reader)
            done.append(reader)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for turn in turns:
                group.create_task(again(turn))

    work = asyncio.ensure_future(all_of_them())
    await asyncio.wait([work], timeout=seconds)
    counted = counts([*done, *open_now]) | {"seconds": time.monotonic() - began, "runs": len(done)}
    used = time.process_time()
    await work
    return counted | {"after": time.process_time() - used, "all": counts(done)["chunks"]}


async def timed(works: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> Result:
    """Each again and again for so many seconds, at least one of them once: the figures of `times`, and `seconds`."""
    took: list[float] = []
    began = time.monotonic()

    async def again(work: Callable[[], Awaitable[object]]) -> None:
        while (at := time.perf_counter()) and (not took or time.monotonic() - began < seconds):
            await work()
            took.append((time.perf_counter() - at) * 1e3)

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(again(work))
    return times(took) | {"seconds": time.monotonic() - began}
