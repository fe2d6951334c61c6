"""The half of `ScopedGateway` that says which agents there are. Runs, threads and files are in scoped_gateway.py."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Sequence

from gateway.access.visit import Visit
from gateway.contract.governing import Governor
from gateway.contract.hosting import Kept
from gateway.contract.inbound import LIST_SECONDS, Gateway, Requests
from gateway.core.errors import NotFound
from gateway.core.types import Agent, JsonObject, agent_id


class OwnAgents:
    """See `gateway.contract.Gateway` for every method, and `Own`."""

    def __init__(self, gateway: Gateway, visit: Visit) -> None:
        self.public_url = gateway.public_url
        self._gateway = gateway
        self._visit = visit
        self._principal = visit.principal
        self._id = self._principal.who.id

    @property
    def process(self) -> str:
        """See `Gateway`."""
        return self._gateway.process

    def requests(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> Requests:
        """See `Gateway`."""
        return self._gateway.requests(protocol, methods, code, mcp=mcp)

    # --- agents -------------------------------------------------------------------------------------------------

    def names(self, protocol: str) -> Sequence[str]:
        """See `Gateway`."""
        return [name for name in self._gateway.names(protocol) if self._may_use(name)]

    async def agents(self, protocol: str) -> Sequence[Agent]:
        """See `Gateway`."""
        return [agent for agent in await self._gateway.agents(protocol) if self._may_use(agent.name)]

    async def agent(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        """See `Gateway`."""
        self._seen(name, protocol)
        try:
            found = await self._gateway.agent(name, protocol, within=within)
        except NotFound:
            raise self._none(name, protocol) from None
        if not self._may_use(found.name):
            raise self._none(name, protocol)
        return found

    async def create_agent(
        self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None
    ) -> Agent:
        """See `Gateway`. It is the principal's."""
        await self.agent(template, protocol)
        return await self._gateway.create_agent(template, protocol, config, owner=self._id)

    async def destroy_agent(self, name: str, protocol: str) -> None:
        """See `Gateway`."""
        await self.agent(name, protocol)
        await self._gateway.destroy_agent(name, protocol)

    def created(self, name: str) -> tuple[str, str | None] | None:
        """See `Gateway`."""
        return self._gateway.created(name)

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        """See `Gateway`."""
        self._gateway.hosted_changed(protocol, described)

    def governor(self, name: str, protocol: str) -> Governor | None:
        """See `Gateway`."""
        self._seen(name, protocol)
        try:
            return self._gateway.governor(name, protocol)
        except NotFound:
            raise self._none(name, protocol) from None

    def routed(self, name: str) -> bool:
        """See `Gateway`."""
        return self._gateway.routed(name)

    def reachable(self, name: str, protocol: str) -> bool:
        """See `Gateway`."""
        return self._may_use(name) and self._gateway.reachable(name, protocol)

    def _may_use(self, name: str) -> bool:
        """Whether the agent is there for it."""
        return self._principal.may_use(name, self._gateway.created(name))

    def _seen(self, given: str, protocol: str) -> None:
        """Raises NotFound for an agent that is there, and not for it; before anything is asked of it."""
        if any(not self._may_use(name) for name in self._meant(given, protocol)):
            raise self._none(given, protocol)

    async def _look(self, given: str, protocol: str) -> None:
        """The same; an unknown one may be there at another gateway of the store, and is here from then on.

        Raises NotFound for one that is nowhere: the gateway's own error would list agents of others.
        """
        if not self._meant(given, protocol):
            with contextlib.suppress(NotFound):
                await self._gateway.agent(given, protocol, within=LIST_SECONDS)
            if not self._meant(given, protocol):
                raise self._none(given, protocol)
        self._seen(given, protocol)

    def _meant(self, given: str, protocol: str) -> Sequence[str]:
        """The names of the agent that is given by name or UUID."""
        there = self._gateway.names(protocol)
        if given in there:
            return [given]
        try:
            id = str(uuid.UUID(given))
        except ValueError:
            return []
        return [name for name in there if agent_id(name) == id]

    def _none(self, given: str, protocol: str) -> NotFound:
        return NotFound(f"no agent '{given}'; have {', '.join(self.names(protocol)) or 'none'}")

    # --- what inbound halves keep -------------------------------------------------------------------------------

    async def keep(
        self, protocol: str, name: str, data: JsonObject, *, owner: str, expires_at: float | None = None
    ) -> None:
        """See `Gateway`."""
        await self._gateway.keep(protocol, name, data, owner=owner, expires_at=expires_at)

    async def kept(self, protocol: str) -> Sequence[Kept]:
        """See `Gateway`."""
        return await self._gateway.kept(protocol)

    async def forget(self, protocol: str, name: str) -> None:
        """See `Gateway`."""
        await self._gateway.forget(protocol, name)
