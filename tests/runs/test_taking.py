"""Watchers that are given what comes by a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from gateway.contract import Batch, RunContext, next_batch
from gateway.core import events as e
from gateway.core.types import RunStatus
from gateway.runs import Engine
from tests.runs.test_runs import ended, watched
from tests.support.scripted import Scripted, engine, request, route, until

WORDS = [f"{number} " for number in range(20)]


def texts(batch: Batch) -> list[str]:
    return [str(event.delta) for _, event in batch.events if isinstance(event, e.PartDelta)]


class Talker:
    """An agent that says `WORDS` once it may, the last only when it may `end`."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.end = asyncio.Event()
        self.end.set()
        self.taken: list[str] = []

    async def __call__(self, context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta=""))
        await self.may.wait()
        for word in WORDS[:-1]:
            context.emit(e.PartDelta(part="text", delta=word))
        await self.end.wait()
        context.emit(e.PartDelta(part="text", delta=WORDS[-1]))
        context.emit(e.RunFinished())


async def seen(gateway: Engine, run_id: str) -> int:
    """The number of the newest event by now."""
    return max(number for number, _ in await gateway.runs.events(run_id))


async def test_what_is_said_in_one_turn_is_one_batch_and_needs_no_task_to_be_taken() -> None:
    agent = Talker()
    agent.end.clear()
    batches: list[Batch] = []
    tasks: list[object] = []
    snapshots: list[bytes] = []

    def take(batch: Batch) -> None:
        batches.append(batch)
        tasks.append(asyncio.current_task())
        snapshots.append(bytes(batch.snapshot.encoded))

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: gateway.live[created.id].log.last >= 3)
        async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
            following = asyncio.create_task(watch.follow(take, 30))
            await until(lambda: bool(gateway.live[created.id].log.waiting))
            agent.may.set()
            await until(lambda: bool(batches))
            agent.end.set()
            assert await following is True
        assert texts(batches[0]) == WORDS[:-1] and tasks[0] is None
        assert [word for batch in batches for word in texts(batch)] == WORDS
        assert snapshots[0] == b'{"message":"%b"}' % "".join(WORDS[:-1]).encode()
        assert isinstance(batches[-1].events[-1][1], e.RunFinished) and watch.run.status is RunStatus.SUCCESS


async def test_a_taker_that_fails_fails_its_own_wait_and_neither_the_run_nor_other_watchers() -> None:
    agent = Talker()

    def take(batch: Batch) -> None:
        raise LookupError("a reader's trouble")

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: gateway.live[created.id].log.last >= 3)
        others = asyncio.create_task(watched(gateway, created.id))
        async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
            waiting = asyncio.create_task(watch.follow(take, 30))
            await until(lambda: len(gateway.live[created.id].log.waiting) == 2)
            agent.may.set()
            with pytest.raises(LookupError):
                await waiting
            batch = await next_batch(watch, 30)
            assert batch is not None and texts(batch) == WORDS, "what failed was not taken"
        assert (await ended(gateway, created.id)).status is RunStatus.SUCCESS
        assert "".join(word for _, event in await others for word in _word(event)) == "".join(WORDS)


async def test_a_wait_whose_time_is_over_takes_nothing_more_and_the_next_one_goes_on_after_what_was_taken() -> None:
    agent = Talker()

    def take(batch: Batch) -> None:
        agent.taken += texts(batch)

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: gateway.live[created.id].log.last >= 3)
        async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
            with pytest.raises(TimeoutError):
                await watch.follow(take, 0.0)
            agent.may.set()
            await ended(gateway, created.id)
            assert not agent.taken, "nobody waited"
            assert await watch.follow(take, 30) and agent.taken == WORDS


async def test_who_returns_something_to_await_gets_the_next_batch_after_it_with_all_that_came_meanwhile() -> None:
    agent = Talker()
    agent.end.clear()
    batches: list[list[str]] = []
    may = asyncio.Event()

    async def slow(batch: Batch) -> None:
        await may.wait()
        if len(batches) == 2:
            watch.stop()

    def take(batch: Batch) -> Awaitable[None]:
        batches.append(texts(batch))
        return slow(batch)

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: gateway.live[created.id].log.last >= 3)
        async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
            following = asyncio.create_task(watch.follow(take, 30))
            await until(lambda: bool(gateway.live[created.id].log.waiting))
            agent.may.set()
            await until(lambda: bool(batches))
            agent.end.set()
            await ended(gateway, created.id)
            assert batches == [WORDS[:-1]]
            may.set()
            assert await following is False, "it was stopped"
            assert batches == [WORDS[:-1], WORDS[-1:]]
            assert await watch.follow(take) is True and len(batches) == 2


async def test_a_follower_that_is_cancelled_with_a_batch_in_hand_leaves_nothing_unawaited() -> None:
    agent = Talker()

    async def never(batch: Batch) -> None:
        raise AssertionError("who would await it is gone")

    def take(batch: Batch) -> Awaitable[None]:
        following.cancel()
        return never(batch)

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: gateway.live[created.id].log.last >= 3)
        async with gateway.runs.watch(created.id, await seen(gateway, created.id)) as watch:
            following = asyncio.create_task(watch.follow(take, 30))
            await until(lambda: bool(gateway.live[created.id].log.waiting))
            agent.may.set()
            assert (await ended(gateway, created.id)).status is RunStatus.SUCCESS
            with pytest.raises(asyncio.CancelledError):
                await following


def _word(event: e.Event) -> list[str]:
    return [str(event.delta)] if isinstance(event, e.PartDelta) else []
