"""`agents/run` and `tools/call`: from a client's request to the run that it starts, or whose question it answers."""

from __future__ import annotations

from typing import Any

from adapters.agent_communication import wire
from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.inbound.native import Notifications
from adapters.agent_communication.inbound.rendering import AgentWords
from adapters.agent_communication.wire import PROTOCOL
from gateway.core.errors import Invalid, NotFound
from gateway.core.types import Agent, Json, JsonObject, Run, RunRequest
from gateway.mcp import versions
from gateway.mcp.runs import (
    ClientRuns,
    Follow,
    Given,
    Rendering,
    ToolRendering,
    Waiting,
    elsewhere,
    keys,
    questions,
    tools,
)
from gateway.mcp.runs.documents import INPUT
from gateway.mcp.server.contract import Call
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import read


class Calls:
    """One per gateway process."""

    def __init__(self, runs: ClientRuns) -> None:
        self._runs = runs
        self._waiting = Waiting(runs)

    async def run(self, call: Call) -> Any:
        """`agents/run`."""
        asked = read(call.params, wire.Run)
        agent = await self._runs.agent(call.session, asked.name)
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
            run = await self._start(call, agent, asked.input, "/input", config)
        return await self._follow(call, agent, run, AgentWords(call, agent))

    async def call(self, call: Call) -> Any:
        """`tools/call`."""
        asked = read(call.params, wire.CallTool)
        arguments = asked.arguments if asked.arguments is not None else {}
        if asked.name == tools.ANSWER and asked.name not in self._runs.names(call.session):
            return await self._answer_tool(call, arguments)
        agent = await self._runs.agent(call.session, asked.name)
        if asked.request_state is not None and versions.modern(call.client.version):
            run = await self._waiting.again(call, agent, asked.request_state, asked.input_responses)
        else:
            try:
                run = await self._start(call, agent, arguments, "/arguments", keys.config(call.meta))
            except Invalid as error:
                return tools.refused(error)
        return await self._follow(call, agent, run, ToolRendering(self._runs, call, agent))

    # --- a new run --------------------------------------------------------------------------------------------

    async def _start(self, call: Call, agent: Agent, said: Json, place: str, config: JsonObject) -> Run:
        """A new run with the input `said`, which is at `place` in the params. Raises Invalid with the place there."""
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
            return await self._runs.start(request, call)
        except Invalid as error:
            within = place if given is said else f"{place}/{INPUT}"
            raise elsewhere(error, {"/input": within, "/config/configurable": "/config"}) from None

    async def _follow(self, call: Call, agent: Agent, run: Run, rendering: Rendering) -> Any:
        return await Follow(self._runs, call, agent, run, rendering, native=Notifications(call)).go()

    # --- answers ----------------------------------------------------------------------------------------------

    async def _answer_tool(self, call: Call, arguments: JsonObject) -> Any:
        """The tool that answers the question of a tool, and goes on like that."""
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
        return await self._follow(call, agent, run, ToolRendering(self._runs, call, agent))
