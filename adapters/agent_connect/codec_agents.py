"""Agents, pure: `Agent` and `AgentACPDescriptor` (openapi 0.2.3), as clients are told and as servers describe theirs.

Servers' descriptors are read with patience: they leave fields out, send null for them, and spell `streaming` as a bool
or a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.agent_connect import wire
from gateway.core import thread_state
from gateway.core.errors import AgentBroken
from gateway.core.projection import MESSAGE_SCHEMA
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, Json, JsonObject

_dump = msgspec.json.Encoder().encode

UPDATE_SCHEMA: JsonObject = {
    "type": "object",
    "description": "What happens in a run beside its output: `type` names the event, the rest is the event's own.",
    "properties": {"type": {"type": "string"}},
    "required": ["type"],
}
"""`custom_streaming_update` of agents that publish none: the events this gateway translates."""

SYNTHETIC: tuple[InterruptSpec, ...] = (
    InterruptSpec(
        kind="permission",
        payload_schema={"type": "object", "description": "What the agent wants to be allowed, and the choices."},
        answer_schema={"type": "object", "description": "The choice that was made."},
    ),
    InterruptSpec(
        kind="elicitation",
        payload_schema={"type": "object", "description": "What the agent wants to know, and the form to fill in."},
        answer_schema={"type": "object", "description": "The form, filled in."},
    ),
    InterruptSpec(
        kind="input",
        payload_schema={"type": "object", "description": "What the agent asks for before it goes on."},
        answer_schema={"description": "The next input of the agent."},
    ),
)
"""Interrupts of agents that may ask but do not publish what: every agent with the capability lists at least one."""


def streams(agent: Agent) -> tuple[bool, bool]:
    """Whether its runs can be streamed as (`values`, `custom`).

    Every agent's output has values, if only at its end. An agent of this protocol says itself whether it has custom
    updates; of any other, the events that are no output are sent as updates.
    """
    return True, agent.capabilities.custom_streaming or wire.PROTOCOL not in agent.extra


def default_mode(agent: Agent) -> tuple[str, ...]:
    """The modes of a request without `stream_mode`."""
    can = agent.capabilities
    return ("values",) if can.streaming or not can.custom_streaming else ("custom",)


def names(agent: Agent) -> set[str]:
    """The agent's names: here, and at its target."""
    own = {agent.name}
    for published in agent.extra.values():
        for name in (published.get("name"), _ref(published).get("name")):
            if isinstance(name, str):
                own.add(name)
    return own


def own_errors(agent: Agent) -> Json:
    """The errors that an agent of this protocol defines in its descriptor (`specs.errors`)."""
    return _shown(agent.extra.get(wire.PROTOCOL, {}).get("specs")).get("errors")


def encode_agent(agent: Agent) -> bytes:
    """`Agent` as JSON."""
    return _dump(_entry(agent))


def encode_agents(agents: Sequence[Agent]) -> bytes:
    """A list of `Agent`s as JSON."""
    return _dump([_entry(agent) for agent in agents])


def encode_descriptor(agent: Agent) -> bytes:
    """`AgentACPDescriptor` as JSON. What the agent published beyond ours is kept."""
    kept = agent.extra.get(wire.PROTOCOL, {})
    ours = msgspec.to_builtins(wire.AgentACPDescriptor(metadata=_metadata(agent), specs=_specs(agent)))
    told = {**kept, **ours}
    for name in ("metadata", "specs"):
        told[name] = {**_shown(kept.get(name)), **ours[name]}
    return _dump(told)


def _entry(agent: Agent) -> wire.ConnectAgent:
    return wire.ConnectAgent(agent_id=agent.id, metadata=_metadata(agent))


def _metadata(agent: Agent) -> wire.AgentMetadata:
    ref = wire.AgentRef(name=agent.name, version=agent.version, url=agent.url)
    return wire.AgentMetadata(ref=ref, description=agent.description)


def _specs(agent: Agent) -> wire.AgentACPSpec:
    can = agent.capabilities
    values, custom = streams(agent)
    return wire.AgentACPSpec(
        capabilities=wire.ConnectCapabilities(
            threads=_threads(agent),
            interrupts=can.interrupts,
            callbacks=True,
            streaming=wire.StreamingModes(values=values, custom=custom),
        ),
        input=agent.input_schema,
        output=agent.output_schema,
        config=agent.config_schema,
        custom_streaming_update=(agent.update_schema or UPDATE_SCHEMA) if custom else None,
        thread_state=thread_state.schema_of(agent) if _threads(agent) else None,
        interrupts=[_interrupt(spec) for spec in agent.interrupts or SYNTHETIC] if can.interrupts else None,
    )


def _threads(agent: Agent) -> bool:
    """Whether it supports threads: an agent of this protocol says so itself, for every other the gateway remembers."""
    return agent.capabilities.threads or (agent.converses and wire.PROTOCOL not in agent.extra)


def _interrupt(spec: InterruptSpec) -> wire.ConnectInterruptSpec:
    return wire.ConnectInterruptSpec(
        interrupt_type=spec.kind, interrupt_payload=spec.payload_schema, resume_payload=spec.answer_schema
    )


def _ref(published: JsonObject) -> JsonObject:
    metadata = published.get("metadata")
    ref = metadata.get("ref") if isinstance(metadata, dict) else None
    return ref if isinstance(ref, dict) else {}


def _shown(value: Json) -> JsonObject:
    """The members that are not null: servers in use write null for what is absent, and the specification has none."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}


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
        extra={wire.PROTOCOL: descriptor},
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
