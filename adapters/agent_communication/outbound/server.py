"""The server of a target: sessions with it, and its agents and templates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound.asks import QUESTIONS
from adapters.agent_communication.wire import AGENTS_CHANGED, LIST, TEMPLATES
from gateway.core import delta
from gateway.core.errors import AgentError, NotFound
from gateway.core.types import JsonObject
from gateway.core.version import version
from gateway.mcp.client.contract import UpstreamPool, UpstreamSession
from gateway.mcp.client.pool import McpPool

log = logging.getLogger(__name__)

MOST_TOLD = 100
"""The most names in an error."""

Pools = Callable[[JsonObject], UpstreamPool]
"""Makes the sessions of a client with these capabilities."""


class TargetServer:
    """Shared by every agent of a target."""

    def __init__(self, target: AgentCommunicationTarget, pools: Pools | None = None) -> None:
        self.target = target
        self._make = pools or self._made
        self._pools: dict[bytes, UpstreamPool] = {}
        self._changed: list[Callable[[], None]] = []
        self._asking: dict[str, asyncio.Task[dict[str, JsonObject]]] = {}

    @asynccontextmanager
    async def lease(
        self, capabilities: JsonObject = QUESTIONS, *, alone: bool = True
    ) -> AsyncIterator[UpstreamSession]:
        """A session in which the gateway is a client with these capabilities.

        Raises what `UpstreamPool.lease` does, and AgentError for a server that has no agents.
        """
        async with self._pool(capabilities).lease(alone=alone) as session:
            has_agents(session)
            yield session

    async def agents(self) -> dict[str, JsonObject]:
        """Return the entries of all agents, by name. Raises AgentError, AgentBroken, and as `UpstreamPool.lease`."""
        return await self._listed(LIST, "agents")

    async def agent(self, name: str | None) -> JsonObject:
        """Return an agent's entry, by default the only one. Raises NotFound with the names there are."""
        return _chosen("agent", name, await self.agents())

    async def template(self, name: str) -> JsonObject:
        """Return a template's entry. Raises NotFound with the names there are."""
        return _chosen("agent template", name, await self._listed(TEMPLATES, "agentTemplates"))

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the list of agents may have changed."""
        self._changed.append(changed)

    def changed(self) -> None:
        """Tell the listeners that the list of agents may have changed."""
        for changed in self._changed:
            changed()

    @property
    def reachable(self) -> bool | None:
        known = [pool.reachable for pool in self._pools.values() if pool.reachable is not None]
        return any(known) if known else None

    async def aclose(self) -> None:
        """End all sessions."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))

    def _made(self, capabilities: JsonObject) -> UpstreamPool:
        warm = self.target.warmed and capabilities == QUESTIONS  # that by which agents are described
        return McpPool(self.target, capabilities=capabilities, info=_info(), warm=warm)

    def _pool(self, capabilities: JsonObject) -> UpstreamPool:
        key = msgspec.json.encode(capabilities, order="deterministic")
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._make(capabilities)
            pool.on_notification(self._heard)
        return pool

    async def _listed(self, method: str, key: str) -> dict[str, JsonObject]:
        """Return all items of a list, by name; do not modify it. Calls at the same time share one request."""
        task = self._asking.get(method)
        if task is None:
            task = self._asking[method] = asyncio.create_task(self._fetch(method, key))
            task.add_done_callback(lambda _: self._asking.pop(method, None))
            task.add_done_callback(lambda it: it.cancelled() or it.exception())
        return await asyncio.shield(task)

    async def _fetch(self, method: str, key: str) -> dict[str, JsonObject]:
        async with self.lease(alone=False) as session:
            if method == TEMPLATES and not has_agents(session).get("templates"):
                raise AgentError("the server has agents, but no agent templates")
            return _by_name(await session.list(method, key, timeout=self.target.request_timeout))

    def _heard(self, method: str, params: Raw) -> None:
        if method == AGENTS_CHANGED:
            self.changed()
        else:
            log.debug("%s, which is about no run in progress: %s", method, bytes(params)[:200])


def has_agents(session: UpstreamSession) -> JsonObject:
    """Return the server's capability for agents. Raises AgentError if it has none."""
    capabilities = session.server.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, dict) else {}
    agents = capabilities.get("agents")
    if agents is None or agents is False:
        has = _few([name for name, value in capabilities.items() if value not in (None, False)])
        raise AgentError(f"the server has no agents (no capability `agents`); it has {has or 'nothing else either'}")
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


def _chosen(kind: str, name: str | None, there: dict[str, JsonObject]) -> JsonObject:
    if name is None and len(there) == 1:
        return next(iter(there.values()))
    if name in there:
        return there[name]
    names = _few(there) or "none"
    if name is None:
        raise NotFound(f"the server has {len(there)} agents, and the route names none of them; there are: {names}")
    raise NotFound(f"the server has no {kind} {name}; there are: {names}")


def _few(names: Collection[str]) -> str:
    """Join names for a person; only the first of very many."""
    told = ", ".join(delta.sound(name) for name in sorted(names)[:MOST_TOLD])
    return told if len(names) <= MOST_TOLD else f"{told} and {len(names) - MOST_TOLD} more"


def _info() -> JsonObject:
    """Return the gateway's name and version."""
    return {"name": "interlingua", "title": "Interlingua", "version": version()}
