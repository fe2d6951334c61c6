"""`tool_call/cancel`, which the newest SDK has and the schema here has not: an extension, the agent's to understand."""

from __future__ import annotations

import json
from typing import Any

from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client import v2_editor
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import native, rig, scripted
from tests.adapters.agent_client.test_v2_both import both
from tests.adapters.agent_client.v2_agent import Agent
from tests.support.aio import run
from tests.support.scripted import echo

METHOD = "tool_call/cancel"


def test_the_agent_is_told_which_call_of_which_session_and_its_answer_comes_back() -> None:
    async def main() -> None:
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

    run(main())


def test_an_agent_of_another_protocol_knows_no_such_method() -> None:
    async def main() -> None:
        async with rig(scripted(echo), v2=True) as gateway:
            editor = await v2_editor.connect(gateway)
            session = await editor.new()
            refused = await editor.refused(METHOD, {"sessionId": session, "toolCallId": "t1"})
            assert refused.code == -32601

    run(main())


def test_between_two_of_version_2_the_call_says_that_it_can_be_and_is() -> None:
    async def main() -> None:
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

    run(main())
