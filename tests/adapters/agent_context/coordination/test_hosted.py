"""The coordinator as the inbound half hosts it, with the real directory: over a restart, and in the lists of agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_context.coordination.task_record import KeptTask, Tasks, task_of
from adapters.agent_context.door import AgentContextDoor
from adapters.agent_context.options import COORDINATOR, AgentContextServe
from gateway.agents.entry import Entry
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Conflict
from gateway.core.types import Answer, Run, RunStatus
from gateway.runs import Engine
from gateway.store import Registration
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore
from tests.adapters.agent_context.coordination.rig import delegate, holds, says, task
from tests.adapters.agent_context.coordination.test_restarts import never
from tests.runs.test_roster import Many, spoken
from tests.support.scripted import Script, Scripted, route, until

SUMS = {"specializations": ["sums"]}


@asynccontextmanager
async def gateway(
    *agents: tuple[Any, Script | Scripted], file: Path | None = None, host: str | None = None, **options: Any
) -> AsyncIterator[tuple[Engine, Tasks]]:
    store = open_store(f"sqlite:///{file}" if file else "sqlite://") if host is None else SqliteStore(file, host=host)
    engine = Engine(store)
    inbound = AgentContextDoor(AgentContextServe(**options), engine)
    engine.use([Entry(where, one if isinstance(one, Scripted) else Scripted(one)) for where, one in agents])
    engine.agents.host({"agent_context": inbound})
    await engine.open()
    try:
        yield engine, Tasks(engine, inbound.coordinator.name)
    finally:
        inbound.quiet()
        await engine.close()


async def delegated(tasks: Tasks, **limits: Any) -> Run:
    return await delegate(tasks, task(**limits))


async def ended(engine: Engine, run_id: str) -> Run:
    done = await engine.runs.wait(run_id, timeout=30)
    assert done is not None and done.status.ended
    return done


async def test_routes_with_the_label_are_chosen_by_what_their_routes_say_of_them() -> None:
    good = route("good", labels=SUMS, delegation={"quality": 9, "security": 9})
    async with gateway(
        (route("poor", labels=SUMS, delegation={"quality": 2}), never),
        (good, says("four")),
        (route("poet", labels={"specializations": ["rhymes"]}), never),
    ) as (engine, tasks):
        done = await ended(engine, (await delegated(tasks, maxCost=None)).id)
        assert task_of(done)["agent"] == "good" and done.status is RunStatus.SUCCESS
        left_out = {one["agent"]: one["reason"] for one in KeptTask.of(done).assignment["leftOut"]}
        assert left_out == {"poet": "lacks sums"}


async def test_a_task_is_taken_up_by_the_next_gateway_with_its_own_coordinator(tmp_path: Path) -> None:
    async def again(context: RunContext) -> None:
        context.emit(e.PartReplaced(part="text", value="half and more"), e.RunFinished())

    where, file = route("a", labels=SUMS), tmp_path / "s.db"
    async with gateway((where, holds("half", asyncio.Event())), file=file) as (engine, tasks):
        started = await delegated(tasks)
        await until(lambda: b"half" in engine.live[started.id].log.output.encoded)
    async with gateway((where, Scripted(never, attach=again)), file=file) as (engine, tasks):
        done = await ended(engine, started.id)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "half and more"}]}
        assert [one["id"] for one in await tasks.list(None)] == ["t1"]


async def test_a_route_that_wants_approval_gets_no_task_without_it() -> None:
    where = route("a", labels=SUMS, delegation={"approve": True})
    async with gateway((where, says("four"))) as (engine, tasks):
        started = await delegated(tasks)
        asked = await engine.runs.wait(started.id, timeout=30)
        assert asked is not None and task_of(asked)["status"] == "awaiting_approval"
        await engine.runs.answer(started.id, Answer(value={"optionId": "approve"}))
        assert (await ended(engine, started.id)).status is RunStatus.SUCCESS


@pytest.mark.parametrize(("named", "seen"), [(None, []), ("anybody", ["anybody"])])
async def test_other_protocols_see_the_coordinator_only_under_a_name_of_its_own(
    named: str | None, seen: list[str]
) -> None:
    options = {} if named is None else {"coordinator": named}
    async with gateway((route("a", labels=SUMS), says("four")), **options) as (engine, tasks):
        assert [name for name in engine.agents.names("example") if name != "a"] == seen
        assert (await ended(engine, (await delegated(tasks)).id)).status is RunStatus.SUCCESS
        with pytest.raises(Conflict):
            await delegated(tasks, priority=7)


@pytest.mark.parametrize("named", [None, "anybody"])
async def test_a_directory_that_lists_an_agent_under_the_coordinators_name_does_not_take_it(named: str | None) -> None:
    own = named or COORDINATOR
    options = {} if named is None else {"coordinator": named}
    agents = (route("a", labels=SUMS), says("four")), (route("far"), Many(own))
    async with gateway(*agents, **options) as (engine, tasks):
        assert (await ended(engine, (await delegated(tasks)).id)).status is RunStatus.SUCCESS
        assert not engine.agents.routed(own)
        assert await spoken(engine, f"far-{own}") == '{"message":"hello there "}'
        (_, far) = engine.agents.configured
        engine.use([far, Entry(route(own), Scripted(says("four")))])
        assert engine.agents.routed(own) and await spoken(engine, own) == '{"message":"four "}'


async def test_gateways_that_are_given_their_first_tasks_one_after_the_other_have_one_line(tmp_path: Path) -> None:
    go = asyncio.Event()

    where, file = route("a", labels=SUMS), tmp_path / "s.db"
    async with (
        gateway((where, holds("half", go)), file=file, host="here", per_agent=1) as (one, first),
        gateway((where, holds("half", go)), file=file, host="there", per_agent=1) as (two, second),
    ):
        begun = await delegate(first, task("t1"))
        next_one = await delegate(second, task("t2"))
        assert begun.id in one.live and next_one.id in one.live and not two.live
        go.set()
        await ended(one, begun.id)
        await ended(one, next_one.id)


async def test_of_gateways_that_start_at_the_same_moment_one_coordinates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was the first to say so, though the other began to say it earlier."""
    go, written = asyncio.Event(), asyncio.Event()

    where, file = route("a", labels=SUMS), tmp_path / "s.db"
    async with (
        gateway((where, holds("half", go)), file=file, host="here", per_agent=1) as (one, first),
        gateway((where, holds("half", go)), file=file, host="there", per_agent=1) as (two, second),
    ):
        put = one.store.put_registration

        async def late(registration: Registration) -> None:
            await written.wait()
            await put(registration)

        monkeypatch.setattr(one.store, "put_registration", late)
        starting = asyncio.ensure_future(delegate(first, task("t1")))
        begun = await delegate(second, task("t2"))
        written.set()
        next_one = await starting
        assert begun.id in two.live and next_one.id in two.live and not one.live
        go.set()
        await ended(two, begun.id)
        await ended(two, next_one.id)
