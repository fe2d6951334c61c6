"""Who waits for an agent, in what order, and for how long."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from adapters.agent_context.codec.ranking import Candidate
from adapters.agent_context.coordination import choosing as queues
from adapters.agent_context.coordination.choosing import QueuePlace, TaskQueue
from adapters.agent_context.coordination.task_record import KeptTask, task_of
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import RunStatus
from gateway.runs import Engine
from tests.adapters.agent_context.coordination.rig import Proxy, candidate, described, holds, house, says, task
from tests.adapters.agent_context.inbound_talker import in_seconds
from tests.support.scripted import Scripted, until


def lines(per_agent: int = 1) -> TaskQueue:
    return TaskQueue(per_agent, lambda one, running: (one.standing.quality or 0) - running)


A, B = candidate("a", 9), candidate("b", 5)


async def test_the_best_free_agent_is_taken_and_the_next_when_it_is_full() -> None:
    queue = lines()
    with queue.enter(0, 1, "x") as first, queue.enter(0, 2, "y") as second, queue.enter(0, 3, "z") as third:
        for place in (first, second, third):
            place.want([B, A])
        assert [place.agent for place in (first, second, third)] == ["a", "b", None]
        assert first.taken() == "a"
        first.want([])
        queue.release("a")
        assert third.agent == "a" and queue.running("a") == 1


async def test_an_agent_that_becomes_free_goes_to_the_highest_priority_and_of_those_to_the_oldest() -> None:
    queue, order = lines(), []
    queue.take("a")
    wanted = {"young": (1, 9.0), "old": (1, 2.0), "low": (0, 1.0), "high": (5, 10.0), "other": (9, 0.0)}
    places: dict[str, QueuePlace] = {}
    entered = [queue.enter(priority, since, name) for name, (priority, since) in wanted.items()]
    for name, entry in zip(wanted, entered, strict=True):
        places[name] = entry.__enter__()
        places[name].want([B] if name == "other" else [A])
    queue.release("a")
    while granted := [name for name, place in places.items() if place.agent is not None and name != "other"]:
        (name,) = granted
        order.append(name)
        place = places.pop(name)
        assert place.taken() == "a"
        place.want([])
        queue.release("a")
    assert order == ["high", "old", "young", "low"]
    for entry in entered:
        entry.__exit__(None, None, None)


async def test_while_one_chooses_anew_nobody_behind_it_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "CALM_SECONDS", 0.0)

    queue = lines()
    with queue.enter(1, 1, "high") as high, queue.enter(0, 0, "low") as low:
        high.want([])
        low.want([])
        queue.changed()
        assert await high.news(30) and await low.news(30)
        low.want([A])
        with queue.enter(0, 2, "new") as new:
            new.want([A])
            assert low.agent is None and new.agent is None
            high.want([A])
            assert high.agent is not None and low.agent is None and new.agent is None


async def test_a_place_that_is_left_gives_back_what_it_was_given_and_holds_nobody_up() -> None:
    queue = lines()
    with queue.enter(0, 1, "x") as first, queue.enter(0, 2, "y") as second:
        with queue.enter(5, 3, "z") as third:
            third.want([A])
            first.want([A])
            second.want([A])
            assert third.agent is not None and first.agent is None
        assert first.agent is not None and second.agent is None
    assert queue.running("a") == 0 and queue.waiting == 0


# --- tasks -----------------------------------------------------------------------------------------------------------


async def test_an_agent_gets_so_many_tasks_at_a_time_and_the_most_urgent_next() -> None:
    go, done = [asyncio.Event() for _ in range(5)], list[str]()

    async def works(context: RunContext) -> None:
        name = context.run.request.attributes["task"]["id"]
        done.append(name)
        context.emit(e.PartDelta(part="text", delta="hm"))
        await context.drain()
        await go[int(name[1:])].wait()
        context.emit(e.RunFinished())

    async def next_after(over: int) -> None:
        count = len(done)
        go[over].set()
        await until(lambda: len(done) > count)

    async with house(agents={"a": works}, per_agent=2) as there:
        runs = [await there.delegate(task(f"t{n}", priority=p)) for n, p in enumerate([0, 0])]
        await until(lambda: len(done) == 2)
        runs += [await there.delegate(task(f"t{n}", priority=p)) for n, p in enumerate([1, 3, 2], start=2)]
        await until(lambda: there.coordinator.queue.waiting == 3)
        assert [task_of(await there.engine.runs.get(one.id))["status"] for one in runs][1:3] == ["running", "pending"]
        for over in (0, 3, 4):  # a place at a time: of two that have one at once, either may begin first
            await next_after(over)
        assert done[2:] == ["t3", "t4", "t2"]
        for each in go:
            each.set()
        for one in runs:
            assert (await there.ended(one)).status is RunStatus.SUCCESS


async def test_a_task_that_nobody_can_do_fails_at_once_and_says_why_of_each() -> None:
    strict = described(input_schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})
    strict = described(input_schema=strict.input_schema, text_input=None)

    there_are = (
        Candidate(id="poet", labels={"specializations": ["rhymes"]}),
        candidate("cut", status="revoked", why_not="its access was revoked"),
        candidate("strict"),
        candidate("boss"),
    )
    agents = {"poet": says("x"), "cut": says("x"), "strict": Scripted(says("x"), agent=strict), "boss": says("x")}
    async with house(*there_are, agents=agents) as there:
        done = await there.done(source="boss")
        assert done.failure is not None and done.failure.code == "no_match"
        assert task_of(done)["error"]["code"] == -32007
        why = {one["agent"]: one["reason"] for one in KeptTask.of(done).assignment["leftOut"]}
        assert why["poet"] == "lacks sums" and why["cut"] == "its access was revoked"
        assert why["strict"].startswith("does not take the payload") and why["boss"] == "delegates the task itself"
        assert all(name in done.failure.message for name in agents)


async def test_nobody_waits_for_an_agent_that_would_not_take_the_task() -> None:
    strict = described(input_schema={"type": "object", "required": ["n"]}, text_input=None)

    away = candidate("strict", status="inactive")
    async with house(away, agents={"strict": Scripted(says("x"), agent=strict)}) as there:
        done = await there.done()
        assert done.failure is not None and done.failure.code == "no_match"


async def test_an_agent_that_turns_out_not_to_take_the_task_is_passed_over() -> None:
    strict = described(input_schema={"type": "object", "required": ["n"]}, text_input=None)

    ranked = *(candidate(f"full{n}", 9) for n in range(4)), candidate("strict", 5), candidate("a", 1)
    go = asyncio.Event()
    agents = {f"full{n}": holds("hm", go) for n in range(4)}
    others = {"strict": Scripted(says("x"), agent=strict), "a": says("four")}
    async with house(*ranked, agents={**agents, **others}, per_agent=1) as there:
        busy = [await there.delegate(task(f"t{n}")) for n in range(4)]
        await until(lambda: all(there.agents[name].contexts for name in agents))
        done = await there.done(task("last"))
        assert [one["agent"] for one in task_of(done)["attempts"]] == ["a"]
        go.set()
        for one in busy:
            await there.ended(one)


async def test_a_task_for_one_agent_goes_to_no_other() -> None:
    async with house(candidate("a", 9), candidate("b", 1), agents={"a": says("x"), "b": says("y")}) as there:
        done = await there.done(target="b")
        assert task_of(done)["agent"] == "b"
        gone = await there.done(task("t2"), target="c")
        assert gone.failure is not None and gone.failure.message == "no agent matches: c: is not there"


@pytest.mark.parametrize("how", ["inactive", "busy", "offline"])
async def test_a_task_waits_for_an_agent_that_is_away_and_has_it_when_it_comes_back(how: str) -> None:
    away = candidate("a", status=how, why_not="missed its heartbeats")
    async with house(away, agents={"a": says("four"), "b": says("x")}) as there:
        started = await there.delegate(target="a")
        await until(lambda: there.coordinator.queue.waiting == 1)
        assert task_of(await there.engine.runs.get(started.id))["status"] == "pending"
        there.directory.change("a", status="active", why_not=None)
        there.coordinator.queue.changed()
        assert (await there.ended(started)).status is RunStatus.SUCCESS


async def test_a_task_that_waits_goes_to_an_agent_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_context.coordination.choosing.FRESH", 60.0)

    async with house(candidate("a", status="busy"), agents={"a": says("x"), "b": says("four")}) as there:
        there.directory.there = there.directory.there[:1]
        there.coordinator.queue.changed()
        started = await there.delegate()
        await until(lambda: there.coordinator.queue.waiting == 1 and there.directory.asked > 0)
        there.directory.there.append(candidate("b"))
        there.coordinator.queue.changed()
        assert task_of(await there.ended(started))["agent"] == "b"


async def test_a_change_that_nobody_tells_of_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "AGAIN_SECONDS", 0.02)

    async with house(candidate("a", status="inactive"), agents={"a": says("four")}) as there:
        started = await there.delegate()
        await until(lambda: there.coordinator.queue.waiting == 1 and there.directory.asked > 1)
        there.directory.change("a", status="active")
        assert (await there.ended(started)).status is RunStatus.SUCCESS


async def test_without_a_deadline_a_task_waits_only_so_long() -> None:
    async with house(candidate("a", status="inactive"), agents={"a": says("x")}, patience=0.05) as there:
        done = await there.done()
        assert done.failure is not None and (done.failure.code, done.failure.retryable) == ("unavailable", True)


async def test_a_deadline_is_the_limit_of_waiting_where_there_is_one() -> None:
    soon = time.time() + 0.25
    async with house(candidate("a", status="inactive"), agents={"a": says("x")}, patience=0.01) as there:
        done = await there.done(task(deadline=in_seconds(0.25)))
        assert task_of(done)["status"] == "expired" and time.time() >= soon
        assert there.coordinator.queue.waiting == 0


async def test_after_a_failure_nobody_waits_for_agents_that_are_away() -> None:
    async def broken(context: RunContext) -> None:
        raise Unavailable("its connection is with another gateway")

    async with house(candidate("b", status="inactive"), agents={"a": broken, "b": says("x")}) as there:
        done = await there.done()
        assert done.failure is not None and done.failure.code == "agent_gone"


async def test_an_agent_that_is_slow_to_say_what_it_is_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_context.coordination.choosing.PATIENCE", 0.02)

    class Slow(Scripted):
        async def describe(self):  # type: ignore[no-untyped-def]
            await known.wait()
            return await super().describe()

    known = asyncio.Event()

    async with house(candidate("slow", 9), candidate("a", 1), agents={"slow": Slow(says("x")), "a": says("y")}) as t:
        assert task_of(await t.done())["agent"] == "a"
        known.set()


def refusing(engine: Engine, refusals: int = 2) -> Proxy:
    """A gateway that refuses to start so many runs before it starts one."""
    left = iter(range(refusals))

    async def start(request: Any, **more: Any) -> Any:
        if next(left, None) is not None:
            raise Unavailable("the store is busy")
        return await engine.runs.start(request, **more)

    return Proxy(engine, runs=Proxy(engine.runs, start=start))


async def test_a_gateway_that_cannot_start_a_run_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_context.coordination.task_work.PAUSE_SECONDS", 0.0)

    async with house(agents={"a": says("four")}, gateway=refusing) as there:
        finished = await there.done()
        assert [one["number"] for one in task_of(finished)["attempts"]] == [1]


async def test_a_gateway_that_starts_no_run_at_all_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_context.coordination.task_work.PAUSE_SECONDS", 0.01)

    async with house(
        agents={"a": says("four")}, gateway=lambda engine: refusing(engine, 1_000_000), patience=0.05
    ) as there:
        done = await there.done()
        assert done.failure is not None and done.failure.message == "the store is busy"
        assert there.coordinator.queue.running("a") == 0
