"""The published schema: it has the protocol's own definitions unchanged, and refuses what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_context import wire
from adapters.agent_context.wire import messages
from adapters.agent_context.wire.messages import read
from gateway.core import delta
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_context.codec_records import example, unhurried
from tests.adapters.agent_context.wire_schema import document, valid, validator
from tests.core.json_values import INTEGERS, SOUND, json_values
from tests.golden import test_golden as golden

APPENDIX_A = json.loads("""
{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "definitions": {
    "AgentIdentifier": {
      "type": "string",
      "description": "A unique identifier for an agent",
      "pattern": "^[a-zA-Z0-9-_]+$"
    },
    "AgentCapabilities": {
      "type": "object",
      "description": "Capabilities and features an agent supports",
      "properties": {
        "tools": {
          "type": "array",
          "description": "List of tools the agent can use",
          "items": { "type": "string" }
        },
        "models": {
          "type": "array",
          "description": "Language models the agent can work with",
          "items": { "type": "string" }
        },
        "specializations": {
          "type": "array",
          "description": "Areas of expertise or specific skills",
          "items": { "type": "string" }
        },
        "protocols": {
          "type": "array",
          "description": "Supported protocol versions and extensions",
          "items": { "type": "string" }
        }
      },
      "required": ["tools", "models", "specializations", "protocols"]
    },
    "AgentRequest": {
      "allOf": [
        { "$ref": "#/definitions/JSONRPCRequest" },
        {
          "properties": {
            "method": {
              "type": "string",
              "enum": [
                "agent/register",
                "agent/message",
                "agent/delegate",
                "agent/heartbeat",
                "agent/error",
                "agent/unregister"
              ]
            }
          }
        }
      ]
    }
  }
}
""")


def test_it_is_a_schema_of_draft_2020_12_in_which_every_reference_leads_somewhere() -> None:
    found = document()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(found)
    text = json.dumps(found)
    for name in found["$defs"]:
        assert f'"#/$defs/{name}"' in text or name in ("AgentRequest",) or name in BESIDE, f"{name} is used nowhere"
    for part in text.split('"$ref": "')[1:]:
        assert part.partition('"')[0].removeprefix("#/$defs/") in found["$defs"]


ARGUMENTS = (
    "AgentSearch",
    "TaskAssign",
    "AgentEvaluate",
    "TaskAnswer",
    "TaskList",
    "TaskCancel",
    "AgentRevoke",
    "AgentRestore",
)
"""The arguments of each tool, by its definition's name."""
INSIDE = {"Payload", "ResponsePayload", "Question", "AnswerPayload", "Assignment", "ToolFailure", "ErrorObject"}
INSIDE |= {"DirectoryBody", "TasksBody", "StatusBody", "MetricsBody"}
"""What is in others where their schemas allow anything: payloads, texts of resources, keys of `_meta`."""
BESIDE = INSIDE | {f"{name}Tool" for name in ARGUMENTS} | set(ARGUMENTS)


@pytest.mark.parametrize("name", APPENDIX_A["definitions"])
def test_the_definitions_of_appendix_a_are_in_it_unchanged(name: str) -> None:
    theirs = json.loads(json.dumps(APPENDIX_A["definitions"][name]).replace("#/definitions/", "#/$defs/"))
    assert document()["$defs"][name] == theirs


def test_every_method_tool_and_error_has_a_definition() -> None:
    text = json.dumps(document())
    methods = {value for name, value in vars(wire).items() if name.isupper() and isinstance(value, str)}
    methods = {value for value in methods if value.startswith(("agent/", "resources/", "tools/", "sampling/"))}
    assert {method for method in methods if f'{{"const": "{method}"}}' not in text} == set()
    told = [document()["$defs"][f"{name}Tool"]["const"] for name in ARGUMENTS]
    assert sorted(told, key=str) == sorted(messages.TOOLS, key=str)
    assert "ErrorObject" in document()["$defs"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_tools_input_schema_takes_no_more_keys_than_its_arguments_have_and_all_of_them(name: str) -> None:
    definition = document()["$defs"][f"{name}Tool"]["const"]
    Draft202012Validator.check_schema(definition["inputSchema"])
    assert definition["inputSchema"]["properties"].keys() == document()["$defs"][name]["properties"].keys()


# --- what it refuses is refused --------------------------------------------------------------------------------------

TASK = {
    "task": {
        "id": "task-001",
        "type": "analysis",
        "requirements": {"capabilities": ["data-analysis"], "constraints": {"maxTokens": 1000, "priority": 2}},
        "payload": {"dataset": "http://data.example.com/dataset.csv"},
        "status": "pending",
    },
    "wait": True,
    "target": "a",
}
MESSAGE = {
    "source": "agent-id-1",
    "target": "agent-id-2",
    "content": {"type": "request", "payload": {"messages": [{"text": "Hi"}]}},
    "_meta": {"correlationId": "corr-1234", "progressToken": 1},
}
TEXT = {"type": "text", "text": "a"}
GOOD: list[tuple[str, Any]] = [
    ("Register", {"agent": example()}),
    ("Delegate", TASK),
    ("Message", MESSAGE),
    ("Heartbeat", {"agentId": "a", "status": "active"}),
    ("AgentEvaluate", {"agentId": "a", "score": 7.5, "review": "good", "taskId": "t"}),
    ("AgentSearch", {"capabilities": ["a"], "minScore": 7.5, "maxCost": 0.001}),
    ("TaskAnswer", {"taskId": "t", "answer": None, "outcome": "answered", "interrupt": "i"}),
    ("CreateMessage", {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 1}),
    ("TaskAssign", {"message": "Hi", "type": "x", "maxTokens": 5, "agentId": "a", "wait": False}),
]


def places(value: Any) -> list[list[Any]]:
    """Every place in a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[], *([key, *rest] for key, part in inside for rest in places(part))]


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, Any]:
    """Good params with something else in one place, or nothing."""
    model, params = draw(st.sampled_from(GOOD))
    params = copy.deepcopy(params)
    at = draw(st.sampled_from(places(params)))
    other = draw(json_values(SOUND, INTEGERS | st.sampled_from([0.5, 5.0, -1, 10.5])))
    if not at:
        return model, other
    inside = params
    for step in at[:-1]:
        inside = inside[step]
    if isinstance(inside, dict) and draw(st.booleans()):
        del inside[at[-1]]
    else:
        inside[at[-1]] = other
    return model, params


@given(changed())
@unhurried
def test_what_is_read_is_what_the_schema_allows_and_nothing_else(case: tuple[str, Any]) -> None:
    model, params = case
    raw = delta.encode(params)
    try:
        read(raw, model)
        fits = True
    except RpcError as error:
        fits = False
        told = valid("ErrorObject", {"code": error.error.code, "message": str(error), "data": error.error.data})
        assert told["code"] == -32001
        assert told["data"]["details"]["expected"] and told["data"]["details"]["received"]
    assert validator(model).is_valid(json.loads(raw)) is fits


@pytest.mark.parametrize(("model", "params"), GOOD)
def test_good_params_are_read_and_allowed(model: str, params: Any) -> None:
    read(delta.encode(params), model)
    valid(model, params)


# --- the protocol's own examples, as the golden cases have them -------------------------------------------------------

CASES = {path.stem: golden.load(path) for path in golden.FILES if path.parts[-3] == "agent_context"}
DEFINITIONS = {
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
    valid(DEFINITIONS[kind], message)
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
