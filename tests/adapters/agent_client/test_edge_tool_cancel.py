"""`tool_call/cancel`, `terminal/cancel`: in the newest SDK and not in the schema here, so the agent's to understand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client import v2_editor
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import native, rig, scripted
from tests.adapters.agent_client.test_v2_both import both
from tests.adapters.agent_client.v2_agent import Agent
from tests.e2e.doors import way
from tests.support.agent_client import errors, results, updates
from tests.support.agent_client_v2 import agent_command_v2, conversations_v2, states
from tests.support.processes import Gateway
from tests.support.scripted import echo

METHOD = "tool_call/cancel"
STORY = (
    *("--start", "stoppable", "--await", '"watch"'),
    *("--do", 'cancel-terminal {"terminalId": "term_1"}', "--await", '"exitStatus"'),
    *("--do", 'cancel-call {"toolCallId": "call_1"}', "--idle", "--do", 'cancel-call {"toolCallId": "call_1"}'),
)


async def test_the_agent_is_told_which_call_of_which_session_and_its_answer_comes_back() -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor = await v2_editor.connect(gateway)
        session = await editor.new()
        asked = {"sessionId": session, "toolCallId": "t1"}
        agent.answers[METHOD] = {"_meta": {"acme": 1}}
        assert await editor.request(METHOD, asked) == {"_meta": {"acme": 1}}
        agent.answers[METHOD] = RpcError(-32602, "it has ended")
        refused = await editor.refused(METHOD, asked)
        assert (refused.code, refused.message) == (-32602, "it has ended")
        relayed = [each for each in agent.relayed if each[0] == METHOD]
        assert [(json.loads(params), thread) for _, params, thread in relayed] == [(asked, session)] * 2


async def test_an_agent_of_another_protocol_knows_no_such_method() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor = await v2_editor.connect(gateway)
        session = await editor.new()
        refused = await editor.refused(METHOD, {"sessionId": session, "toolCallId": "t1"})
        assert refused.code == -32601


async def test_between_two_of_version_2_the_call_says_that_it_can_be_and_is() -> None:
    async with both() as (gateway, out):
        editor = await v2_editor.connect(gateway)
        session = await editor.new()
        heard: list[object] = []

        def cancelled(params: Any) -> dict[str, Any]:
            heard.append(params)
            return {}

        out.handlers[METHOD] = cancelled
        await editor.begin("session/prompt", said(session, "go"))
        prompt = await out.wire.prompt()
        agent = Agent(out.wire)
        agent.accept(prompt, messageId="u1")
        agent.user("u1")
        agent.state("running")
        able: dict[str, Any] = {"cancel": {}}
        agent.update("tool_call_update", toolCallId="t1", title="long", status="in_progress", capabilities=able)
        await editor.until(lambda: bool(editor.of("tool_call_update")))
        assert editor.of("tool_call_update")[0].get("capabilities") == able
        assert await editor.request(METHOD, {"sessionId": session, "toolCallId": "t1"}) == {}
        assert heard == [{"sessionId": "s1", "toolCallId": "t1"}]
        agent.update("tool_call_update", toolCallId="t1", status="cancelled")
        agent.idle()
        await editor.until(lambda: editor.updates[-1:] == [v2_editor.idle()])
        assert editor.of("tool_call_update")[-1]["status"] == "cancelled"


def test_the_official_sdk_cancels_a_terminal_and_a_call_of_its_own_agent(tmp_path: Path) -> None:
    target = {"protocol": "agent_client", "cwd": str(tmp_path), "v2": True, "command": agent_command_v2("ts")}
    config = {"inbound": {"agent_client": {"v2": True}}, "routes": [{"name": "agent", "target": target}]}
    with Gateway(json.dumps(config), tmp_path) as gateway:
        ways = [way(gateway, door, "agent") for door in ("ws", "http")]
        conversations = conversations_v2("ts", *({"steps": STORY, **each} for each in ways))
    able: dict[str, Any] = {"cancel": {}}
    for told in conversations:
        assert not errors(told, "await") and not errors(told, "idle"), told
        assert results(told, "terminal/cancel") == results(told, METHOD) == [{}]
        terminal, call = updates(told, "terminal_update"), updates(told, "tool_call_update")
        assert [one["capabilities"] for one in terminal] == [one["capabilities"] for one in call] == [able, None]
        assert terminal[-1]["exitStatus"] == {"signal": "SIGTERM"} and call[-1]["status"] == "cancelled"
        assert states(told)[-1] == "idle end_turn", "the turn goes on without them, and ends as it would"
        (refused,) = errors(told, METHOD)
        assert (refused["code"], refused["data"]) == (-32602, {"id": "call_1"}), "which is what the agent said"
