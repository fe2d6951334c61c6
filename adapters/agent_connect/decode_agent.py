"""Agent Connect descriptors to core, pure: openapi 0.2.3 schemas `Agent` and `AgentACPDescriptor`.

Read with patience: servers leave fields out, send null for them, and spell `streaming` as a bool or a list.
"""

from __future__ import annotations

from typing import Any

from adapters.agent_connect.wire import PROTOCOL
from gateway.core.errors import AgentBroken
from gateway.core.projection import MESSAGE_SCHEMA
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, Json, JsonObject

MESSAGE_OUTPUT: JsonObject = {"type": "object", "properties": {"message": {"type": "string"}}}


def found(listing: Json, where: str) -> list[tuple[str, str, str]]:
    """(agent id, name, version) of each `Agent` of a search. Raises AgentBroken."""
    if not isinstance(listing, list):
        raise AgentBroken(f"{where} did not answer with a list of agents")
    agents = []
    for entry in listing:
        agent_id = entry.get("agent_id") if isinstance(entry, dict) else None
        if not isinstance(agent_id, str):
            raise AgentBroken(f"{where} listed an agent without an agent_id")
        ref = _object(_object(entry.get("metadata")).get("ref"))
        agents.append((agent_id, str(ref.get("name", "")), str(ref.get("version", ""))))
    return agents


def newest(agents: list[tuple[str, str, str]]) -> tuple[str, str, str]:
    """The one with the highest version; numbers in a version count as numbers."""

    def rank(version: str) -> list[tuple[int, int, str]]:
        pieces = version.replace("-", ".").replace("+", ".").split(".")
        return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in pieces]

    return max(agents, key=lambda agent: rank(agent[2]))


def agent(descriptor: Json, where: str) -> Agent:
    """The agent that a descriptor describes, kept whole in `extra`. Raises AgentBroken if it is no object.

    One without `specs` (some servers answer with the metadata alone) has the schemas of an agent that publishes
    none.
    """
    if not isinstance(descriptor, dict):
        raise AgentBroken(f"{where} did not answer with a descriptor")
    metadata = _object(descriptor.get("metadata"))
    ref = _object(metadata.get("ref"))
    specs = _object(descriptor.get("specs"))
    can = _object(specs.get("capabilities"))
    streaming = _streaming(can.get("streaming"))
    interrupts = _interrupts(specs.get("interrupts"))
    threads = can.get("threads") is True
    return Agent(
        name=str(ref.get("name") or "agent"),
        version=str(ref.get("version") or "0.0.0"),
        description=str(metadata.get("description") or ""),
        input_schema=_schema(specs, "input", MESSAGE_SCHEMA),
        output_schema=_schema(specs, "output", MESSAGE_OUTPUT),
        input_assumed=specs.get("input") is None,
        output_assumed=specs.get("output") is None,
        config_schema=_object(specs.get("config")),
        thread_schema=_object(specs.get("thread_state")),
        update_schema=_object(specs.get("custom_streaming_update")) or None,
        interrupts=interrupts,
        capabilities=AgentCapabilities(
            threads=threads,
            interrupts=can.get("interrupts") is True or bool(interrupts),
            streaming="values" in streaming,
            custom_streaming="custom" in streaming,
            cancel=True,
        ),
        url=ref.get("url") if isinstance(ref.get("url"), str) else None,
        extra={PROTOCOL: descriptor},
    )


def _streaming(value: Json) -> set[str]:
    if value is True:
        return {"values"}
    if isinstance(value, dict):
        return {name for name, offered in value.items() if offered is True}
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _interrupts(value: Json) -> tuple[InterruptSpec, ...]:
    specs = []
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("interrupt_type"), str):
            specs.append(
                InterruptSpec(
                    kind=entry["interrupt_type"],
                    payload_schema=_object(entry.get("interrupt_payload")),
                    answer_schema=_object(entry.get("resume_payload")),
                )
            )
    return tuple(specs)


def _schema(specs: JsonObject, name: str, default: JsonObject) -> JsonObject:
    schema = specs.get(name)
    return schema if isinstance(schema, dict) else default if schema is None else {}


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
