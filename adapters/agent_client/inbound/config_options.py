"""Reads what the client of a session may choose: the agent, the agent's modes and options, or its configuration.

(docs: session-config-options, session-modes)
"""

from __future__ import annotations

from typing import Any

import msgspec

from adapters.agent_client.codec import agents
from adapters.agent_client.codec import updates_out_v1 as out
from adapters.agent_client.forwarded import KnownSettings
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.types import ThreadUpdate
from gateway.mcp import wire as mcp

_UPDATE = b'"config_option_update"'


async def settings(session: SessionContext) -> JsonObject:
    """`modes` and `configOptions` as they are now: what `session/load` and `session/resume` answer."""
    agent = await session.gateway.agents.get(session.agent, PROTOCOL)
    found: JsonObject = {}
    options: list[JsonObject] | None
    if agents.native(agent) is None:
        booleans = mcp.declares(session.client.capabilities, "session", "configOptions", "boolean")
        options = agents.config_options(agent, session.config, booleans=booleans) or None
    else:
        known = KnownSettings()
        for update in (await session.gateway.threads.get(session.id)).updates:
            if update.protocol == PROTOCOL:
                known.heard(update.kind, update.data)
        options = known.options
        if known.modes is not None:
            found["modes"] = known.modes
    options = with_agent(session, options)
    if options is not None:
        found["configOptions"] = options
    return found


def choice(session: SessionContext) -> list[JsonObject]:
    """The option that says which agents there are and which one is chosen; none where there is but one."""
    if not session.choosing:
        return []
    names = {name: name for name in session.client.names()}
    return [agents.agent_option({**names, session.agent: session.agent}, session.agent)]


def with_agent(session: SessionContext, options: list[JsonObject] | None) -> list[JsonObject] | None:
    """Put the choice of the agent before the agent's own options."""
    return [*choice(session), *(options or [])] if session.choosing else options


def completed(session: SessionContext, update: bytes) -> bytes:
    """Put the choice of the agent into an update that lists the agent's options. Other updates pass as they are."""
    if _UPDATE not in update:
        return update
    found = msgspec.json.decode(update)
    if found.get("sessionUpdate") != "config_option_update" or not isinstance(found.get("configOptions"), list):
        return update
    found["configOptions"] = [*choice(session), *found["configOptions"]]
    return out.update(found)


def mode_changed(mode: Any) -> ThreadUpdate:
    return _news({"sessionUpdate": "current_mode_update", "currentModeId": mode})


def options_changed(options: Any) -> ThreadUpdate:
    return _news({"sessionUpdate": "config_option_update", "configOptions": options or []})


def _news(said: JsonObject) -> ThreadUpdate:
    return ThreadUpdate(protocol=PROTOCOL, kind=said["sessionUpdate"], data=said)
