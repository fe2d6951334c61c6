"""What clients of the same protocol say beside prompts, and the sessions of threads over restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec import Raw

from gateway.core import events as e
from gateway.core.errors import AgentError, AgentTimeout, Unsupported
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.outbound_agent import (
    MANUAL,
    MODES,
    SETUP,
    Client,
    Refusal,
    Rig,
    beside,
    chunk,
    new,
    raw,
    relay,
    rig,
    settled,
    thread_of,
    update,
)
from tests.support.aio import Clock, Still, later, on
from tests.support.scripted import until


async def test_a_session_is_made_with_the_clients_own_words_and_answered_with_the_threads_id() -> None:
    async with rig() as it:
        options = [{"id": "model", "type": "select", "currentValue": "small", "options": []}]
        answer = {"sessionId": "s1", "modes": MODES, "configOptions": options, "models": {"x": 1.0}, "_meta": {}}
        it.handlers["session/new"] = lambda _: answer
        client = Client(fs={"readTextFile": True}, _meta={"x": 1})
        context = beside("t1", caller=client)
        asked = {**SETUP, "additionalDirectories": ["/x"], "_meta": {"y": 2}}
        result = await relay(it, context, "session/new", **asked)
        assert result == {**answer, "sessionId": "t1"}
        assert it.wire.sent("session/new") == [asked]
        assert it.wire.sent("initialize")[0]["clientCapabilities"] == client.capabilities
        assert thread_of(context).upstream["wire"] == {
            "session": "s1",
            "cwd": "/w",
            "mcpServers": SETUP["mcpServers"],
            "additionalDirectories": ["/x"],
            "profile": client.capabilities,
        }
        assert [(note.kind, note.data) for note in context.notes] == [("modes", MODES), ("config_options", options)]


async def test_clients_that_can_do_the_same_share_a_process_and_others_do_not() -> None:
    async with rig() as it:
        await new(it, "t1", Client(terminal=True, fs={"readTextFile": True}))
        await new(it, "t2", Client(fs={"readTextFile": True}, terminal=True))
        assert len(it.wires) == 1
        await new(it, "t3", Client())
        await it.turn(it.context(), "x")
        assert [w.sent("initialize")[0]["clientCapabilities"] for w in it.wires[:2]] == [
            {"terminal": True, "fs": {"readTextFile": True}},
            {},
        ]
        assert len(it.wires) == 3


async def test_requests_of_a_session_go_to_the_agents_and_come_back_as_the_threads() -> None:
    async with rig() as it:
        context = await new(it)
        it.handlers["session/set_mode"] = lambda _: {"_meta": {"a": 1}}
        assert await relay(it, context, "session/set_mode", sessionId="t1", modeId="code") == {"_meta": {"a": 1}}
        it.handlers["_x/y"] = lambda params: {"sessionId": params["sessionId"], "n": 1.0, "in": params["a"]}
        assert await relay(it, context, "_x/y", a=[{"sessionId": "t1"}], sessionId="t1") == {
            "sessionId": "t1",
            "n": 1.0,
            "in": [{"sessionId": "t1"}],
        }
        assert it.wire.sent("_x/y") == [{"a": [{"sessionId": "t1"}], "sessionId": "s1"}]
        await it.outbound.forward(context, "_x/note", raw({"sessionId": "t1", "b": 2}))
        await it.outbound.forward(context, "_x/bare", Raw())
        assert (await it.wire.find("_x/note"))["params"] == {"sessionId": "s1", "b": 2}
        assert "params" not in await it.wire.find("_x/bare")


async def test_half_a_surrogate_pair_passes_in_both_directions() -> None:
    async with rig() as it:
        context = await new(it)
        it.handlers["_x/y"] = lambda params: {"sessionId": "s1", "back": params["half"]}
        sent = Raw(rb'{"sessionId":"t1","half":"\ud83d"}')
        answer = await it.outbound.relay(context, "_x/y", sent)
        assert it.wire.sent("_x/y") == [{"sessionId": "s1", "half": "\ud83d"}]
        assert json.loads(bytes(answer)) == {"sessionId": "t1", "back": "\ud83d"}


async def test_requests_without_a_session_go_over_the_clients_connection() -> None:
    async with rig() as it:
        client = Client(auth={"terminal": True})
        context = beside(caller=client)
        it.handlers["authenticate"] = lambda _: {}
        await relay(it, context, "authenticate", methodId="key")
        assert it.wire.sent("authenticate") == [{"methodId": "key"}]
        await new(it, "t1", client)
        listed = {"sessions": [{"sessionId": "s1", "cwd": "/w"}, {"sessionId": "older", "cwd": "/"}], "n": 1}
        it.handlers["session/list"] = lambda _: listed
        found = await relay(it, context, "session/list")
        assert [each["sessionId"] for each in found["sessions"]] == ["t1", "older"]
        assert found["n"] == 1
        await it.outbound.forward(context, "_x/n", raw({"a": 1}))
        assert (await it.wire.find("_x/n"))["params"] == {"a": 1}
        assert len(it.wires) == 1


async def test_an_agents_error_is_the_relays_error() -> None:
    async with rig() as it:
        context = await new(it)
        it.handlers["session/set_mode"] = _refuse(-32602, "Invalid params", {"modeId": "x"})
        with pytest.raises(RpcError) as caught:
            await relay(it, context, "session/set_mode", sessionId="t1", modeId="x")
        assert caught.value.error.code == -32602
        assert json.loads(bytes(caught.value.error.data)) == {"modeId": "x"}
        for method in ("initialize", "session/prompt"):
            with pytest.raises(Unsupported):
                await relay(it, context, method)


async def test_a_relay_that_nobody_waits_for_any_more_is_cancelled_at_the_agent() -> None:
    async with rig() as it:
        context = await new(it)
        task = asyncio.create_task(relay(it, context, "_x/slow", sessionId="t1"))
        slow = await it.wire.find("_x/slow")
        task.cancel()
        await asyncio.wait([task])
        assert (await it.wire.find("$/cancel_request"))["params"] == {"requestId": slow["id"]}


async def given_up(it: Rig, asking: Coroutine[Any, Any, Any], method: str) -> None:
    """It ends so when the agent has had the request for longer than the ten seconds of `request_timeout`."""

    def asked() -> int:
        return sum(len(wire.sent(method)) for wire in it.wires)

    before, task = asked(), asyncio.create_task(asking)
    await until(lambda: asked() > before)
    await later(11)
    with pytest.raises(AgentTimeout):
        await asyncio.wait_for(task, 30)


@on(Clock)
async def test_an_agent_that_does_not_answer_is_given_up_in_time() -> None:
    async with rig(request_timeout=10) as it:
        context = await new(it)
        await given_up(it, relay(it, context, "session/set_mode", sessionId="t1", modeId="x"), "session/set_mode")
        it.handlers["session/new"] = lambda _: MANUAL
        await given_up(it, it.outbound.run(it.context()), "session/new")


@pytest.mark.parametrize("remembers", [False, True])
@on(Clock)
async def test_an_agent_that_hangs_at_the_end_of_a_session_is_ended_when_no_other_needs_it(remembers: bool) -> None:
    async with rig(request_timeout=10) as it:
        it.can(loadSession=remembers)
        it.handlers["session/close"] = lambda _: MANUAL
        await it.turn(it.context(run="r1", thread="t1"))
        [task] = await it.started(it.context(run="r2", thread="t2"))
        await given_up(it, relay(it, beside("t1"), "session/close", sessionId="t1"), "session/close")
        assert not it.wires[0].closed, "somebody else works with it"
        await it.wire.prompt()
        it.wire.end(await it.wire.prompt())
        await task
        if remembers:
            await until(lambda: it.wires[0].closed)
        assert it.wires[0].closed is remembers, "else it would forget the other session"
    async with rig(request_timeout=10) as it:
        it.handlers["session/close"] = lambda _: MANUAL
        context = await new(it)
        await given_up(it, relay(it, context, "session/close", sessionId="t1"), "session/close")
        assert it.wires[0].closed
        assert await relay(it, context, "session/close", sessionId="t1") in (None, {})


async def test_an_agent_that_can_only_load_a_session_is_resumed_by_that_and_nobody_is_told_its_replay() -> None:
    async with rig() as it:
        it.can(loadSession=True)

        def replay(_: Any) -> Any:
            it.wire.say(chunk("s1", "what was"))
            return {"configOptions": []}

        it.handlers["session/load"] = replay
        context = await new(it)
        before = len(context.notes)
        params = {"cwd": "/w", "mcpServers": [], "sessionId": "t1"}
        assert await relay(it, context, "session/resume", **params) == {"configOptions": []}
        assert it.wire.sent("session/load") == [{**params, "sessionId": "s1"}]
        assert not [note for note in context.notes[before:] if note.kind == "output"]
        assert await relay(it, context, "session/load", **params) == {"configOptions": []}
        assert [note.kind for note in context.notes[before:]].count("output") == 1, "that was asked for"


async def test_an_agent_that_can_load_and_resume_a_session_is_resumed_without_a_replay() -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"resume": {}})
        it.handlers["session/resume"] = lambda _: {}
        context = await new(it)
        await relay(it, context, "session/resume", cwd="/w", mcpServers=[], sessionId="t1")
        assert it.wire.sent("session/resume") and not it.wire.sent("session/load")


async def test_an_agent_that_wants_authentication_says_so_to_its_own_clients_and_has_failed_for_others() -> None:
    async with rig() as it:
        it.initialized = {**it.initialized, "authMethods": [{"id": "login", "name": "Log in"}, {"id": "key"}]}
        it.handlers["session/new"] = _refuse(-32000, "Authentication required", {"x": 1})
        with pytest.raises(AgentError, match="login, key"):
            await it.turn(it.context())
        with pytest.raises(RpcError) as caught:
            await new(it)
        assert caught.value.error.code == -32000
        context = it.context("", thread="t2", protocol="agent_client", creation={"prompt": []})
        context.caller = Client()
        await it.turn(context)
        assert isinstance(context.end, e.RunFailed) and context.end.origin is not None
        assert context.end.origin["agent_client"]["error"] == {
            "code": -32000,
            "message": "Authentication required",
            "data": {"x": 1},
        }


async def test_a_session_that_is_found_again_may_want_authentication_too() -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = _refuse(-32000, "Authentication required")
        known = {"session": "s1", "cwd": "/w"}
        with pytest.raises(AgentError, match="wants to be authenticated"):
            await it.turn(it.context(thread="t1", upstream_thread=known))
        assert not it.wire.sent("session/new")


async def test_another_refusal_of_a_session_is_told_as_it_is() -> None:
    async with rig() as it:
        it.handlers["session/new"] = _refuse(-32603, "no room", {"left": 0})
        context = it.context()
        await it.turn(context)
        assert isinstance(context.end, e.RunFailed) and context.end.origin is not None
        assert context.end.origin["agent_client"]["error"]["data"] == {"left": 0}


async def test_updates_between_turns_are_told_to_the_conversation() -> None:
    async with rig() as it:
        context = await new(it)
        it.wire.say(
            update("s1", "current_mode_update", currentModeId="code"),
            chunk("s1", "by the way"),
            update("s1", "_new_kind", x=1),
        )
        await context.until(lambda c: len(c.notes) == 3)
        assert [(n.kind, n.kept) for n in context.notes] == [
            ("current_mode_update", False),
            ("output", True),
            ("_new_kind", False),
        ]
        assert context.notes[2].data == {"sessionUpdate": "_new_kind", "x": 1}
        assert all(note.protocol == "agent_client" for note in context.notes)


@on(Still)
async def test_a_flood_between_turns_lets_others_take_their_turn() -> None:
    async with rig() as it:
        context = await new(it)
        it.wire.say(*(chunk("s1", str(at)) for at in range(2000)))
        await settled()
        assert 0 < len(context.notes) <= 300
        while len(context.notes) < 2000:
            await later(1)


def _refuse(code: int, message: str, data: Any = None) -> Any:
    def handler(params: Any) -> Any:
        raise Refusal(code, message, data)

    return handler
