"""The server of a target: sessions with it, and its agents and templates."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Raw

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.wire import AGENTS_CHANGED, LIST, TEMPLATES
from gateway.core import delta
from gateway.core.errors import AgentError
from gateway.core.types import JsonObject
from gateway.mcp.client.session import ClientSession
from gateway.mcp.client.target import TargetList, TargetNews, TargetPools

log = logging.getLogger(__name__)

QUESTIONS: JsonObject = {"elicitation": {}}
"""The gateway's own capability, whatever the client: to ask with a form."""


class TargetServer:
    """Shared by every agent of a target.

    agents, templates: the entries that are there. Asked, they raise AgentError, AgentBroken and what `lease` does.
    pools: the sessions, by the capabilities that the gateway has in them.
    """

    def __init__(self, target: AgentCommunicationTarget, pools: TargetPools | None = None) -> None:
        self.target = target
        self.news = TargetNews(target, lambda: self.lease(alone=False))
        self.agents = TargetList("agent", lambda: self._fetched(LIST, "agents"))
        self.templates = TargetList("agent template", lambda: self._fetched(TEMPLATES, "agentTemplates"))
        self.pools = pools or TargetPools(target, QUESTIONS)
        self.pools.on_notification(self._heard)

    @asynccontextmanager
    async def lease(self, capabilities: JsonObject = QUESTIONS, *, alone: bool = True) -> AsyncIterator[ClientSession]:
        """A session in which the gateway is a client with these capabilities.

        Raises what `McpPool.lease` does, and AgentError for a server that has no agents.
        """
        async with self.pools.lease(capabilities, alone=alone) as session:
            has_agents(session)
            yield session

    @property
    def reachable(self) -> bool | None:
        return self.pools.reachable

    async def aclose(self) -> None:
        """End all sessions."""
        await self.news.aclose()
        await self.agents.aclose()
        await self.templates.aclose()
        await self.pools.aclose()

    async def _fetched(self, method: str, key: str) -> dict[str, JsonObject]:
        """All items of a list, by name; do not modify it."""
        async with self.lease(alone=False) as session:
            if method == TEMPLATES and not has_agents(session).get("templates"):
                raise AgentError("the server has agents, but no agent templates")
            return _by_name(await session.list(method, key, timeout=self.target.request_timeout))

    def _heard(self, method: str, params: Raw) -> None:
        if method == AGENTS_CHANGED:
            self.news.tell()
        else:
            log.debug("%s, which is about no run in progress: %s", method, bytes(params)[:200])


def has_agents(session: ClientSession) -> JsonObject:
    """Return the server's capability for agents. Raises AgentError if it has none."""
    if not session.offers("agents"):
        raise AgentError(f"the server has no agents (no capability `agents`); it has {session.offered}")
    agents = session.capabilities["agents"]
    return agents if isinstance(agents, dict) else {}


def _by_name(entries: list[JsonObject]) -> dict[str, JsonObject]:
    named: dict[str, JsonObject] = {}
    nameless = twice = 0
    for entry in map(delta.sound, entries):
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            nameless += 1
        elif named.setdefault(name, entry) is not entry:
            twice += 1
    if nameless or twice:
        log.warning("the server lists %d things without a name, and %d under a name that another has", nameless, twice)
    return named
