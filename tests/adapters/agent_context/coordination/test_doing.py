"""A task is done: by the best agent, by the next when one fails, and what it says is the task's."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import Any

import msgspec
import pytest

from adapters.agent_context import ADAPTER
from adapters.agent_context.coordination import attempt_run
from adapters.agent_context.coordination.task_record import KeptTask, task_of
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, AgentTimeout, Denied, Invalid, Unavailable
from gateway.core.types import Artifact, RunStatus
from gateway.runs import Engine
from gateway.runs.live import LiveRun
from tests.adapters.agent_context.coordination.rig import (
    Proxy,
    candidate,
    described,
    fails,
    held_back,
    holds,
    house,
    says,
    task,
)
from tests.support.aio import Clock, later, on
from tests.support.scripted import Script, Scripted, until


async def test_the_best_agent_does_the_task_and_the_choice_is_explained() -> None:
    ranked = candidate("poor", 3), candidate("good", 9), candidate("other", None, "letters")
    async with house(*ranked, agents={name: says(f"by {name}") for name in ("poor", "good", "other")}) as there:
        done = await there.done(task(can=["Sums"]))
        assert done.status is RunStatus.SUCCESS
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "by good "}]}
        told = KeptTask.of(done).assignment
        assert told["agent"] == "good" and [one["agent"] for one in told["ranked"]] == ["good", "other", "poor"]
        assert told["ranked"][0]["factors"]["quality"] == 0.9
        assert not there.agents["poor"].contexts and not there.agents["other"].contexts
        view = task_of(done)
        assert (view["status"], view["agent"], view["priority"]) == ("completed", "good", 0)
        assert view["result"] == {"messages": [{"text": "by good "}]}


async def test_the_agent_is_asked_as_a_run_of_the_task_and_gets_its_payload() -> None:
    async with house(agents={"a": says("four")}) as there:
        more = {"attributes": {"correlationId": "c"}, "metadata": {"team": "x"}, "creation": {"_meta": {"y": 1}}}
        done = await there.done(task("t9", text="two and two"), source="boss", **more)
        (asked,) = await there.attempts(done)
        assert asked.request.input == {"message": "two and two"} and asked.agent == "a"
        assert asked.request.metadata == {attempt_run.MARK: f"{done.id}/1", "team": "x"}
        assert asked.request.principal == "me" and asked.request.creation == {"_meta": {"y": 1}}
        marks = asked.request.attributes
        assert marks["task"]["id"] == "t9" and marks["task"]["payload"] == {"messages": [{"text": "two and two"}]}
        assert (marks["attempt"], marks["hops"], marks["correlationId"], marks["source"]) == (1, 1, "c", "boss")


async def test_what_the_agent_cannot_be_told_of_the_payload_is_counted() -> None:
    async with house(agents={"a": says("four")}) as there:
        done = await there.done(task(payload={"dataset": "x.csv"}))
        (asked,) = await there.attempts(done)
        assert asked.request.input == {"message": '{"dataset":"x.csv"}'}
        assert done.losses == {"payload_as_text": 1} and done.losses.keys() <= ADAPTER.losses.keys()


async def test_a_document_of_the_agents_is_the_tasks_output() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}, "note": {"type": "string"}}}
    agent = described(output_schema=schema, text_output="/note")

    async def adds(context: RunContext) -> None:
        for note in ("it ", "is ", "four"):
            context.emit(e.PartDelta(part="output", delta={"note": note}))
            await context.drain()
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"sum": 4, "note": "it is four"}')))

    async with house(agents={"a": Scripted(adds, agent=agent)}) as there:
        done = await there.done()
        assert json.loads(bytes(done.output)) == {
            "messages": [{"text": "it is four"}],
            "output": {"sum": 4, "note": "it is four"},
        }
        said = [event.delta for _, event in await there.engine.runs.events(done.id) if isinstance(event, e.PartDelta)]
        assert "".join(said) == "it is four"


@pytest.mark.parametrize(
    "error", [AgentFailed("broken"), AgentGone("away"), AgentTimeout("slow")], ids=lambda error: error.code
)
async def test_another_agent_tries_when_one_fails_and_what_the_first_said_is_taken_back(error: Exception) -> None:
    ranked = candidate("first", 9), candidate("second", 5)
    agents = {"first": fails(error, after="nonsense"), "second": says("four")}
    async with house(*ranked, agents=agents) as there:
        done = await there.done()
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "four "}]}
        tried = task_of(done)["attempts"]
        assert tried == [
            {"number": 1, "agent": "first", "status": "failed", "error": str(error)},
            {"number": 2, "agent": "second", "status": "completed"},
        ]
        text = [event for _, event in await there.engine.runs.events(done.id) if isinstance(event, e.PartReplaced)]
        assert [event.value for event in text] == [""]
        left_out = {one["agent"]: one["reason"] for one in KeptTask.of(done).assignment["leftOut"]}
        assert left_out["first"] == f"has failed already: {error}"
        assert not any(there.coordinator.queue.running(each) for each in agents)


async def test_an_attempt_over_its_own_time_is_a_failed_one() -> None:
    ranked = candidate("slow", 9), candidate("fast", 5)
    agents = {"slow": holds("hm", asyncio.Event()), "fast": says("four")}
    async with house(*ranked, agents=agents, timeouts={"slow": 0.05}) as there:
        done = await there.done()
        assert task_of(done)["agent"] == "fast" and there.agents["slow"].cancels == 1


async def test_no_more_agents_are_tried_than_the_options_allow_and_the_task_says_how_the_last_failed() -> None:
    agents = {name: fails(AgentFailed(f"{name} broke")) for name in "abcd"}
    async with house(agents=agents, attempts=2) as there:
        done = await there.done()
        assert done.failure is not None and done.failure.code == "agent_failed"
        assert done.failure.message == "2 agents failed; the last, b: b broke"
        assert len(await there.attempts(done)) == 2
        assert task_of(done)["error"] == {"code": -32008, "message": done.failure.message}


async def test_when_all_agents_are_gone_the_task_may_be_tried_again() -> None:
    async with house(agents={"a": fails(AgentGone("unplugged"))}) as there:
        done = await there.done()
        assert done.failure is not None and (done.failure.code, done.failure.retryable) == ("agent_gone", True)
        assert done.failure.message == "agent a failed: unplugged"


@pytest.mark.parametrize("error", [Invalid("no number"), Denied("not for you")], ids=lambda error: error.code)
async def test_what_is_wrong_with_the_task_itself_is_not_tried_again(error: Exception) -> None:
    async with house(candidate("a", 9), candidate("b", 5), agents={"a": fails(error), "b": says("x")}) as there:
        done = await there.done()
        assert done.failure is not None and done.failure.message == str(error)
        assert not there.agents["b"].contexts


async def test_an_attempt_that_somebody_else_cancels_has_failed() -> None:
    ranked = candidate("first", 9), candidate("second", 5)
    async with house(*ranked, agents={"first": holds("hm", asyncio.Event()), "second": says("four")}) as there:
        started = await there.delegate()
        await until(lambda: there.text(started) == "hm")
        (first,) = await there.attempts(started)
        await there.engine.runs.cancel(first.id, reason="by its operator")
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "four "}]}
        assert "by its operator" in task_of(done)["attempts"][0]["error"]


async def test_thoughts_tools_plans_usage_and_files_of_an_attempt_are_the_tasks() -> None:
    async def works(context: RunContext) -> None:
        context.emit(
            e.PartStarted(part="p", message="m", kind="thought"),
            e.PartDelta(part="p", delta="carry the one"),
            e.ToolCallStarted(call="c", name="abacus"),
            e.ToolCallUpdated(call="c", status="in_progress"),
            e.ToolCallEnded(call="c", output=4),
            e.PlanUpdated(entries=(e.PlanEntry(content="add"),)),
            e.UsageReported(input_tokens=3, output_tokens=5),
            e.Custom(name="own", data={"x": 1}),
            e.PartDelta(part="text", delta="four"),
        )
        await context.add_artifact("sum.txt", b"2+2=4", media_type="text/plain")
        context.emit(e.RunFinished())

    async with house(agents={"a": works}) as there:
        done = await there.done()
        events = [event for _, event in await there.engine.runs.events(done.id)]
        thought = next(event for event in events if isinstance(event, e.PartStarted) and event.kind == "thought")
        assert e.PartDelta(part=thought.part, delta="carry the one") in events
        calls = [event.call for event in events if isinstance(event, e.ToolCallStarted | e.ToolCallEnded)]
        assert len(calls) == 2 and len(set(calls)) == 1
        assert e.PlanUpdated(entries=(e.PlanEntry(content="add"),)) in events
        assert e.UsageReported(input_tokens=3, output_tokens=5) in events
        assert e.Custom(name="own", data={"x": 1}) in events
        (file,) = await there.engine.files.list(run=done.id)
        assert isinstance(file, Artifact) and (file.name, file.media_type) == ("sum.txt", "text/plain")
        assert b"".join([chunk async for chunk in there.engine.files.open(file.id)]) == b"2+2=4"
        assert json.loads(bytes(done.output))["messages"] == [{"text": "four"}]


async def test_an_attempt_whose_start_was_not_heard_of_is_not_begun_twice() -> None:
    async def unheard(engine: Engine, request: Any, **more: Any) -> Any:
        run = await engine.runs.start(request, **more)
        if not heard:
            heard.append(run.id)
            raise Unavailable("the other process is gone")
        return run

    heard: list[str] = []
    gateway = lambda engine: Proxy(engine, runs=Proxy(engine.runs, start=partial(unheard, engine)))  # noqa: E731
    go = asyncio.Event()
    async with house(agents={"a": holds("half", go)}, gateway=gateway) as there:
        started = await there.delegate()
        await until(lambda: bool(heard))
        await until(lambda: there.text(started) == "half")
        go.set()
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "half done"}]}
        assert [one.id for one in await there.attempts(done)] == heard and len(there.agents["a"].contexts) == 1


async def test_usage_is_summed_over_the_attempts() -> None:
    async def spends(context: RunContext) -> None:
        context.emit(e.UsageReported(input_tokens=10, output_tokens=20))
        await context.drain()
        raise AgentFailed("spent")

    async with house(candidate("a", 9), candidate("b", 5), agents={"a": spends, "b": spends}) as there:
        done = await there.done()
        events = [event for _, event in await there.engine.runs.events(done.id)]
        last = [event for event in events if isinstance(event, e.UsageReported)][-1]
        assert (last.input_tokens, last.output_tokens) == (20, 40)


async def test_a_task_that_takes_more_tokens_than_it_may_is_stopped_and_fails() -> None:
    async def spends(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="a lot"), e.UsageReported(output_tokens=101))
        await context.drain()
        await asyncio.Event().wait()

    async with house(agents={"a": spends, "b": says("x")}) as there:
        done = await there.done(task(maxTokens=100))
        assert done.failure is not None and "101 tokens, more than its limit of 100" in done.failure.message
        (attempt,) = await there.attempts(done)
        assert attempt.cancel_reason == "more tokens than the task allows" and there.agents["a"].cancels == 1


def _stubborn(go: asyncio.Event, **used: int) -> Script:
    """An agent that hears of no cancel: it ends when it may."""

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="hm"), e.UsageReported(**used))
        await context.drain()
        await go.wait()
        context.emit(e.RunFinished())

    return script


@pytest.mark.parametrize("limit", ["deadline", "tokens"])
@pytest.mark.parametrize("ends", [True, False], ids=["that ends late", "that does not end"])
@on(Clock)
async def test_a_task_that_is_stopped_waits_a_moment_for_an_agent(limit: str, ends: bool) -> None:
    go = asyncio.Event()
    used = {"output_tokens": 101} if limit == "tokens" else {}
    async with house(agents={"a": _stubborn(go, **used)}, grace=1000.0, per_agent=1) as there:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
        started = await there.delegate(task(maxTokens=100) if limit == "tokens" else task(deadline=stamp))
        agent = there.agents["a"]
        agent.on_cancel = lambda: asyncio.get_running_loop().call_later(3, go.set) if ends else None
        await until(lambda: bool(agent.contexts))
        if limit == "deadline":
            await later(301)
        await until(lambda: agent.cancels == 1 and there.kept(started).failure is not None)
        assert there.coordinator.queue.running("a") == 1
        await later(4 if ends else 7)
        done = await there.ended(started)
        assert done.status is (RunStatus.ERROR if limit == "tokens" else RunStatus.TIMEOUT)
        (attempt,) = await there.attempts(done)
        assert attempt.status.ended is ends and attempt.cancel_reason
        assert there.coordinator.queue.running("a") == 0
        go.set()


@pytest.mark.parametrize("soon", [True, False], ids=["before the task ends", "once it has heard, too"])
@on(Clock)
async def test_an_agent_that_is_just_being_asked_when_the_deadline_passes_is_told_to_stop(soon: bool) -> None:
    starting, go = asyncio.Event(), asyncio.Event()

    agents = {"a": holds("hm", asyncio.Event())}
    async with house(agents=agents, gateway=held_back(starting, go)) as there:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
        started = await there.delegate(task(deadline=stamp))
        await starting.wait()
        await later(301)
        if soon:
            go.set()
        else:
            await later(7)
        done = await there.ended(started)
        assert done.status is RunStatus.TIMEOUT
        go.set()
        await until(lambda: bool(there.agents["a"].contexts) and not there.engine.live)
        (attempt,) = await there.attempts(done)
        assert attempt.status is RunStatus.CANCELLED
        assert attempt.cancel_reason == ("the deadline has passed" if soon else "its task is over")


async def test_a_client_of_another_protocol_says_what_is_to_be_done_in_words() -> None:
    from gateway.core.types import RunRequest

    async with house(agents={"a": says("four")}, coordinator="anybody") as there:
        asked = {"message": "two and two", "capabilities": ["sums"]}
        started = await there.engine.runs.start(RunRequest(agent="anybody", input=asked, protocol="example"))
        done = await there.ended(started)
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "four "}]}
        (attempt,) = await there.attempts(done)
        assert attempt.request.input == {"message": "two and two"}
        assert task_of(done)["id"] == done.id


async def test_a_file_for_the_coordination_goes_to_an_agent_that_takes_it() -> None:
    async def counts(context: RunContext) -> None:
        (file,) = await context.uploads()
        (content,) = (await context.contents([file.id])).values()
        context.emit(e.PartDelta(part="text", delta=f"{file.name} {content!r}"), e.RunFinished())

    from gateway.core.files import Attachment
    from gateway.core.types import AgentCapabilities, RunRequest

    none = Scripted(says("x"), agent=described(capabilities=AgentCapabilities()))
    agents = {"none": none, "takes": counts}
    async with house(candidate("none", 9), candidate("takes", 1), agents=agents, coordinator="anybody") as there:
        asked = RunRequest(agent="anybody", input={"message": "count"}, protocol="example")
        file = Attachment(name="sum.txt", media_type="text/plain", content=b"2+2")
        done = await there.ended(await there.engine.runs.start(asked, files=[file]))
        assert json.loads(bytes(done.output)) == {"messages": [{"text": "sum.txt b'2+2'"}]}
        left_out = {one["agent"]: one["reason"] for one in KeptTask.of(done).assignment["leftOut"]}
        assert left_out["none"] == "takes no such files: sum.txt is text/plain"


async def test_work_that_was_handed_on_too_often_goes_no_further() -> None:
    async with house(agents={"a": says("x")}) as there:
        done = await there.done(attributes={"hops": 8})
        assert done.failure is not None and done.failure.code == "denied" and "8 times" in done.failure.message
        assert not there.agents["a"].contexts
        assert (await there.done(task("t2"), attributes={"hops": 7})).status is RunStatus.SUCCESS


@on(Clock)
async def test_a_deadline_that_passes_while_an_agent_works_ends_both() -> None:
    async with house(agents={"a": holds("hm", asyncio.Event()), "b": says("x")}) as there:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
        started = await there.delegate(task(deadline=stamp))
        await until(lambda: bool(there.agents["a"].contexts))
        await later(301)
        done = await there.ended(started)
        assert done.status is RunStatus.TIMEOUT and task_of(done)["status"] == "expired"
        assert task_of(done)["error"]["code"] == -32006
        (attempt,) = await there.attempts(done)
        await until(lambda: there.agents["a"].cancels == 1)
        assert (await there.engine.runs.get(attempt.id)).cancel_reason == "the deadline has passed"
        assert there.coordinator.queue.running("a") == 0 and not there.agents["b"].contexts


@on(Clock)
async def test_a_task_whose_deadline_passes_while_its_failure_is_written_down_fails_with_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writing, keeps = asyncio.Event(), LiveRun.set_upstream

    async def slow(live: LiveRun, upstream: dict[str, Any], **more: Any) -> None:
        if "failure" in upstream:
            writing.set()
            await asyncio.sleep(1000)
        await keeps(live, upstream, **more)

    monkeypatch.setattr(LiveRun, "set_upstream", slow)
    async with house(agents={"a": fails(Denied("not for you"))}) as there:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
        started = await there.delegate(task(deadline=stamp))
        await writing.wait()
        await later(301)
        done = await there.ended(started)
        assert done.failure is not None and done.failure.code == "denied"
