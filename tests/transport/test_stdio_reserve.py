"""Reserve: processes that are there before anybody needs them; with processes that wait until their input ends."""

from __future__ import annotations

import asyncio
import os
import signal

from gateway.core.errors import AgentGone
from gateway.transport.stdio import Reserve, StdioPipe
from gateway.transport.stdio.supervisor import Backoff
from tests.transport.stdio_support import PATIENT, agent, marked, spawn, until_async
from tests.transport.supervisor_support import NEVER, SOON, run


class Starter:
    """Starts processes; fails with what is in `failures` first."""

    def __init__(self, env: dict[str, str], *failures: Exception) -> None:
        self.env = env
        self.failures = list(failures)
        self.started: list[StdioPipe] = []

    async def __call__(self) -> StdioPipe:
        if self.failures:
            raise self.failures.pop(0)
        self.started.append(await spawn(agent("mute"), name="agent", env=self.env, grace=PATIENT))
        return self.started[-1]


def reserve(starter: Starter, most: int, backoff: Backoff = SOON) -> Reserve:
    return Reserve(starter, lambda: most, name="agent", backoff=backoff)


def test_processes_wait_and_one_that_is_taken_is_replaced() -> None:
    with marked() as mark:

        async def scene() -> None:
            start = Starter(mark.env)
            spares = reserve(start, 2)
            first = await spares.take()
            await until_async(lambda: len(start.started) == 3, 30)
            second = await spares.take()
            assert [first, second] == start.started[:2]
            await until_async(lambda: len(start.started) == 4, 30)
            await spares.aclose()
            assert [pipe.exit is None for pipe in start.started] == [True, True, False, False]
            await asyncio.gather(first.aclose(), second.aclose())

        run(scene)


def test_whoever_closes_it_waits_until_every_process_has_ended() -> None:
    with marked() as mark:

        async def scene() -> None:
            start = Starter(mark.env)
            spares = reserve(start, 2)
            first = await spares.take()
            await until_async(lambda: len(start.started) == 3, 30)
            closing = asyncio.create_task(spares.aclose())
            await asyncio.sleep(0)
            await spares.aclose()
            assert [pipe.exit is None for pipe in start.started] == [True, False, False]
            await asyncio.gather(first.aclose(), closing)

        run(scene)


def test_one_that_ends_before_it_is_taken_is_replaced_and_given_to_nobody() -> None:
    with marked() as mark:

        async def scene() -> None:
            start = Starter(mark.env)
            spares = reserve(start, 1)
            first = await spares.take()
            await until_async(lambda: len(start.started) == 2, 30)
            os.kill(start.started[1].pid, signal.SIGKILL)
            await until_async(lambda: len(start.started) == 3, 30)
            third = await spares.take()
            assert third is start.started[2]
            await asyncio.gather(first.aclose(), third.aclose(), spares.aclose())

        run(scene)


def test_a_start_that_fails_is_tried_again_after_a_while() -> None:
    with marked() as mark:

        async def scene() -> None:
            start, slow = Starter(mark.env), Starter(mark.env)
            soon, never = reserve(start, 1), reserve(slow, 1, NEVER)
            taken = [await each.take() for each in (soon, never)]
            for each in start, slow:
                each.failures = [AgentGone("no memory")]
            await until_async(lambda: len(start.started) == 2 and not slow.failures, 30)
            assert len(slow.started) == 1
            await asyncio.gather(*(pipe.aclose() for pipe in taken), soon.aclose(), never.aclose())

        run(scene)


def test_without_a_reserve_each_is_started_when_it_is_taken() -> None:
    with marked() as mark:

        async def scene() -> None:
            start = Starter(mark.env)
            spares = reserve(start, 0)
            for count in 1, 2:
                pipe = await spares.take()
                assert len(start.started) == count
                await pipe.aclose()
            await spares.aclose()

        run(scene)
