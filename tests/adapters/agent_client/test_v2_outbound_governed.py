"""Agents of version 2 on a governed route: the rules hear of their calls as of version 1's."""

from __future__ import annotations

from pathlib import Path

from gateway.core import events as e
from gateway.core.types import Answer
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import settled
from tests.adapters.agent_client.v2_agent import Agent, rig

CHOICES = [
    {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


async def test_the_rules_hear_of_calls_and_of_permissions_by_whatever_they_are_about(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        rules.verdicts["cargo test"] = "deny"
        context = it.context(thread="t1")
        context.governor = context.governed = rules
        context.answers = [Answer(value={"optionId": "ok"})]
        [task] = await it.started(context)
        agent = Agent(it.wire)
        agent.accept(await it.wire.prompt())
        agent.user()
        call = {"toolCallId": "c1", "title": "Reading", "name": "read_file", "kind": "read"}
        agent.update("tool_call_update", **call, rawInput={"path": "/a"})
        piece = {"type": "content", "content": {"type": "text", "text": "some of it"}}
        agent.update("tool_call_content_chunk", toolCallId="c1", content=piece)
        agent.update("tool_call_update", toolCallId="c1", status="completed")
        await settled()
        assert rules.of("describe")[0] == ("c1", {"tool": "read_file", "risk": 0, "pending": True})
        assert [event.name for event in context.said(e.ToolCallStarted)] == ["read_file"]
        assert len(context.said(e.ToolCallEnded)) == 1
        subject = {"type": "command", "command": "cargo test", "cwd": str(tmp_path)}
        asked = {"sessionId": "s1", "title": "May I?", "options": CHOICES, "subject": subject}
        answer = await it.wire.ask(1, "session/request_permission", **asked)
        assert answer["result"]["outcome"] == {"outcome": "selected", "optionId": "no"}, "the rules say no"
        agent.idle()
        await task
        agent.state("running")
        agent.update("tool_call_update", toolCallId="c2", title="of its own", kind="delete", status="in_progress")
        agent.update("tool_call_content_chunk", toolCallId="c2", content=piece)
        await settled()
        answer = await it.wire.ask(2, "session/request_permission", **asked)
        assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
        agent.idle()
        await settled()
        assert not [note for note in context.notes if note.kind == "output"], "calls outside of runs are told nobody"
        assert {entry[1] for entry in rules.of("stray")} == {"of its own", "c2", "cargo test"}
