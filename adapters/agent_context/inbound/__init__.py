"""Serves clients of the Agent Context Protocol, and plain MCP clients: their server, and their directory.

methods.py      the methods by name; agents that register; the standard tools
work.py         agent/message, agent/delegate and the tools for tasks: runs
rendering.py    what is told of a run or a task, before its end and at it
questions.py    a run's questions
resources.py    directory, tasks, metrics; prompts and resources of an MCP server
sampling.py     sampling/createMessage
environment.py  what all requests share: who a client is, and what was a notification and takes a while
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import Tasks
from adapters.agent_context.directory import Directory
from adapters.agent_context.directory.announcing import Announcing
from adapters.agent_context.inbound.environment import Background, ClientIdentities, Environment
from adapters.agent_context.inbound.methods import AgentContextService
from adapters.agent_context.inbound.resources import Resources
from adapters.agent_context.inbound.sampling import Sampling
from adapters.agent_context.inbound.work import TaskRequests
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.security import Access
from adapters.agent_context.wire import CONFLICT, DIRECTORY, MCP_VERSION, PATH, PROTOCOL, VERSION
from gateway.contract import Gateway, Hosted
from gateway.core.errors import InterlinguaError
from gateway.core.types import Run
from gateway.mcp.runs import ClientRuns, WaitingRuns
from gateway.mcp.server import Hub, McpDoor, McpServer
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.transport.pipe import Pipe


class AgentContextInbound:
    """See `Inbound`, `Conversing`, `Knowing`, `Informed`, `Leaving` and `Hosting` of `gateway.contract`."""

    def __init__(self, options: AgentContextServe, gateway: Gateway, coordinator: Coordinator | None = None) -> None:
        """`coordinator`: who asks for the directory made here."""
        self._access = Access(options.access)
        self.directory = Directory(options, gateway)
        people = ClientIdentities(self._access, self.directory)
        self.runs = ClientRuns(PROTOCOL, gateway, who=people.identity)
        self.coordinator = coordinator or Coordinator(options, gateway, lambda: self.directory)
        self.background = Background()

        def may_answer(call: McpCall, run: Run) -> bool:
            return self.env.may_answer(call, run)

        self.env = Environment(
            options=options,
            gateway=gateway,
            runs=self.runs,
            people=people,
            directory=self.directory,
            background=self.background,
            waiting=WaitingRuns(self.runs, may=may_answer, over=CONFLICT),
        )
        tasks = Tasks(gateway, self.coordinator.name)

        def sessions() -> Collection[McpSession]:
            return self.server.sessions

        self.resources = Resources(self.env, tasks, sessions)
        self.service = AgentContextService(
            self.env,
            TaskRequests(self.env, tasks, self.coordinator, self.resources.changed),
            self.resources,
            Sampling(self.env, sessions),
        )
        door = McpDoor(gateway, PROTOCOL, people.name)
        self.server = McpServer(Hub(self.service, options, {VERSION: MCP_VERSION}, door=door))
        path = options.path or PATH
        self.announcing = [Announcing(each, gateway, path) for each in options.announce]
        self.directory.on_change(self._changed)

    # --- Inbound, Conversing ----------------------------------------------------------------------------------

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        known = self._access.shown(headers)
        return None if known is None else lambda agent: known.can("read", agent)

    def known(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        known = self._access.shown(headers)
        return None if known is None else known.name

    def routes(self) -> Sequence[BaseRoute]:
        return self.server.at("")

    def refusal(self, error: InterlinguaError) -> Response:
        return self.server.refusal(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        await self.server.converse(pipe, agent)

    # --- Informed, Leaving ------------------------------------------------------------------------------------

    def agents_changed(self) -> None:
        self._changed((DIRECTORY,))

    def quiet(self) -> None:
        self.runs.go_quiet()
        self.server.quiet()
        self.background.stop()
        self.resources.close()

    # --- Hosting ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.directory.open()
        for each in self.announcing:
            each.open()

    def hosted(self) -> Mapping[str, Hosted]:
        return {**self.coordinator.hosted(), **self.directory.hosted()}

    async def refresh(self) -> None:
        await self.directory.refresh()
        self.resources.look()

    async def aclose(self) -> None:
        await asyncio.gather(*(each.aclose() for each in self.announcing))
        await self.directory.aclose()

    async def settled(self) -> None:
        """Until what is done in the background is done; for tests."""
        await self.background.settled()
        await self.runs.settled()

    # --- inside -----------------------------------------------------------------------------------------------

    def _changed(self, uris: Iterable[str]) -> None:
        """Agents came, went, or are not as they were."""
        self.resources.changed(uris)
        self.coordinator.queue.changed()
