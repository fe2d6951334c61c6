"""`initialize` in version 2, both ways (docs: initialization, authentication).

An agent of version 2 is described to the rest of the gateway as version 1 would have it, in `extra["agent_client"]`;
its own answer stands in `extra["agent_client.v2"]`, verbatim.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_client.codec import agents as v1
from adapters.agent_client.codec.v2 import conversions
from adapters.agent_client.codec.v2.wire import VERSION
from adapters.agent_client.tunnel.mcp_messages import TYPE
from adapters.agent_client.wire import ORIGIN_V2, as_object, without
from adapters.agent_client.wire import VERSION as VERSION_1
from gateway.core.errors import AgentBroken
from gateway.core.types import Agent, JsonObject

_CONTENT: Final = ("image", "audio", "embeddedContext")
_V1_ONLY: Final = ("loadSession", "promptCapabilities", "mcpCapabilities", "sessionCapabilities", "auth")
_BASELINE: Final = ("list", "resume", "close")
_CLIENT_V1_ONLY: Final = ("fs", "terminal", "session")


# --- the outbound half: the gateway is the client ----------------------------------------------------------------


def hello(capabilities: JsonObject, info: JsonObject) -> JsonObject:
    """Params of an `initialize` that agents of both versions understand: version 2 is asked for.

    `capabilities` are a client's in version 1's words (`capabilities_v1`), `info` the gateway's own.
    """
    return {
        "protocolVersion": VERSION,
        "info": info,
        "capabilities": capabilities_v2(capabilities),
        "clientInfo": info,
        "clientCapabilities": capabilities,
    }


def agent_of(initialize: Any, source: str) -> Agent:
    """The agent that answered `hello` so: of version 2 or 1 (`speaks_v2` tells which).

    `source` names the target in errors. Raises AgentBroken for what is no such answer, for other versions, and for an
    agent of version 2 without sessions, which nobody could prompt.
    """
    version = initialize.get("protocolVersion") if isinstance(initialize, dict) else None
    if isinstance(version, bool) or version != VERSION:
        return v1.agent_of(initialize, source)
    if not isinstance(as_object(initialize.get("capabilities")).get("session"), dict):
        raise AgentBroken(f"{source} offers no sessions")
    agent = v1.agent_of(result_to_v1(initialize), source)
    return replace(agent, extra={**agent.extra, ORIGIN_V2: initialize})


def speaks_v2(agent: Agent | None) -> bool:
    return agent is not None and ORIGIN_V2 in agent.extra


def result_to_v1(said: JsonObject) -> JsonObject:
    capabilities = as_object(said.get("capabilities"))
    session = as_object(capabilities.get("session"))
    prompt, mcp = as_object(session.get("prompt")), as_object(session.get("mcp"))
    methods = conversions.auth_to_v1(said.get("authMethods"))
    found: JsonObject = {
        **without(capabilities, "session", "auth"),
        "loadSession": True,
        "promptCapabilities": {**prompt, **{key: prompt.get(key) is not None for key in _CONTENT}},
        "mcpCapabilities": {
            **{key: _said(key, value is not None, value) for key, value in mcp.items() if key != "stdio"},
            "http": mcp.get("http") is not None,
            "sse": False,
        },
        "sessionCapabilities": {**{key: {} for key in _BASELINE}, **_nonnull(without(session, "prompt", "mcp"))},
    }
    auth = as_object(capabilities.get("auth"))
    if methods or auth:
        found["auth"] = {**auth, **({"logout": {}} if methods else {})}
    return {
        **without(said, "info", "capabilities", "authMethods"),
        "protocolVersion": VERSION_1,
        "agentInfo": said.get("info"),
        "agentCapabilities": found,
        "authMethods": methods,
    }


# --- the inbound half: the gateway is the agent ------------------------------------------------------------------


def initialized(agent: Agent | None, answer: JsonObject) -> JsonObject:
    """The answer to a client of version 2, given version 1's answer (`codec.agents.initialize_result`).

    An agent of version 2 has its own words, with what the gateway adds (sessions are deleted here), unless the gateway
    has changed them; any other what it can do, in these words.
    """
    if agent is None or not speaks_v2(agent) or answer != v1.initialize_result(agent):
        return result_to_v2(answer, agent)
    own = agent.extra[ORIGIN_V2]
    capabilities = as_object(own.get("capabilities"))
    session = as_object(capabilities.get("session"))
    session = {**session, "delete": session.get("delete") or {}}
    if agent.extra.get(v1.BRIDGED):
        mcp = as_object(session.get("mcp"))
        session["mcp"] = {**mcp, TYPE: mcp.get(TYPE) or {}}
    return {**own, "protocolVersion": VERSION, "capabilities": {**capabilities, "session": session}}


def result_to_v2(said: JsonObject, agent: Agent | None = None) -> JsonObject:
    """An answer of `initialize` in version 1's words as version 2 would have it.

    An agent of this protocol takes MCP servers that are commands: all of version 1 do.
    """
    capabilities = as_object(said.get("agentCapabilities"))
    prompt, mcp = as_object(capabilities.get("promptCapabilities")), as_object(capabilities.get("mcpCapabilities"))
    sessions = as_object(capabilities.get("sessionCapabilities"))
    servers: JsonObject = {
        key: _said(key, {}, value) for key, value in mcp.items() if key != "sse" and value not in (False, None)
    }
    if v1.native(agent) is not None:
        servers = {"stdio": {}, **servers}
    session: JsonObject = {
        **without(_nonnull(sessions), *_BASELINE),
        "prompt": {**without(prompt, *_CONTENT), **{key: {} for key in _CONTENT if prompt.get(key) is True}},
        "mcp": servers,
    }
    return {
        **without(said, "agentInfo", "agentCapabilities", "authMethods"),
        "protocolVersion": VERSION,
        "info": _info(said.get("agentInfo"), agent),
        "capabilities": {**without(capabilities, *_V1_ONLY), "session": session},
        "authMethods": conversions.auth_to_v2(said.get("authMethods")),
    }


# --- what a client can do ----------------------------------------------------------------------------------------


def capabilities_v1(capabilities: JsonObject) -> JsonObject:
    """A client's `capabilities` in version 1's words. Options that are booleans need no word in version 2."""
    out = dict(capabilities)
    auth = capabilities.get("auth")
    if isinstance(auth, dict) and "terminal" in auth:
        out["auth"] = {**auth, "terminal": auth["terminal"] is not None}
    return {**out, "session": {"configOptions": {"boolean": {}}}}


def capabilities_v2(capabilities: JsonObject) -> JsonObject:
    """A client's `clientCapabilities` in version 2's words, which has no files and terminals of a client's."""
    out = without(capabilities, *_CLIENT_V1_ONLY)
    auth = capabilities.get("auth")
    if isinstance(auth, dict) and "terminal" in auth:
        rest = without(auth, "terminal")
        out["auth"] = {**rest, "terminal": {}} if auth["terminal"] is True else rest
    return out


def _said(key: str, marker: Any, value: Any) -> Any:
    """Replace a declared value with its marker. `_meta` is kept as it is."""
    return value if key == "_meta" else marker


def _info(value: Any, agent: Agent | None) -> JsonObject:
    """Name and version are required here."""
    info = as_object(value)
    name, version = info.get("name"), info.get("version")
    return {
        **info,
        "name": name if isinstance(name, str) else agent.name if agent is not None else "agent",
        "version": version if isinstance(version, str) else agent.version if agent is not None else "0.0.0",
    }


def _nonnull(value: JsonObject) -> JsonObject:
    return {key: each for key, each in value.items() if each is not None}
