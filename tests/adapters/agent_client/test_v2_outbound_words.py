"""What version 2 calls otherwise: who says hello how, requests both ways, questions, notes between prompts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError
from gateway.core.types import Answer, JsonObject
from tests.adapters.agent_client import outbound_agent
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import MANUAL, MODES, Client, Refusal, Rig, beside, settled
from tests.adapters.agent_client.test_outbound_relay import SETUP, new, raw, relay
from tests.adapters.agent_client.v2_agent import INITIALIZED, Agent, rig, spare
from tests.support.context import FakeContext

OPTIONS_V2: list[JsonObject] = [
    {
        **{"configId": "how", "name": "Mode", "category": "mode", "type": "select", "currentValue": "ask"},
        "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
    },
    {"configId": "loud", "name": "Loud", "type": "boolean", "currentValue": False},
]
OPTIONS = [{("id" if key == "configId" else key): value for key, value in option.items()} for option in OPTIONS_V2]
CHOICES = [
    {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


async def prompted(it: Rig, context: FakeContext) -> tuple[Any, Agent]:
    """A run under way, with its prompt acknowledged."""
    [task] = await it.started(context)
    agent = Agent(it.wire)
    agent.accept(await it.wire.prompt(), messageId="u1")
    agent.user()
    await settled()
    return task, agent


async def test_version_2_is_asked_for_with_version_1s_words_beside_and_only_where_the_route_says_so() -> None:
    client = Client(fs={"readTextFile": True}, terminal=True, elicitation={"form": {}}, _meta={"x": 1})
    async with rig() as it:
        await new(it, client=client)
        [hello] = it.wire.sent("initialize")
        assert hello["protocolVersion"] == 2 and hello["info"]["name"] == "interlingua"
        assert hello["capabilities"] == {"elicitation": {"form": {}}, "_meta": {"x": 1}}
        assert hello["clientCapabilities"] == client.capabilities and hello["clientInfo"] == hello["info"]
        agent = await it.outbound.describe()
        assert agent.extra["agent_client.v2"] == INITIALIZED
        assert agent.extra["agent_client"]["agentCapabilities"]["loadSession"] is True
        it.wire.say({"id": "r", "method": "fs/read_text_file", "params": {"sessionId": "s1", "path": "/x"}})
        assert (await it.wire.answer("r"))["error"]["code"] == -32601
    async with outbound_agent.rig() as it:
        await it.turn(it.context(), "one")
        assert it.wire.sent("initialize")[0].keys() == {"protocolVersion", "clientCapabilities", "clientInfo"}


async def test_an_agent_that_answers_version_1_or_refuses_2_is_spoken_to_in_version_1() -> None:
    def refuses(params: JsonObject) -> JsonObject:
        if params["protocolVersion"] != 1:
            raise Refusal(-32602, "version 1, please")
        return outbound_agent.INITIALIZED

    for initialize in (lambda _: outbound_agent.INITIALIZED, refuses):
        async with rig() as it:
            it.handlers["initialize"] = initialize
            context = it.context()
            await it.turn(context, "as ever")
            assert context.output == {"message": "as ever"}
            assert "agent_client.v2" not in (await it.outbound.describe()).extra


@pytest.mark.parametrize("version", [0, 3, True, "2", None])
async def test_an_agent_of_any_other_version_is_broken(version: Any) -> None:
    async with rig() as it:
        it.initialized = {**INITIALIZED, "protocolVersion": version}
        with pytest.raises(AgentBroken, match="speaks version"):
            await it.outbound.describe()
    async with outbound_agent.rig() as it:
        it.initialized = INITIALIZED  # nobody asked for it
        with pytest.raises(AgentBroken, match="speaks version 2"):
            await it.outbound.describe()
    async with rig() as it:
        it.handlers["initialize"] = _refusing
        with pytest.raises(AgentError, match="refused initialize: never"):
            await it.outbound.describe()


def _refusing(params: JsonObject) -> JsonObject:
    raise Refusal(-32603, "never")


async def test_sessions_are_made_and_opened_again_with_version_2s_words() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": OPTIONS_V2}
        context = beside("t1", caller=Client())
        result = await relay(it, context, "session/new", **SETUP)
        assert result == {"sessionId": "t1", "configOptions": OPTIONS, "modes": MODES}
        servers = [{"type": "stdio", **server} for server in SETUP["mcpServers"]]
        assert it.wire.sent("session/new") == [{"cwd": "/w", "mcpServers": servers}]

        def replay(params: JsonObject) -> JsonObject:
            agent = Agent(it.wire)
            agent.user("u0")
            agent.update("agent_message", messageId="m0", content=[{"type": "text", "text": "hi"}])
            agent.idle(None)
            return {"configOptions": OPTIONS_V2}

        it.handlers["session/resume"] = replay
        found = await relay(it, context, "session/load", sessionId="t1", **SETUP)
        assert found["configOptions"] == OPTIONS and found["modes"] == MODES
        asked = {"sessionId": "s1", "cwd": "/w", "mcpServers": servers, "replayFrom": {"type": "start"}}
        assert it.wire.sent("session/resume") == [asked]
        told = spare(context)
        assert [(each["sessionUpdate"], each["content"]["text"]) for each in told] == [
            ("user_message_chunk", "hello"),
            ("agent_message_chunk", "hi"),
        ]


async def test_what_else_clients_ask_has_other_names() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": OPTIONS_V2}
        chosen = [{**OPTIONS_V2[0], "currentValue": "code"}, OPTIONS_V2[1]]
        it.handlers |= {
            "auth/login": lambda _: {},
            "auth/logout": lambda _: {},
            "session/set_config_option": lambda _: {"configOptions": chosen},
            "session/list": lambda _: {"sessions": [{"sessionId": "s1", "cwd": "/w"}]},
            "session/close": lambda _: {},
        }
        context = await new(it)
        assert await relay(it, context, "session/set_mode", sessionId="t1", modeId="code")
        await relay(it, context, "session/set_config_option", sessionId="t1", configId="loud", value=True)
        assert it.wire.sent("session/set_config_option") == [
            {"sessionId": "s1", "configId": "how", "type": "id", "value": "code"},
            {"sessionId": "s1", "configId": "loud", "type": "boolean", "value": True},
        ]
        now = [note.data for note in context.notes if note.kind == "config_options"][-1]
        assert now[0]["currentValue"] == "code"
        aside = beside(caller=Client())
        await relay(it, aside, "authenticate", methodId="key")
        await relay(it, aside, "logout")
        assert it.wire.sent("auth/login") == [{"methodId": "key"}] and it.wire.sent("auth/logout") == [{}]
        assert (await relay(it, aside, "session/list"))["sessions"] == [{"sessionId": "t1", "cwd": "/w"}]
        await it.outbound.forward(context, "_x/note", raw({"sessionId": "t1", "b": 2}))
        assert (await it.wire.find("_x/note"))["params"] == {"sessionId": "s1", "b": 2}


async def test_a_runs_config_sets_options_and_the_mode() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": OPTIONS_V2}
        it.handlers["session/set_config_option"] = lambda _: {"configOptions": OPTIONS_V2}
        context = it.context(config={"loud": True, "mode": "code", "how": "ask"})
        [task] = await it.started(context)
        await Agent(it.wire).turn("ok")
        await task
        assert it.wire.sent("session/set_config_option") == [
            {"sessionId": "s1", "configId": "loud", "type": "boolean", "value": True},
            {"sessionId": "s1", "configId": "how", "type": "id", "value": "code"},
        ], "what is so already is not set"


SUBJECTS: dict[str, JsonObject | None] = {
    "call": {"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "Delete it", "kind": "delete"}},
    "command": {"type": "command", "command": "rm -r x", "cwd": "/w"},
    "nothing": None,
}


@pytest.mark.parametrize(("subject", "kind"), [("call", "delete"), ("command", "execute"), ("nothing", "other")])
async def test_a_permission_is_asked_in_version_1s_shape_with_all_that_was_said_beside(subject: str, kind: str) -> None:
    async with rig() as it:
        context = it.context()
        context.answers = [Answer(value={"optionId": "no"})]
        task, agent = await prompted(it, context)
        about = {"subject": SUBJECTS[subject]} if SUBJECTS[subject] else {}
        asked = {"title": "May I?", "description": "Harmless.", "options": CHOICES, **about}
        it.wire.say({"id": 7, "method": "session/request_permission", "params": {"sessionId": "s1", **asked}})
        await context.until(lambda made: bool(made.said(e.Interrupted)))
        [question] = context.said(e.Interrupted)
        payload = question.interrupt.payload
        assert {key: value for key, value in payload.items() if key != "toolCall"} == asked
        assert payload["toolCall"]["kind"] == kind and question.interrupt.message == "May I?\n\nHarmless."
        chosen = {"outcome": {"outcome": "selected", "optionId": "no"}}
        assert (await it.wire.answer(7))["result"] == chosen
        agent.idle()
        await task

    async with rig(permissions={"deny": [kind]}) as it:
        task, agent = await prompted(it, it.context())
        answer = await it.wire.ask(8, "session/request_permission", sessionId="s1", **asked)
        assert answer["result"] == chosen
        agent.idle()
        await task


async def test_a_permission_without_title_or_outside_of_a_run_is_no_approval() -> None:
    async with rig() as it:
        task, agent = await prompted(it, it.context(thread="t1"))
        answer = await it.wire.ask(1, "session/request_permission", sessionId="s1", options=CHOICES)
        assert answer["error"]["code"] == -32602
        agent.idle()
        await task
        answer = await it.wire.ask(2, "session/request_permission", sessionId="s1", title="?", options=CHOICES)
        assert answer["result"] == {"outcome": {"outcome": "cancelled"}}


async def test_options_that_the_agent_changes_between_prompts_are_noted_in_version_1s_words() -> None:
    async with rig() as it:
        context = await new(it)
        Agent(it.wire).update("config_option_update", configOptions=OPTIONS_V2)
        await settled()
        [options, mode] = [note for note in context.notes if note.kind.endswith("_update")]
        assert options.data["configOptions"] == OPTIONS and mode.data["currentModeId"] == "ask"
        session = it.outbound._sessions.of(context)
        assert session.options == OPTIONS


async def test_updates_that_come_before_the_sessions_answer_are_its_own() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: MANUAL
        context = it.context(thread="t1")
        [task] = [asyncio.create_task(it.outbound.run(context))]
        await it.connected()
        made, agent = await it.wire.find("session/new"), Agent(it.wire)
        agent.state("running")
        agent.say("already at it ", "own")
        it.wire.say({"id": made["id"], "result": {"sessionId": "s1"}})
        prompt = await it.wire.prompt()
        agent.accept(prompt)
        agent.idle()
        await settled()
        assert not task.done(), "that was what it did before"
        agent.say("for you")
        agent.idle()
        await task
        assert context.output == {"message": "for you"}
        said = spare(context)
        assert [each["content"]["text"] for each in said] == ["already at it "]
        states = [note.data["state"] for note in context.notes if note.kind == "state_update"]
        assert states == ["running", "idle"], "for clients of version 2"


async def test_several_messages_in_an_array_are_taken_apart() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        said = {"sessionId": "s1", "update": {"sessionUpdate": "state_update", "state": "running"}}
        ended = {**said, "update": {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}}
        batch = [
            {"jsonrpc": "2.0", "id": prompt["id"], "result": {}},
            *({"jsonrpc": "2.0", "method": "session/update", "params": params} for params in (said, ended)),
        ]
        it.wire.raw(json.dumps(batch).encode())
        await task
        assert isinstance(context.end, e.RunFinished)


async def test_a_permission_for_work_of_the_agents_own_is_asked_of_a_client_that_is_there() -> None:
    cancelled = {"outcome": {"outcome": "cancelled"}}
    for deny, working, expected in (([], True, "ok"), ([], False, None), (["other"], True, None)):
        async with rig(permissions={"deny": deny}) as it:
            client = Client()
            chosen = {"outcome": {"outcome": "selected", "optionId": "ok"}}
            client.answers["session/request_permission"] = chosen
            await new(it, client=client)
            Agent(it.wire).state("running" if working else "idle")
            asked = {"title": "May I?", "options": CHOICES}
            answer = await it.wire.ask(3, "session/request_permission", sessionId="s1", **asked)
            assert answer["result"] == (chosen if expected else cancelled)
            told = {**asked, "sessionId": "t1", "toolCall": {"toolCallId": "permission-3", "title": "May I?"}}
            assert [params["toolCall"].pop("kind") for _, params in client.asked] == ["other"] * bool(expected)
            assert client.asked == ([("session/request_permission", told)] if expected else [])


async def test_a_permission_for_work_of_the_agents_own_is_refused_where_nobody_may_be_asked() -> None:
    asked = {"title": "May I?", "options": CHOICES, "subject": SUBJECTS["command"]}
    for there, governed, deny in ((False, False, []), (True, True, []), (True, False, ["execute"])):
        async with rig(permissions={"deny": deny}) as it:
            client = Client()
            client.answers["session/request_permission"] = {"outcome": {"outcome": "selected", "optionId": "ok"}}
            context = await new(it, client=client)
            if governed:
                context.governor = Rules(Path("/"))
            Agent(it.wire).state("running")
            await settled()
            context.caller = client if there else None
            answer = await it.wire.ask(3, "session/request_permission", sessionId="s1", **asked)
            assert answer["result"] == {"outcome": {"outcome": "cancelled"}} and not client.asked


async def test_what_subagents_say_in_sessions_of_their_own_is_counted_by_the_run_that_they_work_for() -> None:
    async with rig() as it:
        first, second = it.context(thread="t1", run="r1"), it.context(thread="t2", run="r2")
        one, agent = await prompted(it, first)
        [two] = await it.started(second)
        other = Agent(it.wire, "s2")
        other.accept(await it.wire.prompt())
        agent.update("subagent_update", sessionId="child", title="Look it up")
        child = Agent(it.wire, "child")
        child.say("found")
        child.update("subagent_update", sessionId="grandchild")
        Agent(it.wire, "grandchild").say("as well")
        Agent(it.wire, "stranger").say("nobody's")
        agent.idle()
        other.idle()
        await asyncio.gather(one, two)
        assert first.losses == {"subagent": 3} and not second.losses
        told = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Look it up"}
        assert first.said(e.Custom)[-1].data == told
