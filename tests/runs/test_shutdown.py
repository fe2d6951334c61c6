"""A gateway that stops takes nothing with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.agents.targets import TargetGroup
from gateway.app import App
from gateway.config import loads
from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Agent, Run, RunQuery, RunRequest, RunStatus, Thread, ThreadStatus
from gateway.runs import Engine
from gateway.store import CreatedRun, LogEntry
from gateway.store.sqlite import SqliteStore
from tests.support.scripted import Scripted, echo, engine, request, route, until, use

LONG = 30.0


async def test_once_quiet_it_refuses_new_runs_and_cancels_but_finishes_what_runs() -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        await go.wait()
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        started = await gateway.runs.start(request())
        gateway.quiet()
        with pytest.raises(Unavailable):
            await gateway.runs.start(request())
        with pytest.raises(Unavailable):
            await gateway.runs.cancel(started.id)
        go.set()
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and done.status == "success"


async def test_an_agent_that_is_being_told_to_stop_is_told_before_the_way_to_it_is_closed() -> None:
    told: list[str] = []
    asked, go = asyncio.Event(), asyncio.Event()

    class Far(Scripted):
        async def cancel(self, context: RunContext) -> None:
            asked.set()
            await go.wait()
            told.append("to stop")

        async def aclose(self) -> None:
            told.append("closed")

    async def agent(context: RunContext) -> None:
        await asked.wait()
        context.emit(e.RunFinished())

    async with engine((route(), Far(agent))) as gateway:
        started = await gateway.runs.start(request())
        await gateway.runs.cancel(started.id, wait=True)
        asyncio.get_running_loop().call_later(0.05, go.set)
    assert told == ["to stop", "closed"]


async def test_the_ways_to_agents_are_closed_at_once_and_one_that_fails_stops_no_other() -> None:
    closing = asyncio.Barrier(2)
    closed: list[str] = []

    class Hanging(Scripted):
        async def aclose(self) -> None:
            await closing.wait()
            closed.append("closed")

    class Broken(Scripted):
        async def aclose(self) -> None:
            raise OSError("it cannot be closed")

    async with asyncio.timeout(LONG):
        async with engine((route("one"), Hanging(echo)), (route("b"), Broken(echo)), (route("two"), Hanging(echo))):
            pass
    assert len(closed) == 2


async def never(context: RunContext) -> None:
    """Says something, and works on."""
    context.emit(e.PartDelta(part="text", delta="at work"))
    await asyncio.Event().wait()


async def test_who_waits_for_a_run_that_is_let_go_of_hears_that_it_goes_on_at_the_next_start() -> None:
    gateway = Engine(SqliteStore())
    use(gateway, (route(), Scripted(never)))
    await gateway.open()
    started = await gateway.runs.start(request())
    read = asyncio.Event()

    async def watches() -> None:
        async with gateway.runs.watch(started.id) as watch:
            while await next_batch(watch):
                if watch.after == gateway.live[started.id].log.last > 2:  # type: ignore[attr-defined]
                    read.set()

    waits = [gateway.runs.wait(started.id), gateway.runs.cancel(started.id, wait=True), watches()]
    tasks = [asyncio.ensure_future(one) for one in waits]
    await read.wait()
    await until(lambda: gateway.live[started.id].cancelled)
    await gateway.close()
    heard = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LONG)
    told = f"the gateway is stopping; run {started.id} goes on at its next start"
    assert [(type(one), str(one)) for one in heard] == [(Unavailable, told)] * 3
    with pytest.raises(Unavailable, match="goes on at its next start"):
        await asyncio.wait_for(gateway.runs.wait(started.id), LONG)


class Slow(SqliteStore):
    """What it creates is told a while after it is there."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.there, self.go = asyncio.Event(), asyncio.Event()

    async def create_run(self, run: Run, events: Sequence[LogEntry], *, reserved: int, **more: Any) -> CreatedRun:
        created = await super().create_run(run, events, reserved=reserved, soon=more["soon"])
        self.there.set()
        await self.go.wait()
        return created


