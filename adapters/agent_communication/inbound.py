"""Serves clients of the pre-alpha Agent Communication Protocol, and plain MCP clients: the gateway is their server.

`AgentCalls` finds or starts the run of `agents/run` and `tools/call`, and renders it in the client's terms; an agent is
a tool as well. How a run is followed for a call is in gateway/mcp/runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Raw
from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_communication import wire
from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec import deltas_out
from adapters.agent_communication.codec.deltas_out import NOTIFICATION, DeltaEncoder, progress
from adapters.agent_communication.codec.errors import ERRORS
from adapters.agent_communication.options import AgentCommunicationServe
from adapters.agent_communication.wire import AGENTS_CHANGED, PROTOCOL, RUN, TOOLS_CHANGED
from gateway.contract import Gateway, Snapshot
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unsupported
from gateway.core.types import Agent, Interrupt, Json, JsonObject, Run, RunRequest
from gateway.core.version import version
from gateway.mcp import versions
from gateway.mcp.runs import (
    ClientRuns,
    Events,
    Rendering,
    RunFollower,
    ToolRendering,
    elsewhere,
    keys,
    questions,
    tools,
)
from gateway.mcp.runs.documents import INPUT
from gateway.mcp.runs.paging import listed, page
from gateway.mcp.server import McpServer
from gateway.mcp.server.contract import McpCall, McpSession, ServerIdentity
from gateway.mcp.wire import MESSAGE, PROGRESS, PROGRESS_TOKEN
from gateway.transport.pipe import Pipe
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError, failing, read


class Notifications:
    """Passes on the notifications of an agent of this protocol, for one call (`gateway.mcp.runs.Native`)."""

    def __init__(self, call: McpCall) -> None:
        self._call = call
        self.ends = call.method == RUN
        self.needed = self.ends or call.log_level is not None

    def takes(self, event: e.Custom) -> bool:
        return event.name == PROTOCOL and NOTIFICATION in (event.data or ())

    def pass_on(self, event: e.Custom) -> None:
        """Pass on progress if the client asked for it, and a message if the client asked for its level."""
        method, params = event.data[NOTIFICATION], event.data.get("params")
        token = self._call.progress_token
        if method == MESSAGE:
            if not isinstance(params, dict) or not self._call.wants(params.get("level", "info")):
                return
        elif token is None or not self.ends:
            return
        elif method == PROGRESS:
            params = {**(params if isinstance(params, dict) else {}), PROGRESS_TOKEN: token}
        self._call.notify(method, params)


class AgentWords:
    """Renders a run for `agents/run`: deltas, then the output."""

    def __init__(self, call: McpCall, agent: Agent) -> None:
        self._agent = agent
        self._token = call.progress_token
        self._encoder = DeltaEncoder(agent)

    @property
    def tells(self) -> bool:
        return self._token is not None

    @property
    def losses(self) -> Counter[str]:
        return self._encoder.losses

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        token = self._token
        return [] if token is None else [progress(token, delta) for delta in self._encoder.feed(events, snapshot)]

    def last(self, run: Run) -> list[bytes]:
        token = self._token
        return [] if token is None else [progress(token, delta) for delta in self._encoder.finish(run)]

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        return deltas_out.run_result(self._agent, run, end)

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        published = None if output == b"null" else codec.output_of(self._agent, output)
        raise questions.interrupted_error(run, interrupt, published)


class AgentCalls:
    """Serves both methods. One per gateway process."""

    def __init__(self, runs: ClientRuns) -> None:
        self._runs = runs

    async def run(self, call: McpCall) -> Any:
        """`agents/run`."""
        asked = read(call.params, wire.RunParams)
        agent = await self._runs.agent(call.session, asked.name)
        follower = self._follower(call, agent, AgentWords(call, agent))
        run = await self._runs.answered(call, agent, asked.input, "/input")
        if run is None:
            config = asked.config if asked.config is not None else keys.config(call.meta)
            run = await self._start(call, agent, asked.input, config, follower)
        return await follower.go(run)

    async def call(self, call: McpCall) -> Any:
        """`tools/call`."""
        asked = read(call.params, wire.CallToolParams)
        arguments = asked.arguments if asked.arguments is not None else {}
        if asked.name == tools.ANSWER and asked.name not in self._runs.names(call.session):
            return await self._answer_tool(call, arguments)
        agent = await self._runs.agent(call.session, asked.name)
        follower = self._follower(call, agent, ToolRendering(self._runs.tools, call, agent))
        run = await self._runs.returned(call, agent)
        if run is None:
            try:
                run = await self._start(call, agent, arguments, keys.config(call.meta), follower)
            except Invalid as error:
                return tools.refused(error)
        return await follower.go(run)

    # --- a new run --------------------------------------------------------------------------------------------

    async def _start(self, call: McpCall, agent: Agent, said: Json, config: JsonObject, follower: RunFollower) -> Run:
        """Start a run with the input `said`. Raises Invalid with the place in the params."""
        given = said
        try:
            given = codec.input_of(agent, said)
            request = RunRequest(
                agent=agent.name,
                input=given,
                protocol=PROTOCOL,
                config=config,
                metadata=keys.metadata(call.meta),
                traceparent=keys.traceparent(call.meta),
                creation=jsonrpc.unpack(call.params) if call.method == wire.RUN and codec.native(agent) else {},
            )
            return await self._runs.start(request, call, told=follower.hears)
        except Invalid as error:
            place = "/input" if call.method == wire.RUN else "/arguments"
            within = place if given is said else f"{place}/{INPUT}"
            raise elsewhere(error, {"/input": within, "/config/configurable": "/config"}) from None

    def _follower(self, call: McpCall, agent: Agent, rendering: Rendering) -> RunFollower:
        return RunFollower(self._runs, call, agent, rendering, native=Notifications(call))

    # --- answers ----------------------------------------------------------------------------------------------

    async def _answer_tool(self, call: McpCall, arguments: JsonObject) -> Any:
        """Answer the question of a tool by the tool for answers, and go on with the run."""
        given, make = arguments.get(questions.ANSWER), partial(tools.answer_given, arguments=arguments)
        try:
            handle = tools.answers(arguments)
            run = await self._runs.of(call.session).runs.get(handle[0])
            agent = await self._runs.agent(call.session, run.agent)
            place = "/arguments/answer"
            await self._runs.resumed(call, agent, handle, given, place, path=tools.RESUME_PATH, make=make)
        except NotFound:
            return tools.refused(Invalid(f"{tools.RESUME_PATH}: no run has this question", path=tools.RESUME_PATH))
        except Invalid as error:
            return tools.refused(error)
        return await self._follower(call, agent, ToolRendering(self._runs.tools, call, agent)).go(run)


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

    def error(self, call: McpCall, error: Exception) -> RpcError:
        return failing(error, ERRORS)

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


class AgentCommunicationInbound:
    """See `Inbound`, `Conversing`, `Informed` and `Leaving` of `gateway.contract`."""

    def __init__(self, options: AgentCommunicationServe, gateway: Gateway) -> None:
        self.runs = ClientRuns(PROTOCOL, gateway)
        self.service = AgentService(options, self.runs)
        self.server = McpServer(self.service, options, gateway, PROTOCOL)

    def routes(self) -> Sequence[BaseRoute]:
        return self.server.routes()

    def refusal(self, error: InterlinguaError) -> Response:
        return self.server.refusal(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        await self.server.converse(pipe, agent)

    def agents_changed(self) -> None:
        for session in self.server.sessions:
            session.tell(AGENTS_CHANGED)
            session.tell(TOOLS_CHANGED)

    def quiet(self) -> None:
        self.runs.go_quiet()
        self.server.quiet()
