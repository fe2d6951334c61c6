"""Agents of any protocol as the directory has them, and what registers as an agent of the core."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from adapters.agent_context.codec.agents import agent_of, record_of
from adapters.agent_context.wire.messages import agent_record
from gateway.core import delta
from gateway.core.errors import AgentBroken
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, JsonObject, Standing
from tests.adapters.agent_context.codec_records import RECORDS, example, unhurried

WRITER = Agent(
    name="writer",
    version="1.2.0",
    description="Writes",
    input_schema=MESSAGE_SCHEMA,
    output_schema=MESSAGE_OUTPUT_SCHEMA,
    text_input="/message",
    text_output="/message",
    labels={"tools": ["pen"], "languages": ["fr"]},
    extra={"agent_connect": {"metadata": {"ref": {}}}},
    standing=Standing(quality=7.5, cost=0.001, speed=90.0, security=6.0),
)


@given(RECORDS)
@unhurried
def test_a_record_says_after_the_core_what_it_said_before_less_what_proves_who_it_is(record: JsonObject) -> None:
    agent_record(record)
    kept = record_of(agent_of(record))
    assert delta.same(kept, {key: value for key, value in record.items() if key != "auth"})


def test_the_example_becomes_an_agent() -> None:
    agent = agent_of(example())
    assert (agent.name, agent.version, agent.description) == ("unique-agent-id", "1.1.0", "Agent Name")
    assert agent.labels["specializations"] == ["nlp", "data-analysis"]
    assert agent.standing == Standing(quality=8.5, cost=0.0005, speed=150.0, security=8.0)
    assert (agent.text_input, agent.text_output) == ("/message", "/message")
    assert agent.capabilities.threads and agent.capabilities.interrupts and agent.capabilities.cancel


def test_credentials_are_nowhere_in_the_agent() -> None:
    agent = agent_of(example())
    assert b"secure-auth-token" not in msgspec.json.encode(agent)
    assert b"digital-signature-string" not in msgspec.json.encode(agent)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"id": "a b"}, "/id"),
        ({"id": "a\n"}, "/id"),
        ({"capabilities": {"tools": []}}, "/capabilities/models"),
        ({"name": ""}, "/name"),
        ({"inputSchema": {"type": "objekt"}}, "/inputSchema"),
        ({"endpoint": {"url": "file:///etc/passwd"}}, "/endpoint/url"),
    ],
)
def test_an_entry_of_anothers_directory_that_is_none_is_refused_with_the_place(wrong: Any, told: str) -> None:
    with pytest.raises(AgentBroken, match=told):
        agent_of({**example(), **wrong})


def test_half_a_surrogate_pair_becomes_sound_text() -> None:
    agent = agent_of(example(name="half \ud83d"))
    msgspec.json.encode(agent)


# --- other protocols' agents -----------------------------------------------------------------------------------------


def test_an_agent_of_another_protocol_is_a_record_with_its_labels_as_capabilities() -> None:
    record = record_of(WRITER)
    agent_record(record)
    assert record["id"] == record["name"] == "writer"
    assert record["meta"] == {"version": "1.2.0", "description": "Writes"}
    assert record["capabilities"] == {
        "tools": ["pen"],
        "models": [],
        "specializations": [],
        "languages": ["fr"],
        "protocols": ["ACP-0.1", "agent_connect"],
    }
    assert record["inputSchema"] == MESSAGE_SCHEMA


def test_what_a_route_says_of_an_agent_of_this_protocol_is_put_over_its_own_words() -> None:
    agent = agent_of(example())
    agent = replace(
        agent,
        name="route",
        version="9.0.0",
        description="As the route says",
        labels={**agent.labels, "tools": ["saw"]},
        standing=replace(agent.standing, quality=2.0, security=1.0),
    )
    record = record_of(agent)
    agent_record(record)
    assert record["id"] == "route"
    assert record["capabilities"]["tools"] == ["saw"] and record["capabilities"]["protocols"] == ["ACP-1.2"]
    assert record["meta"]["version"] == "9.0.0" and record["meta"]["provider"] == "organization-id"
    assert record["evaluation"]["qualityScore"] == 2.0 and record["evaluation"]["evaluationCount"] == 120
    assert agent_of(record).standing == agent.standing
