"""Agents as this protocol publishes them: the answer of `initialize` (docs: initialization)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_client.codec import content
from adapters.agent_client.tunnel.mcp_messages import TYPE
from adapters.agent_client.wire import PROTOCOL, VERSION, as_object, taken_in_prompts, without
from gateway.core import choices, delta, files, media, projection
from gateway.core.errors import AgentBroken, Invalid
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, Json, JsonObject
from gateway.core.version import version
from gateway.mcp import forms

CONFIG: Final[JsonObject] = {
    "type": "object",
    "properties": {"mode": {"type": "string"}},
    "additionalProperties": {"type": ["string", "boolean"]},
    "description": "Session config options by id, and `mode`: set before the prompt.",
}
INTERRUPTS: Final = (
    InterruptSpec(
        kind="permission",
        payload_schema={
            "type": "object",
            "properties": {
                "toolCall": {"type": "object"},
                "options": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "optionId": {"type": "string"},
                            "name": {"type": "string"},
                            "kind": {"type": "string"},
                        },
                        "required": ["optionId", "name", "kind"],
                    },
                },
            },
            "required": ["toolCall", "options"],
        },
        answer_schema={
            "type": "object",
            "properties": {"optionId": {"type": "string"}},
            "required": ["optionId"],
        },
    ),
    forms.published("mode", "message"),
)
BRIDGED: Final = "agent_client.mcp"
"""In `Agent.extra`: whether its clients may offer MCP servers over the connection, whatever it says of that itself."""
_SESSIONS: Final = ("list", "resume", "close", "delete")
AGENT_OPTION: Final = "agent"
"""Id of the option that chooses the agent."""
_MOST: Final = 1000
UNSET: Final = "default"
"""Value of a list that leaves the setting to the agent."""


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
"""What versions of MCP are."""


def agent_of(initialize: JsonObject, source: str) -> Agent:
    """The agent that answered `initialize` so, with that answer verbatim in `extra["agent_client"]`.

    `source` names the target in errors. Raises AgentBroken if it speaks another version, or is no such answer.
    """
    if not isinstance(initialize, dict):
        raise AgentBroken(f"{source} did not answer initialize with an object")
    spoken = initialize.get("protocolVersion")
    if isinstance(spoken, bool) or spoken != VERSION:
        if isinstance(spoken, str) and _DATE.fullmatch(spoken):
            raise AgentBroken(f"{source} speaks MCP ({spoken}), not the Agent Client Protocol")
        raise AgentBroken(f"{source} speaks version {spoken!r} of the Agent Client Protocol, not {VERSION}")
    info = as_object(initialize.get("agentInfo"))
    name, title, number = (_string(info.get(key)) for key in ("name", "title", "version"))
    return Agent(
        name=name or "agent",
        version=number or "0.0.0",
        description=title or "",
        input_schema=_input_schema(initialize),
        output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
        input_assumed=True,
        output_assumed=True,
        config_schema=CONFIG,
        interrupts=INTERRUPTS,
        capabilities=AgentCapabilities(
            threads=True,
            interrupts=True,
            streaming=True,
            custom_streaming=True,
            cancel=True,
            artifacts=True,
            files=(media.ANY,),
        ),
        text_input="/message",
        text_output="/message",
        extra={PROTOCOL: initialize},
    )


def _input_schema(initialize: JsonObject) -> JsonObject:
    kinds = content.kinds(taken_in_prompts(initialize))
    return {
        "type": "object",
        "properties": {
            "message": {"type": "string"},
            "content": {
                "type": "array",
                "items": {"type": "object", "properties": {"type": {"enum": kinds}}, "required": ["type"]},
                "description": "Content blocks of the Agent Client Protocol, sent after the message.",
            },
        },
        "required": ["message"],
    }


def native(agent: Agent | None) -> JsonObject | None:
    return None if agent is None else agent.extra.get(PROTOCOL)


def answering(agent: Agent, answer: JsonObject) -> Agent:
    """An agent of this protocol as it has answered the `initialize` of one client, in version 1's words."""
    if answer == native(agent):
        return agent
    return replace(agent, extra={BRIDGED: agent.extra.get(BRIDGED), PROTOCOL: answer})


