"""Governed routes in version 2 of the protocol: the same rules, in its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.contract.governing import APPROVALS
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt
from tests.adapters.agent_client import inbound_rig
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.inbound_rig import Rig, scripted
from tests.adapters.agent_client.outbound_agent import settled
from tests.adapters.agent_client.test_governed_inbound import ABLE, able, tool
from tests.adapters.agent_client.test_v2_outbound_words import CHOICES, prompted
from tests.adapters.agent_client.v2_agent import rig
from tests.adapters.agent_client.v2_editor import connect

UNTRUSTED = {"aip44": {"untrusted": True}}


def rule(it: Rig, rules: Rules) -> None:
    it.engine.agents.extension = lambda name, protocol, key: rules  # type: ignore[method-assign]


async def test_a_client_of_version_2_is_declared_and_told_likewise(tmp_path: Path) -> None:
    rules = Rules(tmp_path, promised={"agent": {"loadSession": True, "promptCapabilities": {"image": True}}})

    async with inbound_rig.rig(able(), v2=True) as it:
        rule(it, rules)
        editor = await connect(it)
        hello = await editor.initialize()
        assert hello["_meta"]["aip44"] == {"via": "acme", **rules.about}
        prompt = hello["capabilities"]["session"]["prompt"]
        assert "image" in prompt and "audio" not in prompt
        assert hello["capabilities"]["session"]["mcp"] == {"stdio": {}}, "which version 1 need not declare"
        assert "promptCapabilities" in ABLE.extra["agent_client"]["agentCapabilities"]


async def test_what_was_is_marked_for_a_client_of_version_2(tmp_path: Path) -> None:
    async with inbound_rig.rig(scripted(tool), v2=True) as it:
        rule(it, Rules(tmp_path))
        editor = await connect(it)
        outside = await editor.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert outside.code == -32602
        session = await editor.new(cwd=str(tmp_path))
        await editor.turn(session, "one")
        assert all("_meta" not in update for update in editor.updates)
        again = await connect(it)
        params = {"sessionId": session, "cwd": str(tmp_path), "replayFrom": {"type": "start"}}
        await again.request("session/resume", params)
        assert "tool_call_update" in again.kinds()
        assert [update.get("_meta") for update in again.updates] == [UNTRUSTED] * len(again.updates)
        told = len(again.updates)
        await again.turn(session, "two")
        assert all("_meta" not in update for update in again.updates[told:])


async def test_an_approval_is_about_the_very_call(tmp_path: Path) -> None:
    payload = {"call": "c1", "tool": "smtp-send", "arguments": {"to": "a"}, "risk": 2, "approvers": [], "why": "w"}

    async def script(context: Any) -> None:
        question = Interrupt(
            id="q", kind="approval", payload=payload, message="May it?", answer_schema=APPROVALS.answer_schema
        )
        answer = await context.ask(question)
        context.emit(e.PartDelta(part="text", delta=answer.value["decision"]), e.RunFinished())
        await context.drain()

    async with inbound_rig.rig(scripted(script), v2=True) as it:
        for editor, where in ((await connect(it), "subject"), (await it.connect(), "toolCall")):
            session = await editor.new(cwd=str(tmp_path))
            prompt = await editor.start(session)
            asked = (await editor.next_asked())["params"]
            call = asked["subject"]["toolCall"] if where == "subject" else asked["toolCall"]
            assert (call["toolCallId"], call["name"], call["rawInput"]) == ("c1", "smtp-send", {"to": "a"})
            assert call["_meta"]["aip44"] == {"tool": "smtp-send", "risk": 2, "approvers": [], "why": "w"}
            assert [option["kind"] for option in asked["options"]] == ["allow_once", "reject_once"]
            await editor.choose(editor.asked[0], asked["options"][0]["optionId"])
            await prompt
            await editor.until(lambda: "approve" in str(editor.updates))  # noqa: B023
            assert not [u for u in editor.updates if u["sessionUpdate"].startswith("tool_call")]


async def test_an_agent_of_version_2_is_judged_by_its_own_words(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path, permissions={"default": "allow"}) as it:
        rules = Rules(tmp_path)
        rules.verdicts = {"smtp-send": "ask", "rm -rf /": "deny"}
        rules.answers = [Answer(value={"optionId": "ok"})]
        context = it.context(thread="t1", answers=[{"optionId": "no"}])
        context.governor = context.governed = rules
        task, agent = await prompted(it, context)
        call: dict[str, Any] = {"toolCallId": "c1", "title": "Sending", "name": "smtp-send", "kind": "edit"}
        agent.update("tool_call_update", **call, status="pending", rawInput={"to": "a"})
        subject = {"type": "tool_call", "toolCall": {"toolCallId": "c1"}}
        asked: dict[str, Any] = {"sessionId": "s1", "title": "Send it?", "options": CHOICES}
        answer = await it.wire.ask(1, "session/request_permission", **asked, subject=subject)
        assert answer["result"]["outcome"]["optionId"] == "ok"
        [question] = rules.questions
        assert question.payload["subject"]["toolCall"]["name"] == "smtp-send"
        assert question.message == "Send it?"
        agent.update("tool_call_update", toolCallId="c1", status="in_progress")
        content = {"type": "content", "content": {"type": "text", "text": "x"}}
        agent.update("tool_call_content_chunk", toolCallId="c1", content=content)
        command = {"type": "command", "command": "rm -rf /"}
        denied = await it.wire.ask(2, "session/request_permission", **asked, subject=command)
        assert denied["result"]["outcome"]["optionId"] == "no"
        assert not context.asked
        about = await it.wire.ask(3, "session/request_permission", **asked)
        assert about["result"]["outcome"]["optionId"] == "no" and len(context.asked) == 1
        assert [said[:2] for said in rules.of("permission")] == [("c1", "smtp-send"), ("permission-2", "rm -rf /")]
        agent.idle()
        await task
        assert rules.of("describe")[0] == ("c1", {"tool": "smtp-send", "risk": 1, "pending": True})
        assert [event.name for event in context.said(e.ToolCallStarted)] == ["smtp-send"]
        assert not context.losses
        agent.update("tool_call_update", toolCallId="c2", title="late", status="in_progress")
        agent.update("tool_call_update", toolCallId="c1", status="completed")
        agent.update("tool_call_update", toolCallId="c1", title="again", status="pending")
        await settled()
        assert [said[1] for said in rules.of("stray")] == ["late", "again"]
        assert not [note for note in context.notes if "toolCallId" in str(note.data)]
