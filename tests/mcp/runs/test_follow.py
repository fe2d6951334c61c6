"""The room's seams, which an adapter may fill in its own way: how a question is put, what a lost connection means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw, json

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, Invalid, Unavailable
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Run, RunQuery, RunRequest, RunStatus
from gateway.mcp.runs import CallCaller, ClientRuns, QuestionFormat, RunFollower, ToolRendering, keys
from gateway.mcp.server.contract import McpCall, McpClient
from gateway.runs import Engine
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, RpcError
from tests.adapters.agent_communication.inbound_rig import YES_NO, FakeCall, FakeSession, asking
from tests.support.aio import run
from tests.support.scripted import AGENT, Script, Scripted, engine, route, until

ANSWERED = Interrupt(id="q1", kind="input", message="Which one?", answer_schema=YES_NO)


def call_of(*, elicitation: bool = False) -> FakeCall:
    """A call under way."""
    client = McpClient("2025-11-25", {"elicitation": {}, "sampling": {}} if elicitation else {})
    return FakeCall(FakeSession(client), 1, "own/run", {})


class Rig:
    """`start` begins a run for a call, `follow` tells the call of it."""

    def __init__(self, engine: Engine, agent: Scripted) -> None:
        self.engine = engine
        self.agent = agent
        self.runs = ClientRuns("own", engine)

    async def start(self, call: McpCall, **how: Any) -> Run:
        request = RunRequest(agent="scripted", protocol="own", input={"message": "hi"})
        return await self.runs.start(request, call, **how)

    async def follow(self, call: McpCall, run: Run, **how: Any) -> Any:
        rendering = ToolRendering(self.runs.tools, call, AGENT)
        return await RunFollower(self.runs, call, AGENT, rendering, **how).go(run)


@asynccontextmanager
async def rig(script: Script) -> AsyncIterator[Rig]:
    agent = Scripted(script)
    async with engine((route(), agent)) as running:
        made = Rig(running, agent)
        yield made
        await made.runs.settled()


# --- questions ---------------------------------------------------------------------------------------------------


class OwnWords:
    """An Asker of a protocol that has a method of its own for questions."""

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        return "own/ask", {"text": interrupt.message}

    async def ask(self, call: McpCall, method: str, params: JsonObject) -> Raw:
        return await call.ask(method, params)

    def again(self, params: JsonObject, why: str) -> JsonObject:
        return {**params, "why": why}

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        if not isinstance(result, dict):
            raise Invalid("no answer at all")
        return Answer(value=result)


async def test_a_protocol_puts_questions_in_its_own_way() -> None:
    call = call_of()
    said: list[Any] = [{"ok": "perhaps"}, {"ok": True}]

    async def answers(method: str, params: Any) -> Any:
        return said.pop(0)

    call.answers = answers
    async with rig(asking(YES_NO)) as made:
        asker: QuestionFormat = OwnWords()
        result = await made.follow(call, await made.start(call), asker=asker)
    assert "answered {'ok': True}" in result["content"][0]["text"]
    (first, asked), (second, repeated) = call.asked
    assert (first, second) == ("own/ask", "own/ask")
    assert asked == {"text": "Which one?"} and repeated["text"] == "Which one?" and "ok" in repeated["why"]


def test_a_file_that_is_made_after_a_question_is_in_the_result_for_a_client_that_is_told_nothing_on_the_way() -> None:
    async def files(context: RunContext) -> None:
        await context.ask(ANSWERED)
        await context.add_artifact("a.txt", b"made")
        context.emit(e.RunFinished())

    async def main() -> None:
        call = call_of()

        async def answers(method: str, params: Any) -> Any:
            return {"ok": True}

        call.answers = answers
        async with rig(files) as made:
            result = await made.follow(call, await made.start(call), asker=OwnWords())
        assert "a.txt: " in result["content"][1]["text"] and not call.said

    run(main())


async def test_what_a_protocol_cannot_read_as_an_answer_is_a_refusal() -> None:
    call = call_of()

    async def answers(method: str, params: Any) -> Any:
        return "noted"

    call.answers = answers
    async with rig(asking(YES_NO)) as made:
        result = await made.follow(call, await made.start(call), asker=OwnWords())
    assert "declined None" in result["content"][0]["text"] and len(call.asked) == 1


# --- a client that has gone --------------------------------------------------------------------------------------


def held(gate: asyncio.Event) -> Script:
    async def script(context: RunContext) -> None:
        await gate.wait()
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())

    return script


@pytest.mark.parametrize(
    ("outlives", "alive", "status"),
    [
        (False, False, RunStatus.CANCELLED),
        (False, True, RunStatus.CANCELLED),
        (True, True, RunStatus.CANCELLED),
        (True, False, RunStatus.SUCCESS),
    ],
)
async def test_a_run_outlives_its_clients_connection_where_the_adapter_says_so_but_no_call_that_is_taken_back(
    outlives: bool, alive: bool, status: RunStatus
) -> None:
    gate, call = asyncio.Event(), call_of()
    async with rig(held(gate)) as made:
        made.agent.on_cancel = gate.set
        started = await made.start(call)
        following = asyncio.create_task(made.follow(call, started, outlives=outlives))
        await asyncio.sleep(0)  # it has begun
        call.session.alive = alive
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        await made.runs.settled()
        gate.set()
        ended = await made.engine.runs.wait(started.id)
        assert ended is not None and ended.status is status


@pytest.mark.parametrize("outlives", [False, True])
async def test_a_run_that_begins_while_the_connection_ends_is_nobodys_unless_it_outlives_it(outlives: bool) -> None:
    gate, call = asyncio.Event(), call_of()
    async with rig(held(gate)) as made:
        made.agent.on_cancel = gate.set
        starting = asyncio.create_task(made.start(call, outlives=outlives))
        await asyncio.sleep(0)
        call.session.alive = False
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        if outlives:
            await until(lambda: bool(made.agent.contexts))
        await made.runs.settled()
        gate.set()
        found = await made.engine.runs.list(RunQuery())
        ended = [await made.engine.runs.wait(each.id) for each in found]
        assert {each.status for each in ended if each} <= {RunStatus.SUCCESS if outlives else RunStatus.CANCELLED}
        assert len(made.agent.contexts) == outlives


@pytest.mark.parametrize("elicitation", [False, True])
@pytest.mark.parametrize("stays", ["", "outlives", "quiet"])
async def test_a_question_to_a_client_that_has_gone_ends_its_run_unless_somebody_can_still_answer(
    stays: str, elicitation: bool
) -> None:
    call = call_of(elicitation=elicitation)

    async def answers(method: str, params: Any) -> Any:
        raise AgentGone("the connection ended")

    call.answers = answers
    async with rig(asking(YES_NO)) as made:
        call.session.alive = False
        made.runs.quiet = stays == "quiet"
        started = await made.start(call)
        if stays:
            result = await made.follow(call, started, outlives=stays == "outlives")
            assert result["_meta"][keys.RESUME] == f"{started.id}.q1"
        else:
            with pytest.raises(RpcError) as refused:
                await made.follow(call, started)
            assert refused.value.error.code == -32800
        await made.runs.settled()
        status = (await made.engine.runs.get(started.id)).status
        assert (status is RunStatus.INTERRUPTED) is bool(stays)
        await made.engine.runs.cancel(started.id)


# --- the client, for agents --------------------------------------------------------------------------------------


class Asked(FakeSession):
    """A session that can be asked outside of its calls."""

    def __init__(self, client: McpClient) -> None:
        super().__init__(client)
        self.can_ask = True
        self.gone = False

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        if self.gone:
            raise AgentGone("the connection ended")
        return Raw(b'"over the session"')


class Answered(FakeCall):
    """A call that is answered already."""

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        raise AgentGone("the request is answered already")


async def test_an_agent_asks_the_client_of_a_call_that_is_answered_over_its_session() -> None:
    client = McpClient("2025-11-25", {"sampling": {}})
    session = Asked(client)
    caller = CallCaller("own", Answered(session, 1, "own/run", {}))
    assert (caller.protocol, caller.capabilities) == ("own", {"sampling": {}})
    assert json.decode(await caller.ask("sampling/createMessage", Raw(b"{}"))) == "over the session"
    for session.gone, session.can_ask in ((True, True), (False, False)):
        with pytest.raises(Unavailable):
            await caller.ask("sampling/createMessage", Raw(b"{}"))


async def test_agents_ask_a_client_only_what_it_has_declared() -> None:
    session = Asked(McpClient("2025-11-25", {"roots": {}, "own": {}}))
    caller = CallCaller("own", Answered(session, 1, "own/run", {}))
    assert json.decode(await caller.ask("roots/list", Raw(b"{}"))) == "over the session"
    for method in ("own/other", "sampling/createMessage"):
        with pytest.raises(RpcError) as refused:
            await caller.ask(method, Raw(b"{}"))
        assert refused.value.error.code == METHOD_NOT_FOUND
