"""The agent of a route: one at the target, or one made of a template there for each configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec.structs import replace

from adapters.agent_communication.codec.agents import agent_of, native
from adapters.agent_communication.codec.deltas_in import Defaults
from adapters.agent_communication.outbound.created import CreatedAgents
from adapters.agent_communication.outbound.server import TargetServer, has_agents
from adapters.agent_communication.outbound.turn import AgentRunTurn, Home
from gateway.contract import RunContext
from gateway.core.types import Agent, JsonObject
from gateway.mcp.client.called_run import CalledRuns
from gateway.mcp.client.contract import UpstreamSession


class Resident:
    """An agent at the target: the one of that name, or (None) the only one."""

    configured = False

    def __init__(self, server: TargetServer, name: str | None) -> None:
        self._server = server
        self._name = name

    async def describe(self) -> Agent:
        """Describe it. Raises NotFound with the names there are."""
        return agent_of(await self._server.agents.one(self._name))

    @asynccontextmanager
    async def use(self, context: RunContext, capabilities: JsonObject) -> AsyncIterator[tuple[UpstreamSession, str]]:
        name = self._name or (native(context.agent) or {}).get("name")
        if not isinstance(name, str):
            name = (await self._server.agents.one(None))["name"]
        async with self._server.pools.lease(capabilities) as session:
            has_agents(session)
            yield session, name

    async def aclose(self) -> None:
        """Nothing to give up."""


class Template:
    """A template at the target. Runs with the same configuration share an agent, made when first needed."""

    configured = True

    def __init__(self, server: TargetServer, name: str) -> None:
        self._server = server
        self._name = name
        self._created = CreatedAgents(name, server)

    async def describe(self) -> Agent:
        """Describe the agents made of it. Raises NotFound with the templates there are."""
        agent = agent_of(await self._server.templates.one(self._name))
        return agent if agent.config_schema else replace(agent, config_schema={"type": "object"})

    def use(
        self, context: RunContext, capabilities: JsonObject
    ) -> AbstractAsyncContextManager[tuple[UpstreamSession, str]]:
        return self._created.use(context.run.request.config, capabilities)

    async def aclose(self) -> None:
        await self._created.aclose()


class TargetAgent(CalledRuns):
    """Implements `gateway.contract.Outbound` and `Supervised`. The sessions are the server's to close."""

    def __init__(self, server: TargetServer, home: Home) -> None:
        super().__init__(self._begun)
        self._server = server
        self._home = home
        self._defaults: Defaults | None = None

    def _begun(self, context: RunContext) -> AgentRunTurn:
        schema = context.agent.output_schema
        if self._defaults is None or self._defaults.schema is not schema:
            self._defaults = Defaults(schema)
        return AgentRunTurn(context, self._home, self._defaults)

    async def describe(self) -> Agent:
        return await self._home.describe()

    @property
    def reachable(self) -> bool | None:
        return self._server.reachable

    async def aclose(self) -> None:
        await self._home.aclose()


class ListedTargetAgent(TargetAgent):
    """One of all the agents at the target."""

    def __init__(self, server: TargetServer, name: str) -> None:
        super().__init__(server, Resident(server, name))
        self._entry: JsonObject | None = None

    def listed(self, entry: JsonObject) -> None:
        """Keep the entry that the server has just listed for the next `describe`."""
        self._entry = entry

    async def describe(self) -> Agent:
        entry, self._entry = self._entry, None
        return await super().describe() if entry is None else agent_of(entry)
