"""A run's end is committed whole by the run's own task, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.runs import Engine
from gateway.store import RunChange
from gateway.store.sqlite import SqliteStore
from gateway.tracing import metrics
from tests.support.aio import Clock, later, on
from tests.support.scripted import Scripted, echo, engine, request, route, until, use

LONG = 30.0


class Slow(SqliteStore):
    """Some commits wait until they are let go."""

    def __init__(self, path: Path, waits: Callable[[RunChange], bool]) -> None:
        super().__init__(path)
        self.waits = waits
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        if self.waits(change):
            self.reached.set()
            await self.go.wait()
        await super().commit(run_id, change, soon=soon)


def ends(change: RunChange) -> bool:
    return change.release


def cancels(change: RunChange) -> bool:
    return change.run is not None and change.run.cancel_reason is not None and not change.release


async def closes_once_let_go(gateway: Engine, store: Slow) -> None:
    """Close it while a commit waits, and not before that is let go."""
    await asyncio.wait_for(store.reached.wait(), LONG)
    closing = asyncio.create_task(gateway.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    store.go.set()
    await asyncio.wait_for(closing, LONG)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_gateway_that_closes_waits_for_an_end_that_is_being_written(tmp_path: Path, queued: bool) -> None:
    file = tmp_path / "store.db"
    store = Slow(file, ends)
    gateway = Engine(store)
    use(gateway, (route(), Scripted(echo)))
    await gateway.open()
    started = await gateway.runs.start(request(start_at=time.time() + 3600 if queued else None))
    if queued:
        await gateway.runs.cancel(started.id)
    await closes_once_let_go(gateway, store)
    async with engine((route(), Scripted(echo)), file=file) as again:
        assert (await again.runs.get(started.id)).status is (RunStatus.CANCELLED if queued else RunStatus.SUCCESS)


async def test_a_gateway_that_closes_waits_for_an_end_that_an_adapter_has_committed_by_draining(tmp_path: Path) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.RunFinished())
        await context.drain()
        await asyncio.Event().wait()

    file = tmp_path / "store.db"
    store = Slow(file, ends)
    gateway = Engine(store)
    use(gateway, (route(), Scripted(agent)))
    await gateway.open()
    started = await gateway.runs.start(request())
    await closes_once_let_go(gateway, store)
    async with engine((route(), Scripted(echo)), file=file) as again:
        assert (await again.runs.get(started.id)).status is RunStatus.SUCCESS


async def test_an_end_that_an_adapter_drains_is_written_whole_though_its_task_is_cancelled_meanwhile(
    tmp_path: Path,
) -> None:
    file = tmp_path / "store.db"
    store, unwound = Slow(file, ends), asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="said"), e.RunFinished())
        try:
            await context.drain()
        finally:
            unwound.set()

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        await asyncio.wait_for(store.reached.wait(), LONG)
        assert live.task is not None
        live.task.cancel()
        await asyncio.wait_for(unwound.wait(), LONG)
        assert not live.ended
        store.go.set()
        done = await gateway.runs.wait(started.id, LONG)
        assert done is not None and (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"said"}')
        told = await gateway.runs.events(started.id)
        await asyncio.wait_for(live.task, LONG)
        assert live.log.last == told[-1][0]
    async with engine((route(), Scripted(echo)), file=file) as again:
        assert (await again.runs.get(started.id)) == done and await again.runs.events(started.id) == told


@on(Clock)
async def test_a_time_limit_that_passes_while_an_adapter_drains_the_end_costs_the_run_nothing(tmp_path: Path) -> None:
    store, more = Slow(tmp_path / "store.db", ends), asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="said"), e.RunFinished())
        await context.drain()
        more.set()

    async with engine((route(timeout=200), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        await asyncio.wait_for(store.reached.wait(), LONG)
        await later(201)
        store.go.set()
        done = await gateway.runs.wait(started.id, LONG)
        assert done is not None and done.status is RunStatus.SUCCESS
        await asyncio.wait_for(more.wait(), LONG)


async def test_a_grace_that_is_over_while_the_end_is_being_written_costs_the_run_nothing(tmp_path: Path) -> None:
    metrics.clear()
    store, stop = Slow(tmp_path / "store.db", ends), asyncio.Event()

    async def agent(context: RunContext) -> None:
        await stop.wait()
        context.emit(e.PartDelta(part="text", delta="stopped"), e.RunFinished())

    scripted = Scripted(agent)
    scripted.on_cancel = stop.set
    async with engine((route(), scripted), store=store, cancel_grace=0.01) as gateway:
        started = await gateway.runs.start(request())
        await gateway.runs.cancel(started.id)
        await asyncio.wait_for(store.reached.wait(), LONG)
        over = asyncio.get_running_loop().time() + 0.02
        await until(lambda: asyncio.get_running_loop().time() > over)
        store.go.set()
        done = await gateway.runs.wait(started.id, LONG)
        assert done is not None and (done.status, done.losses) == (RunStatus.CANCELLED, {})
        assert bytes(done.output) == b'{"message":"stopped"}'
        assert metrics.losses.value("scripted", "test", "upstream_may_still_run") == 0


async def test_a_cancel_that_is_being_written_when_the_agent_is_done_is_the_runs_end(tmp_path: Path) -> None:
    store, done = Slow(tmp_path / "store.db", cancels), asyncio.Event()

    async def agent(context: RunContext) -> None:
        await done.wait()
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        cancelling = asyncio.create_task(gateway.runs.cancel(started.id, reason="enough", wait=True))
        await asyncio.wait_for(store.reached.wait(), LONG)
        done.set()
        await until(lambda: live._ending)
        store.go.set()
        ended = await asyncio.wait_for(cancelling, LONG)
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELLED, "enough")
        assert (await gateway.runs.events(started.id))[-1][1] == e.RunCancelled(reason="enough")


@pytest.mark.parametrize("before", [False, True])
async def test_a_question_that_meets_the_end_of_its_run_is_cancelled(tmp_path: Path, before: bool) -> None:
    """Asked while the end is being written, or a moment before and written behind it."""
    answers: list[Answer] = []
    store, asked = Slow(tmp_path / "store.db", ends), asyncio.Event()

    async def agent(context: RunContext) -> None:
        async def asks() -> None:
            if before:
                await gateway.live[context.run.id].record.lock.acquire()
                asyncio.get_running_loop().call_later(0, gateway.live[context.run.id].record.lock.release)
            else:
                await store.reached.wait()
            answers.append(await context.ask(Interrupt(id="q", kind="input")))
            asked.set()

        context.emit(e.RunFinished())
        if before:
            done = asyncio.ensure_future(context.drain())
            await asyncio.gather(asks(), done)
        else:
            await asyncio.gather(context.drain(), asks())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        await asyncio.wait_for(store.reached.wait(), LONG)
        store.go.set()
        await asyncio.wait_for(asked.wait(), LONG)
        done = await gateway.runs.wait(started.id, LONG)
        assert done is not None and (done.status, done.interrupts) == (RunStatus.SUCCESS, ())
        assert [one.outcome for one in answers] == [Outcome.CANCELLED]
        assert not any(isinstance(event, e.Interrupted) for _, event in await gateway.runs.events(started.id))


@pytest.mark.parametrize("trouble", [RuntimeError("its connection broke"), TimeoutError(), asyncio.CancelledError()])
async def test_nothing_that_an_adapter_does_after_the_agents_last_word_changes_the_end(trouble: BaseException) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())
        raise trouble

    async with engine((route(), Scripted(agent))) as gateway:
        started = await gateway.runs.start(request())
        done = await gateway.runs.wait(started.id, LONG)
        assert done is not None and (done.status, done.failure) == (RunStatus.SUCCESS, None)


@pytest.mark.parametrize("drained", [False, True])
async def test_what_stands_behind_the_end_is_done_once_that_is_told(drained: bool) -> None:
    seen: list[RunStatus] = []

    async def script(context: RunContext) -> None:
        context.emit(e.RunFinished())
        if drained:
            await context.drain()
        context.afterwards(lambda: seen.append(context.run.status))

    async with engine((route(), Scripted(script))) as gateway:
        run_ = await gateway.runs.start(request())
        assert not seen
        await gateway.runs.wait(run_.id, 30.0)
        await until(lambda: bool(seen))
        assert seen == [RunStatus.SUCCESS]
