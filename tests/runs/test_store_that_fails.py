"""A store that takes nothing for a while (a full disk): told, survived, and made up for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Answer, Interrupt, Outcome, Run, RunQuery, RunStatus, Thread, ThreadStatus, Webhook
from gateway.runs import Engine, starting
from gateway.store import CreatedRun, RunChange, Unsynced
from gateway.store.sqlite import SqliteStore, disk_thread
from tests.support.scripted import Scripted, echo, engine, request, route, until

PATIENCE = 30.0


class Disk(SqliteStore):
    """Takes what is committed, or not."""

    full = False
    broken = False

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        if self.full:
            raise Unavailable("the store failed", detail="database or disk is full")
        await super().commit(run_id, change, soon=soon)
        if self.broken:
            raise Unsynced("the store failed", detail="not synced")

    async def create_run(self, *args: object, **fields: object) -> CreatedRun:
        if self.full:
            raise Unavailable("the store failed", detail="database or disk is full")
        return await super().create_run(*args, **fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "RETRY_SECONDS", 3600.0)


def thread() -> Thread:
    return Thread(id="t", created_at=1.0, updated_at=1.0)


async def seen(gateway: Engine, run_id: str, after: int = 0) -> list[tuple[int, e.Event]]:
    found: list[tuple[int, e.Event]] = []
    async with gateway.runs.watch(run_id, after) as watch:
        while (batch := await next_batch(watch, PATIENCE)) is not None:
            found += batch.events
    return found


async def test_a_run_whose_end_is_not_stored_fails_and_its_thread_is_free_once_the_store_is_back(
    tmp_path: Path,
) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="all of it"))
        await context.drain()
        store.full = context.run.request.input["message"] == "fill"
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        await gateway.threads.create(thread())
        first = await gateway.runs.start(request("fill", thread="t"))
        watching = asyncio.ensure_future(seen(gateway, first.id))
        done = await gateway.runs.wait(first.id, timeout=PATIENCE)
        assert done is not None and done.status is RunStatus.ERROR and done.failure is not None
        assert (done.failure.code, done.failure.retryable) == ("unavailable", True)
        told = await watching
        assert isinstance(told[-1][1], e.RunFailed), "watchers are told how it ended"
        assert await seen(gateway, first.id) == told, "and so is who comes now"
        assert (await gateway.runs.get(first.id)).status is RunStatus.ERROR
        assert (await gateway.runs.cancel(first.id, wait=True)).status is RunStatus.ERROR
        with pytest.raises(Unavailable, match="the store failed"):
            await gateway.runs.start(request("again", thread="t"))
        store.full = False
        second = await gateway.runs.start(request("again", thread="t"))
        assert not unwritten_of(gateway)
        done = await gateway.runs.wait(second.id, timeout=PATIENCE)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert await seen(gateway, first.id) == told, "the store has what was told"
        assert (await store.run(first.id)).status is RunStatus.ERROR
        assert (await gateway.threads.get("t")).status is ThreadStatus.IDLE
        assert await gateway.runs.count(RunQuery(thread="t")) == 2


def unwritten_of(gateway: Engine) -> list[str]:
    return [live.run.id for live in gateway.live.values() if live.record.unwritten is not None]


async def test_an_end_is_stored_as_soon_as_the_store_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "RETRY_SECONDS", 0.01)

    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        store.full = True
        await echo(context)

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert (await store.run(started.id)).status is RunStatus.RUNNING
        store.full = False
        await until(lambda: not gateway.live, PATIENCE)
        assert (await store.run(started.id)).status is RunStatus.ERROR


async def test_a_gateway_that_stops_with_a_full_disk_ends_the_run_at_its_next_start(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        store.full = True
        await echo(context)

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        await gateway.threads.create(thread())
        started = await gateway.runs.start(request(thread="t"))
        await gateway.runs.wait(started.id, timeout=PATIENCE)
    async with engine((route(), Scripted(echo)), file=tmp_path / "store.db") as gateway:
        done = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert done is not None and done.failure is not None and done.failure.code == "outcome_unknown"
        numbers = [number for number, _ in await seen(gateway, started.id)]
        assert numbers == sorted(set(numbers))
        again = await gateway.runs.start(request(thread="t"))
        done = await gateway.runs.wait(again.id, timeout=PATIENCE)
        assert done is not None and done.status is RunStatus.SUCCESS


async def test_an_end_that_is_not_stored_and_whose_run_is_deleted_owes_nothing(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        store.full = True
        await echo(context)

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        await gateway.threads.create(thread())
        started = await gateway.runs.start(request(thread="t"))
        await gateway.runs.wait(started.id, timeout=PATIENCE)
        store.full = False
        await gateway.runs.delete(started.id)
        await gateway._starter._owed.pay()
        assert not gateway.live and await gateway.runs.count(RunQuery(thread="t")) == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_answer_and_a_cancel_that_are_not_stored_may_be_given_again(tmp_path: Path, cancelled: bool) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        answer = await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.PartDelta(part="text", delta=str(answer.value)), e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        await gateway.runs.wait(started.id, timeout=PATIENCE)
        store.full = True
        with pytest.raises(Unavailable):
            await gateway.runs.answer(started.id, Answer(value="lost"))
        with pytest.raises(Unavailable):
            await gateway.runs.cancel(started.id)
        store.full = False
        assert (await gateway.runs.get(started.id)).status is RunStatus.INTERRUPTED
        if cancelled:
            await gateway.runs.cancel(started.id, wait=True)
        else:
            await gateway.runs.answer(started.id, Answer(value="kept"))
        done = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert done is not None
        assert done.status is (RunStatus.CANCELLED if cancelled else RunStatus.SUCCESS)
        kinds = [type(event) for _, event in await seen(gateway, started.id)]
        assert kinds.count(e.Interrupted) == kinds.count(e.Resumed) == 1


async def test_a_question_that_is_not_stored_was_never_asked(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        store.full = True
        try:
            await context.ask(Interrupt(id="q", kind="input"))
        finally:
            store.full = False

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        done = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert done is not None and done.failure is not None and done.failure.code == "unavailable"
        assert [type(event) for _, event in await seen(gateway, started.id)] == [e.RunStarted, e.RunFailed]


async def test_a_run_that_was_created_goes_on_though_nothing_more_can_be_recorded_of_its_thread(tmp_path: Path) -> None:
    class Forgetful(SqliteStore):
        async def update_thread(self, *args: object, **fields: object) -> None:
            raise Unavailable("the store failed", detail="database or disk is full")

    async with engine((route(), Scripted(echo)), store=Forgetful(tmp_path / "store.db")) as gateway:
        await gateway.threads.create(thread())
        for _ in range(2):
            started = await gateway.runs.start(request(thread="t"))
            done = await gateway.runs.wait(started.id, timeout=PATIENCE)
            assert done is not None and done.status is RunStatus.SUCCESS


async def test_events_that_wait_for_a_commit_that_fails_are_not_lost(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        live = gateway.live[context.run.id]
        live.log._reserved = live.log.last + 1  # the next event has a range reserved, and others wait for that
        commit = asyncio.create_task(live.log.commit((), RunChange()))
        context.emit(e.PartDelta(part="text", delta="one "))
        context.emit(e.PartDelta(part="text", delta="two "))
        assert live.log.holding
        store.full = True
        with pytest.raises(Unavailable):
            await commit
        store.full = False
        context.emit(e.PartDelta(part="text", delta="three"), e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        done = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert done is not None and done.status is RunStatus.SUCCESS
        said = [event.delta for _, event in await seen(gateway, started.id) if isinstance(event, e.PartDelta)]
        assert "".join(said) == "one two three"


async def test_what_is_written_and_not_known_to_be_on_the_disk_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = False

    def sync(descriptor: int) -> None:
        if broken:
            raise OSError("broken")

    monkeypatch.setattr(disk_thread, "sync", sync)

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="sure?"))
        answer = await context.ask(Interrupt(id="q", kind="permission", payload={}))
        context.emit(e.PartDelta(part="more", delta=str(answer.value)))
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), file=tmp_path / "store.db") as gateway:
        await gateway.threads.create(thread())
        broken = True
        started = await gateway.runs.start(request(thread="t"))
        asked = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert asked is not None and asked.status is RunStatus.INTERRUPTED
        await gateway.runs.answer(started.id, Answer(outcome=Outcome.ANSWERED, value="yes"))
        done = await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert await gateway.store.run(started.id) == done
        assert isinstance((await seen(gateway, started.id))[-1][1], e.RunFinished)
        assert not unwritten_of(gateway)
        broken = False
        assert (await gateway.runs.start(request(thread="t"))).id, "its thread is free"


async def test_an_end_that_is_made_up_for_without_the_disk_is_made_up_for(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")

    async def agent(context: RunContext) -> None:
        store.full = True
        await echo(context)

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        owed: list[str] = []
        gateway.on_owed(lambda delivery: owed.append(delivery.run.status.value))
        started = await gateway.runs.start(request(webhook=Webhook(url="http://127.0.0.1:9/", protocol="test")))
        await gateway.runs.wait(started.id, timeout=PATIENCE)
        assert unwritten_of(gateway) and not owed
        store.full, store.broken = False, True
        await gateway._starter._owed.pay()
        assert not gateway.live and owed == ["error"]
        assert (await store.run(started.id)).status is RunStatus.ERROR


async def test_a_run_of_a_dead_gateway_that_cannot_be_read_now_is_taken_up_by_the_next_look(tmp_path: Path) -> None:
    class Unreadable(SqliteStore):
        broken = False

        async def thread(self, thread_id: str) -> Thread:
            if self.broken:
                raise Unavailable("the store failed")
            return await super().thread(thread_id)

    async def works(context: RunContext) -> None:
        await context.set_upstream({"id": context.run.id})
        await asyncio.Event().wait()

    async def ends(context: RunContext) -> None:
        context.emit(e.RunFinished())

    store = Unreadable(tmp_path / "store.db")
    async with engine((route(), Scripted(echo, attach=ends)), store=store) as gateway:
        async with engine((route(), Scripted(works)), file=tmp_path / "store.db") as dying:
            await dying.threads.create(thread())
            runs = [(await dying.runs.start(request(thread=on))).id for on in ("t", None)]
            await until(lambda: all(dying.live[one].run.upstream is not None for one in runs))
        store.broken = True
        with pytest.raises(Unavailable):
            await gateway.adopt()
        store.broken = False
        await gateway.adopt()
        for one in runs:
            done = await gateway.runs.wait(one, PATIENCE)
            assert done is not None and done.status is RunStatus.SUCCESS


async def test_a_run_that_could_not_be_stored_is_told_to_nobody(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store.db")
    agent = Scripted(echo)
    async with engine((route(), agent), store=store) as gateway:
        await gateway.threads.create(thread())
        async with gateway.backchannel.join("t", None) as news:
            store.full = True
            with pytest.raises(Unavailable, match="the store failed"):
                await gateway.runs.start(request(thread="t"))
            store.full = False
            done = await gateway.runs.start(request("again", thread="t"))
            await gateway.runs.wait(done.id, timeout=PATIENCE)
            told = [await news.next() for _ in range(news.behind)]
        assert {one.id for one in told if isinstance(one, Run)} == {done.id}
        assert [context.run.id for context in agent.contexts] == [done.id] and agent.cancels == 0
