"""`agents/run` and `tools/call`: from a client's request to the run that it starts, or whose question it answers."""

from __future__ import annotations

from typing import Any, Final

from adapters.agent_communication import wire
from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec import questions, tools
from adapters.agent_communication.inbound.follow import Follow
from adapters.agent_communication.inbound.house import House
from adapters.agent_communication.inbound.waiting import Given, Waiting, elsewhere
from adapters.agent_communication.inbound.words import AgentWords, ToolWords, Words
from adapters.agent_communication.wire import PROTOCOL
from gateway.core.errors import Invalid, NotFound
from gateway.core.types import Agent, Json, JsonObject, Run, RunRequest
from gateway.mcp import versions
from gateway.mcp.server.contract import Call
from gateway.mcp.wire import PROGRESS_TOKEN
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import read

HANDLE_PATH: Final = "/_meta/interlingua~1resume"
RESUME: Final = "/arguments/resume"
TRACE: Final = ("traceparent", "tracestate", "baggage")
OWN: Final = (PROGRESS_TOKEN, *TRACE)
OURS: Final = ("interlingua/", "io.modelcontextprotocol/")
"""Keys of a `_meta` with these names, or with these beginnings, are no metadata of runs."""


class Calls:
    """One per gateway process."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._waiting = Waiting(house)

    async def run(self, call: Call) -> Any:
        """`agents/run`."""
        asked = read(call.params, wire.Run)
        agent = await self._house.agent(call.session, asked.name)
        handle = questions.resumed(call.meta)
        if asked.request_state is not None and versions.modern(call.client.version):
            run = await self._waiting.again(call, agent, asked.request_state, asked.input_responses)
        elif handle is not None:
            outcome = call.meta.get(wire.OUTCOME)
            given = Given(HANDLE_PATH, asked.input, "/input", lambda asks: questions.given(asks, asked.input, outcome))
            run = await self._waiting.answer(call, handle, agent, given)
        else:
            config = asked.config if asked.config is not None else _config(call.meta)
            run = await self._start(call, agent, asked.input, "/input", config)
        return await self._follow(call, agent, run, AgentWords(call, agent))

    async def call(self, call: Call) -> Any:
        """`tools/call`."""
        asked = read(call.params, wire.CallTool)
        arguments = asked.arguments if asked.arguments is not None else {}
        if asked.name == tools.ANSWER and asked.name not in self._house.names(call.session):
            return await self._answer_tool(call, arguments)
        agent = await self._house.agent(call.session, asked.name)
        if asked.request_state is not None and versions.modern(call.client.version):
            run = await self._waiting.again(call, agent, asked.request_state, asked.input_responses)
        else:
            try:
                run = await self._start(call, agent, arguments, "/arguments", _config(call.meta))
            except Invalid as error:
                return tools.refused_result(error)
        return await self._follow(call, agent, run, ToolWords(self._house, call, agent))

    # --- a new run --------------------------------------------------------------------------------------------

    async def _start(self, call: Call, agent: Agent, said: Json, place: str, config: JsonObject) -> Run:
        """A new run with the input `said`, which is at `place` in the params. Raises Invalid with the place there."""
        given = said
        try:
            given = codec.input_of(agent, said)
            traceparent = call.meta.get(TRACE[0])
            request = RunRequest(
                agent=agent.name,
                input=given,
                protocol=PROTOCOL,
                config=config,
                metadata=_metadata(call.meta),
                traceparent=traceparent if isinstance(traceparent, str) else None,
                creation=jsonrpc.unpack(call.params) if call.method == wire.RUN and codec.native(agent) else {},
            )
            return await self._house.start(request, call)
        except Invalid as error:
            within = place if given is said else f"{place}/{codec.INPUT}"
            raise elsewhere(error, {"/input": within, "/config/configurable": "/config"}) from None

    async def _follow(self, call: Call, agent: Agent, run: Run, words: Words) -> Any:
        return await Follow(self._house, call, agent, run, words).go()

    # --- answers ----------------------------------------------------------------------------------------------

    async def _answer_tool(self, call: Call, arguments: JsonObject) -> Any:
        """The tool that answers the question of a tool, and goes on like that."""
        given = Given(
            RESUME,
            arguments.get(questions.ANSWER),
            "/arguments/answer",
            lambda asks: tools.answer_given(asks, arguments),
        )
        try:
            handle = tools.answers(arguments)
            run = await self._house.gateway.run(handle[0])
            agent = await self._house.agent(call.session, run.agent)
            await self._waiting.answer(call, handle, agent, given)
        except NotFound:
            return tools.refused_result(Invalid(f"{RESUME}: no run has this question", path=RESUME))
        except Invalid as error:
            return tools.refused_result(error)
        return await self._follow(call, agent, run, ToolWords(self._house, call, agent))


def _metadata(meta: JsonObject) -> JsonObject:
    return {key: value for key, value in meta.items() if key not in OWN and not key.startswith(OURS)}


def _config(meta: JsonObject) -> JsonObject:
    config = meta.get(wire.CONFIG, {})
    if not isinstance(config, dict):
        path = "/_meta/" + wire.CONFIG.replace("/", "~1")
        raise Invalid(f"{path}: it must be an object", path=path)
    return config
