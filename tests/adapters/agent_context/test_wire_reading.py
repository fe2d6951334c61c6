"""Params as they are read: what does not fit is refused with the place, what was expected, and what came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.agent_context.wire.messages import MessageNeeds, agent_record, correlation_in, read, task_in, told_in
from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_context.codec_records import example


def whole(raw: bytes, name: str) -> JsonObject:
    """Params, and what is read of them besides."""
    found = read(raw, name)
    if name == "Register":
        agent_record(found["agent"], "/agent")
    elif name == "Delegate":
        task_in(found["task"])
    return found


def refused(name: str, params: Any) -> dict[str, Any]:
    raw = params if isinstance(params, bytes) else json.dumps(params).encode()
    with pytest.raises(RpcError) as caught:
        whole(raw, name)
    assert caught.value.error.code == -32001
    data: dict[str, Any] = caught.value.error.data
    return {"message": str(caught.value), "path": data["path"], **data["details"]}


def task(**constraints: Any) -> dict[str, Any]:
    return {"task": {"id": "t", "type": "x", "payload": {}, "requirements": {"constraints": constraints}}}


LIMITS = "/task/requirements/constraints"
CASES: list[tuple[str, Any, str, str, str]] = [
    ("Delegate", {"task": None}, "/task", "Task object with required fields; object with id, type, payload", "null"),
    ("Delegate", {}, "/task", "Task object with required fields; object with id, type, payload", "nothing"),
    ("Delegate", task(deadline="tomorrow"), LIMITS + "/deadline", "A date-time", '"tomorrow"'),
    ("Delegate", task(deadline="2025-02-22T12:00:00"), LIMITS + "/deadline", "A date-time", '"2025'),
    ("Delegate", task(deadline="2025-02-30T12:00:00Z"), LIMITS + "/deadline", "A date-time", '"2025'),
    ("Delegate", task(maxTokens=0), LIMITS + "/maxTokens", "at least 1", "0"),
    ("Delegate", task(maxTokens=True), LIMITS + "/maxTokens", "integer", "true"),
    ("Delegate", task(priority="high"), LIMITS + "/priority", "An integer", '"high"'),
    ("Delegate", task(minScore=11), LIMITS + "/minScore", "at most 10", "11"),
    ("Message", {"target": "a b", "content": {}}, "/target", "unique identifier", '"a b"'),
    ("Message", {"target": "a", "content": {"type": "request"}}, "/content/payload", "Any JSON value", "nothing"),
    ("Message", {"target": "a", "content": {"type": "x", "payload": 1}}, "/content/type", "one of request", '"x"'),
    ("Message", {"target": "a", "content": []}, "/content", "Content object with required fields", "an array of 0"),
    ("Register", {"agent": example(id="a\n")}, "/agent/id", "unique identifier", '"a\\n"'),
    ("Register", {"agent": example(id="a" * 201)}, "/agent/id", "unique identifier", '"aaa'),
    ("Register", {"agent": example(capabilities=None)}, "/agent/capabilities", "tools, models, special", "nothing"),
    (
        "Register",
        {"agent": {**example(), "capabilities": {"tools": []}}},
        "/agent/capabilities/models",
        "Language",
        "nothing",
    ),
    ("Register", {"agent": example(name=5)}, "/agent/name", "string of at least 1", "5"),
    (
        "Register",
        {"agent": example(evaluation={"qualityScore": 11})},
        "/agent/evaluation/qualityScore",
        "at most 10",
        "11",
    ),
    ("Register", {"agent": example(auth={"token": ["s3cret"]})}, "/agent/auth/token", "A token", "an array of 1"),
    (
        "Register",
        {"agent": example(auth={"s3cret": 1, "token": {"s3cret": 2}})},
        "/agent/auth/token",
        "token",
        "an object",
    ),
    (
        "Register",
        {"agent": example(endpoint={"url": "javascript:x"})},
        "/agent/endpoint/url",
        "http, https",
        '"javascript:x"',
    ),
    (
        "Register",
        {"agent": example(inputSchema={"type": "objekt"})},
        "/agent/inputSchema",
        "JSON Schema",
        "object with type",
    ),
    ("Heartbeat", {"agentId": "a", "_meta": {"progressToken": {}}}, "/_meta/progressToken", "", "an object"),
    ("Heartbeat", b"", "/agentId", "unique identifier", "nothing"),
    ("Heartbeat", [], "", "object with agentId", "an array of 0"),
    ("Heartbeat", b"null", "", "object with agentId", "null"),
    ("Heartbeat", {"agentId": "a", "status": ""}, "/status", "active", '""'),
    ("Heartbeat", b'{"agentId": "\\ud83d"}', "/agentId", "unique identifier", '"'),
    ("Heartbeat", b"[" * 200_000 + b"]" * 200_000, "", "JSON", "other"),
    ("TaskAssign", {"type": "x"}, "", "payload", "an object with type"),
    ("TaskAssign", {"message": "a", "payload": {}}, "", "payload", "an object with message, payload"),
]


@pytest.mark.parametrize(("model", "params", "path", "expected", "received"), CASES)
def test_what_does_not_fit_is_refused_in_words(
    model: str, params: Any, path: str, expected: str, received: str
) -> None:
    told = refused(model, params)
    assert told["path"] == path
    assert expected in told["expected"]
    assert received in told["received"]
    assert told["message"].startswith(f"Invalid payload structure: {path or 'params'}: ")
    assert "s3cret" not in json.dumps(told)


BAD_SCHEMAS = {
    "a reference to elsewhere": {"$ref": "http://169.254.169.254/schema.json"},
    "a file": {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "a reference to nothing": {"properties": {"a": {"$ref": "#/$defs/b"}}},
    "itself": {"$ref": "#"},
    "no expression": {"properties": {"a": {"type": "string", "pattern": "("}}},
    "no expression for a name": {"patternProperties": {"(": {}}},
    "no type": {"type": 5},
}


@pytest.mark.parametrize("schema", [pytest.param(each, id=name) for name, each in BAD_SCHEMAS.items()])
def test_a_schema_that_cannot_be_used_as_it_is_is_refused(schema: Any) -> None:
    assert refused("Register", {"agent": example(inputSchema=schema)})["path"] == "/agent/inputSchema"


def test_a_schema_may_name_its_properties_like_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}, "default": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "string", "pattern": "^a", "examples": [{"$ref": "http://x"}]}},
    }
    assert (
        whole(json.dumps({"agent": example(inputSchema=schema)}).encode(), "Register")["agent"]["inputSchema"] == schema
    )


def test_what_comes_along_is_kept() -> None:
    params = {"agent": example(more={"a": 1}), "x": [1], "_meta": {"correlationId": "c", "y": {}}}
    found = read(json.dumps(params).encode(), "Register")
    assert found == params and correlation_in(found) == "c"
    assert correlation_in(read(b'{"agentId": "a"}', "Heartbeat")) is None


# --- payloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        None,
        5,
        "text",
        [],
        {"context": "about a dog"},
        {"context": {"sessionId": 5}},
        {"requirements": ["a"]},
        {"requirements": {"constraints": "none"}},
        {"messages": "hi"},
        {"messages": [{"text": 5}]},
    ],
)
def test_a_payload_with_other_meanings_is_not_read(payload: Any) -> None:
    assert told_in(payload) == MessageNeeds()
