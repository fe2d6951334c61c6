"""One agent as a route sees it: one that lives at the target, or what a template there makes of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec.structs import replace

from adapters.agent_communication.codec.agents import agent_of, native
from adapters.agent_communication.outbound.created import Created
from adapters.agent_communication.outbound.server import Server
from adapters.agent_communication.outbound.turn import Home, Turn
from gateway.adapter import RunContext
from gateway.core.errors import OutcomeUnknown
from gateway.core.types import Agent, JsonObject
from gateway.mcp.client.contract import Session


class Resident:
    """An agent that lives there: the one of that name, or (None) the only one."""

    configured = False

    def __init__(self, server: Server, name: str | None) -> None:
        self._server = server
        self._name = name

    async def describe(self) -> Agent:
        """Raises NotFound, which lists who is there."""
        return agent_of(await self._server.agent(self._name))

    @asynccontextmanager
    async def use(self, context: RunContext, capabilities: JsonObject) -> AsyncIterator[tuple[Session, str]]:
        """See `Home.use`."""
        name = self._name or (native(context.agent) or {}).get("name")
        if not isinstance(name, str):
            name = (await self._server.agent(None))["name"]
        async with self._server.lease(capabilities) as session:
            yield session, name

    async def aclose(self) -> None:
        """It keeps nothing."""


class Template:
    """A template there: runs with the same configuration are run by the same agent, made of it when first needed."""

    configured = True

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self._created = Created(name, server)

    async def describe(self) -> Agent:
        """Raises NotFound, which lists the templates."""
        agent = agent_of(await self._server.template(self._name))
        return agent if agent.config_schema else replace(agent, config_schema={"type": "object"})

    def use(self, context: RunContext, capabilities: JsonObject) -> AbstractAsyncContextManager[tuple[Session, str]]:
        """See `Home.use`."""
        return self._created.use(context.run.request.config, capabilities)

    async def aclose(self) -> None:
        """See `Home.aclose`."""
        await self._created.aclose()


class Calls:
    """See `gateway.adapter.Outbound` and `Supervised`. Closes no session: they are the server's."""

    def __init__(self, server: Server, home: Home) -> None:
        self._server = server
        self._home = home
        self._turns: dict[str, Turn] = {}

    async def describe(self) -> Agent:
        """See `Outbound.describe`."""
        return await self._home.describe()

    async def run(self, context: RunContext) -> None:
        """See `Outbound.run`."""
        turn = self._turns[context.run.id] = Turn(context, self._home)
        try:
            await turn.run()
        finally:
            del self._turns[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """A run is a single call: there is no way back to it, and it is never made twice. Raises OutcomeUnknown."""
        raise OutcomeUnknown("the gateway was stopped while the agent worked; what came of it is not known")

    async def cancel(self, context: RunContext) -> None:
        """Nobody waits for the call any more, and `notifications/cancelled` says so."""
        turn = self._turns.get(context.run.id)
        if turn is not None:
            await turn.cancel()

    @property
    def reachable(self) -> bool | None:
        """See `Supervised.reachable`."""
        return self._server.reachable

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""
        await self._home.aclose()


class Found(Calls):
    """One of all the agents that live there."""

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(server, Resident(server, name))
        self._entry: JsonObject | None = None

    def listed(self, entry: JsonObject) -> None:
        """What the server has just said of it: the next `describe` need not ask."""
        self._entry = entry

    async def describe(self) -> Agent:
        """See `Outbound.describe`."""
        entry, self._entry = self._entry, None
        return await super().describe() if entry is None else agent_of(entry)
