"""Two gateways on one store: each sees the other's runs, and takes them up when the other dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.app import ADOPT_SECONDS, PRUNE_SECONDS, App
from gateway.config import loads
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import IfBusy, RunStatus, Thread
from gateway.runs.recovery import RECOVERED_AT_ONCE
from gateway.store import LogEntry, Recovered
from gateway.store.sqlite import SqliteStore, disk_thread
from tests.runs.test_runs import watched
from tests.support.aio import Still, later, run
from tests.support.scripted import Scripted, echo, engine, request, route, until


async def hang(context: RunContext) -> None:
    """An agent that is known to have the run, and says nothing."""
    await context.set_upstream({"id": "u"})
    await asyncio.Event().wait()


def test_a_run_of_another_gateway_can_be_watched_and_waited_for(tmp_path: Path) -> None:
    async def scene() -> None:
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

    run(scene())


def test_what_a_gateway_leaves_is_taken_up_by_the_one_that_still_runs(tmp_path: Path) -> None:
    async def scene() -> None:
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

    run(scene())


@pytest.mark.parametrize("meanwhile", ["its client goes away", "the disk fails"])
def test_what_a_gateway_has_claimed_it_takes_up_whatever_happens_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    async def scene() -> None:
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

    run(scene())


def test_runs_that_wait_to_be_read_are_taken_up_though_whoever_asked_goes_away(tmp_path: Path) -> None:
    async def scene() -> None:
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

    run(scene())


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


def test_runs_that_wait_for_their_thread_in_two_gateways_go_one_after_the_other_as_they_came(tmp_path: Path) -> None:
    order: list[str] = []

    async def alone(context: RunContext) -> None:
        order.append(context.run.id)
        await context.set_upstream({"id": context.run.id})
        await asyncio.sleep(0)
        assert order[-1] == context.run.id, "no other has begun meanwhile"
        await echo(context)

    async def main() -> None:
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

    run(main())
