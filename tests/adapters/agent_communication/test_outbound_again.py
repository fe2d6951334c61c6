"""A call that is sent again with an answer: of another gateway, or of a server without a handshake."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from gateway.mcp.runs.questions import given
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, outbound, running
from tests.support.context import FakeContext
from tests.support.scripted import until

SURE: JsonObject = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
TOOL = {"interlingua/event": {"event": "tool_call_started", "call": "t", "name": "look"}}


def asks(id: str = "q1", schema: JsonObject = SURE, message: str = "Sure?") -> RpcError:
    """The error of a gateway that cannot ask us."""
    interrupt = {"id": id, "kind": "permission", "message": message, "payload": {"of": "x"}, "answerSchema": schema}
    return RpcError(-32050, message, {"interrupt": interrupt, "resume": f"run7.{id}", "run": "run7", "output": {}})


def deltas(context: FakeContext) -> list[Any]:
    return [event.delta for event in context.events if isinstance(event, e.PartDelta)]


def output(context: FakeContext) -> Any:
    assert isinstance(context.end, e.RunFinished)
    return msgspec.json.decode(context.end.output)


async def test_a_question_that_another_gateway_could_not_ask_is_asked_here_and_the_next_call_answers_it() -> None:
    async def agent(asked: Asked) -> JsonObject:
        await asked.progress({"text": "Hm. "})
        await asked.progress({}, _meta=TOOL)
        if "interlingua/resume" not in asked.params["_meta"]:
            raise asks()
        await asked.progress({"text": "Yes!"})
        return {"output": {"text": "Hm. Yes!"}}

    server = FakeServer({"it": agent})
    context = running("it", answers=[{"sure": True}])
    await outbound(server).run(context)
    (interrupt,) = context.asked
    assert (interrupt.kind, interrupt.message, interrupt.payload) == ("permission", "Sure?", {"of": "x"})
    assert interrupt.answer_schema == SURE
    first, second = server.named("agents/run")
    assert first["input"] == {"prompt": "hello"} and second["input"] == {"sure": True}
    assert second["_meta"]["interlingua/resume"] == "run7.q1" and "interlingua/outcome" not in second["_meta"]
    assert deltas(context) == [{"text": "Hm. "}, {"text": "Yes!"}], "what is told again is told once"
    assert len([one for one in context.events if isinstance(one, e.ToolCallStarted)]) == 1
    assert output(context) == {"text": "Hm. Yes!"}


@pytest.mark.parametrize(
    ("answer", "input", "outcome"),
    [
        (Answer(outcome=Outcome.DECLINED), {}, "declined"),
        (Answer(value="yes"), {"answer": "yes"}, None),
        (Answer(value={"answer": 1}), {"answer": {"answer": 1}}, None),
        (Answer(value={"answer": 1, "why": 2}), {"answer": 1, "why": 2}, None),
    ],
)
async def test_the_other_gateway_reads_the_answer_that_was_given(
    answer: Answer, input: Any, outcome: str | None
) -> None:
    async def agent(asked: Asked) -> JsonObject:
        if "interlingua/resume" not in asked.params["_meta"]:
            raise asks(schema={})
        return {"output": {}}

    server = FakeServer({"it": agent})
    context = running("it", answers=[answer])
    await outbound(server).run(context)
    params = server.named("agents/run")[1]
    assert (params["input"], params["_meta"].get("interlingua/outcome")) == (input, outcome)
    assert given(Interrupt(id="q1", kind="x"), params["input"], outcome) == answer


async def test_several_questions_of_another_gateway_have_names_of_their_own_here() -> None:
    rounds = [asks(), asks(), asks("q2")]

    async def agent(asked: Asked) -> JsonObject:
        if rounds:
            raise rounds.pop(0)
        return {"output": {}}

    server = FakeServer({"it": agent})
    context = running("it", answers=[{"sure": True}] * 3)
    await outbound(server).run(context)
    assert [one.id for one in context.asked] == ["q1", "q1'", "q2"]
    handles = [params["_meta"].get("interlingua/resume") for params in server.named("agents/run")]
    assert handles == [None, "run7.q1", "run7.q1", "run7.q2"]


async def test_a_run_that_is_cancelled_while_another_gateway_waits_is_cancelled_there() -> None:
    follows = asyncio.Event()

    async def agent(asked: Asked) -> JsonObject:
        if "interlingua/resume" not in asked.params["_meta"]:
            raise asks()
        assert asked.params["_meta"]["interlingua/outcome"] == "cancelled"
        follows.set()
        return {"output": {"text": "too late"}}

    server = FakeServer({"it": agent})
    half, context = outbound(server), running("it")
    going = asyncio.create_task(half.run(context))
    await until(lambda: bool(context.asked))
    context.cancelled = True
    await half.cancel(context)
    await asyncio.wait_for(going, 30)
    assert follows.is_set() and isinstance(context.events[-1], e.RunCancelled)


@pytest.mark.parametrize("data", [None, 5, {}, {"interrupt": 1, "resume": "x.y"}, {"interrupt": {"id": "q"}}])
async def test_an_error_of_that_code_without_a_question_is_a_failure(data: Any) -> None:
    async def agent(asked: Asked) -> JsonObject:
        raise RpcError(-32050, "no", data)

    context = running("it")
    await outbound(FakeServer({"it": agent})).run(context)
    assert isinstance(context.events[-1], e.RunFailed) and not context.asked


@pytest.mark.parametrize(
    ("again", "more"),
    [
        (["one ", "two ", "three"], ["three"]),
        (["one two three", " four"], ["three", " four"]),
        (["other", " words", " now"], [{"text": "other words"}, " now"]),
        (["short"], []),
    ],
)
async def test_deltas_that_an_agent_says_again_after_its_question_are_told_once(
    again: list[str], more: list[Any]
) -> None:
    """As the session does it for 2026-07-28: the call is the same, and the listener hears that it begins anew."""

    async def agent(asked: Asked) -> JsonObject:
        await asked.progress({"text": "one "})
        await asked.progress({"text": "two "})
        await asked.ask("elicitation/create", {"message": "Sure?", "requestedSchema": SURE})
        asked.listener.again()
        for text in again:
            await asked.progress({"text": text})
        return {"output": {"text": "".join(again)}}

    context = running("it", answers=[{"sure": True}])
    await outbound(FakeServer({"it": agent})).run(context)
    said: list[Any] = []
    for event in context.events:
        if isinstance(event, e.PartDelta):
            said.append(event.delta["text"])
        elif isinstance(event, e.PartReplaced):
            said.append(event.value)
    assert said == ["one ", "two ", *more]
    assert output(context) == {"text": "".join(again)}
