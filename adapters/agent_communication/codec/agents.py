"""Agents as this protocol publishes them, and their documents.

Input and output of `agents/run` are objects. An agent of another protocol whose schema says that it takes or gives
something else is published with an object around it, `{"input": ...}`, `{"output": ...}`; one whose schema says nothing
is taken to mean objects. What an agent of this protocol published stays as it was, under every key; only its name is
the route's.
"""

from __future__ import annotations

from typing import Final

from adapters.agent_communication.wire import PROTOCOL
from gateway.core import delta, projection
from gateway.core.errors import AgentBroken
from gateway.core.types import Agent, AgentCapabilities, JsonObject
from gateway.mcp import forms
from gateway.mcp.runs.documents import Documents, as_object, with_meta

_CONFIG: Final = "configSchema"

ELICITATION: Final = forms.published("message")


DOCUMENTS: Final = Documents(PROTOCOL)
native: Final = DOCUMENTS.native
wraps_output: Final = DOCUMENTS.wraps_output
input_of: Final = DOCUMENTS.input_of
output_of: Final = DOCUMENTS.output_of
tool_of: Final = DOCUMENTS.tool_of


# --- from the wire -----------------------------------------------------------------------------------------------


def agent_of(entry: JsonObject) -> Agent:
    """The agent that an entry of `agents/list` or `agents/templates/list` describes.

    The entry is kept verbatim in `extra["agent_communication"]`. A template is an agent with a configuration. Raises
    AgentBroken for an invalid entry.
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
        "inputSchema": DOCUMENTS.input_schema(agent),
        "outputSchema": DOCUMENTS.output_schema(agent),
    }
    entry.pop(_CONFIG, None)
    return entry if own is not None else with_meta(entry, agent)


def template_of(agent: Agent) -> JsonObject | None:
    """Its entry in `agents/templates/list`; None if it takes no configuration."""
    if not agent.config_schema:
        return None
    return {**entry_of(agent), _CONFIG: as_object(agent.config_schema)}
