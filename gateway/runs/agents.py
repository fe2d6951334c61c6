"""The part of the `Gateway` that says which agents there are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from gateway import tracing
from gateway.agents.roster import Roster
from gateway.contract import LIST_SECONDS, Governor
from gateway.core.errors import NotFound
from gateway.core.types import Agent, JsonObject


class EngineAgents:
    """Implements `gateway.contract.GatewayAgents`."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def names(self, protocol: str) -> Sequence[str]:
        return self._roster.names(protocol)

    async def list(self, protocol: str) -> Sequence[Agent]:
        """See `GatewayAgents.list`. An agent whose route goes meanwhile is left out; the others are still listed."""
        described = (self.get(name, protocol, within=LIST_SECONDS) for name in self.names(protocol))
        found = await asyncio.gather(*described, return_exceptions=True)
        if strange := [one for one in found if not isinstance(one, Agent | NotFound)]:
            raise strange[0]
        return [one for one in found if isinstance(one, Agent)]

    async def get(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        entry = await self._roster.find(name, protocol)
        return await entry.describe(within)

    async def create(self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None) -> Agent:
        return await self._roster.create(template, protocol, config, owner)

    async def destroy(self, name: str, protocol: str) -> None:
        await self._roster.destroy(name, protocol)

    def created(self, name: str) -> tuple[str, str | None] | None:
        return self._roster.created(name)

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        self._roster.hosted_changed(protocol, described)

    def governor(self, name: str, protocol: str) -> Governor | None:
        return self._roster.entry(name, protocol).governor

    def routed(self, name: str) -> bool:
        return self._roster.routed(name)

    def reachable(self, name: str, protocol: str) -> bool:
        try:
            return self._roster.entry(name, protocol).ready
        except NotFound:
            return False

    def noticed(self, agent: str, what: str) -> None:
        tracing.metrics.conduct.add(1, tracing.metrics.agent(agent), what)
