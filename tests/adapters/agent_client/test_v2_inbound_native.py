"""An agent of version 2: its clients of that version are told what it said, those of version 1 what that means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from adapters.agent_client.codec import turn as turn_v1
from adapters.agent_client.codec.v2 import agents, turn, updates_in
from adapters.agent_client.codec.v2.memory import SessionMemory
from gateway.config import Route
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import RunRequest, RunStatus, ThreadUpdate
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.editor import Editor, said
from tests.adapters.agent_client.inbound_rig import Native, native, rig
from tests.adapters.agent_client.v2_editor import RUNNING, connect, idle, opened, raw
from tests.support.scripted import AGENT

OWN = {
    "protocolVersion": 2,
    "info": {"name": "acme", "version": "4", "_acme": 1},
    "capabilities": {"session": {"prompt": {"image": {}}, "_acme_sessions": {"a": 1}}, "_meta": {"acme": 2}},
    "authMethods": [{"type": "_acme_sso", "methodId": "sso", "name": "SSO"}],
}
USER = {"sessionUpdate": "user_message", "messageId": "u-7", "content": [{"type": "text", "text": "hi"}]}
WORDS: list[dict[str, Any]] = [
    {"sessionUpdate": "agent_thought_chunk", "messageId": "t-1", "content": {"type": "text", "text": "hm"}},
    {"sessionUpdate": "agent_message_chunk", "messageId": "m-1", "content": {"type": "text", "text": "Hel"}},
    {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "m-1",
        "_meta": {},
        "content": {"type": "text", "text": "lo"},
    },
    {"sessionUpdate": "tool_call_update", "toolCallId": "c-1", "title": "Look", "kind": "_acme_look", "status": None},
    {
        "sessionUpdate": "tool_call_content_chunk",
        "toolCallId": "c-1",
        "content": {"type": "content", "content": {"type": "text", "text": "seen"}},
    },
    {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "ls", "cwd": "/work", "exitStatus": None},
    {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "AA=="},
    {"sessionUpdate": "tool_call_update", "toolCallId": "c-1", "status": "cancelled"},
    {"sessionUpdate": "agent_message", "messageId": "m-1", "content": [{"type": "text", "text": "Goodbye"}]},
    {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": []}},
    {"sessionUpdate": "_acme_weather", "rain": [1, None]},
]
END = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "max_tokens", "_meta": {"acme": 3}}


def speaking(*updates: dict[str, Any], hold: asyncio.Event | None = None) -> Any:
    """An agent of version 2 that says these; `hold` is awaited before the last."""
    known = SessionMemory()

    async def script(context: RunContext) -> None:
        decoder = updates_in.V2UpdateDecoder(known)
        for number, update in enumerate(updates):
            if hold is not None and number == len(updates) - 1:
                await context.drain()
                await hold.wait()
            for found in decoder.feed(msgspec.json.encode(update)):
                context.note(found) if isinstance(found, ThreadUpdate) else context.emit(found)
        for event in (*decoder.close(), *turn.ended(END)):
            context.emit(event)
        await context.drain()

    return agent(script)


def agent(script: Callable[[RunContext], Any]) -> tuple[Route, Native]:
    """Any agent of version 2."""
    route, found = native(script)
    found.agent = replace(AGENT, extra=agents.agent_of(OWN, "acme").extra)
    return route, found


def words(editor: Editor) -> list[dict[str, Any]]:
    """What it was told, but for states."""
    return [update for update in editor.updates if update["sessionUpdate"] != "state_update"]


async def test_its_own_description_is_the_answer_of_initialize_with_what_the_gateway_adds() -> None:
    async with rig(speaking(), v2=True) as gateway:
        editor = await raw(gateway)
        answer = await editor.initialize()
        assert answer["info"] == OWN["info"] and answer["authMethods"] == OWN["authMethods"]
        session = {"prompt": {"image": {}}, "_acme_sessions": {"a": 1}, "delete": {}}
        assert answer["capabilities"] == {"session": session, "_meta": {"acme": 2}}
        old = await gateway.raw()
        assert (await old.initialize())["agentCapabilities"]["promptCapabilities"]["image"] is True


async def test_what_it_says_is_told_as_it_said_it_and_its_prompts_have_its_own_ids() -> None:
    async with rig(speaking(USER, *WORDS), v2=True) as gateway:
        editor, other, old = await connect(gateway), await connect(gateway), await gateway.connect()
        session = await editor.new()
        await other.resume(session)
        await old.load(session, "session/resume")
        answer = await editor.request("session/prompt", said(session, "hi"))
        assert answer == {"messageId": "u-7"}
        assert await editor.over() == END
        assert editor.updates == [USER, RUNNING, *WORDS, END]
        assert await other.over(1) == END and words(other) == [USER, *WORDS]
        again = await connect(gateway)
        await again.load(session)
        assert words(again)[0] == USER and again.messages() == editor.messages() == {"m-1": "Goodbye"}
        await old.until(lambda: "Goodbye" in old.text())
        assert old.of("tool_call")[0]["toolCallId"] == "c-1", "and version 1 is told what it has words for"


async def test_a_prompt_is_answered_when_the_agent_has_taken_it() -> None:
    go = asyncio.Event()
    async with rig(speaking(USER, hold=go), v2=True) as gateway:
        editor, session = await opened(gateway)
        answer = await editor.start(session, "hi")
        await gateway.run(session)
        await editor.request("_acme/ping", {})
        assert not answer.done() and editor.updates == []
        go.set()
        assert await answer == {"messageId": "u-7"}
        assert await editor.over() == END


async def test_a_prompt_that_the_agent_refuses_is_answered_with_its_error_and_was_never_said() -> None:
    async def refuses(context: RunContext) -> None:
        context.emit(turn_v1.failed(RpcError(-32000, "Authentication required", {"methods": ["sso"]})))
        await context.drain()

    async with rig(agent(refuses), v2=True) as gateway:
        editor, session = await opened(gateway)
        for _ in range(2):
            error = await editor.refused("session/prompt", said(session, "hi"))
            assert (error.code, error.message, error.data) == (-32000, "Authentication required", {"methods": ["sso"]})
            assert editor.updates == []


async def test_an_agent_that_works_without_having_repeated_the_prompt_is_done_so_for() -> None:
    chunk = WORDS[1]
    async with rig(speaking(chunk), v2=True) as gateway:
        editor, session = await opened(gateway)
        answer = await editor.request("session/prompt", said(session, "hi"))
        assert await editor.over() == END
        assert editor.updates == [{**USER, "messageId": answer["messageId"]}, RUNNING, chunk, END]


async def test_an_agent_that_says_nothing_at_all_has_taken_the_prompt() -> None:
    async with rig(speaking(), v2=True) as gateway:
        editor, session = await opened(gateway)
        answer = await editor.request("session/prompt", said(session, "hi"))
        assert await editor.over() == END
        assert editor.updates == [{**USER, "messageId": answer["messageId"]}, RUNNING, END]


async def test_a_prompt_that_is_cancelled_before_the_agent_has_taken_it_was_taken_and_cancelled() -> None:
    async def stuck(context: RunContext) -> None:
        await go.wait()
        context.emit(e.RunCancelled())
        await context.drain()

    go = asyncio.Event()

    route, found = agent(stuck)
    found.on_cancel = go.set
    async with rig((route, found), v2=True) as gateway:
        editor, session = await opened(gateway)
        answer = await editor.start(session, "hi")
        await gateway.run(session)
        await editor.notify("session/cancel", {"sessionId": session})
        assert await editor.over() == idle("cancelled")
        assert list(editor.messages("user_message")) == [(await answer)["messageId"]]
        assert (await gateway.run(session)).status is RunStatus.CANCELLED


async def test_a_run_that_another_protocol_starts_is_told_with_the_agents_own_id_of_what_was_said() -> None:
    async with rig(speaking(USER, WORDS[1]), v2=True) as gateway:
        editor, session = await opened(gateway)
        request = RunRequest(agent="scripted", protocol="test", thread=session, input={"message": "hi"})
        await gateway.engine.runs.start(request)
        assert await editor.over() == END
        assert editor.updates == [USER, RUNNING, WORDS[1], END]


async def test_states_of_which_it_says_more_are_told_but_never_that_it_is_idle_before_it_is() -> None:
    def state(name: str, **more: Any) -> dict[str, Any]:
        return {"sessionUpdate": "state_update", "state": name, "background": [], **more}

    def note(context: Any, data: dict[str, Any]) -> None:
        context.note(ThreadUpdate(protocol="agent_client.v2", kind="state_update", data=data))

    async def works(context: RunContext) -> None:
        decoder = updates_in.V2UpdateDecoder(SessionMemory())
        for event in decoder.feed(msgspec.json.encode(USER)):
            assert not isinstance(event, ThreadUpdate)
            context.emit(event)
        note(context, state("running"))
        note(context, state("idle", stopReason="end_turn"))
        for event in (*decoder.close(), *turn.ended(state("idle", stopReason="end_turn"))):
            context.emit(event)
        await context.drain()

    route, found = agent(works)
    async with rig((route, found), v2=True) as gateway:
        editor, session = await opened(gateway)
        end = state("idle", stopReason="end_turn")
        assert await editor.turn(session, "hi") == end
        assert [update for update in editor.updates if update != RUNNING] == [USER, state("running"), end]
        seen = len(editor.updates)
        for own in (state("running"), end):
            note(found.beside[0], own)
        await editor.until(lambda: len(editor.updates) == seen + 2)
        assert editor.updates[seen:] == [state("running"), end], "work of its own"
        again = await connect(gateway)
        await again.load(session)
        assert again.updates == [USER, idle(None)]


async def test_what_it_says_between_turns_and_only_version_2_can_say_is_told_as_it_is() -> None:
    weather = {"sessionUpdate": "_acme_weather", "rain": 3}
    options = [{"configId": "x", "name": "X", "type": "_acme_dial", "currentValue": 3}]
    states = {"sessionUpdate": "config_option_update", "configOptions": options}

    route, found = speaking(USER)
    async with rig((route, found), v2=True) as gateway:
        editor, old = await connect(gateway), await gateway.connect()
        session = await editor.new()
        await old.load(session, "session/resume")
        await editor.turn(session, "hi")
        known = SessionMemory()
        for update in (weather, states, {**WORDS[1], "messageId": "m-9"}):
            for note in updates_in.V2SpokenSession(known).stray(msgspec.json.encode(update)):
                found.beside[0].note(note)
        await editor.until(lambda: "m-9" in editor.messages())
        assert editor.updates[-3:] == [weather, states, {**WORDS[1], "messageId": "m-9"}]
        await old.until(lambda: "Hel" in old.text())
        assert "_acme_weather" not in old.kinds()
