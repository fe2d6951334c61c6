"""Watchers that take what comes by a call, from where it is said."""

from __future__ import annotations

import asyncio

import pytest

from gateway.contract import Batch, RunContext
from gateway.core import events as e
from gateway.core.types import RunStatus
from gateway.runs import Engine
from tests.runs.test_runs import ended, watched
from tests.support.aio import run
from tests.support.scripted import Scripted, engine, request, route, until

WORDS = [f"{number} " for number in range(20)]


def texts(batch: Batch) -> list[str]:
    return [str(event.delta) for _, event in batch.events if isinstance(event, e.PartDelta)]


class Talker:
    """An agent that says `WORDS` once it may, and notes how many of them were taken when `emit` returned."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.taken: list[str] = []
        self.noted: list[int] = []

    async def __call__(self, context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta=""))
        await self.may.wait()
        for word in WORDS:
            context.emit(e.PartDelta(part="text", delta=word))
            self.noted.append(len(self.taken))
            if context.flowing:
                continue
            await context.drain()
        context.emit(e.RunFinished())


async def seen(gateway: Engine, run_id: str) -> int:
    """The number of the newest event by now."""
    return max(number for number, _ in await gateway.runs.events(run_id))


def test_what_is_taken_is_taken_while_it_is_said_and_the_rest_is_returned() -> None:
    async def scene() -> None:
        agent = Talker()
        snapshots: list[bytes] = []

        def take(batch: Batch) -> bool:
            if any(isinstance(event, e.TERMINAL) for _, event in batch.events):
                return False
            agent.taken += texts(batch)
            snapshots.append(bytes(batch.snapshot.encoded))
            return True

        async with engine((route(), Scripted(agent))) as gateway:
            created = await gateway.runs.start(request())
            await until(lambda: gateway.live[created.id].log.last >= 3)
            returned: list[tuple[int, e.Event]] = []
            async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
                waiting = asyncio.create_task(watch.next(30, take))
                await until(lambda: bool(gateway.live[created.id].log.waiting))
                agent.may.set()
                batch = await waiting
                while batch is not None:
                    returned += batch.events
                    batch = await watch.next(30, take)
            assert agent.taken == WORDS
            assert agent.noted == list(range(1, len(WORDS) + 1)), "each was taken before `emit` returned"
            assert snapshots[-1] == b'{"message":"%b"}' % "".join(WORDS).encode()
            assert isinstance(returned[-1][1], e.RunFinished)
            assert not any(isinstance(event, e.PartDelta) for _, event in returned)

    run(scene())


def test_a_taker_that_fails_fails_its_own_wait_and_neither_the_run_nor_other_watchers() -> None:
    async def scene() -> None:
        agent = Talker()

        def take(batch: Batch) -> bool:
            raise LookupError("a reader's trouble")

        async with engine((route(), Scripted(agent))) as gateway:
            created = await gateway.runs.start(request())
            await until(lambda: gateway.live[created.id].log.last >= 3)
            others = asyncio.create_task(watched(gateway, created.id))
            async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
                waiting = asyncio.create_task(watch.next(30, take))
                await until(lambda: len(gateway.live[created.id].log.waiting) == 2)
                agent.may.set()
                with pytest.raises(LookupError):
                    await waiting
                batch = await watch.next(30)
                assert batch is not None and texts(batch)[0] == WORDS[0], "what failed was not taken"
            assert (await ended(gateway, created.id)).status is RunStatus.SUCCESS
            assert "".join(word for _, event in await others for word in _word(event)) == "".join(WORDS)

    run(scene())


def test_a_wait_whose_time_is_over_takes_nothing_more_and_the_next_one_goes_on_after_what_was_taken() -> None:
    async def scene() -> None:
        agent = Talker()

        def take(batch: Batch) -> bool:
            agent.taken += texts(batch)
            return True

        async with engine((route(), Scripted(agent))) as gateway:
            created = await gateway.runs.start(request())
            await until(lambda: gateway.live[created.id].log.last >= 3)
            async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
                with pytest.raises(TimeoutError):
                    await watch.next(0.0, take)
                agent.may.set()
                await ended(gateway, created.id)
                assert not agent.taken, "nobody waited"
                batch = await watch.next(30, take)
                assert batch is not None and texts(batch) == WORDS

    run(scene())


def _word(event: e.Event) -> list[str]:
    return [str(event.delta)] if isinstance(event, e.PartDelta) else []
