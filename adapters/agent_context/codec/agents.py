"""Agents as the directory has them, and the core's.

An agent of this protocol stays what it said, under every key; its id is the route's name, and what the route says of
it is put over it. An agent of any other protocol has the same form: its labels are its capabilities, its standing its
evaluation and its cost.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_context.wire import PROTOCOL, VERSION
from adapters.agent_context.wire.messages import agent_record
from gateway.core import delta, files, projection
from gateway.core.errors import AgentBroken
from gateway.core.media import ANY
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, JsonObject, Standing
from gateway.wire.jsonrpc import RpcError

KINDS: Final = ("tools", "models", "specializations")
"""Kinds of labels; all three are capabilities that a task may require."""
PROTOCOLS: Final = "protocols"
_RATED: Final = "gateway"
"""`type` of the dependency that tells the security rating of an agent that named none itself."""

INPUT: Final = InterruptSpec(
    kind="input",
    payload_schema={"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    answer_schema={"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
"""The question that every agent may ask: an `agent/message` of type request."""


def native(agent: Agent) -> JsonObject | None:
    """The record of an agent of this protocol without its credentials; None for any other agent."""
    return agent.extra.get(PROTOCOL)


# --- from the wire ---------------------------------------------------------------------------------------------------


def agent_of(record: JsonObject) -> Agent:
    """The agent that a record describes: one that registers, or an entry of another's directory.

    It is kept in `extra["agent_context"]` less `auth`. Raises AgentBroken for what is no record.
    """
    try:
        record = agent_record(delta.sound(record))
    except RpcError as error:
        raise AgentBroken(f"no agent: {error}") from None
    said = {key: value for key, value in record.items() if key != "auth"}
    taken, given = said.get("inputSchema"), said.get("outputSchema")
    input_schema = projection.MESSAGE_SCHEMA if taken is None else taken
    output_schema = projection.MESSAGE_OUTPUT_SCHEMA if given is None else given
    agent = Agent(
        name=said["id"],
        version=_version(said),
        description=_description(said),
        input_schema=input_schema,
        output_schema=output_schema,
        input_assumed=taken is None,
        output_assumed=given is None,
        interrupts=(INPUT,),
        capabilities=AgentCapabilities(threads=True, interrupts=True, streaming=True, cancel=True),
        labels=_capabilities(said),
        text_input=projection.text_pointer(input_schema),
        text_output=projection.text_pointer(output_schema),
        standing=standing_of(said),
        extra={PROTOCOL: said},
    )
    if files.slots(agent):  # its own input has places for them
        return agent
    return replace(agent, capabilities=replace(agent.capabilities, files=(ANY,)))


def standing_of(record: JsonObject) -> Standing:
    """Quality, cost, speed and security (the lowest rating of its dependencies) as the record claims them."""
    cost = _object(record.get("costMetrics"))
    ratings = [each.get("securityRating") for each in record.get("dependencies") or ()]
    return Standing(
        quality=_number(_object(record.get("evaluation")).get("qualityScore")),
        cost=_number(cost.get("costPerToken")),
        speed=_number(cost.get("averageSpeed")),
        security=_number(min((rating for rating in ratings if rating is not None), default=None)),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _version(record: JsonObject) -> str:
    return str(_object(record.get("meta")).get("version") or "0.0.0")


def _description(record: JsonObject) -> str:
    return str(_object(record.get("meta")).get("description") or record["name"])


def _capabilities(record: JsonObject) -> dict[str, list[str]]:
    return {kind: list(record["capabilities"][kind]) for kind in KINDS}


# --- to the wire -----------------------------------------------------------------------------------------------------


def record_of(agent: Agent) -> JsonObject:
    """Its entry in the directory, less what the directory itself knows (status, evaluations, metrics)."""
    said = native(agent)
    if said is None:
        return _foreign(agent)
    record: JsonObject = {**said, "id": agent.name}
    labels = _labels(agent)
    if labels != _capabilities(said):
        record["capabilities"] = {**said["capabilities"], **labels}
    meta: JsonObject = {}
    if agent.version != _version(said):
        meta["version"] = agent.version
    if agent.description != _description(said):
        meta["description"] = agent.description
    if meta:
        record["meta"] = {**_object(said.get("meta")), **meta}
    return {**record, **_rated(agent.standing, standing_of(said), said, agent.name)}


def _foreign(agent: Agent) -> JsonObject:
    capabilities = {**{kind: [] for kind in KINDS}, **_labels(agent)}
    spoken = [*agent.labels.get(PROTOCOLS, ()), VERSION, *sorted(agent.extra)]
    capabilities[PROTOCOLS] = list(dict.fromkeys(spoken))
    record: JsonObject = {
        "id": agent.name,
        "name": agent.name,
        "capabilities": capabilities,
        "meta": {"version": agent.version},
        "inputSchema": agent.input_schema,
        "outputSchema": agent.output_schema,
    }
    if agent.description:
        record["meta"]["description"] = agent.description
    return {**record, **_rated(agent.standing, Standing(), {}, agent.name)}


def _labels(agent: Agent) -> JsonObject:
    return {kind: list(labels) for kind, labels in agent.labels.items() if kind != PROTOCOLS}


def _rated(now: Standing, was: Standing, said: JsonObject, name: str) -> JsonObject:
    found: JsonObject = {}
    if now.quality is not None and now.quality != was.quality:
        found["evaluation"] = {**_object(said.get("evaluation")), "qualityScore": now.quality}
    cost: JsonObject = {}
    if now.cost is not None and now.cost != was.cost:
        cost["costPerToken"] = now.cost
    if now.speed is not None and now.speed != was.speed:
        cost["averageSpeed"] = now.speed
    if cost:
        found["costMetrics"] = {**_object(said.get("costMetrics")), **cost}
    if now.security is not None and now.security != was.security:
        others = [
            {key: value for key, value in each.items() if key != "securityRating"}
            for each in said.get("dependencies") or ()
        ]
        found["dependencies"] = [*others, {"name": name, "type": _RATED, "securityRating": now.security}]
    return found


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
