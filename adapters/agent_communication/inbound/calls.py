"""`agents/run` and `tools/call`: finds or starts the run of a request, and renders it in the client's terms."""

from __future__ import annotations

from collections import Counter
from typing import Any

from adapters.agent_communication import wire
from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec import deltas_out
from adapters.agent_communication.codec.deltas_out import NOTIFICATION, DeltaEncoder, progress
from adapters.agent_communication.wire import PROTOCOL, RUN
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.errors import Invalid, NotFound
from gateway.core.types import Agent, Interrupt, Json, JsonObject, Run, RunRequest
from gateway.mcp import versions
from gateway.mcp.runs import (
    ClientRuns,
    Events,
    Given,
    Rendering,
    RunFollower,
    ToolRendering,
    WaitingRuns,
    elsewhere,
    keys,
    questions,
    tools,
    wanted,
)
from gateway.mcp.runs.documents import INPUT
from gateway.mcp.runs.log_messages import INFO
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import MESSAGE, PROGRESS, PROGRESS_TOKEN
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import read


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
            if not isinstance(params, dict) or not wanted(self._call.log_level, params.get("level", INFO)):
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
        self._waiting = WaitingRuns(runs)

    async def run(self, call: McpCall) -> Any:
        """`agents/run`."""
        asked = read(call.params, wire.RunParams)
        agent = await self._runs.agent(call.session, asked.name)
        follower = self._follower(call, agent, AgentWords(call, agent))
        handle = questions.resumed(call.meta)
        if asked.request_state is not None and versions.modern(call.client.version):
            run = await self._waiting.again(call, agent, asked.request_state, asked.input_responses)
        elif handle is not None:
            outcome = call.meta.get(keys.OUTCOME)
            given = Given(
                questions.RESUME_PATH, asked.input, "/input", lambda asks: questions.given(asks, asked.input, outcome)
            )
            run = await self._waiting.answer(call, handle, agent, given)
        else:
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
        if asked.request_state is not None and versions.modern(call.client.version):
            run = await self._waiting.again(call, agent, asked.request_state, asked.input_responses)
        else:
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
        given = Given(
            tools.RESUME_PATH,
            arguments.get(questions.ANSWER),
            "/arguments/answer",
            lambda asks: tools.answer_given(asks, arguments),
        )
        try:
            handle = tools.answers(arguments)
            run = await self._runs.of(call.session).runs.get(handle[0])
            agent = await self._runs.agent(call.session, run.agent)
            await self._waiting.answer(call, handle, agent, given)
        except NotFound:
            return tools.refused(Invalid(f"{tools.RESUME_PATH}: no run has this question", path=tools.RESUME_PATH))
        except Invalid as error:
            return tools.refused(error)
        return await self._follower(call, agent, ToolRendering(self._runs.tools, call, agent)).go(run)
