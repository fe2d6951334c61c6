"""Flag: it does for its waiters what an asyncio.Event does, and is smaller."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from gateway.transport.waiting import Flag

KINDS = pytest.mark.parametrize("kind", [Flag, asyncio.Event])


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@KINDS
async def test_all_who_wait_go_on_also_if_it_is_cleared_at_once(kind: Callable[[], Flag]) -> None:
    flag = kind()
    waiters = [asyncio.create_task(flag.wait()) for _ in range(3)]
    await turns()
    assert not any(waiter.done() for waiter in waiters)
    flag.set()
    flag.clear()
    await asyncio.gather(*waiters)
    late = asyncio.create_task(flag.wait())
    await turns()
    assert not (late.done() or flag.is_set())
    flag.set()
    await late
    await flag.wait()


@KINDS
async def test_a_waiter_who_gives_up_keeps_no_other_from_going_on(kind: Callable[[], Flag]) -> None:
    flag = kind()
    first, second = (asyncio.create_task(flag.wait()) for _ in range(2))
    await turns()
    first.cancel()
    await asyncio.wait([first])
    third = asyncio.create_task(flag.wait())
    await turns()
    second.cancel()
    flag.set()
    await asyncio.wait([second, third])
    assert (first.cancelled(), second.cancelled(), third.cancelled()) == (True, True, False)


def test_one_that_nobody_waits_for_is_small() -> None:
    event = asyncio.Event()
    assert 8 * sys.getsizeof(Flag()) < sys.getsizeof(event) + sys.getsizeof(event._waiters)  # type: ignore[attr-defined]
