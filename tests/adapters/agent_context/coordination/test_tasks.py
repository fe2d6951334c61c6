"""Tasks by their ids, delegated once; and what each reader may see of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_context.coordination import task_record as module
from adapters.agent_context.coordination.task_record import Tasks, status_of, task_of
from adapters.agent_context.security import ClientPrincipal
from gateway.access import UsageLimits
from gateway.contract.options import ClientLimits, DoorLimits, RouteLimits
from gateway.core.errors import Conflict, Invalid, Limited
from gateway.core.types import Run, RunRequest, RunStatus
from tests.adapters.agent_context.coordination.rig import holds, house, says, task
from tests.support.scripted import until

ME, YOU = ClientPrincipal("me", frozenset(("read",))), ClientPrincipal("you", frozenset(("read",)))


@pytest.mark.parametrize("when", ["at the same moment", "once it is over"])
async def test_who_delegates_a_task_again_at_the_limit_gets_it(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    async with house(agents={"a": holds("four", go)}, limits=UsageLimits(client=ClientLimits(runs=1))) as there:
        if when == "at the same moment":
            both = await asyncio.gather(*(there.delegate() for _ in range(5)))
            assert len({one.id for one in both}) == 1
        else:
            first, find = await there.delegate(), there.tasks.find
            go.set()
            await there.ended(first)
            go.clear()
            other = await there.delegate(task("t2"))
            await until(lambda: len(there.engine.live) == 2)  # with the run of its agent
            missed = [None]

            async def found(task_id: str, principal: str | None) -> Run | None:
                return missed.pop() if missed else await find(task_id, principal)

            monkeypatch.setattr(there.tasks, "find", found)
            assert (await there.delegate()).id == first.id
            with pytest.raises(Limited):
                await there.delegate(task("t3"))
            both = [other]
        go.set()
        await there.ended(both[0])


async def test_a_task_may_be_nested_as_deep_as_any_message_may() -> None:
    deep: Any = "two and two"
    for _ in range(400):
        deep = [deep]
    whole = task(payload={"messages": [{"text": "two and two"}], "context": deep})

    async with house(agents={"a": says("four")}) as there:
        done = await there.done(whole)
        assert done.status is RunStatus.SUCCESS


async def test_another_task_under_the_same_id_is_refused_and_anothers_is_not() -> None:
    async with house(agents={"a": says("four")}) as there:
        mine = await there.delegate(task(text="two and two"))
        with pytest.raises(Conflict, match="t1 was delegated before"):
            await there.delegate(task(text="three and three"))
        with pytest.raises(Conflict):
            await there.delegate(task(text="two and two"), target="a")
        theirs = await there.delegate(task(text="three and three"), principal="you")
        assert theirs.id != mine.id
        for one in (mine, theirs):
            await there.ended(one)


async def test_the_status_that_a_client_sends_along_is_no_part_of_the_task() -> None:
    async with house(agents={"a": says("four")}) as there:
        first = await there.delegate(task(status="pending"))
        assert (await there.delegate(task(status="running"))).id == first.id
        await there.ended(first)


async def test_a_task_is_found_by_id_and_delegator_in_the_store_as_well(tmp_path: Path) -> None:
    async with house(agents={"a": says("four")}, file=tmp_path / "s.db") as there:
        mine = await there.done()
        assert (await there.done(principal="another")).id != mine.id
    async with house(agents={"a": says("four")}, file=tmp_path / "s.db") as there:
        found = await there.tasks.find("t1", "me")
        assert found is not None and found.id == mine.id
        assert await there.tasks.find("t1", "nobody") is None and await there.tasks.find("t2", "me") is None
        assert (await there.delegate()).id == mine.id


async def test_a_task_that_was_deleted_may_be_delegated_anew() -> None:
    async with house(agents={"a": says("four")}) as there:
        first = await there.done()
        await there.engine.runs.delete(first.id)
        second = await there.done()
        assert second.created_at > first.created_at and second.status is RunStatus.SUCCESS


async def test_a_deadline_that_passed_on_the_way_ends_the_task_unasked() -> None:
    async with house(agents={"a": says("x")}) as there:
        done = await there.done(task(deadline="2025-02-22T00:00:00Z"))
        assert task_of(done)["status"] == "expired" and not there.agents["a"].contexts


async def test_the_list_shows_everybody_that_there_are_tasks_and_only_to_their_owner_what_they_say() -> None:
    go = asyncio.Event()
    async with house(agents={"a": holds("secret", go)}, per_agent=1) as there:
        first = await there.delegate(task("t1", text="private", priority=2))
        await until(lambda: there.text(first) == "secret")
        second = await there.delegate(task("t2", deadline="2100-01-01T00:00:00Z"), principal="you")
        await until(lambda: there.coordinator.queue.waiting == 1)
        await there.engine.store.flush()
        newest, oldest = await there.tasks.list(YOU)
        assert (newest["id"], newest["status"], newest["deadline"]) == ("t2", "pending", "2100-01-01T00:00:00Z")
        assert newest["payload"] == {"messages": [{"text": "two and two"}]}
        assert (oldest["id"], oldest["status"], oldest["priority"], oldest["agent"]) == ("t1", "running", 2, "a")
        assert {"payload", "result", "_meta", "error", "interrupts"}.isdisjoint(oldest)
        assert "private" not in str(oldest) and first.id not in str(oldest)
        go.set()
        for one in (first, second):
            await there.ended(one)
        newest, oldest = await there.tasks.list(ME)
        assert oldest["result"] == {"messages": [{"text": "secret done"}]} and "result" not in newest
        assert oldest["_meta"]["interlingua/run"] == first.id
        assert all("payload" in one for one in await there.tasks.list(None))


async def test_a_list_has_the_newest_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 5)

    async with house(agents={"a": says("four")}) as there:
        for number in range(7):
            await there.done(task(f"t{number}"))
        assert [one["id"] for one in await there.tasks.list(ME)] == ["t6", "t5", "t4", "t3", "t2"]


async def test_a_task_that_is_none_is_refused_with_the_place_in_it() -> None:
    async with house(agents={"a": says("x")}, coordinator="anybody") as there:
        started = await there.engine.runs.start(
            RunRequest(agent="anybody", input={"task": {"id": 1}}, protocol="example")
        )
        done = await there.ended(started)
        assert done.failure is not None and done.failure.code == "invalid" and "/task/id" in done.failure.message
        with pytest.raises(Invalid):
            await there.engine.runs.start(RunRequest(agent="anybody", input={"x": 1}, protocol="example"))
        assert isinstance(Tasks(there.engine, there.coordinator.name), Tasks)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (RunStatus.PENDING, "pending"),
        (RunStatus.RUNNING, "pending"),
        (RunStatus.INTERRUPTED, "running"),
        (RunStatus.SUCCESS, "completed"),
        (RunStatus.ERROR, "failed"),
        (RunStatus.CANCELLED, "cancelled"),
        (RunStatus.TIMEOUT, "expired"),
    ],
)
def test_each_status_of_a_run_is_one_of_a_task(status: RunStatus, told: str) -> None:
    asked = RunRequest(agent="x", input={"task": {"id": "t", "type": "calc"}}, protocol="agent_context")
    assert status_of(Run(id="r", request=asked, status=status, created_at=1.0, updated_at=1.0)) == told


async def test_as_many_tasks_as_a_client_may_have_runs_are_all_done() -> None:
    """A task's attempt counts for its agent; for the client and the door the task itself does."""
    limits = {"client": ClientLimits(runs=2), "door": DoorLimits(runs=3), "route": RouteLimits(runs=2)}

    go = asyncio.Event()
    async with house(agents={"a": holds("four", go)}, limits=UsageLimits(**limits), patience=1.0) as there:
        both = [await there.delegate(task(name)) for name in ("t1", "t2")]
        await until(lambda: len(there.agents["a"].contexts) == 2)
        with pytest.raises(Limited):
            await there.delegate(task("t3"))
        go.set()
        assert [(await there.ended(each)).status for each in both] == [RunStatus.SUCCESS] * 2
