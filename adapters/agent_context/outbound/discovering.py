"""Finds the agents of a target: those of its directory, or the tools of a plain MCP server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.outbound import tools
from adapters.agent_context.outbound.messages import How, read
from adapters.agent_context.outbound.pools import PoolLink, capabilities_of, is_native
from adapters.agent_context.wire import constants as wire
from gateway.core import delta
from gateway.core.errors import AgentBroken, AgentError
from gateway.core.types import Agent, JsonObject
from gateway.mcp import versions
from gateway.mcp.client.contract import UpstreamSession
from gateway.mcp.client.target_server import TargetList, TargetNews, few
from gateway.mcp.wire import LISTEN, declares
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
CHANGES: Final = frozenset({TOOLS_CHANGED, wire.RESOURCES_CHANGED, wire.RESOURCE_UPDATED})
AWAY: Final = frozenset({wire.OFFLINE, wire.REVOKED})
"""`status` of an entry that cannot be called."""


class DescribedServer:
    """Shared by every agent of a target.

    agents: those that are there, by their ids (or names) there. Asked, they raise AgentError, AgentBroken and what
    `PoolLink.lease` does. news: of changes of them.
    """

    def __init__(self, link: PoolLink, how: How) -> None:
        self.link = link
        self.agents = TargetList("agent", self._fetched)
        self.news = TargetNews(link.target, self._listening)
        self._how = how
        link.on_notification(self._heard)

    async def aclose(self) -> None:
        """Listen no more. The link is closed by who made it."""
        await self.news.aclose()
        await self.agents.aclose()

    async def _fetched(self) -> dict[str, Agent]:
        timeout = self.link.target.request_timeout
        async with self.link.lease(alone=False) as session:
            if self._how == "tool" or (self._how == "auto" and not is_native(session)):
                return await self._tools(session)
            try:
                params = {"uri": wire.DIRECTORY}
                result = read(await session.call(wire.RESOURCES_READ, params, timeout=timeout), wire.RESOURCES_READ)
            except RpcError as error:
                log.debug("the server has no directory: %s", error)
                alone = agent_of(_alone(session))
                return {alone.name: alone}
            found: dict[str, Agent] = {}
            for entry in _entries(result):
                try:
                    agent = agent_of(entry)
                except AgentBroken as error:
                    log.warning("an entry of the directory is left out: %s", error)
                    continue
                if entry.get("status") not in AWAY and agent.name != wire.SELF:
                    found.setdefault(agent.name, agent)
            return found

    async def _tools(self, session: UpstreamSession) -> dict[str, Agent]:
        capabilities = capabilities_of(session)
        if not declares(capabilities, "tools"):
            has = few([name for name in capabilities if declares(capabilities, name)])
            raise AgentError(f"the server has neither agents nor tools; it has {has or 'nothing else either'}")
        found: dict[str, Agent] = {}
        for entry in await session.list(wire.TOOLS_LIST, "tools", timeout=self.link.target.request_timeout):
            agent = tools.agent_of(entry)
            found.setdefault(agent.name, agent)
        return found

    # --- news -------------------------------------------------------------------------------------------------------

    def _heard(self, method: str, params: Raw) -> None:
        if method not in CHANGES or (method == wire.RESOURCE_UPDATED and _uri(params) != wire.DIRECTORY):
            log.debug("%s, which is about no run in progress: %s", method, bytes(params)[:200])
            return
        self.news.tell()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[UpstreamSession]:
        async with self.link.lease(alone=False) as session:
            await self._subscribed(session)
            yield session

    async def _subscribed(self, session: UpstreamSession) -> None:
        resources = capabilities_of(session).get("resources")
        if not isinstance(resources, dict) or not resources.get("subscribe") or not is_native(session):
            return
        try:
            if versions.modern(session.version):
                wanted = {"resourceSubscriptions": [wire.DIRECTORY]}
                await session.call(LISTEN, {"notifications": wanted})
            else:
                await session.call(wire.SUBSCRIBE, {"uri": wire.DIRECTORY}, timeout=self.link.target.request_timeout)
        except RpcError as error:  # it may still tell that a list has changed
            log.info("the directory cannot be subscribed to: %s", error)


def _entries(result: JsonObject) -> list[JsonObject]:
    """The agents that a reading of the directory names. Raises AgentBroken."""
    contents = result.get("contents")
    text = next((each.get("text") for each in _objects(contents) if isinstance(each.get("text"), str)), None)
    try:
        found = delta.sound(jsonrpc.unpack(Raw((text or "").encode())))
    except (ValueError, RecursionError) as error:
        raise AgentBroken("the directory is no JSON", detail=str(error)) from error
    entries = found.get("agents") if isinstance(found, dict) else found
    if not isinstance(entries, list):
        raise AgentBroken("the directory has no list of agents")
    return _objects(entries)


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _alone(session: UpstreamSession) -> JsonObject:
    """The record of an agent that is a server by itself and has no directory."""
    info = session.server.get("serverInfo")
    name = info.get("name") if isinstance(info, dict) else None
    name = name if isinstance(name, str) and name else "agent"
    said = capabilities_of(session).get(wire.AGENT)
    said = said if isinstance(said, dict) else {}
    offered = {key: said[key] if isinstance(said.get(key), list) else [] for key in ("tools", "models")}
    found = said.get("specializations")
    capabilities = {**offered, "specializations": found if isinstance(found, list) else [], "protocols": [wire.VERSION]}
    id = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
    return {"id": id, "name": name, "capabilities": capabilities}


def _uri(params: Raw) -> Any:
    try:
        return jsonrpc.unpack(params, dict[str, Any]).get("uri")
    except (ValueError, RecursionError):
        return None
