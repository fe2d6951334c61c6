"""A time limit that is cheap to set and to move."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from gateway.transport.waiting import TICK, Deadline, Timer
from tests.support import aio
from tests.support.aio import later


def run(work: Coroutine[Any, Any, None]) -> None:
    aio.run(work, timeout=10_000, loop_factory=aio.Still)


def test_work_that_takes_too_long_ends_with_a_timeout_of_this_deadline() -> None:
    async def work() -> None:
        deadline = Deadline(10)
        with pytest.raises(TimeoutError), deadline:
            await later(9)
            await later(2)
        assert deadline.expired
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    run(work())


def test_work_in_time_leaves_no_timer_behind() -> None:
    async def work() -> None:
        with Deadline(10) as deadline:
            await later(9)
        await later(9)
        assert not deadline.expired

    run(work())


def test_a_later_end_wins_over_the_timer_that_is_set() -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError), Deadline(10) as deadline:
            deadline.move(await later(5) + 20)
            reached = await later(15)
            await later(6)
        assert reached

    run(work())


def test_an_earlier_end_is_kept() -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError), Deadline(60) as deadline:
            deadline.move(await later(0))
            await later(0)

    run(work())


def test_without_an_end_it_waits_and_may_be_given_one_again() -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError), Deadline(10) as deadline:
            deadline.move(None)
            deadline.move(await later(30) + 10)
            reached = await later(5)
            await later(6)
        assert reached

    run(work())


def test_a_cancel_from_elsewhere_stays_a_cancel() -> None:
    async def work() -> None:
        async def limited() -> None:
            with Deadline(60):
                await asyncio.Event().wait()

        task = asyncio.create_task(limited())
        await later(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


def test_a_timeout_of_the_work_itself_is_not_the_deadlines() -> None:
    async def work() -> None:
        deadline = Deadline(60)
        with pytest.raises(TimeoutError), deadline:
            raise TimeoutError
        assert not deadline.expired

    run(work())


def test_it_is_entered_once() -> None:
    async def work() -> None:
        with Deadline() as deadline, pytest.raises(RuntimeError):
            deadline.__enter__()
        deadline.move(0.0)  # over: without effect
        assert not deadline.expired

    run(work())


def test_a_timer_calls_when_it_is_due_and_not_before_and_not_when_it_is_cancelled() -> None:
    async def work() -> None:
        called: list[str] = []
        loop = asyncio.get_running_loop()
        Timer(loop, 10, lambda: called.append("ten"))
        Timer(loop, TICK / 2, lambda: called.append("at once"))
        early, late = (Timer(loop, 20, lambda: called.append("cancelled")) for _ in range(2))
        early.cancel()
        await later(TICK / 2)
        assert called == ["at once"]
        await later(9)
        late.cancel()
        assert called == ["at once"]
        await later(1)
        assert called == ["at once", "ten"]
        await later(20)
        assert called == ["at once", "ten"]

    run(work())


def test_the_loop_is_asked_for_one_timer_a_tick_however_many_end_in_it() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        asked: list[asyncio.TimerHandle] = []
        real = loop.call_at

        def call_at(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
            asked.append(handle := real(when, *args, **options))
            return handle

        loop.call_at = call_at  # type: ignore[method-assign]
        for _ in range(100):
            with Deadline(10):
                await asyncio.sleep(0)
        assert len(asked) == 1
        await later(1)
        with Deadline(10):
            pass
        assert len(asked) == 2, "none is left of those that ended, and the next begins a tick of its own"
        await later(1)
        called: list[int] = []
        lasting = [Timer(loop, 10, partial(called.append, number)) for number in range(100)]
        await later(1)
        assert len(asked) == 4, "a tick, and one for all that are due at the same time"
        for timer in lasting[3:]:
            timer.cancel()
        await later(9)
        assert (called, len(asked)) == ([0, 1, 2], 7), "a timer of the loop's for each that was not cancelled"
        days = Timer(loop, 200_000, partial(called.append, -1))
        await later(1)
        days.cancel()
        left = [handle for handle in asked if handle.when() > loop.time() and not handle.cancelled()]
        assert not left, "what is not waited for any more leaves nothing until it would have been due"

    run(work())
