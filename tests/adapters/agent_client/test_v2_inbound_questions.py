"""Questions to clients of version 2: in its words, with the states around them, whoever answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import YES_NO, asking, native, rig, scripted
from tests.adapters.agent_client.v2_editor import FORMS, RUNNING, WAITING, EditorV2, connect, idle, opened

CHOICE = {"enum": ["red", "blue"]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TEXT = {"type": "string"}
PERMISSION = {
    "toolCall": {"toolCallId": "call-1", "title": "rm -rf", "kind": "delete", "rawInput": {"path": "/x"}},
    "options": [
        {"optionId": "yes", "name": "Do it", "kind": "allow_once"},
        {"optionId": "no", "name": "Don't", "kind": "reject_once"},
    ],
    "_meta": {"acme": 1},
}


async def permits(context: RunContext) -> None:
    """An agent of version 1 that asks permission for a call."""
    context.emit(e.ToolCallStarted(call="call-1", name="rm", title="rm -rf", kind="delete"))
    schema = {"type": "object", "properties": {"optionId": {"enum": ["yes", "no"]}}, "required": ["optionId"]}
    question = Interrupt(id="p1", kind="permission", message="May I?", payload=PERMISSION, answer_schema=schema)
    answer = await context.ask(question)
    context.emit(e.ToolCallEnded(call="call-1", failed=answer.value != {"optionId": "yes"}))
    context.emit(e.RunFinished())
    await context.drain()


def outline(editor: EditorV2) -> list[str]:
    """What it was told, by kind, states by their own name; each once in a row."""
    found: list[str] = []
    for update in editor.updates:
        name = update.get("state") or update["sessionUpdate"]
        if name != (found[-1] if found else None):
            found.append(name)
    return found


# --- in requests of their own -------------------------------------------------------------------------------------


async def test_a_choice_is_a_permission_request_between_requires_action_and_running() -> None:
    async with rig(scripted(asking(CHOICE)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        asked = await editor.next_asked()
        assert asked["method"] == "session/request_permission"
        assert asked["params"]["title"] == "Which one?" and "toolCall" not in asked["params"]
        assert editor.updates[-1] == WAITING and editor.heard_all() == "Let me see. "
        await editor.choose(asked, asked["params"]["options"][0]["optionId"])
        assert await editor.over() == idle()
        assert editor.heard_all() == "Let me see. answered red."
        parts = ["user_message", "running", "agent_message_chunk", "requires_action", "running"]
        assert outline(editor) == [*parts, "agent_message_chunk", "idle"]


async def test_the_permission_of_an_agent_of_version_1_is_asked_with_its_tool_call_as_the_subject() -> None:
    async with rig(native(permits), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        asked = (await editor.next_asked())["params"]
        assert asked["subject"]["type"] == "tool_call"
        assert asked["subject"]["toolCall"]["toolCallId"] == "call-1"
        assert asked["options"] == PERMISSION["options"] and asked["_meta"] == {"acme": 1}
        await editor.choose(editor.asked[0], "yes")
        assert await editor.over() == idle()
        states = [update.get("status") for update in editor.of("tool_call_update")]
        assert states[-1] == "completed" and "tool_call" not in editor.kinds()


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": {"outcome": "selected", "optionId": "never offered"}},
        {"outcome": {"outcome": "_acme_maybe"}},
        {"outcome": {"outcome": "selected"}},
        {"nothing": True},
    ],
)
async def test_an_outcome_that_is_not_understood_is_no_approval(result: Any) -> None:
    async with rig(native(permits), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.answer(await editor.next_asked(), result)
        assert await editor.over() == idle()
        assert editor.of("tool_call_update")[-1]["status"] == "failed"


async def test_a_form_is_shown_to_a_client_that_declared_forms() -> None:
    async with rig(scripted(asking(FORM)), v2=True) as gateway:
        editor, session = await opened(gateway, capabilities=FORMS)
        await editor.prompt(session)
        asked = await editor.next_asked()
        assert (asked["method"], asked["params"]["mode"]) == ("elicitation/create", "form")
        assert editor.updates[-1] == WAITING
        await editor.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        assert await editor.over() == idle()
        assert "answered {'name': 'Ada'}" in editor.heard_all()


async def test_several_questions_are_one_wait_that_ends_with_the_last() -> None:
    async def asks(context: RunContext) -> None:
        async def one(number: int) -> None:
            await context.ask(Interrupt(id=f"q{number}", kind="input", message=f"{number}?", answer_schema=YES_NO))

        await asyncio.gather(one(1), one(2))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(asks), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        first, second = await editor.next_asked(1), await editor.next_asked(2)
        await editor.choose(second, second["params"]["options"][0]["optionId"])
        await gateway.engine.runs.answer((await gateway.run(session)).id, Answer(value=True), "q1")
        assert await editor.over() == idle()
        await editor.until(lambda: bool(editor.told))  # which may come after the end
        assert editor.told[-1] == {
            "jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": first["id"]}
        }  # fmt: skip
        assert editor.states() == ["running", "requires_action", "running", "idle"]


async def test_an_answer_from_a_client_of_the_other_version_withdraws_the_question() -> None:
    async with rig(scripted(asking(CHOICE)), v2=True) as gateway:
        editor, old = await connect(gateway), await gateway.connect()
        session = await editor.new()
        await old.load(session, "session/resume")
        await editor.prompt(session)
        ours, theirs = await editor.next_asked(), await old.next_asked()
        assert "subject" not in theirs["params"] and theirs["params"]["toolCall"]["title"] == "Which one?"
        await old.choose(theirs, theirs["params"]["options"][1]["optionId"])
        assert await editor.over() == idle()
        await editor.until(lambda: bool(editor.told))  # which may come after the end
        (withdrawn,) = editor.told
        assert withdrawn["params"] == {"requestId": ours["id"]}
        assert editor.states() == ["running", "requires_action", "running", "idle"]
        assert editor.heard_all() == "Let me see. answered blue."


async def test_a_question_that_is_cancelled_with_its_run_does_not_run_again() -> None:
    async with rig(scripted(asking(CHOICE)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.next_asked()
        await editor.notify("session/cancel", {"sessionId": session})
        assert await editor.over() == idle("cancelled")
        assert editor.states() == ["running", "requires_action", "idle"]
        assert (await gateway.run(session)).status is RunStatus.CANCELLED


async def test_an_agent_that_goes_on_after_a_dismissed_question_runs_again() -> None:
    async def goes_on(context: RunContext) -> None:
        answer = await context.ask(Interrupt(id="q", kind="input", message="?", answer_schema=CHOICE))
        assert answer.outcome is Outcome.CANCELLED
        for word in ("very ", "well"):
            context.emit(e.PartDelta(part="text", delta=word))
            await context.drain()
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(goes_on), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.answer(await editor.next_asked(), {"outcome": {"outcome": "cancelled"}})
        assert await editor.over() == idle()
        assert editor.heard_all() == "very well" and editor.states()[-1] == "idle"


# --- in words -----------------------------------------------------------------------------------------------------


async def test_a_question_in_words_leaves_the_session_idle_and_the_next_prompt_is_the_answer() -> None:
    async with rig(scripted(asking(TEXT, message="Your name?")), v2=True) as gateway:
        editor, other = await connect(gateway), await connect(gateway)
        session = await editor.new()
        await other.resume(session)
        assert await editor.turn(session) == idle()
        assert list(editor.messages().values()) == ["Let me see. ", "Your name?"]
        seen = len(editor.updates)
        answer = await editor.request("session/prompt", said(session, "Ada"))
        assert await editor.over(seen) == idle()
        user, running, *_ = editor.updates[seen:]
        assert (user["messageId"], user["content"][0]["text"]) == (answer["messageId"], "Ada")
        assert running == RUNNING and editor.heard_all().endswith("answered Ada.")
        await other.until(lambda: other.updates[-1] == idle() and len(other.states()) == 5)
        assert other.messages("user_message") == editor.messages("user_message")
        assert other.messages() == editor.messages()
        again = await connect(gateway)
        await again.load(session)
        assert again.messages("user_message") == editor.messages("user_message"), "history has the same messages"
        assert again.heard_all() == editor.heard_all() and again.states() == ["idle"]


async def test_a_prompt_that_is_no_answer_is_taken_and_the_question_comes_again() -> None:
    async with rig(scripted(asking({"type": "object", "required": ["a"]}, message="JSON?")), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.turn(session)
        seen = len(editor.updates)
        assert await editor.turn(session, "what?") == idle()
        user, running, again, last = editor.updates[seen:]
        assert user["content"][0]["text"] == "what?" and running == RUNNING and last == idle()
        assert "Please answer with JSON" in again["content"][0]["text"]
        assert await editor.turn(session, '{"a": 1}') == idle()
        assert editor.heard_all().endswith("answered {'a': 1}.")
        assert len(editor.messages("user_message")) == 3


async def test_a_question_in_words_that_another_protocol_answers_is_answered_here_too() -> None:
    async with rig(scripted(asking(TEXT)), v2=True) as gateway:
        editor, session = await opened(gateway)
        assert await editor.turn(session) == idle()
        seen = len(editor.updates)
        await gateway.engine.runs.answer((await gateway.run(session)).id, Answer(value="from afar"), "q1")
        assert await editor.over(seen) == idle()
        assert [one.get("state") or one["sessionUpdate"] for one in editor.updates[seen:]][:2] == [
            "user_message",
            "running",
        ]
        assert editor.heard_all("user_message").endswith("from afar")


async def test_a_question_in_words_can_be_cancelled() -> None:
    async with rig(scripted(asking(TEXT)), v2=True) as gateway:
        editor, session = await opened(gateway)
        assert await editor.turn(session) == idle()
        seen = len(editor.updates)
        await editor.notify("session/cancel", {"sessionId": session})
        assert await editor.over(seen) == idle("cancelled")


async def test_a_client_that_knows_no_permission_requests_is_asked_in_words() -> None:
    async with rig(scripted(asking(CHOICE)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.fail(await editor.next_asked(), -32601)
        assert await editor.over() == idle()
        assert editor.states() == ["running", "requires_action", "idle"]
        assert await editor.turn(session, "blue") == idle()
        assert editor.heard_all().endswith("answered blue.")
