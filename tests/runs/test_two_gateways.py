"""Two gateways on one store: each sees the other's runs, and takes them up when the other dies."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.app import ADOPT_SECONDS, PRUNE_SECONDS, App
from gateway.config import loads
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Answer, IfBusy, Interrupt, RunStatus, Thread
from gateway.runs.recovery import RECOVERED_AT_ONCE
from gateway.store import LogEntry, Recovered
from gateway.store.sqlite import SqliteStore, disk_thread
from tests.runs.test_runs import watched
from tests.support.aio import Still, later, run
from tests.support.lapsing import lapsing
from tests.support.scripted import Scripted, echo, engine, request, route, until


async def hang(context: RunContext) -> None:
    """An agent that is known to have the run, and says nothing."""
    await context.set_upstream({"id": "u"})
    await asyncio.Event().wait()


async def test_a_run_of_another_gateway_can_be_watched_and_waited_for(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one "))
        await go.wait()
        await echo(context)

    file = tmp_path / "s.db"
    async with (
        engine((route(), Scripted(agent)), file=file) as owner,
        engine((route(), Scripted(echo)), file=file) as other,
    ):
        started = await owner.runs.start(request("two"))
        await until(lambda: not owner.live[started.id].log.output.empty)
        await owner.store.flush()
        assert await other.runs.wait(started.id, timeout=0.05) is None
        watching = asyncio.create_task(watched(other, started.id, after=2))
        waiting = asyncio.create_task(other.runs.wait(started.id, timeout=30))
        await asyncio.sleep(0)
        go.set()
        done = await waiting
        assert done is not None and json.loads(bytes(done.output)) == {"message": "one two "}
        seen = await watching
        assert seen == [entry for entry in await owner.runs.events(started.id) if entry[0] > 2]


async def test_what_a_gateway_leaves_is_taken_up_by_the_one_that_still_runs(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine((route(), Scripted(echo, attach=echo)), file=file) as survivor:
        elsewhere = SqliteStore(file, host="elsewhere")
        async with engine((route(), Scripted(hang)), store=elsewhere) as owner:
            started = await owner.runs.start(request("taken up"))
            await until(lambda: owner.live[started.id].run.upstream is not None)
            await survivor.adopt()
            assert not survivor.live, "the owner is alive: its run is its own"
        await survivor.adopt()
        done = await survivor.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "taken up "}


@pytest.mark.parametrize("meanwhile", ["its client goes away", "the disk fails"])
async def test_what_a_gateway_has_claimed_it_takes_up_whatever_happens_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    file = tmp_path / "s.db"
    broken = asyncio.Event()

    def sync(descriptor: int) -> None:
        if broken.is_set():
            raise OSError("broken")

    monkeypatch.setattr(disk_thread, "sync", sync)
    async with engine((route(), Scripted(echo, attach=echo)), file=file) as survivor:
        elsewhere = SqliteStore(file, host="elsewhere")
        async with engine((route(), Scripted(hang)), store=elsewhere) as owner:
            started = await owner.runs.start(request("taken up"))
            await until(lambda: owner.live[started.id].run.upstream is not None)
        if meanwhile == "the disk fails":
            broken.set()
            with pytest.raises(Unavailable):
                await survivor.adopt()
            broken.clear()
        else:
            claiming = asyncio.Event()
            claim = survivor.store.claim

            async def slowly() -> list[Recovered]:
                claiming.set()
                return await claim()

            monkeypatch.setattr(survivor.store, "claim", slowly)
            asking = asyncio.ensure_future(survivor.adopt_orphans())
            await claiming.wait()
            asking.cancel()
            await asyncio.wait([asking])
        await survivor.adopt()
        done = await survivor.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "taken up "}


async def test_runs_that_wait_to_be_read_are_taken_up_though_whoever_asked_goes_away(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine((route(), Scripted(echo, attach=echo)), file=file) as survivor:
        elsewhere = SqliteStore(file, host="elsewhere")
        async with engine((route(), Scripted(hang)), store=elsewhere) as owner:
            started = [await owner.runs.start(request(str(n))) for n in range(RECOVERED_AT_ONCE + 2)]
            await until(lambda: all([owner.live[one.id].run.upstream is not None for one in started]))
        reading = asyncio.Event()

        async def never(run_id: str, after: int = 0, max_bytes: int | None = None) -> Sequence[LogEntry]:
            reading.set()
            return await asyncio.Future[Sequence[LogEntry]]()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(survivor.store, "events", never)
            asking = asyncio.ensure_future(survivor.adopt())
            await asyncio.wait_for(reading.wait(), 30)
            asking.cancel()
            await asyncio.wait([asking])
        await survivor.adopt_orphans()
        for one in started:
            done = await survivor.runs.wait(one.id, timeout=30)
            assert done is not None and b"message" in bytes(done.output)


def test_the_house_is_kept_whatever_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        house = App(loads("store: {url: 'sqlite://'}", path=tmp_path / "routes.yaml"))
        monkeypatch.setattr(house.gateway, "adopt", adopt)
        monkeypatch.setattr(house.gateway.store, "prune", prune)
        keeping = asyncio.gather(*house._chores())
        await later(0)
        for _ in range(round(PRUNE_SECONDS / ADOPT_SECONDS)):
            await later(ADOPT_SECONDS)
        assert (len(tries), len(prunes), keeping.done()) == (PRUNE_SECONDS / ADOPT_SECONDS, 2, False)
        keeping.cancel()

    tries: list[None] = []
    prunes: list[None] = []

    async def adopt() -> None:
        tries.append(None)
        raise RuntimeError("nobody has foreseen this")

    async def prune(**_: object) -> None:
        prunes.append(None)
        raise RuntimeError("nor this")

    run(story(), 1000, loop_factory=Still)
    assert any(record.exc_info for record in caplog.records), "our own mistakes are told with their trace"


async def test_runs_that_wait_for_their_thread_in_two_gateways_go_one_after_the_other_as_they_came(
    tmp_path: Path,
) -> None:
    order: list[str] = []

    async def alone(context: RunContext) -> None:
        order.append(context.run.id)
        await context.set_upstream({"id": context.run.id})
        await asyncio.sleep(0)
        assert order[-1] == context.run.id, "no other has begun meanwhile"
        await echo(context)

    file = tmp_path / "s.db"
    async with (
        engine((route(), Scripted(alone)), store=SqliteStore(file, host="here")) as one,
        engine((route(), Scripted(alone)), store=SqliteStore(file, host="there")) as other,
    ):
        await one.threads.create(Thread(id="t", created_at=0, updated_at=0))
        queued = request("hi", thread="t", if_busy=IfBusy.ENQUEUE)
        runs = [(await each.runs.start(queued)).id for each in (one, other, other, one)]
        for run_id in runs:
            done = await one.runs.wait(run_id, 30)
            assert done is not None and done.status is RunStatus.SUCCESS
        assert order == runs


asking = request


@pytest.mark.parametrize("noticed", ["by the clock", "by what is to be written"])
@pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])
async def test_who_watches_a_run_or_waits_for_it_or_cancels_it_goes_on_where_it_was_taken_over(
    tmp_path: Path, request: pytest.FixtureRequest, engine_name: str, noticed: str
) -> None:
    """Its process was stopped for longer than its lease, and goes on: that is no failure to tell a client of."""

    opened, refuse, allow = lapsing(engine_name, tmp_path, request)
    go, taken = asyncio.Event(), asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one "))
        await context.set_upstream({"id": "u"})
        await go.wait()
        context.emit(e.RunFinished())
        await context.drain()

    async def again(context: RunContext) -> None:
        taken.set()
        answer = await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.PartDelta(part="text", delta=f"and {answer.value}"), e.RunFinished())
        await context.drain()

    store = opened(host="there", lease_seconds=0.5)
    async with (
        engine((route(), Scripted(agent)), store=store) as slow,
        engine((route(), Scripted(echo, attach=again)), store=opened()) as heir,
    ):
        one = await slow.runs.start(asking("two"))
        other = await slow.runs.start(asking("three"))
        await until(lambda: all(live.run.upstream is not None for live in slow.live.values()))
        watching = asyncio.create_task(watched(slow, one.id))
        waiting = asyncio.create_task(slow.runs.wait(one.id, timeout=60))
        pausing = asyncio.create_task(slow.runs.wait(other.id))
        await until(lambda: len(slow.live[one.id].log.waiting) == 1)
        await asyncio.to_thread(refuse)  # it waits for a transaction of this loop
        await until(lambda: store.held_since == math.inf)
        await heir.adopt()
        await taken.wait()
        await asyncio.to_thread(allow)
        while not await heir.store.lives(slow.process):  # noqa: ASYNC110 - it is in no one's hands
            await asyncio.sleep(0.01)
        if noticed == "by the clock":
            await slow.adopt_orphans()
        else:
            go.set()
        await until(lambda: one.id not in slow.live)
        asked = await waiting
        assert asked is not None and asked.status is RunStatus.INTERRUPTED and asked.failure is None
        await slow.runs.answer(one.id, Answer(value="two"))
        done = await slow.runs.wait(one.id, timeout=60)
        assert done is not None and done.status is RunStatus.SUCCESS
        told = await watching
        numbers = [number for number, _ in told]
        assert numbers == sorted(set(numbers))
        assert told[-3:] == (await heir.runs.events(one.id))[-3:] and isinstance(told[-1][1], e.RunFinished)
        assert (await pausing or other).status is RunStatus.INTERRUPTED
        assert (await slow.runs.cancel(other.id, wait=True)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])
async def test_a_gateway_that_has_its_lease_again_knows_its_runs_for_its_own_and_asks_the_store_no_more(
    tmp_path: Path, request: pytest.FixtureRequest, engine_name: str
) -> None:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    opened, refuse, allow = lapsing(engine_name, tmp_path, request)
    store = opened(host="there", lease_seconds=0.5)
    async with engine((route(), Scripted(hang)), store=store) as gateway:
        one = await gateway.runs.start(asking("two"))
        await asyncio.to_thread(refuse)
        await until(lambda: store.held_since == math.inf)
        await gateway.adopt_orphans()
        await gateway.adopt_orphans()
        await asyncio.to_thread(allow)
        await until(lambda: store.held_since < math.inf)
        asked = []
        ask = store.owner_of
        monkeypatch.setattr(store, "owner_of", lambda run_id: asked.append(run_id) or ask(run_id))
        assert not await gateway.taken_over(one.id)
        for _ in range(4):
            await gateway.adopt_orphans()
        assert not await gateway.taken_over(one.id)
        assert asked == [one.id] * 3, "before any look, and in two"
