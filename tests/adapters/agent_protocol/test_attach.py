"""After a restart: what is finished is told, what waits for the client asks again, nothing is executed twice."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from adapters.agent_protocol import upstream
from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from adapters.agent_protocol.wire import Step
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, AgentTimeout, OutcomeUnknown
from gateway.core.types import Interrupt
from tests.adapters.agent_protocol.fake_agent import Agent, calling, file, says
from tests.adapters.agent_protocol.support import AGENT
from tests.adapters.agent_protocol.test_outbound import THREE, texts
from tests.support.context import CANCELLED, DECLINED, FakeContext, context
from tests.support.processes import free_port
from tests.support.raw_http import Exchange


async def _at(agent: Agent, steps: int) -> None:
    """Bring an agent to where it has executed that many steps of its task t1."""
    agent._create(b'{"input": "x"}')
    for _ in range(steps):
        agent._execute("t1", {})


def _record(**known: Any) -> dict[str, Any]:
    return upstream.RemoteTask(**{"task_id": "t1", **known}).dump()


def _waiting(made: FakeContext, agent: Agent) -> Interrupt:
    """Leave the run's question open, as the stored record of an interrupted run has it."""
    step = Step.model_validate(agent.steps["t1"][0])
    question = upstream.question("t1", 1, step, [])
    made.run = msgspec.structs.replace(made.run, interrupts=(question,))
    return question


async def test_a_task_that_was_finished_meanwhile_ends_well_with_what_was_missed() -> None:
    agent = Agent(plan=[*THREE[:2], {"output": "checked", "artifacts": [file("a.txt")]}], files={"a": b"A"})
    async with calling(agent) as (outbound, _):
        await _at(agent, 3)
        made = context(AGENT, "x", upstream=_record(done=["t1s1"], in_flight=True))
        await outbound.attach(made)
        assert agent.posted() == []
        assert [(r.part, r.value) for r in made.said(e.PartReplaced)] == [
            ("t1s2/output", "wrote"),
            ("t1s3/output", "checked"),
        ]
        assert made.output["message"] == "wrote\n\nchecked"
        assert [data for _, data in made.artifacts] == [b"A"]
        assert isinstance(made.end, e.RunFinished)


@pytest.mark.parametrize("where", ["a step's", "the task's"])
async def test_a_file_that_was_fetched_before_the_gateway_died_is_not_fetched_again(where: str) -> None:
    files = [file("a.txt"), file("b.txt")]
    agent = Agent(plan=[{"output": "done", "artifacts": files if where == "a step's" else []}])
    agent.files = {"a": b"A", "b": b"B"}
    begun, over = asyncio.Event(), asyncio.Event()

    async def slow(_: Exchange) -> None:
        begun.set()
        await over.wait()

    async with calling(agent) as (outbound, _):
        agent.override["GET /tasks/t1/artifacts"] = says(200, files)
        agent.override["GET /tasks/t1/artifacts/b"] = [slow]
        made = context(AGENT, "x")
        running = asyncio.create_task(outbound.run(made))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        again = context(AGENT, "x", upstream=made.upstreams[-1])
        await outbound.attach(again)
        assert [data for _, data in (*made.artifacts, *again.artifacts)] == [b"A", b"B"]
        assert isinstance(again.end, e.RunFinished)
        over.set()


@pytest.mark.parametrize(
    "seen", [[], ["running", "running", "completed"], ["created", "running", "completed"]], ids="-".join
)
async def test_a_step_that_was_under_way_is_waited_for_and_the_task_goes_on_behind_it(seen: list[str]) -> None:
    agent = Agent(plan=THREE)
    states = list(seen)
    async with calling(agent) as (outbound, _):
        await _at(agent, 2 if states else 1)

        async def look(exchange: Exchange) -> None:
            """Show the second step in the next of the states."""
            query = parse_qs(urlsplit(exchange.target).query)
            if states and query.get("current_page") != ["2"]:
                agent.steps["t1"][1]["status"] = states.pop(0)
            await says(200, agent._page("steps", agent.steps["t1"], query))(exchange)

        agent.override["GET /tasks/t1/steps"] = look
        made = context(AGENT, "x", upstream=_record(in_flight=True))
        await outbound.attach(made)
        assert agent.posted() == [{}] * (1 if seen else 2)
        assert made.output["message"] == "thought\n\nwrote\n\nchecked"
        assert isinstance(made.end, e.RunFinished)


