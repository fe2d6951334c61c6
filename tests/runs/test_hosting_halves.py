"""Inbound halves that host agents, over restarts and beside other gateways."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.agents import hosts
from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import NotFound, Unavailable
from gateway.core.types import Agent, RunStatus
from gateway.runs import Engine
from gateway.store import LogEntry
from gateway.store.sqlite import SqliteStore
from tests.runs.test_hosting import House, done, engine, held
from tests.runs.test_roster import CONFIG, said_config, spoken
from tests.support import scripted
from tests.support.rpc import settled
from tests.support.scripted import AGENT, Scripted, echo, request, until


async def test_an_agent_is_created_of_a_hosted_one_and_goes_where_that_goes() -> None:
    half = Scripted(said_config, agent=replace(AGENT, config_schema=CONFIG))
    house = House(poet=half)
    async with engine(house=house) as gateway:
        made = await gateway.agents.create("poet", "test", {"tone": "grave"})
        assert gateway.agents.routed(made.name)
        assert "grave" in await spoken(gateway, made.name)
        house.now(**{made.name: Scripted(echo), "poet": half})
        gateway.agents.hosted_changed("house")
        assert "grave" in await spoken(gateway, made.name), "its name cannot be taken"
        house.now()
        gateway.agents.hosted_changed("house")
        assert list(gateway.agents.names("test")) == []
        house.now(poet=Scripted(said_config, agent=half.agent))
        gateway.agents.hosted_changed("house")
        assert "grave" in await spoken(gateway, made.name)


async def test_a_run_of_a_hosted_agent_is_attached_after_a_restart(tmp_path: Path) -> None:
    async def hang(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        await asyncio.Event().wait()

    file = tmp_path / "store.db"
    async with engine(file=file, house=House(guest=Scripted(hang), gone=Scripted(hang))) as gateway:
        runs = [await gateway.runs.start(request("taken up", agent=name)) for name in ("guest", "gone")]
        await until(lambda: all(gateway.live[run.id].run.upstream is not None for run in runs))
    house = House(guest=Scripted(hang, attach=echo))
    async with engine(file=file, house=house) as gateway:
        guest, gone = [await done(gateway, run) for run in runs]
        assert guest.status is RunStatus.SUCCESS and b"taken up" in bytes(guest.output)
        assert gone.status is RunStatus.ERROR and gone.failure is not None and gone.failure.code == "not_found"


async def test_runs_of_hosted_agents_go_on_though_whoever_asked_for_them_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        await asyncio.Event().wait()

    file, reading, go = tmp_path / "store.db", asyncio.Event(), asyncio.Event()
    async with engine(file=file, house=House(guest=Scripted(hang, attach=echo))) as survivor:
        elsewhere = SqliteStore(file, host="elsewhere")
        async with engine(store=elsewhere, house=House(guest=Scripted(hang))) as owner:
            first, second = [await owner.runs.start(request("on", agent="guest")) for _ in range(2)]
            await until(lambda: all(owner.live[run.id].run.upstream for run in (first, second)))
        events = survivor.store.events

        async def slowly(run_id: str, *args: Any, **named: Any) -> list[LogEntry]:
            if run_id == second.id:
                reading.set()
                await go.wait()
            return await events(run_id, *args, **named)

        monkeypatch.setattr(survivor.store, "events", slowly)
        adopting = asyncio.ensure_future(survivor.adopt())
        await until(lambda: first.id in survivor.live and reading.is_set())
        adopting.cancel()
        await asyncio.wait([adopting])
        assert (await done(survivor, first)).status is RunStatus.SUCCESS
        go.set()
        await survivor.adopt()
        assert (await done(survivor, second)).status is RunStatus.SUCCESS


async def test_a_hosted_agent_that_is_attached_finds_the_runs_it_started_in_progress(tmp_path: Path) -> None:
    """It was created before them, and so is found before them: it goes on when they are known again."""

    class Foreman(Scripted):
        gateway: Engine

        async def run(self, context: RunContext) -> None:
            inner = await self.gateway.runs.start(request("done", agent="worker"))
            await context.set_upstream({"run": inner.id})
            await asyncio.Event().wait()

        async def attach(self, context: RunContext) -> None:
            assert context.run.upstream is not None
            inner = context.run.upstream["run"]
            async with self.gateway.runs.watch(inner) as watch:
                assert watch.run.id in self.gateway.live, "else it could not be answered or cancelled"
                gate.set()
                while await next_batch(watch, 30) is not None:
                    pass
            context.emit(e.RunFinished(output=(await self.gateway.runs.get(inner)).output))

    async def hang(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        await asyncio.Event().wait()

    gate = asyncio.Event()
    boss, file = Foreman(echo), tmp_path / "store.db"
    async with engine(file=file, house=House(boss=boss, worker=Scripted(hang))) as boss.gateway:
        live = boss.gateway.live
        run = await boss.gateway.runs.start(request(agent="boss"))
        await until(lambda: len(live) == 2 and all(one.run.upstream for one in live.values()))
    async with engine(
        (scripted.route("worker"), Scripted(hang, attach=held(gate).script)), file=file, house=House(boss=boss)
    ) as boss.gateway:
        ended = await done(boss.gateway, run)
        assert ended.failure is None and b"done" in bytes(ended.output)


async def test_an_unknown_name_is_asked_for_at_the_other_gateways_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "REFRESH_SECONDS", 3600)

    class Learning(House):
        async def refresh(self) -> None:
            await super().refresh()
            self.now(late=Scripted(echo))
            self.gateway.agents.hosted_changed("house")
            with pytest.raises(NotFound):
                await self.gateway.agents.get("who", "test")  # which does not ask again
            await asyncio.gather(self.gateway.agents.get("who", "test"), return_exceptions=True)

        gateway: Engine

    class Broken(House):
        async def refresh(self) -> None:
            await super().refresh()
            raise RuntimeError("odd")

    broken, learning = Broken(), Learning()
    async with engine(broken=broken, house=learning) as gateway:
        learning.gateway = gateway
        found = await asyncio.gather(*(gateway.agents.get("late", "test") for _ in range(3)))
        assert [agent.name for agent in found] == ["late"] * 3
        assert learning.asked == broken.asked == ["open", "refresh"], "never twice at once"


async def test_a_half_that_fails_to_look_is_logged_once_until_it_looks_again(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(House):
        async def refresh(self) -> None:
            if self.failing:
                raise Unavailable("no store")

    broken = Broken()
    async with engine(broken=broken) as gateway:
        for failing in (True, True, False, True):
            broken.failing = failing
            await gateway.agents.refresh_hosted()
    assert [record.message for record in caplog.records] == ["agents hosted by broken elsewhere: no store"] * 2


async def test_a_half_that_comes_later_is_opened_then() -> None:
    house = House(guest=Scripted(echo))
    async with engine() as gateway:
        await gateway.agents.add_host("house", house)
        assert list(gateway.agents.names("test")) == ["guest"]
    assert house.asked == ["open", "close"]


async def test_a_half_that_cannot_close_lets_the_rest_close() -> None:
    class Stuck(House):
        async def aclose(self) -> None:
            raise RuntimeError("odd")

    other, half = House(), Scripted(echo)
    async with engine(stuck=Stuck(guest=half), other=other):
        pass
    assert other.asked == ["open", "close"] and half.closed


async def test_listing_ten_times_does_not_describe_an_agent_ten_times() -> None:
    class Counted(Scripted):
        asked = 0

        async def describe(self) -> Agent:
            self.asked += 1
            return self.agent

    half = Counted(echo)
    async with engine(house=House(guest=half)) as gateway:
        for _ in range(10):
            await gateway.agents.list("test")
            await settled(1)
        assert half.asked == 1
