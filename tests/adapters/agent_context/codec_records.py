"""Records of agents for the codec's and the wire's tests: the protocol's own example, and any that may register."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gateway.core.types import JsonObject
from tests.core.json_values import json_values

unhurried = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])

EXAMPLE: JsonObject = {
    "id": "unique-agent-id",
    "name": "Agent Name",
    "capabilities": {
        "tools": ["tool1", "tool2"],
        "models": ["modelA", "modelB"],
        "specializations": ["nlp", "data-analysis"],
        "protocols": ["ACP-1.2"],
    },
    "meta": {"version": "1.1.0", "provider": "organization-id", "created": "2025-02-21T12:00:00Z"},
    "auth": {"token": "secure-auth-token", "signature": "digital-signature-string"},
    "evaluation": {"qualityScore": 8.5, "evaluationCount": 120, "reviews": ["Consistent and accurate"]},
    "costMetrics": {"costPerToken": 0.0005, "averageSpeed": 150, "averageExecutionTime": 2.5},
    "dependencies": [
        {"name": "Dependency A", "type": "service", "impact": 0.7, "securityRating": 9},
        {"name": "Tool B", "type": "tool", "securityRating": 8},
    ],
}


def example(**changes: Any) -> JsonObject:
    """The example with other members; None takes one away."""
    record = {**copy.deepcopy(EXAMPLE), **changes}
    return {key: value for key, value in record.items() if value is not None}


NAMES = st.text("abcXYZ019-_", min_size=1, max_size=12)
WORDS = st.text("ab é😀\u2028/\\\"'", min_size=1, max_size=6)
LISTS = st.lists(WORDS, max_size=3)
SCORES = st.integers(0, 10) | st.floats(0, 10)
UNKNOWN = st.dictionaries(st.sampled_from(["x", "y-z", "xMore"]), json_values(), max_size=2)


def fields(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    """An object with unknown members as well."""
    known = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(UNKNOWN, known).map(lambda parts: {**parts[0], **parts[1]})


SCHEMAS = st.sampled_from(
    [
        {},
        {"type": "object"},
        {"type": "string"},
        {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}},
        {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
        {"type": "object", "properties": {"text": {"type": "string"}, "count": {}}, "required": ["text", "count"]},
        {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        {"type": "object", "properties": {"output": {"type": "string"}}, "additionalProperties": False},
        {
            "type": "object",
            "properties": {
                "messages": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"role": {"enum": ["user"]}, "content": {"$ref": "#/$defs/t"}},
                    },
                }
            },
            "required": ["messages"],
            "$defs": {"t": {"type": "string"}},
        },
        {"type": "array", "items": {"type": "number"}},
    ]
)

RECORDS = fields(
    {
        "id": NAMES,
        "name": WORDS,
        "capabilities": fields({"tools": LISTS, "models": LISTS, "specializations": LISTS, "protocols": LISTS}, {}),
    },
    {
        "meta": fields({}, {"version": WORDS, "description": WORDS, "provider": WORDS, "lastActive": WORDS}),
        "auth": fields({}, {"token": WORDS, "signature": WORDS}),
        "evaluation": fields({}, {"qualityScore": SCORES, "evaluationCount": st.integers(0, 9), "reviews": LISTS}),
        "costMetrics": fields({}, {"costPerToken": SCORES, "averageSpeed": st.integers(0, 999)}),
        "dependencies": st.lists(fields({"name": WORDS, "type": WORDS}, {"securityRating": SCORES}), max_size=3),
        "endpoint": fields({"url": st.sampled_from(["http://x/y", "wss://h:1/p?q"])}, {"transport": st.just("auto")}),
        "inputSchema": SCHEMAS,
        "outputSchema": SCHEMAS,
    },
)
