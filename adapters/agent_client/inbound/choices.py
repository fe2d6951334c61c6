"""What the client of a session may choose: the agent, the agent's own modes and options, or those of its configuration.

(docs: session-config-options, session-modes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents
from adapters.agent_client.codec import updates_out as out
from adapters.agent_client.inbound import governed
from adapters.agent_client.inbound.encoding import encoded
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import Conflict, Invalid, Unsupported
from gateway.core.types import Thread, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import read

if TYPE_CHECKING:
    from adapters.agent_client.inbound.session import Session

_UPDATE = b'"config_option_update"'


async def begin(session: Session) -> Raw | JsonObject:
    """What `session/new` answers. The agent's own session is made now, if it has such. Raises what that raises."""
    try:
        answer = await session.relay("session/new", session.params)
    except Unsupported:
        return {"sessionId": session.id, **await settings(session), **_not_passed_on(session.params)}
    return completed_answer(session, answer)


def completed_answer(session: Session, answer: Raw) -> Raw | JsonObject:
    """What the agent answered for the session as it is opened, with the choice of the agent among its options."""
    if not session.choosing:
        return answer
    result: JsonObject = jsonrpc.unpack(answer) or {}
    return {**result, "configOptions": _with_agent(session, result.get("configOptions"))}


async def settings(session: Session) -> JsonObject:
    """`modes` and `configOptions` as they are now: what `session/load` and `session/resume` answer."""
    agent = await session.gateway.agent(session.agent, PROTOCOL)
    found: JsonObject = {}
    options: list[JsonObject] | None
    if agents.native(agent) is None:
        options = agents.config_options(agent, session.config, booleans=_booleans(session)) or None
    else:
        thread = await session.gateway.thread(session.id)
        modes, options = _known(thread)
        if modes is not None:
            found["modes"] = modes
    options = _with_agent(session, options)
    if options is not None:
        found["configOptions"] = options
    return found


async def set_mode(session: Session, params: Raw) -> Raw:
    """`session/set_mode`."""
    asked = read(params, wire.SetMode)
    try:
        answer = await session.relay("session/set_mode", params)
    except Unsupported:
        raise Invalid(f"agent {session.agent} has no modes", path="/modeId") from None
    changed = _noted({"sessionUpdate": "current_mode_update", "currentModeId": asked.mode_id})
    session.voice.news(changed)  # its client knows; what it is told later goes by that
    for other in session.elsewhere():
        other.say(*other.voice.news(changed))
    return answer


async def set_option(session: Session, params: Raw) -> Raw | JsonObject:
    """`session/set_config_option`: answers all options as they are then. Other clients of the session are told."""
    asked = read(params, wire.SetConfigOption)
    if session.voice.is_mode(asked.config_id):
        rest = {key: value for key, value in jsonrpc.unpack(params).items() if key not in ("configId", "value")}
        await set_mode(session, encoded({**rest, "modeId": asked.value}))
        return {"configOptions": await _options(session)}
    if session.choosing and asked.config_id == agents.AGENT_OPTION:
        return {"configOptions": await _choose(session, asked.value)}
    agent = await session.gateway.agent(session.agent, PROTOCOL)
    if agents.native(agent) is not None:
        return await _set_native(session, params)
    if not isinstance(asked.value, str | bool):
        raise Invalid("value: a text or a boolean", path="/value")
    config = agents.set_option(agent, session.config, asked.config_id, asked.value)
    await session.change({"config": config})
    for each in (session, *session.elsewhere()):
        each.config = config
    for other in session.elsewhere():
        _tell(other, await _options(other))
    return {"configOptions": await _options(session)}


def completed(session: Session, update: bytes) -> bytes:
    """An update of the agent's that lists its options, with the choice of the agent, which is the gateway's own."""
    if _UPDATE not in update:
        return update
    found = msgspec.json.decode(update)
    if found.get("sessionUpdate") != "config_option_update" or not isinstance(found.get("configOptions"), list):
        return update
    found["configOptions"] = [*choice(session), *found["configOptions"]]
    return out.update(found)


def choice(session: Session) -> list[JsonObject]:
    """The option that says which agents there are and which one is chosen; none where there is but one."""
    if not session.choosing:
        return []
    names = {name: name for name in session.connection.names()}
    return [agents.agent_option({**names, session.agent: session.agent}, session.agent)]


# --- inside -------------------------------------------------------------------------------------------------------


