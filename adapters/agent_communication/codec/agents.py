"""Agents as this protocol publishes them, and their documents.

Input and output of `agents/run` are objects. An agent of another protocol whose schema says that it takes or gives
something else is published with an object around it, `{"input": ...}`, `{"output": ...}`; one whose schema says nothing
is taken to mean objects. What an agent of this protocol published stays as it was, under every key; only its name is
the route's.
"""

from __future__ import annotations

from typing import Final

from adapters.agent_communication.codec import schemas
from adapters.agent_communication.wire import PROTOCOL, PUBLISHED
from gateway.core import delta, projection
from gateway.core.delta.values import escape_lines
from gateway.core.errors import AgentBroken, Invalid
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, Json, JsonObject
from gateway.mcp import versions

INPUT: Final = "input"
OUTPUT: Final = "output"
_CONFIG: Final = "configSchema"

ELICITATION: Final = InterruptSpec(
    kind="elicitation",
    payload_schema={
        "type": "object",
        "properties": {
            "mode": {"type": "string"},
            "message": {"type": "string"},
            "requestedSchema": {"type": "object"},
            "url": {"type": "string"},
        },
        "required": ["message"],
    },
    answer_schema={"type": "object"},
)


def native(agent: Agent | None) -> JsonObject | None:
    """What an agent of this protocol published, None for every other."""
    return None if agent is None else agent.extra.get(PROTOCOL)


# --- from the wire -----------------------------------------------------------------------------------------------


def agent_of(entry: JsonObject) -> Agent:
    """The agent that an entry of `agents/list` or `agents/templates/list` describes.

    The entry is kept verbatim in `extra["agent_communication"]`. A template is an agent with a configuration. Raises
    AgentBroken for an entry that is none.
    """
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise AgentBroken("the server lists an agent without a name", detail=repr(entry)[:200])
    entry = delta.sound(entry)
    input_schema, output_schema = (_schema(entry, name, key) for key in ("inputSchema", "outputSchema"))
    description = entry.get("description")
    return Agent(
        name=delta.sound(name),
        description=description if isinstance(description, str) else "",
        input_schema=input_schema,
        output_schema=output_schema,
        config_schema=_schema(entry, name, _CONFIG) if _CONFIG in entry else {},
        interrupts=(ELICITATION,),
        capabilities=AgentCapabilities(interrupts=True, streaming=True, custom_streaming=True, cancel=True),
        text_input=projection.text_pointer(input_schema),
        text_output=projection.text_pointer(output_schema),
        extra={PROTOCOL: entry},
    )


def _schema(entry: JsonObject, name: str, key: str) -> JsonObject:
    """A schema of it; one that is not there allows any object."""
    schema = entry.get(key)
    if schema is None:
        return {"type": "object"}
    if not isinstance(schema, dict):
        raise AgentBroken(f"the server lists {name} with a {key} that is no schema", detail=repr(schema)[:200])
    return schema


# --- to the wire -------------------------------------------------------------------------------------------------


def entry_of(agent: Agent) -> JsonObject:
    """Its entry in `agents/list`."""
    own = native(agent)
    entry: JsonObject = {
        **(own or {}),
        "name": agent.name,
        "description": agent.description,
        "inputSchema": _published(agent, agent.input_schema, INPUT),
        "outputSchema": _published(agent, agent.output_schema, OUTPUT),
    }
    entry.pop(_CONFIG, None)
    return entry if own is not None else _with_meta(entry, agent)


def template_of(agent: Agent) -> JsonObject | None:
    """Its entry in `agents/templates/list`; None if it takes no configuration."""
    if not agent.config_schema:
        return None
    return {**entry_of(agent), _CONFIG: schemas.as_object(agent.config_schema)}


def tool_of(agent: Agent, version: str) -> JsonObject:
    """The tool that it is for clients of any MCP server, in words that the revision knows."""
    tool: JsonObject = {
        "name": agent.name,
        "description": agent.description,
        "inputSchema": _tool_schema(agent, agent.input_schema, INPUT),
    }
    if versions.has_structured_output(version):
        tool["outputSchema"] = _tool_schema(agent, agent.output_schema, OUTPUT)
        tool = _with_meta(tool, agent)
    return tool


def _tool_schema(agent: Agent, schema: JsonObject, name: str) -> JsonObject:
    published = schemas.plain_properties(_published(agent, schema, name))
    required = published.get("required")
    if required is None or (isinstance(required, list) and all(isinstance(each, str) for each in required)):
        return published
    return {key: value for key, value in published.items() if key != "required"}


def _with_meta(entry: JsonObject, agent: Agent) -> JsonObject:
    """With what there is no key for."""
    beyond: JsonObject = {"version": agent.version}
    if agent.labels:
        beyond["labels"] = agent.labels
    if agent.interrupts:
        beyond["interrupts"] = [
            {"kind": each.kind, "payloadSchema": each.payload_schema, "answerSchema": each.answer_schema}
            for each in agent.interrupts
        ]
    meta = entry.get("_meta")
    return {**entry, "_meta": {**(meta if isinstance(meta, dict) else {}), PUBLISHED: beyond}}


def _published(agent: Agent, schema: JsonObject, name: str) -> JsonObject:
    return schemas.wrapped(schema, name) if _is_wrapped(agent, schema) else schemas.as_object(schema)


# --- documents ---------------------------------------------------------------------------------------------------


def _is_wrapped(agent: Agent, schema: JsonObject) -> bool:
    return native(agent) is None and not (schemas.of_objects(schema) or schemas.of_anything(schema))


def wraps_output(agent: Agent) -> bool:
    """Whether its output is published with an object around it."""
    return _is_wrapped(agent, agent.output_schema)


def input_of(agent: Agent, given: Json) -> Json:
    """The agent's input for the `input` (or a tool's `arguments`) that a client gave. Raises Invalid."""
    if not isinstance(given, dict):
        raise Invalid("/input: it must be an object", path="/input")
    if not _is_wrapped(agent, agent.input_schema):
        return given
    if INPUT not in given:
        raise Invalid(f"/input/{INPUT}: is missing", path=f"/input/{INPUT}")
    return given[INPUT]


def output_of(agent: Agent, raw: bytes) -> bytes:
    """The document as `output` of an answer, for the agent's own document `raw` (JSON).

    An object in any case: one that does not follow its schema is put into one too. No document at all is `{}`. On one
    line however lines are split, if `raw` is.
    """
    raw = escape_lines(raw)
    if not wraps_output(agent):
        if raw.lstrip()[:1] == b"{":
            return raw
        if raw.strip() == b"null":
            return b"{}"
    return wrap(raw)


def wrap(raw: bytes) -> bytes:
    """`{"output": raw}`."""
    return b'{"output":' + raw + b"}"
