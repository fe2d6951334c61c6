"""Interrupts, answers, and cancelling with a fence."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Conflict, Invalid
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.runs import Engine
from tests.support.aio import Clock, later, on
from tests.support.scripted import Scripted, engine, request, route, until

QUESTION = Interrupt(
    id="q1",
    kind="approval",
    payload={"what": "send?"},
    answer_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
)


async def asking(context: RunContext) -> None:
    """Asks once, says what came back."""
    answer = await context.ask(QUESTION)
    said = json.dumps(answer.value) if answer.outcome is Outcome.ANSWERED else answer.outcome.value
    context.emit(e.PartDelta(part="text", delta=said), e.RunFinished())


async def to_the_question(gateway: Engine, run_id: str) -> None:
    stopped = await gateway.runs.wait(run_id, timeout=30)
    assert stopped is not None and stopped.status is RunStatus.INTERRUPTED
    assert [i.id for i in stopped.interrupts] == ["q1"]


async def test_a_question_stops_the_run_and_its_answer_takes_it_on() -> None:
    async with engine((route(), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        resumed = await gateway.runs.answer(started.id, Answer(value={"ok": True}))
        assert resumed.status is not RunStatus.INTERRUPTED and resumed.interrupts == ()
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": '{"ok": true}'}
        kinds = [type(event).__name__ for _, event in await gateway.runs.events(started.id)]
        assert kinds.index("Interrupted") < kinds.index("Resumed") < kinds.index("PartDelta")


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() -> None:
    async with engine((route(), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        with pytest.raises(Invalid) as refused:
            await gateway.runs.answer(started.id, Answer(value={"ok": "yes"}))
        assert refused.value.path == "/ok"
        await to_the_question(gateway, started.id)


async def test_the_first_answer_commits_and_every_other_is_a_conflict() -> None:
    async with engine((route(), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        answers = [gateway.runs.answer(started.id, Answer(value={"ok": bool(n)})) for n in range(4)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        assert sum(isinstance(r, Conflict) for r in results) == 3
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": '{"ok": false}'}


async def test_a_declined_question_carries_no_value_and_is_not_an_approval() -> None:
    async with engine((route(), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        await gateway.runs.answer(started.id, Answer(outcome=Outcome.DECLINED))
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "declined"}


async def test_several_questions_may_be_open_and_are_answered_by_id() -> None:
    async def two(context: RunContext) -> None:
        one, other = (Interrupt(id=name, kind="input") for name in ("one", "other"))
        answers = await asyncio.gather(context.ask(one), context.ask(other))
        context.emit(e.PartDelta(part="text", delta="/".join(a.value for a in answers)), e.RunFinished())

    async with engine((route(), Scripted(two))) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        await until(lambda: len(live.run.interrupts) == 2)
        await gateway.runs.answer(started.id, Answer(value="second"), "other")
        assert (await gateway.runs.get(started.id)).status is RunStatus.INTERRUPTED
        await gateway.runs.answer(started.id, Answer(value="first"))
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "first/second"}


async def test_a_question_may_have_the_id_of_an_earlier_one() -> None:
    async def again(context: RunContext) -> None:
        answers = [await context.ask(Interrupt(id="question", kind="input")) for _ in range(2)]
        context.emit(e.PartDelta(part="text", delta="/".join(a.value for a in answers)), e.RunFinished())

    async with engine((route(), Scripted(again))) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        for name, value in (("question", "one"), ("question#2", "two")):
            await until(lambda name=name: [i.id for i in live.run.interrupts] == [name])  # type: ignore[misc]
            await gateway.runs.answer(started.id, Answer(value=value), name)
        await until(lambda: live.ended)
        assert json.loads(bytes(live.run.output)) == {"message": "one/two"}


async def test_two_who_ask_by_one_name_at_once_ask_two_questions_and_one_can_be_withdrawn() -> None:
    async def two(context: RunContext) -> None:
        question = Interrupt(id="question", kind="input")
        withdrawn, other = (asyncio.ensure_future(context.ask(question)) for _ in range(2))
        await until(lambda: len(context.run.interrupts) == 2)
        withdrawn.cancel()
        context.emit(e.PartDelta(part="text", delta=(await other).value), e.RunFinished())

    async with engine((route(), Scripted(two))) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        await until(lambda: [i.id for i in live.run.interrupts] == ["question#2"] or live.ended)
        await gateway.runs.answer(started.id, Answer(value="said"), "question#2")
        await until(lambda: live.ended)
        assert json.loads(bytes(live.run.output)) == {"message": "said"}


@on(Clock)
async def test_the_clock_stands_still_while_a_person_is_asked() -> None:
    async with engine((route(timeout=200), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        assert await gateway.runs.wait(started.id, timeout=30) is not None
        await later(400)  # twice the run's time
        await gateway.runs.answer(started.id, Answer(value={"ok": True}))
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and done.status is RunStatus.SUCCESS


@on(Clock)
async def test_the_clock_goes_on_after_the_answer() -> None:
    answered = asyncio.Event()

    async def slow(context: RunContext) -> None:
        await context.ask(QUESTION)
        answered.set()
        await asyncio.Event().wait()

    async with engine((route(timeout=100), Scripted(slow))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        await gateway.runs.answer(started.id, Answer(value={"ok": True}))
        await answered.wait()
        await later(101)
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None and done.status is RunStatus.TIMEOUT


async def test_cancel_answers_open_questions_and_the_success_that_follows_is_a_cancel() -> None:
    agent = Scripted(asking)
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        done = await gateway.runs.cancel(started.id, reason="enough", wait=True)
        assert done.status is RunStatus.CANCELLED and done.cancel_reason == "enough"
        assert json.loads(bytes(done.output)) == {"message": "cancelled"}
        events = [event for _, event in await gateway.runs.events(started.id)]
        assert e.Resumed(interrupt="q1", answer=Answer(outcome=Outcome.CANCELLED)) in events
        assert events[-1] == e.RunCancelled(reason="enough") and agent.cancels == 1


async def test_an_agent_that_ignores_the_cancel_is_left_after_the_grace_and_that_is_counted() -> None:
    async def deaf(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="working"))
        await asyncio.Event().wait()

    async with engine((route(), Scripted(deaf)), cancel_grace=0.05) as gateway:
        started = await gateway.runs.start(request())
        done = await gateway.runs.cancel(started.id, wait=True)
        assert done.status is RunStatus.CANCELLED
        assert done.losses == {"upstream_may_still_run": 1}
        assert json.loads(bytes(done.output)) == {"message": "working"}


async def test_a_failure_after_the_cancel_is_the_cancel() -> None:
    stop = asyncio.Event()

    async def agent(context: RunContext) -> None:
        await stop.wait()
        raise RuntimeError("torn down")

    scripted = Scripted(agent)
    scripted.on_cancel = stop.set
    async with engine((route(), scripted)) as gateway:
        started = await gateway.runs.start(request())
        assert (await gateway.runs.cancel(started.id, wait=True)).status is RunStatus.CANCELLED


async def test_cancelling_twice_or_after_the_end_changes_nothing() -> None:
    async with engine((route(), Scripted(asking))) as gateway:
        started = await gateway.runs.start(request())
        await to_the_question(gateway, started.id)
        first = await gateway.runs.cancel(started.id, reason="one", wait=True)
        again = await gateway.runs.cancel(started.id, reason="two", wait=True)
        assert again == first and again.cancel_reason == "one"
        with pytest.raises(Conflict):
            await gateway.runs.answer(started.id, Answer(value={"ok": True}))


async def test_a_question_that_the_agent_withdraws_is_open_no_longer() -> None:
    async def agent(context: RunContext) -> None:
        asking = asyncio.create_task(context.ask(Interrupt(id="q", kind="input", message="Well?")))
        await until(lambda: bool(context.run.interrupts))
        asking.cancel()
        await until(lambda: not context.run.interrupts)
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        started = await gateway.runs.start(request())
        await until(lambda: started.id not in gateway.live)
        assert (await gateway.runs.get(started.id)).status is RunStatus.SUCCESS
        resumed = [event for _, event in await gateway.runs.events(started.id) if isinstance(event, e.Resumed)]
        assert [event.answer.outcome for event in resumed] == [Outcome.CANCELLED]
