"""Questions: an agent asks, the next step answers."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

import msgspec
import pytest

from gateway.core import events as e
from gateway.core.types import NULL, Interrupt, RunQuery
from tests.adapters.agent_protocol.support import say, serving
from tests.support.aio import run
from tests.support.scripted import until

COLOUR = Interrupt(
    id="q1",
    kind="colour",
    message="Which colour?",
    payload={"choices": ["red", "blue"]},
    answer_schema={"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]},
)

CHOICES = "1. red\n2. blue\n\nAnswer with one of these, or its number."
PERMISSION = Interrupt(
    id="q1",
    kind="permission",
    message="The agent asks for permission: Plant mint",
    answer_schema={
        "type": "object",
        "properties": {"optionId": {"enum": ["plant", "skip", "stop"], "enumNames": ["Plant it", "Leave it", "Stop"]}},
        "required": ["optionId"],
    },
)


async def asker(context: Any) -> None:
    """Says something, asks for a colour, and says it."""
    context.emit(*say("Let me ask.", "p1", "m1"))
    answer = await context.ask(COLOUR)
    context.emit(*say(f"Painted it {answer.value['colour']}.", "p2", "m2"), e.RunFinished())
    await context.drain()


@pytest.mark.parametrize("answer", ["blue", '{"colour": "blue"}'], ids=["words", "json"])
async def test_a_question_completes_a_step_and_the_next_steps_input_answers_it(answer: str) -> None:
    async with serving(asker) as (client, _):
        task = await client.task()
        asked = await client.step(task)
        assert asked["status"] == "completed"
        assert not asked["is_last"]
        assert asked["output"] == f"Let me ask.\n\nWhich colour?\n\n{CHOICES}"
        assert asked["additional_output"]["interrupt"] == msgspec.to_builtins(COLOUR)
        painted = await client.step(task, answer)
        assert painted["output"] == "Painted it blue."
        assert painted["is_last"]
        assert painted["input"] == "blue"
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == [asked, painted]


async def test_an_answer_may_come_as_additional_input() -> None:
    async with serving(asker) as (client, _):
        task = await client.task()
        await client.step(task)
        painted = await client.step(task, None, additional_input={"colour": "red"})
        assert painted["output"] == "Painted it red."


@pytest.mark.parametrize("body", [{"input": "green"}, {"input": "yes"}, {}, {"additional_input": {"colour": 1}}])
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(body: dict[str, Any]) -> None:
    async with serving(asker) as (client, _):
        task = await client.task()
        await client.step(task)
        refused = await client.call("POST", f"/tasks/{task}/steps", json=body)
        assert refused.status_code == 422
        assert refused.json()["message"]
        assert len((await client.get(f"/tasks/{task}/steps"))["steps"]) == 1
        assert (await client.step(task, "red"))["output"] == "Painted it red."


@pytest.mark.parametrize(
    ("answer", "told", "loc"),
    [
        ("yes", "Plant it (plant), Leave it (skip), Stop (stop)", ["input"]),
        ("4", "Plant it (plant), Leave it (skip), Stop (stop)", ["input"]),
        ('{"option": "plant"}', "'optionId' is a required property", ["input"]),
        ('{"optionId": "nope"}', "'nope' is not one of ['plant', 'skip', 'stop']", ["input", "optionId"]),
    ],
)
async def test_a_permission_is_asked_with_its_options_and_a_wrong_answer_is_told_which_there_are(
    answer: str, told: str, loc: list[str]
) -> None:
    async def script(context: Any) -> None:
        chosen = await context.ask(PERMISSION)
        context.emit(*say(chosen.value["optionId"]), e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        shown = "1. Plant it\n2. Leave it\n3. Stop\n\nAnswer with one of these, or its number."
        assert (await client.step(task))["output"] == f"{PERMISSION.message}\n\n{shown}"
        refused = await client.call("POST", f"/tasks/{task}/steps", json={"input": answer})
        said = refused.json()
        assert (refused.status_code, said["detail"]) == (422, [{"loc": loc, "msg": said["message"]}])
        assert told in said["message"]
        assert (await client.step(task, "leave it"))["output"] == "skip"


async def test_words_that_answer_nothing_are_told_what_does() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }

    async def script(context: Any) -> None:
        await context.ask(Interrupt(id="q", kind="input", answer_schema=schema))

    async with serving(script) as (client, _):
        task = await client.task()
        await client.step(task)
        refused = await client.call("POST", f"/tasks/{task}/steps", json={"input": "old"})
        assert refused.status_code == 422
        assert '"required":["name","age"]' in refused.json()["message"]
        assert refused.json()["detail"][0]["loc"] == ["input"]


def test_a_schema_that_refers_elsewhere_fetches_nothing_and_hinders_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *given, **_: fetched.append(given))

    async def script(context: Any) -> None:
        question = Interrupt(id="q", kind="input", answer_schema={"$ref": "http://127.0.0.1:9/schema.json"})
        context.emit(*say((await context.ask(question)).value), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with serving(script) as (client, _):
            task = await client.task()
            await client.step(task)
            assert (await client.step(task, "blue"))["output"] == "blue"

    run(scene())
    assert fetched == []


async def test_the_draft_that_is_asked_about_is_told_before_the_question() -> None:
    async def script(context: Any) -> None:
        context.emit(
            e.MessageStarted(message="m"),
            e.PartStarted(part="p", message="m", kind="data"),
            e.PartDelta(part="p", delta={"message": "Dear "}),
            e.PartDelta(part="p", delta={"message": "Ada"}),
        )
        question = Interrupt(id="q", kind="approve", message="Send it?", answer_schema={"type": "boolean"})
        sent = (await context.ask(question)).value
        context.emit(
            e.PartReplaced(part="p", value={"message": f"Dear Ada ({sent})"}),
            e.RunFinished(output=msgspec.Raw(msgspec.json.encode({"message": f"Dear Ada ({sent})"}))),
        )
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        asked = await client.step(task)
        assert asked["output"].startswith("Dear Ada\n\nSend it?\n\n1. Yes\n2. No\n\n")
        assert asked["additional_output"]["data"] == [{"message": "Dear Ada"}]
        assert (await client.step(task, "yes"))["output"] == "Dear Ada (True)"


@pytest.mark.parametrize(
    ("schema", "words", "value"),
    [
        ({"type": "boolean"}, "Yes", True),
        ({"enum": [30, 20]}, "20", 20),
        ({"enum": [30, 20]}, "2", 20),
        ({"oneOf": [{"const": "a", "title": "The first"}, {"const": "b"}]}, "the first", "a"),
        ({"type": "string"}, "5", "5"),
        ({"type": "number"}, "5", 5),
        ({"type": "boolean"}, "true", True),
        ({}, "anything", "anything"),
        ({"type": "object", "properties": {"message": {"type": "string"}}}, "hi", {"message": "hi"}),
        ({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}, "false", {"ok": False}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
    ],
)
async def test_words_become_what_the_question_wants(schema: dict[str, Any], words: str, value: Any) -> None:
    got: list[Any] = []

    async def script(context: Any) -> None:
        got.append((await context.ask(Interrupt(id="q", kind="input", answer_schema=schema))).value)
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        await client.step(task)
        assert (await client.step(task, words))["is_last"]
        assert got == [value]


async def test_several_open_questions_are_answered_oldest_first() -> None:
    async def script(context: Any) -> None:
        one = asyncio.ensure_future(context.ask(Interrupt(id="a", kind="input", message="one?")))
        two = asyncio.ensure_future(context.ask(Interrupt(id="b", kind="input", message="two?")))
        answers = [(await one).value, (await two).value]
        context.emit(*say(" ".join(answers)), e.RunFinished())
        await context.drain()

    async with serving(script) as (client, gateway):
        task = await client.task()
        first = await client.step(task)
        assert first["output"] == "one?"
        (only,) = await gateway.runs.list(RunQuery(thread=task))
        await until(lambda: len(gateway.live[only.id].run.interrupts) == 2)
        second = await client.step(task, "1")
        assert (second["output"], second["is_last"], second["input"]) == ("two?", False, "1")
        third = await client.step(task, "2")
        assert (third["output"], third["is_last"], third["input"]) == ("1 2", True, "2")
        assert [s["status"] for s in (await client.get(f"/tasks/{task}/steps"))["steps"]] == ["completed"] * 3


async def test_a_cancelled_question_becomes_the_last_step_and_the_next_step_starts_anew() -> None:
    async with serving(asker) as (client, gateway):
        task = await client.task()
        asked = await client.step(task)
        (only,) = await gateway.runs.list(RunQuery(thread=task))
        await gateway.runs.cancel(only.id, reason="enough", wait=True)
        (step,) = (await client.get(f"/tasks/{task}/steps"))["steps"]
        assert step["step_id"] == asked["step_id"]
        assert step["is_last"]
        assert step["additional_output"]["error"] == {
            "code": "cancelled",
            "message": "cancelled: enough",
            "retryable": False,
        }
        again = await client.step(task)
        assert again["output"] == f"Let me ask.\n\nWhich colour?\n\n{CHOICES}"


@pytest.mark.parametrize("final", [None, "I\n\nIt is blue.", "It is blue.", "I\n\nIt is blue"])
async def test_the_last_step_says_what_is_new_in_the_final_result(final: str | None) -> None:
    async def script(context: Any) -> None:
        context.emit(*say("I", "p1", "m1"))
        await context.ask(Interrupt(id="q", kind="input", message="?"))
        context.emit(*say("It is blue.", "p2", "m2"))
        output = NULL if final is None else msgspec.Raw(msgspec.json.encode({"message": final}))
        context.emit(e.RunFinished(output=output))
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        await client.step(task)
        said = (await client.step(task, "x"))["output"]
        assert said == ("It is blue" if final and not final.endswith(".") else "It is blue.")


async def test_a_sentence_and_a_tool_call_that_go_on_after_the_question_are_told_where_they_belong() -> None:
    async def script(context: Any) -> None:
        context.emit(
            e.ToolCallStarted(call="c", name="paint", input={"wall": 1}), e.PartDelta(part="p", delta="I will paint ")
        )
        await context.ask(Interrupt(id="q", kind="input", message="Which colour?"))
        context.emit(e.PartDelta(part="p", delta="it blue."), e.ToolCallEnded(call="c", output="dry"))
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        first = await client.step(task)
        assert first["output"] == "I will paint \n\nWhich colour?"
        call = {"call": "c", "name": "paint", "kind": "other", "input": {"wall": 1}, "status": "running"}
        assert first["additional_output"]["tool_calls"] == [call]
        second = await client.step(task, "blue")
        assert second["output"] == "it blue."
        assert second["additional_output"]["tool_calls"] == [call | {"status": "completed", "output": "dry"}]
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == [first, second]


async def test_text_that_is_replaced_after_the_question_is_not_told_twice() -> None:
    async def script(context: Any) -> None:
        context.emit(e.PartDelta(part="p", delta="One. "))
        await context.ask(Interrupt(id="q", kind="input", message="?"))
        context.emit(e.PartDelta(part="p", delta="Tow."), e.PartReplaced(part="p", value="One. Two."))
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        await client.step(task)
        assert (await client.step(task, "go on"))["output"] == "Two."


@pytest.mark.parametrize("parts", [("p", "p", "p"), ("p", "r", "s"), ("p", "p", "r")])
async def test_a_message_that_goes_on_after_each_of_two_questions_is_told_once(parts: tuple[str, ...]) -> None:
    async def script(context: Any) -> None:
        for part, text in zip(parts, ("One, ", "two, ", "three."), strict=True):
            context.emit(e.PartStarted(part=part, message="m"), e.PartDelta(part=part, delta=text))
            if text != "three.":
                await context.ask(Interrupt(id=text, kind="input", message="?"))
        context.emit(e.MessageStarted(message="n"), e.PartStarted(part="q", message="n"))
        context.emit(e.PartDelta(part="q", delta="Done."), e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        told = [(await client.step(task, "go on"))["output"] for _ in parts]
        assert told == ["One, \n\n?", "two, \n\n?", "three.\n\nDone."]
