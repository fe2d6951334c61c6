"""A run whose input is not complete asks for the rest before it is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Outcome, Run, RunRequest, RunStatus
from gateway.runs import Engine
from tests.support.scripted import AGENT, Scripted, engine, request, route, until

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "units": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1},
        "source": {"const": "dwd"},
    },
    "required": ["city", "units", "days", "source"],
}
FORM = {
    "type": "object",
    "properties": {"units": SCHEMA["properties"]["units"], "days": SCHEMA["properties"]["days"]},
    "required": ["units", "days"],
}
WHOLE = {"city": "Bonn", "units": "celsius", "days": 2, "source": "dwd"}


async def shows(context: RunContext) -> None:
    context.emit(e.PartDelta(part="text", delta=json.dumps(context.run.request.input)), e.RunFinished())


def weather(schema: dict[str, Any] | None = None) -> Scripted:
    return Scripted(shows, agent=replace(AGENT, input_schema=schema or SCHEMA))


def prompt(words: str, **more: Any) -> RunRequest:
    return request(input=more.pop("input", None), prompt=words, **more)


async def asked(gateway: Engine, run_id: str) -> Run:
    found = await gateway.runs.wait(run_id, 30)
    assert found is not None
    return found


async def test_what_is_missing_is_asked_before_the_run_is_sent() -> None:
    agent = weather()
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        found = await asked(gateway, started.id)
        assert (found.status, found.dispatched, agent.contexts) == (RunStatus.INTERRUPTED, False, [])
        (question,) = found.interrupts
        assert (question.kind, question.answer_schema) == ("input", FORM)
        assert question.message == "scripted needs more input: units, days"
        with pytest.raises(Invalid, match="days"):
            await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 0}))
        await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 2}))
        found = await asked(gateway, started.id)
        assert (found.status, found.request.input, len(agent.contexts)) == (RunStatus.SUCCESS, WHOLE, 1)


@pytest.mark.parametrize("outcome", [Outcome.DECLINED, Outcome.CANCELLED])
async def test_a_form_that_is_not_filled_in_ends_the_run_cancelled_and_nothing_is_sent(outcome: Outcome) -> None:
    agent = weather()
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        await asked(gateway, started.id)
        await gateway.runs.answer(started.id, Answer(outcome=outcome))
        live = gateway.live.get(started.id)
        await until(lambda: live is None or live.ended)
        found = await gateway.runs.get(started.id)
        assert (found.status, agent.contexts, agent.cancels) == (RunStatus.CANCELLED, [], 0)


async def test_a_run_that_is_cancelled_while_it_asks_is_never_sent() -> None:
    agent = weather()
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        await asked(gateway, started.id)
        found = await gateway.runs.cancel(started.id, wait=True)
        assert (found.status, agent.contexts, agent.cancels) == (RunStatus.CANCELLED, [], 0)


async def test_an_answer_that_does_not_fit_the_rest_is_asked_for_again_with_the_reason() -> None:
    few = {"if": {"properties": {"units": {"const": "celsius"}}}, "then": {"properties": {"days": {"maximum": 3}}}}

    agent = weather({**SCHEMA, **few})
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        await asked(gateway, started.id)
        await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 5}))
        await until(lambda: [i.id for i in gateway.live[started.id].run.interrupts] == ["input#2"])
        (again,) = gateway.live[started.id].run.interrupts
        assert list(again.answer_schema["properties"]) == ["days"]
        assert again.message.startswith("days: 5 is greater than the maximum of 3")
        await gateway.runs.answer(started.id, Answer(value={"days": 2}))
        assert (await asked(gateway, started.id)).request.input == WHOLE


async def test_it_is_not_asked_for_ever() -> None:
    agent = weather({**SCHEMA, "if": {}, "then": {"properties": {"days": {"maximum": 0}}}})
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        for _ in range(5):
            assert (await asked(gateway, started.id)).status is RunStatus.INTERRUPTED
            live, (open_,) = gateway.live[started.id], gateway.live[started.id].run.interrupts
            value = {key: WHOLE[key] for key in open_.answer_schema["properties"]}
            await gateway.runs.answer(started.id, Answer(value=value))
            await until(lambda live=live, id=open_.id: live.ended or id not in [i.id for i in live.run.interrupts])
            await until(lambda live=live: live.ended or bool(live.run.interrupts))
        found = await gateway.runs.get(started.id)
        assert (found.status, agent.contexts) == (RunStatus.ERROR, [])
        assert found.failure is not None and found.failure.code == "invalid"


@pytest.mark.parametrize("answered", [False, True])
async def test_a_restart_keeps_the_question_and_sends_the_run_once(tmp_path: Path, answered: bool) -> None:
    """`answered`: the last thing that the old gateway has committed is the answer."""
    file = tmp_path / "store.db"
    before, after = weather(), weather()
    async with engine((route(), before), file=file) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        await asked(gateway, started.id)
        if answered:
            live = gateway.live[started.id]
            live.questions.waiting["input"].cancel()  # who waits for it dies first
            gateway._starter._stopping = live.detached = True
            await live.answer(Answer(value={"units": "celsius", "days": 2}), None)
    async with engine((route(), after), file=file) as gateway:
        if not answered:
            found = await asked(gateway, started.id)
            assert [i.id for i in found.interrupts] == ["input"]
            await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 2}))
        found = await asked(gateway, started.id)
        assert (found.status, found.request.input) == (RunStatus.SUCCESS, WHOLE)
        assert (before.contexts, len(after.contexts)) == ([], 1)
    async with engine((route(), after), file=file) as gateway:
        assert len(after.contexts) == 1


async def test_a_restart_keeps_what_was_answered_to_the_questions_before(tmp_path: Path) -> None:
    few = {"if": {"properties": {"units": {"const": "celsius"}}}, "then": {"properties": {"days": {"maximum": 3}}}}

    file = tmp_path / "store.db"
    async with engine((route(), weather({**SCHEMA, **few})), file=file) as gateway:
        started = await gateway.runs.start(prompt("Bonn"))
        await asked(gateway, started.id)
        await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 5}))
        await until(lambda: [i.id for i in gateway.live[started.id].run.interrupts] == ["input#2"])
    async with engine((route(), weather({**SCHEMA, **few})), file=file) as gateway:
        found = await asked(gateway, started.id)
        assert [list(i.answer_schema["properties"]) for i in found.interrupts] == [["days"]]
        await gateway.runs.answer(started.id, Answer(value={"days": 2}))
        assert (await asked(gateway, started.id)).request.input == WHOLE


async def test_a_queued_run_asks_when_it_is_its_turn(tmp_path: Path) -> None:
    agent = weather()
    async with engine((route(), agent)) as gateway:
        started = await gateway.runs.start(prompt("Bonn", start_at=1.0))
        await until(lambda: bool(gateway.live[started.id].run.interrupts))
        assert agent.contexts == []
        await gateway.runs.answer(started.id, Answer(value={"units": "celsius", "days": 2}))
        assert (await asked(gateway, started.id)).request.input == WHOLE


async def test_a_document_is_asked_nothing_and_refused_as_before() -> None:
    async with engine((route(), weather())) as gateway:
        with pytest.raises(Invalid, match="units"):
            await gateway.runs.start(request(input={"city": "Bonn"}))
        started = await gateway.runs.start(prompt(json.dumps(WHOLE)))
        assert (await asked(gateway, started.id)).status is RunStatus.SUCCESS


async def test_words_for_an_agent_that_takes_nothing_are_a_loss() -> None:
    async with engine((route(), weather({"type": "object", "additionalProperties": False}))) as gateway:
        found = await asked(gateway, (await gateway.runs.start(prompt("hello"))).id)
        assert (found.status, found.losses) == (RunStatus.SUCCESS, {"prompt": 1})