async def test_a_run_whose_client_goes_while_it_is_created_ends_and_is_never_sent(tmp_path: Path) -> None:
    store, agent = Slow(tmp_path / "store.db"), Scripted(echo)
    async with engine((route(), agent), store=store) as gateway:
        thread = await gateway.threads.create(Thread(id="t", created_at=0.0, updated_at=0.0))
        starting = asyncio.create_task(gateway.runs.start(request(thread=thread.id)))
        await store.there.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        store.go.set()
        await until(lambda: not gateway._starter._unfinished)
        (found,) = await gateway.runs.list(RunQuery())
        assert found.status is RunStatus.CANCELLED
        assert (await gateway.threads.get("t")).status is ThreadStatus.IDLE
        assert not gateway.live and not agent.contexts
        done = await gateway.runs.wait((await gateway.runs.start(request(thread=thread.id))).id, LONG)
        assert done is not None and done.status is RunStatus.SUCCESS  # the thread is free


async def test_a_run_that_is_being_created_when_the_gateway_stops_is_refused_and_has_ended(tmp_path: Path) -> None:
    store, agent = Slow(tmp_path / "store.db"), Scripted(echo)
    gateway = Engine(store)
    use(gateway, (route(), agent))
    await gateway.open()
    starting = asyncio.create_task(gateway.runs.start(request()))
    await store.there.wait()
    closing = asyncio.create_task(gateway.close())
    await until(lambda: gateway._starter._stopping)
    store.go.set()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(starting, LONG)
    await asyncio.wait_for(closing, LONG)
    assert not agent.contexts
    async with engine((route(), Scripted(echo)), file=tmp_path / "store.db") as again:
        (found,) = await again.runs.list(RunQuery())
        assert found.status is RunStatus.CANCELLED


async def test_a_gateway_may_stop_in_the_turn_in_which_a_run_was_created() -> None:
    """Of Python 3.12 on, `asyncio.gather` of what is done already gives no other task a turn."""
    async with engine((route(), agent := Scripted(echo))) as gateway:
        await gateway.runs.start(request())
    assert not agent.contexts and not gateway._starter._unfinished


async def test_a_reload_does_not_wait_for_the_targets_of_routes_that_have_gone_and_a_stop_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program has three seconds to end, and each of many its own."""
    table = "store: {url: 'sqlite://'}\nroutes: [{name: a, target: {protocol: example, url: 'http://127.0.0.1:1/a'}}]"

    go, closed = asyncio.Event(), list[TargetGroup]()

    async def slowly(group: TargetGroup) -> None:
        await go.wait()
        closed.append(group)

    monkeypatch.setattr(TargetGroup, "aclose", slowly)
    app = App(loads(table))
    await app.start()
    await asyncio.wait_for(app.reload(loads("store: {url: 'sqlite://'}")), 30)
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.wait({stopping}, timeout=0.2)
    assert not stopping.done() and not closed
    go.set()
    await stopping
    assert len(closed) == 1


async def test_the_target_of_a_route_that_has_gone_is_closed_at_the_stop_though_a_run_is_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = "store: {url: 'sqlite://'}\nroutes: [{name: a, target: {protocol: example, url: 'http://127.0.0.1:1/a'}}]"
    closed = list[TargetGroup]()
    sent = asyncio.Event()

    async def works(group: TargetGroup, context: RunContext) -> None:
        sent.set()
        await asyncio.Event().wait()

    async def described(group: TargetGroup) -> Agent:
        return Agent(name="a", input_schema={}, output_schema={})

    async def close(group: TargetGroup) -> None:
        closed.append(group)

    for name, instead in (("run", works), ("describe", described), ("aclose", close)):
        monkeypatch.setattr(TargetGroup, name, instead)
    app = App(loads(table))
    await app.start()
    await app.gateway.runs.start(RunRequest(agent="a", input={"message": "hi"}, protocol="example"))
    await asyncio.wait_for(sent.wait(), 30)
    await app.reload(loads("store: {url: 'sqlite://'}"))
    assert not closed
    await app.stop()
    assert len(closed) == 1
