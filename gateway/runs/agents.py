"""The half of the `Gateway` that says which agents there are. Runs are in engine.py."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from gateway.agents.roster import Roster
from gateway.contract import LIST_SECONDS, Governor
from gateway.core.errors import NotFound
from gateway.core.types import Agent, JsonObject


class Agents:
    """See `gateway.contract.Gateway` for every method."""

    roster: Roster

    def names(self, protocol: str) -> Sequence[str]:
        """See `Gateway.names`."""
        return self.roster.names(protocol)

    async def agents(self, protocol: str) -> Sequence[Agent]:
        """See `Gateway.agents`. An agent whose route goes meanwhile is left out, and keeps none of the others back."""
        described = (self.agent(name, protocol, within=LIST_SECONDS) for name in self.names(protocol))
        found = await asyncio.gather(*described, return_exceptions=True)
        if strange := [one for one in found if not isinstance(one, Agent | NotFound)]:
            raise strange[0]
        return [one for one in found if isinstance(one, Agent)]

    async def agent(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        """See `Gateway.agent`."""
        entry = await self.roster.find(name, protocol)
        return await entry.describe(within)

    async def create_agent(
        self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None
    ) -> Agent:
        """See `Gateway.create_agent`."""
        return await self.roster.create(template, protocol, config, owner)

    async def destroy_agent(self, name: str, protocol: str) -> None:
        """See `Gateway.destroy_agent`."""
        await self.roster.destroy(name, protocol)

    def created(self, name: str) -> tuple[str, str | None] | None:
        """See `Gateway.created`."""
        return self.roster.created(name)

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        """See `Gateway.hosted_changed`."""
        self.roster.hosted_changed(protocol, described)

    def governor(self, name: str, protocol: str) -> Governor | None:
        """See `Gateway.governor`."""
        return self.roster.entry(name, protocol).governor

    def routed(self, name: str) -> bool:
        """See `Gateway.routed`."""
        return self.roster.routed(name)

    def reachable(self, name: str, protocol: str) -> bool:
        """See `Gateway.reachable`."""
        try:
            return self.roster.entry(name, protocol).ready
        except NotFound:
            return False