def initialize_result(agent: Agent | None) -> JsonObject:
    """The answer to a client's `initialize`: version 1, whatever it asked for.

    An agent of this protocol: its own answer, with what the gateway adds (sessions are loaded, listed, resumed, closed
    and deleted here). Any other, and None where the client is yet to choose one: what the gateway can do for all.
    """
    init = native(agent)
    if init is not None:
        capabilities = as_object(init.get("agentCapabilities"))
        if agent is not None and agent.extra.get(BRIDGED):
            servers = {**as_object(capabilities.get("mcpCapabilities")), TYPE: True}
            capabilities = {**capabilities, "mcpCapabilities": servers}
        return {**init, "protocolVersion": VERSION, "agentCapabilities": _with_sessions(capabilities)}
    info: JsonObject = {"name": "interlingua", "title": "Interlingua", "version": version()}
    if agent is not None:
        info = {"name": agent.name, "title": agent.name, "version": agent.version}
    capabilities = {"promptCapabilities": prompt_capabilities(agent), "mcpCapabilities": {"http": False, "sse": False}}
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": _with_sessions(capabilities),
        "authMethods": [],
        "agentInfo": info,
    }


def _with_sessions(capabilities: JsonObject) -> JsonObject:
    sessions = as_object(capabilities.get("sessionCapabilities"))
    ours = {key: sessions.get(key) or {} for key in _SESSIONS}
    return {**capabilities, "loadSession": True, "sessionCapabilities": {**sessions, **ours}}


def prompt_capabilities(agent: Agent | None) -> JsonObject:
    """The `promptCapabilities` that `initialize_result` declares. None: the client is yet to choose an agent."""
    init = native(agent)
    if init is None:
        return {
            "image": agent is None or files.takes(agent, media.IMAGE),
            "audio": agent is None or files.takes(agent, media.AUDIO),
            "embeddedContext": True,
        }
    return taken_in_prompts(init)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# --- options of a session -------------------------------------------------------------------------------------------
# Only for agents of other protocols; one of this protocol has its own. What is offered are the schema's lists of values
# and its booleans; other settings have no control in this protocol, and stay at their defaults.


def agent_option(names: Mapping[str, str], current: str) -> JsonObject:
    return {
        "id": AGENT_OPTION,
        "name": "Agent",
        "type": "select",
        "currentValue": current,
        "options": [{"value": value, "name": name} for value, name in names.items()],
    }


def config_options(agent: Agent, config: Mapping[str, Any], *, booleans: bool) -> list[JsonObject]:
    """The options that an agent's `config_schema` offers, with their values in `config` (what was set) or by default.

    Lists of values and booleans only. `booleans` is whether the client declared them; without, they are lists too. A
    list without a default has one more value, which leaves the setting to the agent.
    """
    return [_option(name, schema, config, booleans) for name, schema in _settings(agent).items()]


def set_option(agent: Agent, config: Mapping[str, Any], option: str, value: str | bool) -> JsonObject:
    """`config` with one option set, for `RunRequest.config`. Raises Invalid (path /configId or /value)."""
    schema = _settings(agent).get(option)
    if schema is None:
        raise Invalid(f"there is no option {option!r}", path="/configId")
    found = choices.choices(schema, _MOST) or []
    if isinstance(value, bool):
        chosen = next((choice for choice in found if choice.value is value), None)
    else:
        chosen = next((choice for choice in found if choice.id == value), None)
        if chosen is None and value == _unset(schema, found):
            return without(config, option)
    if chosen is None:
        raise Invalid(f"the option {option!r} has no value {value!r}", path="/value")
    return {**config, option: chosen.value}


def _settings(agent: Agent) -> dict[str, JsonObject]:
    properties = agent.config_schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        name: schema
        for name, schema in properties.items()
        if isinstance(schema, dict) and choices.choices(schema, _MOST) and name != AGENT_OPTION
    }


def _option(name: str, schema: JsonObject, config: Mapping[str, Any], booleans: bool) -> JsonObject:
    found = choices.choices(schema, _MOST) or []
    value: Json = config.get(name, schema.get("default", delta.ABSENT))
    current = next((choice for choice in found if delta.same(choice.value, value)), None)
    title, description = schema.get("title"), schema.get("description")
    out: JsonObject = {"id": name, "name": title if isinstance(title, str) and title else name}
    if isinstance(description, str):
        out["description"] = description
    if booleans and all(isinstance(choice.value, bool) for choice in found):
        return {**out, "type": "boolean", "currentValue": current is not None and current.value is True}
    options = [{"value": choice.id, "name": choice.label} for choice in found]
    unset = _unset(schema, found)
    if unset is not None:
        options.insert(0, {"value": unset, "name": "Default"})
    elif current is None:
        current = found[0]
    return {
        **out,
        "type": "select",
        "currentValue": unset if current is None else current.id,
        "options": options,
    }


def _unset(schema: JsonObject, found: list[choices.Choice]) -> str | None:
    """The value that leaves the setting to the agent; None where the schema says what that is."""
    if any(delta.same(choice.value, schema.get("default", delta.ABSENT)) for choice in found):
        return None
    name = UNSET
    while any(choice.id == name for choice in found):
        name += "_"
    return name
