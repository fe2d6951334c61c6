"""The gateway stops in the middle of a task, and another takes it up: nothing is done twice, nothing is forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.agent_context.coordination.attempt_run import run_of
from adapters.agent_context.coordination.task_record import task_of
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.core.types import Answer, Interrupt, Outcome, Run, RunStatus
from gateway.runs import Engine
from tests.adapters.agent_context.coordination.rig import (
    House,
    Proxy,
    candidate,
    fails,
    holds,
    house,
    says,
    task,
)
from tests.support.scripted import Scripted, until


async def for_ever(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


async def on_again(context: RunContext) -> None:
    """An agent found again, which had gone on meanwhile."""
    context.emit(e.PartReplaced(part="text", value="half and more"), e.PartDelta(part="text", delta="!"))
    await context.drain()
    context.emit(e.RunFinished())


async def never(context: RunContext) -> None:
    raise AssertionError("it was asked twice")


async def found(there: House, run_id: str) -> Run:
    """The task, once it has ended in the second gateway."""
    return await there.ended(run_id)


def text(done: Run) -> str:
    return str(json.loads(bytes(done.output))["messages"][0]["text"])


async def test_an_attempt_that_is_found_again_goes_on_as_the_tasks(tmp_path: Path) -> None:
    async def half(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        context.emit(
            e.PartStarted(part="p", message="m", kind="thought"),
            e.PartDelta(part="p", delta="hm"),
            e.ToolCallStarted(call="c", name="abacus"),
            e.UsageReported(output_tokens=5),
            e.PartDelta(part="text", delta="half"),
        )
        await context.drain()
        await asyncio.Event().wait()

    async def again(context: RunContext) -> None:
        context.emit(e.ToolCallEnded(call="c"), e.UsageReported(output_tokens=7))
        await on_again(context)

    async with house(agents={"a": half}, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await until(lambda: there.text(started) == "half")
    async with house(agents={"a": Scripted(never, attach=again)}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert done.status is RunStatus.SUCCESS and text(done) == "half and more!"
        assert len(await there.attempts(done)) == 1
        events = [event for _, event in await there.engine.runs.events(done.id)]
        assert sum(isinstance(event, e.ToolCallStarted) for event in events) == 1
        assert sum(isinstance(event, e.ToolCallEnded) for event in events) == 1
        assert [event.delta for event in events if isinstance(event, e.PartDelta)].count("hm") == 1
        assert [one.output_tokens for one in events if isinstance(one, e.UsageReported)] == [5, 7]
        assert there.coordinator.queue.running("a") == 0


async def test_an_attempt_that_cannot_be_found_again_has_failed_and_the_next_agent_tries(tmp_path: Path) -> None:
    ranked = candidate("a", 9), candidate("b", 1)
    async with house(*ranked, agents={"a": holds("hm", asyncio.Event()), "b": never}, file=tmp_path / "s.db") as t:
        started = await t.delegate()
        await until(lambda: t.text(started) == "hm")
    async with house(*ranked, agents={"a": never, "b": says("four")}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert text(done) == "four " and [one.agent for one in await there.attempts(done)] == ["a", "b"]


@pytest.mark.parametrize("begun", [False, True], ids=["before it is started", "before that is known"])
async def test_an_attempt_is_started_once_wherever_the_gateway_dies(tmp_path: Path, begun: bool) -> None:
    def dies(engine: Engine) -> Any:
        async def start(request: Any, **more: Any) -> Any:
            if begun:
                await engine.runs.start(request, **more)
            reached.set()
            await for_ever()

        return Proxy(engine, runs=Proxy(engine.runs, start=start))

    reached = asyncio.Event()

    first = holds("half", asyncio.Event())
    async with house(agents={"a": first}, file=tmp_path / "s.db", gateway=dies) as there:
        started = await there.delegate()
        await reached.wait()
        await until(lambda: not begun or len(there.agents["a"].contexts) == 1)
        assert [one.number for one in there.kept(started).attempts] == [1]
    agent = Scripted(never, attach=on_again) if begun else Scripted(says("half and more!"))
    async with house(agents={"a": agent}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert text(done).strip() == "half and more!"
        (attempt,) = await there.attempts(done)
        assert task_of(done)["attempts"] == [{"number": 1, "agent": "a", "status": "completed"}]
        assert run_of(done.id, there.kept(done).attempts[0]) == attempt.id


async def test_an_attempt_of_an_older_version_goes_on_under_the_id_that_was_kept(tmp_path: Path) -> None:
    def by_chance(engine: Engine) -> Any:
        async def start(request: Any, **more: Any) -> Any:
            run = await engine.runs.start(replace(request, id=None), **more)
            live = engine.live[request.part_of]
            attempt = {"number": 1, "agent": "a", "run": run.id}
            await live.set_upstream({"state": "running", "attempts": [attempt], "approved": ["a"]})
            await for_ever()

        return Proxy(engine, runs=Proxy(engine.runs, start=start))

    first = holds("half", asyncio.Event())
    async with house(agents={"a": first}, file=tmp_path / "s.db", gateway=by_chance) as there:
        started = await there.delegate()
        await until(lambda: "state" in (there.engine.live[started.id].run.upstream or {}))
    async with house(agents={"a": Scripted(never, attach=on_again)}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert text(done) == "half and more!" and len(await there.attempts(done)) == 1


async def test_what_earlier_attempts_used_counts_after_a_restart(tmp_path: Path) -> None:
    async def spends(context: RunContext) -> None:
        context.emit(e.UsageReported(output_tokens=60))
        await context.drain()
        raise AgentFailed("spent")

    async def again(context: RunContext) -> None:
        context.emit(e.UsageReported(output_tokens=50))
        await on_again(context)

    ranked = candidate("a", 9), candidate("b", 5)
    agents = {"a": spends, "b": holds("half", asyncio.Event())}
    async with house(*ranked, agents=agents, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await until(lambda: there.text(started) == "half")
    async with house(*ranked, agents={"a": never, "b": Scripted(never, attach=again)}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        events = [event for _, event in await there.engine.runs.events(done.id)]
        assert [one.output_tokens for one in events if isinstance(one, e.UsageReported)] == [60, 110]


async def test_an_attempt_that_ended_unseen_is_not_repeated(tmp_path: Path) -> None:
    @asynccontextmanager
    async def blind(*_: object) -> AsyncIterator[Any]:
        yield Proxy(None, follow=for_ever)

    blinded = lambda engine: Proxy(engine, runs=Proxy(engine.runs, watch=blind))  # noqa: E731
    async with house(agents={"a": says("four")}, file=tmp_path / "s.db", gateway=blinded) as there:
        started = await there.delegate()
        await until(lambda: bool(there.agents["a"].contexts) and len(there.engine.live) == 1)
    async with house(agents={"a": never}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert text(done) == "four "


async def test_a_failed_attempt_stays_failed(tmp_path: Path) -> None:
    ranked = candidate("a", 9), candidate("b", 5), candidate("c", 1)
    agents = {"a": fails(AgentFailed("broken")), "b": holds("hm", asyncio.Event()), "c": never}
    async with house(*ranked, agents=agents, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await until(lambda: there.text(started) == "hm")
    async with house(*ranked, agents={"a": never, "b": never, "c": says("four")}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        told = [(one["agent"], one["status"]) for one in task_of(done)["attempts"]]
        assert told == [("a", "failed"), ("b", "failed"), ("c", "completed")] and text(done) == "four "


async def test_a_task_in_the_queue_stays_in_the_queue(tmp_path: Path) -> None:
    away = candidate("a", status="inactive")
    async with house(away, agents={"a": never}, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await until(lambda: there.coordinator.queue.waiting == 1)
    async with house(agents={"a": says("four")}, file=tmp_path / "s.db") as there:
        assert text(await found(there, started.id)) == "four "


async def test_a_task_in_the_queue_does_not_get_an_agent_whose_task_is_still_being_taken_up(tmp_path: Path) -> None:
    begun, taken_up = asyncio.Event(), asyncio.Event()
    first: list[str] = []

    def slow(engine: Engine) -> Any:
        async def events(run_id: str) -> Any:
            if run_id in first:
                begun.set()
                await taken_up.wait()
            await begun.wait()  # a gateway's tasks are all known again before any goes on
            return await engine.runs.events(run_id)

        return Proxy(engine, runs=Proxy(engine.runs, events=events))

    agents = {"a": Scripted(holds("half", asyncio.Event()), attach=on_again)}
    async with house(agents=agents, file=tmp_path / "s.db", per_agent=1) as there:
        first.append((await there.delegate()).id)
        await until(lambda: bool(there.kept(there.engine.live[first[0]].run).attempt))
        second = await there.delegate(task("t2"))
        await until(lambda: there.coordinator.queue.waiting == 1)
    agents = {"a": Scripted(says("four"), attach=on_again)}
    async with house(agents=agents, file=tmp_path / "s.db", per_agent=1, gateway=slow) as there:
        queue = there.coordinator.queue
        await until(lambda: queue.running("a") == 1)
        await until(lambda: any(place.wants for place in queue._line))
        assert (queue.waiting, queue.running("a")) == (1, 1)
        taken_up.set()
        assert (await found(there, first[0])).status is (await found(there, second.id)).status is RunStatus.SUCCESS
        assert queue.running("a") == 0


# --- questions -------------------------------------------------------------------------------------------------------


async def asks(context: RunContext) -> None:
    await context.set_upstream({"id": "u"})
    answer = await context.ask(Interrupt(id="q", kind="input", message="which?"))
    context.emit(e.PartDelta(part="text", delta=f"{answer.outcome} {answer.value}"), e.RunFinished())


async def test_a_question_of_the_agents_survives_and_is_asked_once(tmp_path: Path) -> None:
    async with house(agents={"a": asks}, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await there.asked(started, "1:q")
    async with house(agents={"a": Scripted(never, attach=asks)}, file=tmp_path / "s.db") as there:
        now = await there.asked(started, "1:q")
        await there.engine.runs.answer(now.id, Answer(value="this"))
        done = await found(there, started.id)
        assert text(done) == "answered this"
        events = [event for _, event in await there.engine.runs.events(done.id)]
        assert sum(isinstance(event, e.Interrupted) for event in events) == 1


@pytest.mark.parametrize(
    ("answer", "heard"),
    [(Answer(value="this"), "answered this"), (Answer(outcome=Outcome.DECLINED), "declined None")],
    ids=["answered", "declined"],
)
async def test_an_answer_that_was_not_passed_on_yet_is_passed_on(tmp_path: Path, answer: Answer, heard: str) -> None:
    async with house(agents={"a": asks}, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await there.asked(started, "1:q")
        await there.engine.runs.answer(started.id, answer)  # and at once it stops
    async with house(agents={"a": Scripted(never, attach=asks)}, file=tmp_path / "s.db") as there:
        assert text(await found(there, started.id)) == heard


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(value={"optionId": "approve"}), RunStatus.SUCCESS),
        (Answer(value={"optionId": "decline"}), RunStatus.ERROR),
        (Answer(outcome=Outcome.CANCELLED), RunStatus.ERROR),
    ],
    ids=["approved", "not", "nobody"],
)
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
async def test_consent_is_asked_for_once_whether_it_comes_before_or_after_the_restart(
    tmp_path: Path, answer: Answer, status: RunStatus, early: bool
) -> None:
    asked = candidate("a", 9, approve=True)
    async with house(asked, agents={"a": never}, file=tmp_path / "s.db") as there:
        started = await there.delegate()
        await there.asked(started, "approve-1-a")
        if early:
            await there.engine.runs.answer(started.id, answer)  # and at once it stops
    others = candidate("b", 10)
    async with house(asked, others, agents={"a": says("four"), "b": says("x")}, file=tmp_path / "s.db") as there:
        if not early:
            await there.asked(started, "approve-1-a")
            await there.engine.runs.answer(started.id, answer)
        done = await found(there, started.id)
        assert done.status is status
        assert [one.agent for one in await there.attempts(done)] == (["a"] if done.failure is None else [])
        events = [event for _, event in await there.engine.runs.events(done.id)]
        assert sum(isinstance(event, e.Interrupted) for event in events) == 1


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_cancel_reaches_the_attempt_after_the_restart(tmp_path: Path) -> None:
    first = holds("hm", asyncio.Event())
    async with house(agents={"a": first}, file=tmp_path / "s.db", grace=60.0) as there:
        started = await there.delegate()
        await until(lambda: there.text(started) == "hm")
        live = there.engine.live[started.id]
        live.outbound = Scripted(never)  # the attempt does not hear of it
        await there.engine.runs.cancel(started.id, reason="enough")
    agent = Scripted(never, attach=holds("hm", asyncio.Event()))
    async with house(agents={"a": agent}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert done.status is RunStatus.CANCELLED
        (attempt,) = await there.attempts(done)
        assert (await there.ended(attempt)).cancel_reason == "enough"


async def test_a_deadline_that_passed_meanwhile_ends_the_task_and_its_attempt(tmp_path: Path, monkeypatch: Any) -> None:
    deadline = "2100-01-01T00:00:00Z"
    async with house(agents={"a": holds("hm", asyncio.Event())}, file=tmp_path / "s.db") as there:
        started = await there.delegate(task(deadline=deadline))
        await until(lambda: there.text(started) == "hm")
    monkeypatch.setattr("adapters.agent_context.coordination.task_work.time.time", lambda: 5e9)
    agent = Scripted(never, attach=holds("hm", asyncio.Event()))
    async with house(agents={"a": agent}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert task_of(done)["status"] == "expired"
        monkeypatch.undo()
        (attempt,) = await there.attempts(done)
        assert (await there.ended(attempt)).cancel_reason == "the deadline has passed"


async def test_what_a_task_failed_with_is_settled_before_it_ends(tmp_path: Path) -> None:
    async def spends(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        context.emit(e.UsageReported(output_tokens=11))
        await context.drain()
        await asyncio.Event().wait()

    async with house(agents={"a": spends, "b": never}, file=tmp_path / "s.db") as there:
        started = await there.delegate(task(maxTokens=10))
        live = there.engine.live[started.id]
        live._ending = True  # its end is never written
        await until(lambda: there.kept(started).failure is not None)
        live._ending = False
    async with house(agents={"a": never, "b": never}, file=tmp_path / "s.db") as there:
        done = await found(there, started.id)
        assert done.failure is not None and "11 tokens" in done.failure.message
        assert [one.agent for one in await there.attempts(done)] == ["a"]
