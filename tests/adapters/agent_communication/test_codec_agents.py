"""Agents as they are published, as agents, templates and tools; their input and output documents."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.agent_communication.codec.agents import agent_of, entry_of, template_of, tool_of
from gateway.core.errors import AgentBroken
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


# Each revision is guarded by its own schema, of which these are what some revision refuses unless it is rewritten: no
# type "object", another type, a property that is true or false. Which schemas mean objects, tests/mcp/runs holds.
HARD: list[JsonObject] = [
    {"type": ["object"]},
    {"type": "string"},
    {"type": "object", "properties": {"a": True, "b": False}},
]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_is_a_tool_of_every_revision(version: str) -> None:
    for schema in HARD:
        tool = valid(version, "Tool", tool_of(schemas(schema, schema), version))
        assert ("outputSchema" in tool) is (version >= "2025-06-18")
