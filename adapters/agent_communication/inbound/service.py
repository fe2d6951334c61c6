"""The requests of this protocol: lists, runs, templates, and the same agents as tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.agent_communication import wire
from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec.errors import ERRORS
from adapters.agent_communication.inbound.calls import AgentCalls
from adapters.agent_communication.options import AgentCommunicationServe
from adapters.agent_communication.wire import PROTOCOL
from gateway.core.errors import InterlinguaError, NotFound, Unsupported
from gateway.core.types import Agent, JsonObject
from gateway.core.version import version
from gateway.mcp import versions
from gateway.mcp.runs import ClientRuns, tools
from gateway.mcp.runs.paging import listed, page
from gateway.mcp.server.contract import McpCall, McpSession, ServerIdentity
from gateway.wire.jsonrpc import ErrorObject, failing, internal, read

INSTRUCTIONS: Final = (
    "Each agent can be run (agents/run) or called as a tool (tools/call) of the same name. An agent that has a "
    "question where nobody can be asked answers with an error that carries it, and a handle for answering."
)

Handler = Callable[[McpCall], Awaitable[Any]]


class AgentService:
    """See `gateway.mcp.server.contract.Service`."""

    def __init__(self, options: AgentCommunicationServe, runs: ClientRuns) -> None:
        self._page_size = options.page_size
        self._runs = runs
        calls = AgentCalls(runs)
        self._handlers: Mapping[str, Handler] = {
            wire.LIST: self._list,
            wire.TEMPLATES: self._templates,
            wire.CREATE: self._create,
            wire.DESTROY: self._destroy,
            wire.RUN: calls.run,
            wire.TOOLS: self._tools,
            wire.CALL: calls.call,
        }
        self.methods: Sequence[str] = tuple(self._handlers)

    def identity(self, session: McpSession) -> ServerIdentity:
        """See `Service.identity`. Raises NotFound where the session is for an agent that there is not."""
        if session.agent is not None and not self._runs.names(session):
            raise NotFound(
                f"no agent {session.agent}; there are {', '.join(self._runs.of(session).agents.names(PROTOCOL))}"
            )
        info: JsonObject = {"name": "interlingua", "version": version()}
        if versions.has_structured_output(session.client.version):
            info["title"] = "Interlingua"
        capabilities = {
            "agents": {"listChanged": True, "templates": session.agent is None},
            "tools": {"listChanged": True},
            "logging": {},
        }
        return ServerIdentity(capabilities=capabilities, info=info, instructions=INSTRUCTIONS)

    async def request(self, call: McpCall) -> Any:
        if call.progress_token is None:
            return await self._handlers[call.method](call)
        with self._runs.progressing(call):
            return await self._handlers[call.method](call)

    def error(self, call: McpCall, error: Exception) -> ErrorObject:
        return (failing(error, ERRORS) if isinstance(error, InterlinguaError) else internal()).error

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        """See `Service.notification`. Of what clients tell nothing concerns an agent."""

    def joined(self, session: McpSession) -> None:
        """See `Service.joined`."""

    def left(self, session: McpSession) -> None:
        """See `Service.left`. Its calls are cancelled by the transport."""

    # --- lists ------------------------------------------------------------------------------------------------

    async def _list(self, call: McpCall) -> JsonObject:
        names, following = self._page(call, "agents", self._runs.names(call.session))
        agents = await self._runs.agents(names)
        return listed("agents", [codec.entry_of(agent) for agent in agents], following)

    async def _templates(self, call: McpCall) -> JsonObject:
        agents = await self._runs.agents(self._runs.names(call.session) if call.session.agent is None else ())
        found = {agent.name: entry for agent in agents if (entry := codec.template_of(agent)) is not None}
        names, following = self._page(call, "templates", list(found))
        return listed("agentTemplates", [found[name] for name in names], following)

    async def _tools(self, call: McpCall) -> JsonObject:
        version = call.client.version
        every = self._runs.names(call.session)
        names, following = self._page(call, "tools", every)
        found = [codec.tool_of(agent, version) for agent in await self._runs.agents(names)]
        if following is None and await self._has_questions(every):
            found.append(self._runs.tools.answer_tool())
        return listed("tools", found, following)

    async def _has_questions(self, names: Sequence[str]) -> bool:
        return tools.ANSWER not in names and any(_asks(agent) for agent in await self._runs.agents(names))

    def _page(self, call: McpCall, kind: str, names: Sequence[str]) -> tuple[Sequence[str], str | None]:
        asked = read(call.params, wire.ListParams)
        return page(kind, names, asked.cursor, self._page_size)

    # --- templates --------------------------------------------------------------------------------------------

    async def _create(self, call: McpCall) -> JsonObject:
        asked = read(call.params, wire.CreateParams)
        self._free(call.session, "create agents")
        template = await self._runs.agent(call.session, asked.template_name, "/templateName")
        made = await self._runs.whole(self._runs.of(call.session).agents.create(template.name, PROTOCOL, asked.config))
        return {"agent": codec.entry_of(made)}

    async def _destroy(self, call: McpCall) -> JsonObject:
        asked = read(call.params, wire.DestroyParams)
        self._free(call.session, "destroy agents")
        agent = await self._runs.agent(call.session, asked.name)
        await self._runs.whole(self._runs.of(call.session).agents.destroy(agent.name, PROTOCOL))
        return {}

    def _free(self, session: McpSession, what: str) -> None:
        if session.agent is not None:
            raise Unsupported(f"this connection is for agent {session.agent} alone: it cannot {what}")


def _asks(agent: Agent) -> bool:
    return agent.capabilities.interrupts or bool(agent.interrupts)
