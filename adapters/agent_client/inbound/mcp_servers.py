"""MCP servers that are named when a session is taken up again, of which its agent may not know (docs: session-setup).

For a session that is told from the gateway's record: its agent is asked for nothing but this then.
"""

from __future__ import annotations

import logging
from typing import Any

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents
from adapters.agent_client.codec.turn import OURS
from adapters.agent_client.inbound.clients import SharedSession
from adapters.agent_client.inbound.config_options import settings
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import InterlinguaError
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

LOST = "mcp_servers"


async def told(session: SessionContext, answer: JsonObject) -> JsonObject:
    """The answer of `session/load` or `session/resume`, after the agent was told of servers that are new to it.

    It resumes the session, or loads it if it cannot do that, with what this client names, and others who have it open.
    Where it works, or takes up no sessions, or refuses, they are lost, which the answer says.
    """
    asked = _named(session)
    if not asked:
        return answer
    native = agents.native(await session.gateway.agents.get(session.agent, PROTOCOL))
    if native is not None and not _new(
        asked, (await session.gateway.threads.get(session.id)).upstream.get(session.agent)
    ):
        return answer
    if native is None or session.busy or not await _again(session, native):
        return {**answer, "_meta": {OURS: {"lost": [LOST]}}}
    return {**answer, **await settings(session)}


async def _again(session: SessionContext, native: JsonObject) -> bool:
    """Have the agent take the session up with these servers. Whether it did."""
    if not (agents.loads(native) or agents.offers(native, "resume")):
        return False
    try:
        await session.relay("session/resume", together(session))
    except (InterlinguaError, RpcError) as error:
        log.info("session %s: its agent was not told of new MCP servers: %s", session.id, error)
        return False
    return True


def together(session: SessionContext) -> Raw:
    """The params that the session is taken up with, and the servers of others who have it open, for its agent."""
    asked = _named(session)
    names = [each.get("name") for each in asked]  # of any type: the agent judges them
    others = [each for other in session.elsewhere() for each in _named(other) if each.get("name") not in names]
    if not others:
        return session.params
    return jsonrpc.raw({**jsonrpc.unpack(session.params), tunnel.SERVERS: [*asked, *others]})


def _named(session: SessionContext | SharedSession) -> list[JsonObject]:
    return jsonrpc.read(session.params, wire.NewSession).mcp_servers


def _new(asked: list[JsonObject], recorded: Any) -> bool:
    """Whether one of them is new to the agent, as far as that was recorded.

    Servers that a client offers over its connection are compared by name, since their ids change each time.
    """
    servers = recorded.get(tunnel.SERVERS, []) if isinstance(recorded, dict) else []
    known = [_identity(each) for each in servers if isinstance(each, dict)]
    return any(_identity(each) not in known for each in asked)


def _identity(server: JsonObject) -> JsonObject:
    return {"name": server.get("name")} if server.get("type") == tunnel.TYPE else server
