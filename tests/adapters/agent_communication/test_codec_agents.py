"""Agents as they are published, as agents, templates and tools; their input and output documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from adapters.agent_communication.codec.agents import (
    agent_of,
    entry_of,
    input_of,
    output_of,
    template_of,
    tool_of,
)
from gateway.core.errors import AgentBroken, Invalid
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, InterruptSpec, JsonObject
from tests.support.mcp_schemas import VERSIONS, valid

ENTRY: JsonObject = {
    "name": "stream",
    "description": "Streams deltas",
    "inputSchema": {
        "type": "object",
        "title": "In",
        "properties": {"prompt": {"type": "string"}},
        "required": ["prompt"],
    },
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string", "default": ""}, "logs": {}}},
    "provider": "http://x/p",
    "ui": {"type": "hands-off"},
    "tags": ["x"],
    "framework": None,
}
WRITER = Agent(
    name="writer",
    version="v1",
    description="Writes",
    input_schema=MESSAGE_SCHEMA,
    output_schema=MESSAGE_OUTPUT_SCHEMA,
    text_output="/message",
    labels={"tools": ["pen"]},
    interrupts=(InterruptSpec(kind="ask", payload_schema={}, answer_schema={"type": "string"}),),
)


def schemas(input_schema: Any, output_schema: Any = MESSAGE_OUTPUT_SCHEMA) -> Agent:
    return Agent(name="a", input_schema=input_schema, output_schema=output_schema)


# --- from the wire -----------------------------------------------------------------------------------------------


def test_an_entry_becomes_an_agent_that_keeps_it_whole() -> None:
    agent = agent_of(ENTRY)
    assert (agent.name, agent.description) == ("stream", "Streams deltas")
    assert (agent.text_input, agent.text_output) == ("/prompt", "/text")
    assert agent.input_schema == ENTRY["inputSchema"]
    assert agent.config_schema == {}
    assert agent.extra == {"agent_communication": ENTRY}
    assert agent.capabilities.streaming and agent.capabilities.cancel and not agent.capabilities.threads


def test_a_template_is_an_agent_with_a_configuration() -> None:
    config = {"type": "object", "properties": {"model": {"type": "string"}}}
    agent = agent_of({**ENTRY, "configSchema": config})
    assert agent.config_schema == config
    assert "configSchema" not in entry_of(agent)
    assert template_of(agent) == {**ENTRY, "configSchema": config}


def test_what_an_entry_leaves_out_is_anything() -> None:
    agent = agent_of({"name": "bare"})
    assert agent.input_schema == agent.output_schema == {"type": "object"}
    assert agent.description == ""


@pytest.mark.parametrize("entry", [{}, {"name": ""}, {"name": 5}, {**ENTRY, "inputSchema": []}, "text", None])
def test_what_is_no_agent_is_the_servers_mistake(entry: Any) -> None:
    with pytest.raises(AgentBroken):
        agent_of(entry)


# --- to the wire -------------------------------------------------------------------------------------------------


def test_an_agent_of_this_protocol_is_published_as_it_was_but_for_its_name() -> None:
    assert entry_of(replace(agent_of(ENTRY), name="route")) == {**ENTRY, "name": "route"}


def test_what_another_protocol_says_of_an_agent_is_told_where_there_is_a_place() -> None:
    assert entry_of(WRITER) == {
        "name": "writer",
        "description": "Writes",
        "inputSchema": MESSAGE_SCHEMA,
        "outputSchema": MESSAGE_OUTPUT_SCHEMA,
        "_meta": {
            "interlingua/agent": {
                "version": "v1",
                "labels": {"tools": ["pen"]},
                "interrupts": [{"kind": "ask", "payloadSchema": {}, "answerSchema": {"type": "string"}}],
            }
        },
    }
    assert template_of(WRITER) is None


NO_OBJECTS: list[JsonObject] = [
    {"type": "string"},
    {"type": ["object", "null"]},
    {"anyOf": [{"type": "object"}, {"type": "string"}]},
    {"$ref": "#/$defs/S", "$defs": {"S": {"type": "array"}}},
    {"$ref": "#/nowhere"},
    {"$ref": "#"},
    {"enum": [{}]},
]
OBJECTS: list[JsonObject] = [
    {"type": "object"},
    {"properties": {"a": {}}},
    {"required": ["a"]},
    {"type": ["object"]},
    {"$ref": "#/$defs/S", "$defs": {"S": {"type": "object"}}},
    {"anyOf": [{"type": "object"}, {"properties": {}}]},
    {"allOf": [{"description": "x"}, {"type": "object"}]},
]


@pytest.mark.parametrize("schema", OBJECTS, ids=repr)
def test_a_schema_of_objects_says_so_and_is_else_as_it_was(schema: JsonObject) -> None:
    entry = entry_of(schemas(schema, schema))
    assert entry["inputSchema"] == entry["outputSchema"] == {**schema, "type": "object"}
    assert input_of(schemas(schema), {"input": 1}) == {"input": 1}
    assert output_of(schemas({}, schema), b'{"output":1}') == b'{"output":1}'


@pytest.mark.parametrize("schema", [{}, {"title": "In", "$defs": {"S": {"type": "string"}}}], ids=repr)
def test_a_schema_that_says_nothing_is_taken_to_mean_objects(schema: JsonObject) -> None:
    agent = schemas(schema, schema)
    entry = entry_of(agent)
    assert entry["inputSchema"] == entry["outputSchema"] == {"type": "object", **schema}
    assert tool_of(agent, "2025-11-25")["outputSchema"] == {"type": "object", **schema}
    assert input_of(agent, {"input": 1}) == {"input": 1}
    assert output_of(agent, b'{"output":1}') == b'{"output":1}'
    assert output_of(agent, b"[1]") == b'{"output":[1]}'


@pytest.mark.parametrize("schema", NO_OBJECTS, ids=repr)
def test_a_schema_of_anything_else_gets_an_object_around_it(schema: JsonObject) -> None:
    agent = schemas(schema, schema)
    entry = entry_of(agent)
    assert entry["inputSchema"]["type"] == "object" and entry["inputSchema"]["required"] == ["input"]
    assert entry["outputSchema"]["required"] == ["output"]
    assert input_of(agent, {"input": "x"}) == "x"
    assert json.loads(output_of(agent, b'{"a":1}')) == {"output": {"a": 1}}
    with pytest.raises(Invalid) as refused:
        input_of(agent, {"prompt": "x"})
    assert refused.value.path == "/input/input"


def test_references_lead_where_they_did() -> None:
    node = {
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}, {"$ref": "#/$defs/Leaf"}],
        "$defs": {"Leaf": {"type": "object", "properties": {"$ref": {"const": {"$ref": "#"}}}}},
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    published = entry_of(schemas(node))["inputSchema"]
    assert published["$schema"] == node["$schema"]
    check = Draft202012Validator(published).is_valid
    assert check({"input": [[None], {"$ref": {"$ref": "#"}}]})
    assert not check({"input": [[1]]})
    assert not check({"input": [{"$ref": "#"}]})
    named = {"$id": "http://x/s", "type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "number"}}}
    check = Draft202012Validator(entry_of(schemas(named))["inputSchema"]).is_valid
    assert check({"input": [1]}) and not check({"input": ["x"]})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "schema", [*OBJECTS, *NO_OBJECTS, {"type": "object", "properties": {"a": True, "b": False}}], ids=repr
)
def test_every_agent_is_a_tool_of_every_revision(version: str, schema: JsonObject) -> None:
    tool = valid(version, "Tool", tool_of(schemas(schema, schema), version))
    assert ("outputSchema" in tool) is (version >= "2025-06-18")
    Draft202012Validator.check_schema(tool["inputSchema"])


def test_a_tool_says_no_more_than_its_revision_knows() -> None:
    assert tool_of(WRITER, "2024-11-05").keys() == {"name", "description", "inputSchema"}
    assert tool_of(WRITER, "2025-11-25")["_meta"] == entry_of(WRITER)["_meta"]
    assert tool_of(agent_of(ENTRY), "2025-11-25")["outputSchema"] == ENTRY["outputSchema"] | {
        "properties": {"text": {"type": "string", "default": ""}, "logs": {}}
    }


# --- documents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["text", None, [1], 5])
def test_an_input_is_an_object(given: Any) -> None:
    with pytest.raises(Invalid) as refused:
        input_of(WRITER, given)
    assert refused.value.path == "/input"


def test_an_output_is_an_object_even_of_an_agent_that_breaks_its_schema() -> None:
    assert output_of(WRITER, b' {"message":"x"}') == b' {"message":"x"}'
    assert output_of(WRITER, b'"x"') == b'{"output":"x"}'
    assert output_of(WRITER, b"null") == b"{}"
    assert output_of(schemas({}, {"type": ["object", "null"]}), b"null") == b'{"output":null}'
    assert output_of(agent_of({"name": "bare", "outputSchema": {}}), b'{"a":1}') == b'{"a":1}'
