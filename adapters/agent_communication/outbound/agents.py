"""The agent of a route: one at the target, or one made of a template there for each configuration of runs, kept for a
while in the session it was made in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from adapters.agent_communication.codec.agents import agent_of, native
from adapters.agent_communication.codec.deltas_in import Defaults
from adapters.agent_communication.outbound.server import TargetServer, has_agents
from adapters.agent_communication.outbound.turn import AgentRunTurn, Home
from adapters.agent_communication.wire import CREATE, DESTROY
from gateway.contract import RunContext
from gateway.core.errors import AgentBroken, AgentFailed, InterlinguaError
from gateway.core.types import Agent, JsonObject
from gateway.mcp.client.called_run import CalledRuns
from gateway.mcp.client.session import ClientSession
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

SPOILT = "for AgentTemplate"
"""In the error of servers (acp-sdk for Python) that read the configuration as if it were the template."""

Key = bytes


@dataclass(frozen=True, eq=False)
class _Created:
    """One agent, and the lease of the session it lives in."""

    key: Key
    name: str
    session: ClientSession
    lease: AsyncExitStack


class CreatedAgents:
    """All that were made of one template. An agent serves one run at a time; at most `target.created` wait for one."""

    def __init__(self, template: str, server: TargetServer) -> None:
        self._template = template
        self._server = server
        self._waiting: dict[_Created, asyncio.TimerHandle] = {}  # until when each does; the longest unused first
        self._making = TaskSet()
        self._ending = TaskSet()
        self._closed = False

    @asynccontextmanager
    async def use(self, config: JsonObject, capabilities: JsonObject) -> AsyncIterator[tuple[ClientSession, str]]:
        """An agent with the configuration, for one run: its session, and its name there.

        One that a run has failed with is not used again. Raises AgentFailed if none can be made.
        """
        key = msgspec.json.encode([capabilities, config], order="deterministic")
        created = self._take(key) or await self._made(key, config, capabilities)
        try:
            yield created.session, created.name
        except BaseException:
            self._end_soon(created)
            raise
        self._keep(created)

    async def aclose(self) -> None:
        """Destroy all that wait, and see the last of those that are being destroyed."""
        self._closed = True
        if self._making:
            await asyncio.wait(self._making, timeout=self._server.target.stop_timeout)
            self._making.cancel()
        while self._waiting:
            self._end_soon(next(iter(self._waiting)))
        if self._ending:
            await asyncio.wait(self._ending, timeout=self._server.target.stop_timeout)
            self._ending.cancel()

    def _take(self, key: Key) -> _Created | None:
        """One that waits, the last used first."""
        for created in reversed([*self._waiting]):
            if not created.session.alive:
                self._end_soon(created)
            elif created.key == key:
                self._forget(created)
                return created
        return None

    def _keep(self, created: _Created) -> None:
        if self._closed or not created.session.alive:
            self._end_soon(created)
            return
        loop = asyncio.get_running_loop()
        self._waiting[created] = loop.call_later(self._server.target.idle, self._end_soon, created)
        while len(self._waiting) > self._server.target.created:
            self._end_soon(next(iter(self._waiting)))

    def _forget(self, created: _Created) -> None:
        """It does not wait any more."""
        if (expiry := self._waiting.pop(created, None)) is not None:
            expiry.cancel()

    async def _made(self, key: Key, config: JsonObject, capabilities: JsonObject) -> _Created:
        """A new one. If the run is given up meanwhile it is kept: the server has made it, or is about to."""
        task = self._making.start(self._make(key, config, capabilities))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._left)
            raise

    def _left(self, task: asyncio.Task[_Created]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._keep(task.result())

    async def _make(self, key: Key, config: JsonObject, capabilities: JsonObject) -> _Created:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._server.lease(capabilities))
            params = {"templateName": self._template, "config": config}
            try:
                result = await session.call(CREATE, params, timeout=self._server.target.request_timeout)
            except RpcError as error:
                raise self._not_made(error) from error
            return _Created(key, _name_of(jsonrpc.unpack(result)), session, stack.pop_all())

    def _not_made(self, error: RpcError) -> AgentFailed:
        said = f"the server cannot make an agent of template {self._template}: {error}"
        if SPOILT in str(error):
            first = str(error).partition("\n")[0]
            said = (
                f"the server cannot make an agent of any template: its SDK has a defect, it reads the configuration"
                f" as a template ({first})"
            )
        return AgentFailed(said, detail=error.detail)

    def _end_soon(self, created: _Created) -> None:
        self._forget(created)
        self._ending.start(self._end(created))

    async def _end(self, created: _Created) -> None:
        async with created.lease:
            if not created.session.alive:
                return
            try:
                timeout = self._server.target.request_timeout
                await created.session.call(DESTROY, {"name": created.name}, timeout=timeout)
            except InterlinguaError as error:
                log.info("agent %s, made of %s, was not destroyed: %s", created.name, self._template, error)


def _name_of(result: object) -> str:
    """Of the answer to `agents/create`."""
    agent = result.get("agent") if isinstance(result, dict) else None
    name = agent.get("name") if isinstance(agent, dict) else None
    if not isinstance(name, str) or not name:
        raise AgentBroken("agents/create: the answer names no agent")
    return name


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
    async def use(self, context: RunContext, capabilities: JsonObject) -> AsyncIterator[tuple[ClientSession, str]]:
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
    ) -> AbstractAsyncContextManager[tuple[ClientSession, str]]:
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
