"""Questions of a task: its agent's own, and whether the agent may have it at all. And cancelling, both ways."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from adapters.agent_context.coordination import attempt_run
from adapters.agent_context.coordination.task_record import task_of
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, Unavailable
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.runs.live import LiveRun
from tests.adapters.agent_context.coordination.rig import (
    House,
    candidate,
    fails,
    held_back,
    holds,
    house,
    ids,
    says,
    task,
)
from tests.adapters.agent_context.inbound_talker import in_seconds
from tests.support.scripted import Script, until

YES, NO = Answer(value={"optionId": "approve"}), Answer(value={"optionId": "decline"})


def asks(kind: str = "input") -> Script:
    """An agent that asks which, and says what was answered."""

    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": "u"})
        schema = {"type": "string"}
        answer = await context.ask(Interrupt(id="q", kind=kind, message="which?", answer_schema=schema))
        context.emit(e.PartDelta(part="text", delta=f"{answer.outcome} {answer.value}"), e.RunFinished())

    return script


async def test_a_question_of_the_agents_is_the_tasks_and_the_answer_goes_back() -> None:
    async with house(agents={"a": asks()}) as there:
        started = await there.delegate()
        now = await there.asked(started)
        (question,) = now.interrupts
        assert (question.kind, question.message, question.answer_schema) == ("input", "which?", {"type": "string"})
        assert task_of(now)["status"] == "running"
        assert task_of(now)["interrupts"] == [{"id": "1:q", "kind": "input", "message": "which?"}]
        await there.engine.runs.answer(started.id, Answer(value="this"))
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "answered this"}]}


async def test_a_question_that_is_declined_is_declined_to_the_agent() -> None:
    async with house(agents={"a": asks()}) as there:
        started = await there.delegate()
        await there.asked(started)
        await there.engine.runs.answer(started.id, Answer(outcome=Outcome.DECLINED))
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "declined None"}]}


async def test_a_question_answered_where_the_agent_runs_is_answered_for_the_task_too() -> None:
    async with house(agents={"a": asks()}) as there:
        started = await there.delegate()
        await there.asked(started)
        (attempt,) = await there.attempts(started)
        await there.engine.runs.answer(attempt.id, Answer(value="that"))
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "answered that"}]}
        log = [event for _, event in await there.engine.runs.events(done.id)]
        assert [event.answer for event in log if isinstance(event, e.Resumed)] == [Answer(value="that")]


async def test_an_answer_that_could_not_be_passed_on_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_run, "ELSEWHERE_SECONDS", 0.0)

    async with house(agents={"a": asks()}) as there:
        started = await there.delegate()
        await there.asked(started, "1:q")
        (attempt,) = await there.attempts(started)
        answer = there.engine.runs.answer

        async def away(run_id: str, *given: Any) -> Any:
            if run_id == attempt.id:
                monkeypatch.setattr(there.engine.runs, "answer", answer)
                raise Unavailable("the store is away")
            return await answer(run_id, *given)

        monkeypatch.setattr(there.engine.runs, "answer", away)
        await away(started.id, Answer(value="this"))
        (question,) = (await there.asked(started, "1:q~2")).interrupts
        assert question.message == "the store is away\n\nwhich?"
        await there.engine.runs.answer(started.id, Answer(value="that"))
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "answered that"}]}


async def test_a_question_dies_with_its_attempt_and_the_next_agent_may_ask_its_own() -> None:
    async def asks_and_dies(context: RunContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.ask(Interrupt(id="q", kind="input")))
            await there_is.wait()
            raise AgentGone("unplugged")

    there_is = asyncio.Event()

    async with house(candidate("a", 9), candidate("b", 5), agents={"a": asks_and_dies, "b": asks()}) as there:
        started = await there.delegate()
        await there.asked(started, "1:q")
        there_is.set()
        now = await there.asked(started, "2:q")
        await until(lambda: ids(there.engine.live[started.id].run) == [{"id": "2:q", "kind": "input"}])
        await there.engine.runs.answer(now.id, Answer(value="b's"), "2:q")
        assert json.loads(bytes((await there.ended(started)).output)) == {"messages": [{"text": "answered b's"}]}


# --- consent ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"approve": ["b*", "a*"]}], ids=["the route says so", "a pattern says so"])
async def test_a_person_reviews_a_task_before_the_agent_has_it(options: dict[str, list[str]]) -> None:
    async with house(candidate("a1", 8, approve=not options), agents={"a1": says("four")}, **options) as there:
        started = await there.delegate(task("t7"))
        now = await there.asked(started)
        (question,) = now.interrupts
        assert question.kind == "permission" and question.message == "Give the task t7 (calc) to the agent a1?"
        assert question.payload["agent"] == "a1" and question.payload["why"]["ranked"][0]["agent"] == "a1"
        assert question.payload["task"]["payload"] == {"messages": [{"text": "two and two"}]}
        assert question.answer_schema["properties"]["optionId"] == {
            "enum": ["approve", "decline"],
            "enumNames": ["Approve", "Decline"],
        }
        assert task_of(now)["status"] == "awaiting_approval" and await there.attempts(now) == []
        assert there.coordinator.queue.running("a1") == 0  # whoever decides may take days
        await there.engine.runs.answer(started.id, YES)
        done = await there.ended(started)
        assert done.status is RunStatus.SUCCESS and len(there.agents["a1"].contexts) == 1


@pytest.mark.parametrize(
    "answer", [NO, Answer(outcome=Outcome.DECLINED), Answer(outcome=Outcome.CANCELLED)], ids=["no", "declined", "gone"]
)
async def test_a_task_that_is_not_approved_fails_and_no_other_agent_gets_it(answer: Answer) -> None:
    ranked = candidate("a", 9, approve=True), candidate("b", 1)
    async with house(*ranked, agents={"a": says("x"), "b": says("x")}) as there:
        started = await there.delegate()
        await there.asked(started)
        await there.engine.runs.answer(started.id, answer)
        done = await there.ended(started)
        assert done.failure is not None and done.failure.code == "denied"
        assert task_of(done)["error"]["code"] == -32003 and await there.attempts(done) == []


async def test_each_agent_that_needs_it_is_approved_once_and_its_own() -> None:
    ranked = candidate("a", 9, approve=True), candidate("b", 5, approve=True)
    async with house(*ranked, agents={"a": fails(AgentGone("unplugged")), "b": says("four")}) as there:
        started = await there.delegate()
        await there.asked(started, "approve-1-a")
        await there.engine.runs.answer(started.id, YES)
        await there.asked(started, "approve-2-b")
        await there.engine.runs.answer(started.id, YES)
        assert json.loads(bytes((await there.ended(started)).output)) == {"messages": [{"text": "four "}]}


async def test_an_approved_agent_that_has_gone_meanwhile_does_not_keep_the_task_waiting() -> None:
    ranked = candidate("a", 9, approve=True), candidate("b", 1)
    async with house(*ranked, agents={"a": says("x"), "b": says("four")}) as there:
        started = await there.delegate()
        await there.asked(started)
        there.directory.change("a", status="offline")
        there.coordinator.queue.changed()
        await there.engine.runs.answer(started.id, YES)
        assert json.loads(bytes((await there.ended(started)).output)) == {"messages": [{"text": "four "}]}


# --- cancelling ------------------------------------------------------------------------------------------------------


async def test_cancelling_a_task_cancels_its_attempt() -> None:
    stopped = asyncio.Event()
    async with house(agents={"a": holds("hm", stopped), "b": says("x")}) as there:
        there.agents["a"].on_cancel = stopped.set
        started = await there.delegate()
        await until(lambda: there.text(started) == "hm")
        cancelled = await there.engine.runs.cancel(started.id, reason="changed my mind", wait=True)
        assert cancelled.status is RunStatus.CANCELLED
        (attempt,) = await there.attempts(started)
        ended = await there.ended(attempt)
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELLED, "changed my mind")
        assert task_of(cancelled)["status"] == "cancelled" and task_of(cancelled)["reason"] == "changed my mind"
        assert task_of(cancelled)["attempts"] == [{"number": 1, "agent": "a", "status": "cancelled"}]
        assert there.coordinator.queue.running("a") == 0 and not there.agents["b"].contexts


async def test_cancelling_a_task_that_waits_takes_it_out_of_the_queue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_context.coordination.choosing.AGAIN_SECONDS", 60.0)

    go = asyncio.Event()
    async with house(agents={"a": holds("hm", go)}, per_agent=1, grace=60.0) as there:
        first = await there.delegate(task("t1"))
        await until(lambda: there.text(first) == "hm")
        second = await there.delegate(task("t2"))
        await until(lambda: there.coordinator.queue.waiting == 1)
        assert (await there.engine.runs.cancel(second.id, wait=True)).status is RunStatus.CANCELLED
        assert there.coordinator.queue.waiting == 0 and await there.attempts(second) == []
        go.set()
        assert (await there.ended(first)).status is RunStatus.SUCCESS


@pytest.mark.parametrize("late", [False, True], ids=["within the grace", "after it"])
async def test_cancelling_a_task_whose_agent_is_just_being_asked_cancels_that_too(late: bool) -> None:
    starting, go = asyncio.Event(), asyncio.Event()

    agents = {"a": holds("hm", asyncio.Event())}
    async with house(agents=agents, gateway=held_back(starting, go)) as there:
        started = await there.delegate()
        await starting.wait()
        await there.engine.runs.cancel(started.id, reason="enough", wait=late)
        go.set()
        assert (await there.ended(started)).status is RunStatus.CANCELLED
        await until(lambda: bool(there.agents["a"].contexts) and not there.engine.live)
        (attempt,) = await there.attempts(started)
        assert attempt.status is RunStatus.CANCELLED


async def test_cancelling_a_task_that_awaits_approval_closes_the_question() -> None:
    async with house(candidate("a", approve=True), agents={"a": says("x")}) as there:
        started = await there.delegate()
        await there.asked(started)
        cancelled = await there.engine.runs.cancel(started.id, wait=True)
        assert cancelled.status is RunStatus.CANCELLED and not cancelled.interrupts
        assert await there.attempts(started) == []


async def test_a_deadline_that_passes_while_a_person_is_asked_ends_the_task() -> None:
    async with house(candidate("a", approve=True), agents={"a": says("x")}) as there:
        done = await there.done(task(deadline=in_seconds(0.2)))
        assert task_of(done)["status"] == "expired" and not done.interrupts
        assert done.failure is not None and "before an agent had it" in done.failure.message


async def test_a_task_that_is_cancelled_while_its_agent_is_written_down_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep = LiveRun.set_upstream

    async def kept(self: LiveRun, upstream: Any, **more: Any) -> None:
        await keep(self, upstream, **more)
        if upstream.get("attempts"):
            await there[0].engine.runs.cancel(self.run.id, reason="enough")

    there: list[House] = []
    monkeypatch.setattr(LiveRun, "set_upstream", kept)

    async with house(agents={"a": says("four")}) as it:
        there.append(it)
        ended = await it.done()
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELLED, "enough")
        assert not it.agents["a"].contexts
