"""Agents as this protocol publishes them: the answer of `initialize` (docs: initialization)."""

from __future__ import annotations

from typing import Any, Final

from adapters.agent_client.codec import content
from adapters.agent_client.codec.options import (
    AGENT_OPTION,
    agent_option,
    booleans,
    config_options,
    set_option,
)
from adapters.agent_client.tunnel.mcp_messages import TYPE
from adapters.agent_client.wire import PROTOCOL, VERSION
from gateway.core import files, media, projection
from gateway.core.errors import AgentBroken
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, JsonObject

__all__ = [
    "AGENT_OPTION",
    "agent_of",
    "agent_option",
    "booleans",
    "config_options",
    "initialize_result",
    "loads",
    "native",
    "prompt_capabilities",
    "set_option",
]

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
    InterruptSpec(
        kind="elicitation",
        payload_schema={
            "type": "object",
            "properties": {
                "mode": {"type": "string"},
                "message": {"type": "string"},
                "requestedSchema": {"type": "object"},
                "url": {"type": "string"},
            },
            "required": ["mode", "message"],
        },
        answer_schema={"type": "object"},
    ),
)
BRIDGED: Final = "agent_client.mcp"
"""In `Agent.extra`: whether its clients may offer MCP servers over the connection, whatever it says of that itself."""
_SESSIONS: Final = ("list", "resume", "close", "delete")


def agent_of(initialize: JsonObject, source: str) -> Agent:
    """The agent that answered `initialize` so, with that answer verbatim in `extra["agent_client"]`.

    `source` names the target in errors. Raises AgentBroken if it speaks another version, or is no such answer.
    """
    if not isinstance(initialize, dict):
        raise AgentBroken(f"{source} did not answer initialize with an object")
    version = initialize.get("protocolVersion")
    if isinstance(version, bool) or version != VERSION:
        raise AgentBroken(f"{source} speaks version {version!r} of the Agent Client Protocol, not {VERSION}")
    info = _object(initialize.get("agentInfo"))
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
    """A message, and the content blocks that the agent takes: any other is refused before there is a run."""
    kinds = content.kinds(_prompt_capabilities(initialize))
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


def _prompt_capabilities(initialize: JsonObject) -> JsonObject:
    return _object(_object(initialize.get("agentCapabilities")).get("promptCapabilities"))


def native(agent: Agent | None) -> JsonObject | None:
    """The answer to `initialize` of an agent of this protocol. None for all others: then the inbound is no proxy."""
    return None if agent is None else agent.extra.get(PROTOCOL)


def loads(native: JsonObject | None) -> bool:
    """Whether an agent that answered `initialize` so can load sessions."""
    return _object((native or {}).get("agentCapabilities")).get("loadSession") is True


def offers(native: JsonObject | None, what: str) -> bool:
    """Whether an agent of this protocol declared a session capability; null declares none."""
    found: Any = native
    for step in ("agentCapabilities", "sessionCapabilities", what):
        found = found.get(step) if isinstance(found, dict) else None
    return found is not None and found is not False


def initialize_result(agent: Agent | None, *, version: str = "0.0.0") -> JsonObject:
    """The answer to a client's `initialize`: version 1, whatever it asked for.

    An agent of this protocol: its own answer, with what the gateway adds (sessions are loaded, listed, resumed, closed
    and deleted here). Any other, and None where the client is yet to choose one: what the gateway can do for all.
    `version` is the gateway's own, told with None.
    """
    init = native(agent)
    if init is not None:
        capabilities = _object(init.get("agentCapabilities"))
        if agent is not None and agent.extra.get(BRIDGED):
            servers = {**_object(capabilities.get("mcpCapabilities")), TYPE: True}
            capabilities = {**capabilities, "mcpCapabilities": servers}
        return {**init, "protocolVersion": VERSION, "agentCapabilities": _with_sessions(capabilities)}
    info: JsonObject = {"name": "interlingua", "title": "Interlingua", "version": version}
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
    sessions = _object(capabilities.get("sessionCapabilities"))
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
    return _prompt_capabilities(init)


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
