"""The protocol's own examples, as the golden cases have them, are what the published schema allows."""

from __future__ import annotations

import json

import pytest

from tests.adapters.agent_context.wire_schema import valid, validator
from tests.golden import test_golden as golden

CASES = {path.stem: golden.load(path) for path in golden.FILES if path.parts[-3] == "agent_context"}
NAMES = {
    "register": "RegisterRequest",
    "message": "MessageRequest",
    "delegate": "DelegateRequest",
    "heartbeat": "HeartbeatNotification",
    "error": "ErrorNotification",
    "resource": "ReadResourceRequest",
    "sample": "CreateMessageRequest",
    "call": "CallToolRequest",
    "registered": "RegisterResponse",
    "found": "AgentSearchResponse",
    "tool": "AgentSearchTool",
    "note": "ErrorNotification",
}


@pytest.mark.parametrize("name", CASES)
def test_an_example_is_allowed(name: str) -> None:
    case = CASES[name]
    kind = case.marks.get("reads") or case.marks["writes"]
    message = json.loads(case.wire)
    valid(NAMES[kind], message)
    if kind != "tool":
        valid("", message)
    if "id" in message and "method" in message and message["method"].startswith("agent/"):
        valid("AgentRequest", message)


def test_what_is_no_message_is_not_allowed() -> None:
    heartbeat = json.loads(CASES["heartbeat"].wire)
    for wrong in (
        {},
        {**heartbeat, "jsonrpc": "1.0"},
        {**heartbeat, "params": {}},
        {**heartbeat, "method": "agent/unknown"},
        {**json.loads(CASES["registered_agent"].wire), "params": {"agent": {"id": "a b"}}},
    ):
        assert not validator("").is_valid(wrong), wrong
