"""What agents of the protocol ask while they run, and what becomes of the answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from adapters.agent_context.outbound import messages
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from tests.adapters.agent_context.outbound_rig import BOTH, CORRELATION, House, piped, running, says
from tests.support.context import DECLINED

WAYS = pytest.mark.parametrize("way", BOTH)
ASKED: JsonObject = {"messages": [{"text": "Which one?"}]}
CHOICE: JsonObject = {
    "messages": [{"text": "Really?"}],
    "kind": "permission",
    "answerSchema": {"type": "boolean"},
    "question": {"tool": "rm"},
}


class FakeCaller:
    """A client that is asked, and answers."""

    def __init__(self, protocol: str = "agent_context", **capabilities: Any) -> None:
        self.protocol = protocol
        self.tools = None
        self.capabilities: JsonObject = capabilities
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, method: str, params: Raw) -> Raw:
        self.asked.append((method, msgspec.json.decode(params)))
        return Raw(b'{"role":"assistant","content":{"type":"text","text":"hm"},"model":"m"}')

    def tell(self, method: str, params: Raw) -> None:
        raise AssertionError(method)


@WAYS
async def test_a_question_is_an_interrupt_and_its_answer_the_result(way: str) -> None:
    async with BOTH[way]() as house:
        context = running(answers=[{"message": "the red one"}])
        task, asked = await house.begun(context)
        answer = await house.agent.ask("agent/message", house.agent.message("request", ASKED))
        payload = {"messages": [{"text": "the red one"}], "answer": {"message": "the red one"}}
        assert answer["result"] == {"content": {"type": "response", "payload": payload}}
        (interrupt,) = context.asked
        assert (interrupt.kind, interrupt.message, interrupt.payload) == ("input", "Which one?", ASKED)
        assert interrupt.answer_schema["required"] == ["message"]
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)


@WAYS
async def test_a_question_says_of_which_kind_it_is_and_what_answers_it(way: str) -> None:
    async with BOTH[way]() as house:
        context = running(answers=[True, DECLINED])
        task, asked = await house.begun(context)
        for expected in ({"answer": True}, {"outcome": "declined"}):
            answer = await house.agent.ask("agent/message", house.agent.message("request", CHOICE))
            assert answer["result"]["content"]["payload"] == expected
        assert context.asked[0] == Interrupt(
            id="question-1",
            kind="permission",
            payload={"tool": "rm"},
            message="Really?",
            answer_schema={"type": "boolean"},
        )
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)


@WAYS
async def test_a_question_that_is_a_notification_is_answered_by_one(way: str) -> None:
    async with BOTH[way]() as house:
        context = running(answers=[{"message": "x"}])
        task, asked = await house.begun(context)
        await house.agent.answer(asked["id"])
        await house.agent.tell("agent/message", house.agent.message("request", ASKED))
        told = (await house.agent.hear("agent/message"))["params"]
        assert told["content"]["type"] == "response" and told["content"]["payload"]["answer"] == {"message": "x"}
        assert told["_meta"] == {"correlationId": CORRELATION} and told["target"] == "it"
        await house.agent.respond("done")
        await house.done(task)


@WAYS
async def test_a_question_in_the_answer_is_answered_by_the_next_message(way: str) -> None:
    async with BOTH[way]() as house:
        context = running(answers=[{"message": "red"}])
        task, asked = await house.begun(context)
        await house.agent.answer(asked["id"], {"content": {"type": "request", "payload": ASKED}})
        again = await house.agent.hear("agent/message")
        content = again["params"]["content"]
        assert content["type"] == "response" and content["payload"]["answer"] == {"message": "red"}
        assert again["params"]["_meta"]["correlationId"] == CORRELATION
        await house.agent.answer(again["id"], says("done"))
        await house.done(task)
        assert isinstance(context.end, e.RunFinished)


@WAYS
async def test_a_form_is_an_interrupt_too(way: str) -> None:
    form = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}

    async with BOTH[way]() as house:
        context = running(answers=[{"sure": True}])
        task, asked = await house.begun(context)
        meta = {"correlationId": CORRELATION}
        params = {"message": "Sure?", "requestedSchema": form, "_meta": meta}
        answer = await house.agent.ask("elicitation/create", params)
        assert answer["result"] == {"action": "accept", "content": {"sure": True}}
        assert context.asked[0].kind == "elicitation"
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)


@WAYS
async def test_a_question_ends_with_its_run(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.tell("agent/message", house.agent.message("request", ASKED))
        await context.until(lambda it: bool(it.asked))
        await house.agent.answer(asked["id"], says("never mind"))
        await house.done(task)
        assert isinstance(context.end, e.RunFinished)


async def test_a_cancelled_run_takes_its_question_back() -> None:
    async def main(house: House) -> None:
        context = running()
        task, _ = await house.begun(context)
        await house.agent.tell("agent/message", house.agent.message("request", ASKED))
        await context.until(lambda it: bool(it.asked))
        context.cancel_now()
        await house.outbound.cancel(context)
        await house.done(task)
        assert isinstance(context.end, e.RunCancelled)
        assert await house.agent.hear("notifications/cancelled")

    for way in BOTH.values():
        async with way() as house:
            await main(house)


async def test_sampling_goes_to_a_client_of_the_same_protocol_that_offers_it() -> None:
    async with piped() as house:
        caller = FakeCaller(sampling={"tools": {}}, elicitation={"url": {}})
        context = running()
        context.caller = caller
        task, asked = await house.begun(context)
        assert house.pools[-1].declared["sampling"] == {"tools": {}}
        params = {"messages": [], "maxTokens": 5, "_meta": {"correlationId": CORRELATION}}
        answer = await house.agent.ask("sampling/createMessage", params)
        assert answer["result"]["content"]["text"] == "hm" and caller.asked[0][1]["maxTokens"] == 5
        assert (await house.agent.ask("roots/list", {}))["error"]["code"] == -32601
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)
    async with piped() as house:
        context = running()
        context.caller = FakeCaller("agent_client", sampling={})
        task, asked = await house.begun(context)
        assert "sampling" not in house.pools[-1].declared
        assert (await house.agent.ask("sampling/createMessage", params))["error"]["code"] == -32601
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)


ANSWERS: list[tuple[Any, Any]] = [
    (Answer(value={"message": "m"}), {"messages": [{"text": "m"}], "answer": {"message": "m"}}),
    (Answer(value=5), {"answer": 5}),
    (Answer(value="x"), {"messages": [{"text": "x"}], "answer": "x"}),
    (Answer(outcome=Outcome.CANCELLED), {"outcome": "cancelled"}),
]


@pytest.mark.parametrize(("answer", "payload"), ANSWERS)
def test_answers_are_said_as_values_and_as_text(answer: Answer, payload: Any) -> None:
    interrupt = messages.question(ASKED, "q")
    assert messages.answered(interrupt, answer) == {"type": "response", "payload": payload}


@WAYS
async def test_a_flood_of_questions_is_refused_from_some_number_on(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_ASKED", 3)

    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        for _ in range(5):
            await house.agent.tell("agent/message", house.agent.message("request", ASKED))
        for _ in range(2):
            told = (await house.agent.hear("agent/error"))["params"]
            assert told["error"]["code"] == -32004 and told["_meta"] == {"correlationId": CORRELATION}
        await context.until(lambda it: len(it.asked) == 3)
        assert [each.id for each in context.asked] == ["question-1", "question-2", "question-3"]
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)