async def test_a_step_that_never_ends_fails_the_run_after_as_long_as_a_step_may_take() -> None:
    agent = Agent(plan=THREE)
    async with calling(agent, step_timeout=0.05) as (outbound, _):
        await _at(agent, 1)
        agent.steps["t1"][1]["status"] = "running"
        with pytest.raises(AgentTimeout):
            await outbound.attach(context(AGENT, "x", upstream=_record(done=["t1s1"])))
        assert agent.posted() == []


async def test_who_cancels_does_not_wait_for_the_step_that_was_under_way() -> None:
    agent = Agent(plan=THREE)
    async with calling(agent) as (outbound, _):
        await _at(agent, 1)
        agent.steps["t1"][1]["status"] = "running"
        made = context(AGENT, "x", upstream=_record(done=["t1s1"]))
        going = asyncio.ensure_future(outbound.attach(made))
        while not agent.asked:  # noqa: ASYNC110 - the agent's looks are the test's clock
            await asyncio.sleep(0)
        await outbound.cancel(made)
        await asyncio.wait_for(going, 30)
        assert isinstance(made.end, e.RunCancelled) and agent.posted() == []


@pytest.mark.parametrize("known", [{"done": ["t1s1"]}, {"done": ["t1s1"], "in_flight": True}])
async def test_a_step_that_may_be_under_way_is_not_executed_again(known: dict[str, Any]) -> None:
    agent = Agent(plan=THREE)
    async with calling(agent) as (outbound, _):
        await _at(agent, 1)
        with pytest.raises(OutcomeUnknown, match="task t1"):
            await outbound.attach(context(AGENT, "x", upstream=_record(**known)))
        assert agent.posted() == []


async def test_an_open_question_is_asked_again_under_its_own_id_and_the_task_goes_on() -> None:
    agent = Agent(plan=THREE)
    async with calling(agent, drive="one") as (outbound, _):
        await _at(agent, 1)
        made = context(AGENT, "x", answers=["more", "and more"], upstream=_record(done=["t1s1"]))
        question = _waiting(made, agent)
        await outbound.attach(made)
        assert made.asked[0] == question
        assert agent.posted() == [{"input": "more"}, {"input": "and more"}]
        assert texts(made) == ["wrote", "checked"]
        assert isinstance(made.end, e.RunFinished)


@pytest.mark.parametrize(("answer", "end"), [(DECLINED, e.RunFinished), (CANCELLED, e.RunCancelled)])
async def test_an_open_question_may_still_be_declined_or_cancelled(answer: Any, end: type[e.Event]) -> None:
    agent = Agent(plan=THREE)
    async with calling(agent, drive="one") as (outbound, _):
        await _at(agent, 1)
        made = context(AGENT, "x", answers=[answer], upstream=_record(done=["t1s1"]))
        _waiting(made, agent)
        await outbound.attach(made)
        assert isinstance(made.end, end)
        assert agent.posted() == []


@pytest.mark.parametrize("sent", ["in flight", "another step is done", "a step is running"])
async def test_an_open_question_whose_answer_may_have_been_sent_is_not_asked_again(sent: str) -> None:
    agent = Agent(plan=THREE)
    async with calling(agent, drive="one") as (outbound, _):
        await _at(agent, 2 if sent == "another step is done" else 1)
        if sent == "a step is running":
            agent.steps["t1"][1]["status"] = "running"
        made = context(AGENT, "x", upstream=_record(done=["t1s1"], in_flight=sent == "in flight"))
        _waiting(made, agent)
        with pytest.raises(OutcomeUnknown):
            await outbound.attach(made)
        assert made.asked == []
        assert agent.posted() == []


async def test_a_run_without_a_record_has_an_unknown_outcome() -> None:
    async with calling() as (outbound, _):
        with pytest.raises(OutcomeUnknown, match="before the agent had named its task"):
            await outbound.attach(context(AGENT, "x", upstream={"what": "is this"}))


async def test_a_task_that_the_agent_lost_is_its_failure() -> None:
    async with calling() as (outbound, _):
        with pytest.raises(AgentFailed, match="404 to the list of steps: no such task"):
            await outbound.attach(context(AGENT, "x", upstream=_record()))


async def test_an_agent_that_is_down_after_the_restart_is_gone() -> None:

    url = f"http://127.0.0.1:{free_port()}"
    outbound = AgentProtocolOutbound(AgentProtocolTarget(protocol="agent_protocol", url=url))
    try:
        with pytest.raises(AgentGone):
            await outbound.attach(context(AGENT, "x", upstream=_record()))
    finally:
        await outbound.aclose()
