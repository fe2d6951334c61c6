"""What agents ask in mid-turn, as a client is asked it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Outcome
from tests.adapters.agent_client.editor import FORMS
from tests.adapters.agent_client.inbound_rig import Rig, asking, rig, scripted
from tests.support.scripted import Script, until

COLOURS = {"enum": ["red", "blue"]}
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}
DEEP = {"type": "object", "properties": {"who": {"type": "object"}}, "required": ["who"]}
END_TURN = {"stopReason": "end_turn"}


async def interrupted(gateway: Rig, session: str) -> str:
    """The run of a session, once it asks something."""
    stopped = await gateway.engine.runs.wait((await gateway.run(session)).id)
    assert stopped is not None
    return stopped.id


def both(first: Interrupt, second: Interrupt, *, says: bool = False) -> Script:
    """An agent that asks two things at once; and `says` so, if nothing is answered before."""

    async def script(context: RunContext) -> None:
        async def one(interrupt: Interrupt) -> None:
            answer = await context.ask(interrupt)
            context.emit(e.PartDelta(part="text", delta=f"{interrupt.id}={answer.outcome.value} {answer.value}; "))
            await context.drain()

        answers = asyncio.gather(one(first), one(second))
        if says:
            await until(lambda: len(context.run.interrupts) == 2)
            context.emit(e.PartDelta(part="text", delta="Both. "))
            await context.drain()
        await answers
        context.emit(e.RunFinished())
        await context.drain()

    return script


# --- permissions --------------------------------------------------------------------------------------------------


async def test_a_choice_is_a_permission_question_after_what_was_said_before_it() -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        asked = await editor.next_asked()
        assert asked["method"] == "session/request_permission"
        assert asked["params"]["sessionId"] == session
        assert [option["name"] for option in asked["params"]["options"]] == ["red", "blue"]
        assert editor.text() == "Let me see. "
        call = asked["params"]["toolCall"]["toolCallId"]
        assert [update["toolCallId"] for update in editor.of("tool_call")] == [call]
        await editor.choose(asked, asked["params"]["options"][1]["optionId"])
        assert await turn == END_TURN
        assert editor.text() == "Let me see. answered blue."
        assert editor.of("tool_call_update")[-1]["toolCallId"] == call


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": {"outcome": "selected", "optionId": "never offered"}},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "approved!"}},
        {"outcome": "selected"},
        {},
        None,
        ["red"],
    ],
)
async def test_an_unclear_answer_is_a_refusal(result: Any) -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor = await gateway.connect()
        turn = await editor.start(await editor.new())
        await editor.answer(await editor.next_asked(), result)
        assert await turn == END_TURN
        assert editor.text().endswith("declined None.")


async def test_a_client_that_fails_to_ask_has_refused() -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor = await gateway.connect()
        turn = await editor.start(await editor.new())
        await editor.fail(await editor.next_asked(), -32603, "the dialog crashed")
        assert await turn == END_TURN
        assert editor.text().endswith("declined None.")


async def test_a_client_that_dismisses_the_question_cancels_it_and_not_the_turn() -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor = await gateway.connect()
        turn = await editor.start(await editor.new())
        await editor.answer(await editor.next_asked(), {"outcome": {"outcome": "cancelled"}})
        assert await turn == END_TURN
        assert editor.text().endswith("cancelled None.")


async def test_a_client_that_knows_no_permission_questions_is_asked_in_words() -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.fail(await editor.next_asked(), -32601, "Method not found")
        assert await turn == END_TURN
        assert "Which one?" in editor.text()
        assert await editor.prompt(session, "blue") == END_TURN
        assert editor.text().endswith("answered blue.")
        assert len(editor.asked) == 1


async def test_two_questions_are_open_at_once_and_answered_in_any_order() -> None:
    one = Interrupt(id="one", kind="permission", message="One?", answer_schema=COLOURS)
    two = Interrupt(id="two", kind="permission", message="Two?", answer_schema=COLOURS)

    async with rig(scripted(both(one, two, says=True))) as gateway:
        editor = await gateway.connect()
        turn = await editor.start(await editor.new())
        second = await editor.next_asked(2)
        await editor.heard("Both.")
        first = editor.asked[0]
        await editor.choose(second, second["params"]["options"][0]["optionId"])
        await editor.heard("two=answered red; ")
        assert not turn.done()
        await editor.choose(first, first["params"]["options"][1]["optionId"])
        assert await turn == END_TURN
        assert editor.text() == "Both. two=answered red; one=answered blue; "
        assert editor.told == []


async def test_an_answer_from_elsewhere_withdraws_the_question() -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="permission", message="May I?", answer_schema=COLOURS))
        await go.wait()
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        asked = await editor.next_asked()
        await gateway.engine.runs.answer(await interrupted(gateway, session), Answer(value="red"))
        await editor.until(lambda: bool(editor.told))
        assert editor.told[0]["method"] == "$/cancel_request"
        assert editor.told[0]["params"] == {"requestId": asked["id"]}
        assert not turn.done()
        go.set()
        assert await turn == END_TURN
        assert len(editor.told) == 1


async def test_a_question_stays_open_when_its_client_goes_away() -> None:
    async with rig(scripted(asking(COLOURS))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session)
        await editor.next_asked()
        editor.pipe.cut()
        run_id = await interrupted(gateway, session)
        await until(lambda: not gateway.connections(session))
        (question,) = (await gateway.engine.runs.get(run_id)).interrupts
        assert question.message == "Which one?"
        await gateway.engine.runs.answer(run_id, Answer(outcome=Outcome.DECLINED))


# --- elicitation --------------------------------------------------------------------------------------------------


async def test_a_form_is_shown_to_a_client_that_declared_forms() -> None:
    async with rig(scripted(asking(FORM))) as gateway:
        editor, session = await gateway.opened(capabilities=FORMS)
        turn = await editor.start(session)
        asked = await editor.next_asked()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["mode"] == "form" and asked["params"]["sessionId"] == session
        assert asked["params"]["requestedSchema"]["properties"].keys() == {"name", "age"}
        await editor.answer(asked, {"action": "accept", "content": {"name": "Ada", "age": 36}})
        assert await turn == END_TURN
        assert "answered {'name': 'Ada', 'age': 36}" in editor.text()


@pytest.mark.parametrize(("action", "outcome"), [("decline", "declined"), ("cancel", "cancelled")])
async def test_a_form_can_be_declined_and_dismissed(action: str, outcome: str) -> None:
    async with rig(scripted(asking(FORM))) as gateway:
        editor = await gateway.connect(capabilities=FORMS)
        turn = await editor.start(await editor.new())
        await editor.answer(await editor.next_asked(), {"action": action})
        assert await turn == END_TURN
        assert editor.text().endswith(f"{outcome} None.")


async def test_a_form_that_was_filled_in_wrongly_is_shown_again_with_the_reason() -> None:
    async with rig(scripted(asking(FORM))) as gateway:
        editor = await gateway.connect(capabilities=FORMS)
        turn = await editor.start(await editor.new())
        await editor.answer(await editor.next_asked(), {"action": "accept", "content": {"name": "Ada", "age": -1}})
        again = await editor.next_asked(2)
        assert again["params"]["message"].endswith("Which one?")
        assert "-1" in again["params"]["message"]
        await editor.answer(again, {"action": "accept", "content": {"name": "Ada", "age": 1}})
        assert await turn == END_TURN
        assert "answered {'name': 'Ada', 'age': 1}" in editor.text()


async def test_a_form_that_is_never_filled_in_rightly_is_declined_in_the_end() -> None:
    async with rig(scripted(asking(FORM))) as gateway:
        editor = await gateway.connect(capabilities=FORMS)
        editor.on_ask = lambda _: {"action": "accept", "content": {"name": 7}}
        turn = await editor.start(await editor.new())
        assert await turn == END_TURN
        assert len(editor.asked) == 3
        assert editor.text().endswith("declined None.")


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"form": None, "url": {}}}])
async def test_a_client_that_declared_no_forms_is_shown_none(capabilities: dict[str, Any]) -> None:
    async with rig(scripted(asking(FORM))) as gateway:
        editor = await gateway.connect(capabilities=capabilities)
        assert await editor.prompt(await editor.new()) == END_TURN
        assert editor.asked == []
        assert "Which one?" in editor.text()


# --- questions in words -------------------------------------------------------------------------------------------


async def test_a_question_that_the_client_cannot_show_ends_the_turn_and_the_next_prompt_is_the_answer() -> None:
    async with rig(scripted(asking({"type": "string"}, message="What is your name?"))) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session, "go") == END_TURN
        assert editor.text().startswith("Let me see. ")
        assert "What is your name?" in editor.text()
        assert await editor.prompt(session, "Ada") == END_TURN
        assert editor.text().endswith("answered Ada.")
        assert len(await gateway.runs(session)) == 1, "the answer starts no run"
        assert editor.text("user_message_chunk") == ""
        assert await editor.prompt(session, "go on") == END_TURN
        assert len(await gateway.runs(session)) == 2


async def test_a_prompt_that_is_no_answer_is_asked_again_with_the_reason() -> None:
    async with rig(scripted(asking(DEEP, message="Who is it?"))) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session) == END_TURN
        before = editor.text()
        for wrong in ("Ada", '{"who": 7}'):
            assert await editor.prompt(session, wrong) == END_TURN
            assert editor.text() != before and editor.text().count("Who is it?") > before.count("Who is it?")
            before = editor.text()
        assert await editor.prompt(session, '{"who": {"name": "Ada"}}') == END_TURN
        assert "answered {'who': {'name': 'Ada'}}." in editor.text()
        assert len(await gateway.runs(session)) == 1


async def test_two_questions_in_words_are_asked_one_after_the_other() -> None:
    one = Interrupt(id="one", kind="input", message="First name?", answer_schema={"type": "string"})
    two = Interrupt(id="two", kind="input", message="Last name?", answer_schema={"type": "string"})

    async with rig(scripted(both(one, two))) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session) == END_TURN
        assert "First name?" in editor.text() and "Last name?" not in editor.text()
        assert await editor.prompt(session, "Ada") == END_TURN
        assert "Last name?" in editor.text()
        assert await editor.prompt(session, "Lovelace") == END_TURN
        assert "one=answered Ada; " in editor.text()
        assert "two=answered Lovelace; " in editor.text()


async def test_a_question_in_words_waits_for_the_one_that_has_a_form() -> None:
    one = Interrupt(id="one", kind="permission", message="May I?", answer_schema={"type": "boolean"})
    two = Interrupt(id="two", kind="input", message="Name?", answer_schema={"type": "string"})

    async with rig(scripted(both(one, two, says=True))) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        asked = await editor.next_asked()
        await editor.heard("Both.")
        assert not turn.done() and "Name?" not in editor.text()
        await editor.choose(asked, asked["params"]["options"][0]["optionId"])
        assert await turn == END_TURN
        assert "Name?" in editor.text()
        assert await editor.prompt(session, "Ada") == END_TURN
        assert "one=answered True; " in editor.text() and "two=answered Ada; " in editor.text()


async def test_a_question_in_words_that_another_client_answers_is_answered_here_too() -> None:
    async with rig(scripted(asking({"type": "string"}, message="Name?"))) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session) == END_TURN
        run_id = await interrupted(gateway, session)
        await gateway.engine.runs.answer(run_id, Answer(value="Ada"))
        await editor.heard("answered Ada.")
        assert editor.text("user_message_chunk") == "Ada"
        ended = await gateway.engine.runs.wait(run_id)  # which is a moment after its last word
        assert ended is not None and ended.status.ended
        assert await editor.prompt(session, "next") == END_TURN
        assert len(await gateway.runs(session)) == 2


async def test_history_has_the_question_and_its_answer() -> None:
    async with rig(scripted(asking({"type": "string"}, message="Name?"))) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "go")
        await editor.prompt(session, "Ada")
        await editor.load(session)
        assert editor.text("user_message_chunk") == "goAda"
        assert editor.text().index("Name?") < editor.text().index("answered Ada.")
        assert editor.asked == []


async def test_a_question_in_words_is_told_again_to_the_client_that_loads_the_session() -> None:
    async with rig(scripted(asking({"type": "string"}, message="Name?"))) as gateway:
        first, session = await gateway.opened()
        await first.prompt(session)
        first.pipe.cut()
        editor = await gateway.connect()
        await editor.load(session)
        await editor.heard("Name?")
        assert await editor.prompt(session, "Ada") == END_TURN
        assert editor.text().endswith("answered Ada.")
