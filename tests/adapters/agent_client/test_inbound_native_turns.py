"""Turns of an agent that speaks the protocol itself, and what it asks its client."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from adapters.agent_client.codec import questions
from adapters.agent_client.codec.updates_in import UpdateDecoder
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Failure, ThreadUpdate
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import MODES, native, note, rig, update
from tests.support.scripted import echo, until


async def test_images_go_to_an_agent_that_takes_them_as_they_are() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png", "_meta": {"x": 1}}
        params = {"sessionId": session, "prompt": [image], "_meta": {"y": 2}}
        await editor.request("session/prompt", params)
        assert agent.contexts[0].run.request.creation == params
        error = await editor.refused(
            "session/prompt", {"sessionId": session, "prompt": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]}
        )
        assert (error.code, error.data["path"]) == (-32602, "/prompt/0")


async def test_the_agents_own_error_of_a_prompt_is_the_answer() -> None:
    async def agent(context: RunContext) -> None:
        from adapters.agent_client.codec import turn

        context.emit(turn.failed(RpcError(-32042, "quota", {"left": 0})))
        await context.drain()

    async with rig(native(agent)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused("session/prompt", said(await editor.new(), "hi"))
        assert (error.code, error.message, error.data) == (-32042, "quota", {"left": 0})


async def test_an_agent_that_dies_in_mid_turn_is_an_error_and_the_next_prompt_works() -> None:
    fail = [True, False]

    async def agent(context: RunContext) -> None:
        if fail.pop(0):
            context.emit(e.RunFailed(failure=Failure(code="agent_gone", message="it exited with 1", retryable=True)))
            await context.drain()
        else:
            await echo(context)

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened()
        error = await editor.refused("session/prompt", said(session, "hi"))
        assert error.code == -32603
        assert error.data == {"code": "agent_gone", "details": "it exited with 1", "retryable": True}
        assert await editor.prompt(session) == {"stopReason": "end_turn"}


async def test_what_the_halves_note_for_each_other_is_told_to_nobody() -> None:
    async def agent(context: RunContext) -> None:
        context.note(ThreadUpdate(protocol="agent_client", kind="modes", data=MODES))
        context.note(ThreadUpdate(protocol="agent_client", kind="config_options", data=[]))
        note(context, update("current_mode_update", currentModeId="code"))
        await echo(context)

    async with rig(native(agent)) as gateway:
        editor = await gateway.connect()
        assert await editor.prompt(await editor.new()) == {"stopReason": "end_turn"}
        assert editor.kinds()[0] == "current_mode_update"
        assert set(editor.kinds()[1:]) == {"agent_message_chunk"}


async def test_the_agent_can_ask_its_client_for_what_only_that_has() -> None:
    answers: list[Any] = []

    async def agent(context: RunContext) -> None:
        assert context.caller is not None and context.caller.protocol == "agent_client"
        params = Raw(msgspec.json.encode({"sessionId": context.run.thread, "path": "/a"}))
        answers.append(bytes(await context.caller.ask("fs/read_text_file", params)))
        try:
            await context.caller.ask("_acme/nope", params)
        except RpcError as error:
            answers.append(error.error.code)
        context.caller.tell("_acme/told", params)
        await echo(context)

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        asked = await editor.next_asked()
        assert (asked["method"], asked["params"]) == ("fs/read_text_file", {"sessionId": session, "path": "/a"})
        await editor.answer(asked, {"content": "hi"})
        await editor.fail(await editor.next_asked(2), -32601)
        assert await turn == {"stopReason": "end_turn"}
        assert editor.told[0]["method"] == "_acme/told"
    assert answers == [b'{"content":"hi"}', -32601]


async def test_the_newest_client_of_a_session_is_asked_and_the_next_newest_when_it_has_gone() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        _, session = await gateway.opened(capabilities={"terminal": True})
        context = agent.beside[0]
        two = await gateway.connect(capabilities={"terminal": False})
        await two.load(session)
        assert context.caller is not None and context.caller.capabilities == {"terminal": False}
        two.pipe.cut()
        await until(lambda: context.caller is not None and context.caller.capabilities == {"terminal": True})


async def test_a_permission_question_is_passed_on_as_it_is_and_its_answer_comes_back() -> None:
    params = {
        "sessionId": "theirs",
        "toolCall": {"toolCallId": "no call that was announced", "title": "rm -rf", "odd": {"x": [None]}},
        "options": [
            {"optionId": "a", "name": "Once", "kind": "allow_once"},
            {"optionId": "r", "name": "No", "kind": "reject_once"},
        ],
        "_meta": {"acme": 1},
    }
    results: list[Any] = []

    async def agent(context: RunContext) -> None:
        question = questions.permission(params, "q")
        results.append(questions.permission_result(await context.ask(question), question.payload))
        await echo(context)

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened()
        for option in ("a", "r", "never offered"):
            number = len(results) + 1
            turn = await editor.start(session)
            asked = await editor.next_asked(number)
            assert asked["params"] == {**params, "sessionId": session}
            await editor.choose(asked, option)
            assert await turn == {"stopReason": "end_turn"}
        assert editor.of("tool_call") == [], "its own tool calls are its own affair"
    assert [result["outcome"].get("optionId") for result in results] == ["a", "r", "r"]


@pytest.mark.parametrize("mode", ["form", "url"])
async def test_an_elicitation_is_passed_on_to_a_client_that_declared_its_mode(mode: str) -> None:
    params: dict[str, Any] = {"sessionId": "theirs", "mode": mode, "message": "Who?", "_meta": {"acme": 1}}
    if mode == "form":
        params["requestedSchema"] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    else:
        params |= {"elicitationId": "e1", "url": "https://acme.example/login"}
    results: list[Any] = []

    async def agent(context: RunContext) -> None:
        question = questions.elicitation(params, "q")
        results.append(questions.elicitation_result(await context.ask(question), question.payload))
        await echo(context)

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened(capabilities={"elicitation": {mode: {}}})
        turn = await editor.start(session)
        asked = await editor.next_asked()
        assert (asked["method"], asked["params"]) == ("elicitation/create", {**params, "sessionId": session})
        content = {"content": {"name": "Ada"}} if mode == "form" else {}
        await editor.answer(asked, {"action": "accept", **content})
        assert await turn == {"stopReason": "end_turn"}
        other = await gateway.connect(capabilities={"elicitation": {"url" if mode == "form" else "form": {}}})
        await other.prompt(session)
        assert other.asked == [] and "Who?" in other.text()
        assert results[0] == {"action": "accept", **content}


async def test_what_the_agent_said_is_replayed_as_it_was() -> None:
    said = [
        update("agent_message_chunk", content={"type": "text", "text": "hi", "annotations": {"priority": 1}}, odd=1),
        update("tool_call", toolCallId="c", title="T", kind="edit", status="pending", locations=[{"path": "/a"}]),
        update("tool_call_update", toolCallId="c", status="completed", _meta={"x": None}),
        update("agent_message_chunk", content={"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        update("plan", entries=[{"content": "c", "priority": "low", "status": "pending", "_meta": {"n": 1}}]),
        update("usage_update", used=1, size=2),
        update("something_new", whatever=[1, 2]),
    ]

    async def agent(context: RunContext) -> None:
        decoder = UpdateDecoder()
        for each in said:
            for event in decoder.feed(msgspec.json.encode(each)):
                if isinstance(event, ThreadUpdate):
                    context.note(event)
                else:
                    context.emit(event)
        context.emit(*decoder.close(), e.RunFinished())
        await context.drain()

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened()
        editor.lenient = True
        await editor.prompt(session)
        assert editor.updates == said
        await editor.load(session)
        assert editor.updates[0]["sessionUpdate"] == "user_message_chunk"
        assert editor.updates[1 : len(said) + 1] == said


async def test_history_has_only_the_newest_state_and_at_its_end() -> None:
    async def agent(context: RunContext) -> None:
        name = context.run.request.input["message"]
        note(context, update("available_commands_update", availableCommands=[{"name": name, "description": "d"}]))
        note(context, update("current_mode_update", currentModeId=name))
        await echo(context)

    async with rig(native(agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        await editor.prompt(session, "two")
        await gateway.engine.conversations.settled()
        await editor.load(session)
        assert editor.text() == "one two "
        assert editor.kinds()[-1] == "available_commands_update"
        assert [each["name"] for each in editor.updates[-1]["availableCommands"]] == ["two"]
        assert len(editor.of("available_commands_update")) == 1 and not editor.of("current_mode_update")