async def _choose(session: Session, name: str | bool) -> list[JsonObject]:
    """Another agent for the session. Its own session is made now, or taken up again if it had one here."""
    if name not in (names := session.connection.names()) or not isinstance(name, str):
        raise Invalid(f"no agent {name}; there are {', '.join(names)}", path="/value")
    if name == session.agent:
        return await _options(session)
    if session.busy:
        raise Conflict(f"session {session.id} is busy: the agent can be changed between two prompts")
    before, session.agent = (session.agent, session.params), name
    try:
        session.params = await governed.folders(session.governor, session.params)
        await governed.opened(session.governor, session.id, session.connection.visitor.name)
        answer = await _taken_up(session)
    except BaseException:
        session.agent, session.params = before
        raise
    await session.change({"agent": name, "config": {}})
    for each in (session, *session.elsewhere()):
        each.agent, each.config = name, {}
    options = await _options(session) if answer is None else _with_agent(session, answer.config_options) or []
    for other in session.elsewhere():
        _tell(other, options)
    return options


async def _taken_up(session: Session) -> wire.SessionResult | None:
    """What the agent's own session says of itself; None if it has none, or says nothing."""
    agent = await session.gateway.agent(session.agent, PROTOCOL)
    thread = await session.gateway.thread(session.id)
    try:
        if session.agent not in thread.upstream:
            return read(await session.relay("session/new", session.params), wire.SessionResult)
        if not offers(agents.native(agent), "resume"):
            return wire.SessionResult()
        params = {**jsonrpc.unpack(session.params), "sessionId": session.id}
        return read(await session.relay("session/resume", encoded(params)), wire.SessionResult)
    except Unsupported:
        return None


async def _set_native(session: Session, params: Raw) -> Raw | JsonObject:
    answer = await session.relay("session/set_config_option", params)
    others = session.elsewhere()
    if not others and not session.choosing:
        return answer
    result: JsonObject = jsonrpc.unpack(answer)
    options = result.get("configOptions")
    for other in others:
        other.say(*other.voice.news(_options_update(options)))
    return {**result, "configOptions": _with_agent(session, options)}


async def _options(session: Session) -> list[JsonObject]:
    """All options of a session as they are now."""
    options: list[JsonObject] = (await settings(session)).get("configOptions", [])
    return options


def _options_update(options: Any) -> ThreadUpdate:
    return _noted({"sessionUpdate": "config_option_update", "configOptions": options or []})


def _noted(said: JsonObject) -> ThreadUpdate:
    return ThreadUpdate(protocol=PROTOCOL, kind=said["sessionUpdate"], data=said)


def _tell(session: Session, options: list[JsonObject]) -> None:
    """All its options, the choice of the agent among them."""
    session.tell(*session.voice.news(_options_update(options)))


def _with_agent(session: Session, options: list[JsonObject] | None) -> list[JsonObject] | None:
    return [*choice(session), *(options or [])] if session.choosing else options


def _known(thread: Thread) -> tuple[JsonObject | None, list[JsonObject] | None]:
    """The agent's modes and options, as its updates and answers last said."""
    modes: JsonObject | None = None
    options: list[JsonObject] | None = None
    for update in thread.updates:
        if update.protocol != PROTOCOL:
            continue
        data = update.data
        if update.kind == "modes" and isinstance(data, dict):
            modes = data
        elif update.kind == "current_mode_update" and modes is not None and isinstance(data, dict):
            modes = {**modes, "currentModeId": data.get("currentModeId", modes.get("currentModeId"))}
        elif update.kind == "config_options" and isinstance(data, list):
            options = data
        elif update.kind == "config_option_update" and isinstance(data, dict):
            options = data.get("configOptions", options)
    return modes, options


def _not_passed_on(params: Raw) -> JsonObject:
    """What of `session/new` an agent of another protocol is not told."""
    servers = read(params, wire.NewSession).mcp_servers
    return {"_meta": {"interlingua": {"lost": ["mcp_servers"]}}} if servers else {}


def _booleans(session: Session) -> bool:
    return agents.booleans(session.connection.capabilities)


def offers(native: JsonObject | None, what: str) -> bool:
    """Whether an agent of this protocol declared a session capability; null declares none."""
    found: Any = native
    for step in ("agentCapabilities", "sessionCapabilities", what):
        found = found.get(step) if isinstance(found, dict) else None
    return found is not None and found is not False
