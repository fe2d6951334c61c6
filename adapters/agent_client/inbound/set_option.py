"""Opens the agent's own session; sets modes, options and the agent (docs: session-config-options, session-modes)."""

from __future__ import annotations

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents
from adapters.agent_client.governed import folders
from adapters.agent_client.inbound import governed
from adapters.agent_client.inbound.config_options import mode_changed, options_changed, settings, with_agent
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.updates import SessionUpdates
from adapters.agent_client.wire import PROTOCOL, JsonObject, without
from gateway.core.errors import Conflict, Invalid, Unsupported
from gateway.wire import jsonrpc


async def begin(session: SessionContext) -> Raw | JsonObject:
    """Answer `session/new`. Makes the agent's own session, if it has such, and the record. Raises what that raises."""
    relay = session.gateway.backchannel.relay
    try:
        answer = await relay(session.agent, PROTOCOL, "session/new", session.params, thread=session.thread)
    except Unsupported:
        await session.client.clients.whole(session.gateway.threads.create(session.thread))
        said = {"sessionId": session.id, **await settings(session)}
        lost = jsonrpc.read(session.params, wire.NewSession).mcp_servers
        return wire.with_meta(said, wire.OURS, {"lost": [wire.LOST_SERVERS]}) if lost else said
    return completed_answer(session, answer)


def completed_answer(session: SessionContext, answer: Raw) -> Raw | JsonObject:
    if not session.choosing:
        return answer
    result: JsonObject = jsonrpc.unpack(answer) or {}
    return {**result, "configOptions": with_agent(session, result.get("configOptions"))}


async def set_mode(session: SessionContext, updates: SessionUpdates, params: Raw) -> Raw:
    asked = jsonrpc.read(params, wire.SetMode)
    try:
        answer = await session.relay("session/set_mode", params)
    except Unsupported:
        raise Invalid(f"agent {session.agent} has no modes", path="/modeId") from None
    changed = mode_changed(asked.mode_id)
    updates.news(changed)  # its client knows; what it is told later goes by that
    for other in session.elsewhere():
        other.heard(changed)
    return answer


async def set_option(session: SessionContext, updates: SessionUpdates, params: Raw) -> Raw | JsonObject:
    asked = jsonrpc.read(params, wire.SetConfigOption)
    if updates.is_mode(asked.config_id):
        rest = without(jsonrpc.unpack(params), "configId", "value")
        await set_mode(session, updates, jsonrpc.raw({**rest, "modeId": asked.value}))
        return {"configOptions": await _options(session)}
    if session.choosing and asked.config_id == agents.AGENT_OPTION:
        return {"configOptions": await _choose(session, asked.value)}
    agent = await session.gateway.agents.get(session.agent, PROTOCOL)
    if agents.native(agent) is not None:
        return await _set_native(session, params)
    if not isinstance(asked.value, str | bool):
        raise Invalid("value: a text or a boolean", path="/value")
    config = agents.set_option(agent, session.config, asked.config_id, asked.value)
    await session.change({"config": config})
    session.chosen(session.agent, config)
    for other in session.elsewhere():
        other.chosen(session.agent, config)
    for other in session.elsewhere():
        await other.configured()
    return {"configOptions": await _options(session)}


async def _choose(session: SessionContext, name: str | bool) -> list[JsonObject]:
    if name not in (names := session.client.names()) or not isinstance(name, str):
        raise Invalid(f"no agent {name}; there are {', '.join(names)}", path="/value")
    if name == session.agent:
        return await _options(session)
    if session.busy:
        raise Conflict(f"session {session.id} is busy: the agent can be changed between two prompts")
    before = session.agent, session.params
    session.tries(name, session.params)
    try:
        session.tries(name, await folders(session.governor, session.params))
        await governed.opened(session.governor, session.id, session.client.visitor.name)
        answer = await _taken_up(session)
    except BaseException:
        session.tries(*before)
        raise
    await session.change({"agent": name, "config": {}})
    session.chosen(name, {})
    for other in session.elsewhere():
        other.chosen(name, {})
    options = await _options(session) if answer is None else with_agent(session, answer.config_options) or []
    for other in session.elsewhere():
        await other.configured(options)
    return options


async def _taken_up(session: SessionContext) -> wire.SessionResult | None:
    """The answer that opens the agent's own session, with its modes and options; None if it has no such session."""
    agent = await session.gateway.agents.get(session.agent, PROTOCOL)
    thread = await session.gateway.threads.get(session.id)
    try:
        if session.agent not in thread.upstream:
            return jsonrpc.read(await session.relay("session/new", session.params), wire.SessionResult)
        if not wire.offers(agents.native(agent), "sessionCapabilities", "resume"):
            return wire.SessionResult()
        params = {**jsonrpc.unpack(session.params), "sessionId": session.id}
        return jsonrpc.read(await session.relay("session/resume", jsonrpc.raw(params)), wire.SessionResult)
    except Unsupported:
        return None


async def _set_native(session: SessionContext, params: Raw) -> Raw | JsonObject:
    answer = await session.relay("session/set_config_option", params)
    others = session.elsewhere()
    if not others and not session.choosing:
        return answer
    result: JsonObject = jsonrpc.unpack(answer)
    options = result.get("configOptions")
    for other in others:
        other.heard(options_changed(options))
    return {**result, "configOptions": with_agent(session, options)}


async def _options(session: SessionContext) -> list[JsonObject]:
    options: list[JsonObject] = (await settings(session)).get("configOptions", [])
    return options
