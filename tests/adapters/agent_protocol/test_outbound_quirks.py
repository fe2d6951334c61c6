"""What real servers do, and broken ones: each ends in the right result or the right error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentBusy, AgentFailed, AgentGone, AgentTimeout, Conflict, NotFound
from tests.adapters.agent_protocol.fake_agent import Agent, calling, file, says
from tests.adapters.agent_protocol.support import AGENT
from tests.adapters.agent_protocol.test_outbound import THREE, plans, texts
from tests.support.aio import Clock, later, run
from tests.support.context import context
from tests.support.processes import free_port
from tests.support.scripted import until

STEPS = "POST /tasks/t1/steps"
DONE = {"task_id": "t1", "step_id": "t1s1", "status": "completed", "output": "done", "is_last": True, "artifacts": []}


async def test_a_planless_agent_that_never_says_is_last_ends_where_it_has_no_step_left() -> None:
    plan: list[dict[str, Any]] = [{"output": "1"}, {"output": "2", "is_last": False}]
    async with calling(Agent(plan=plan)) as (outbound, agent):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["1", "2"]
        assert isinstance(made.end, e.RunFinished)
        assert len(agent.posted()) == 3
        assert made.losses == {"is_last_missing": 1}


@pytest.mark.parametrize(
    "one_too_many",
    [
        says(500, "Internal Server Error", "text/plain"),
        says(200, {"error": "no steps"}),
        says(404, {"message": "no steps"}),
        says(200, {**DONE, "is_last": False}),
    ],
    ids=["500 text", "error object", "404", "the last step again"],
)
async def test_a_step_after_the_last_is_no_failure(one_too_many: Any) -> None:
    agent = Agent(plan=[{"output": "done", "is_last": False}], override={STEPS: [None, one_too_many]})
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["done"]
        assert isinstance(made.end, e.RunFinished)
        assert made.losses == {"is_last_missing": 1}


async def test_a_second_step_that_fails_is_a_failure() -> None:
    agent = Agent(plan=THREE, override={STEPS: [None, says(500, "boom", "text/plain")]})
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        with pytest.raises(AgentFailed, match="500 to a step: boom"):
            await outbound.run(made)
        assert texts(made) == ["thought"]


@pytest.mark.parametrize("status", [401, 409, 422, 503])
async def test_a_second_step_that_is_not_taken_is_no_end_though_nothing_is_planned(status: int) -> None:
    """Another gateway's step may be a question, which no step without input answers."""
    plan = [{"output": "Is it right?", "is_last": False}]
    agent = Agent(plan=plan, override={STEPS: [None, says(status, {"message": "the agent asks: Is it right?"})]})
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        error = {409: Conflict, 503: AgentGone}.get(status, AgentFailed)
        with pytest.raises(error, match=f"{status} to a step: the agent asks"):
            await outbound.run(made)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (says(500, "Internal Server Error", "text/plain"), AgentFailed, "500 to a step: Internal Server Error"),
        (says(500, "<html>oops</html>", "text/html"), AgentFailed, "500 to a step$"),
        (says(500, "<h1>database is locked</h1>", "text/html"), AgentFailed, "500 to a step: database is locked$"),
        (
            says(422, {"detail": [{"loc": ["body"], "msg": "input missing"}]}),
            AgentFailed,
            "422 to a step: input missing",
        ),
        (says(400, {"error": {"message": "nope"}}), AgentFailed, "400 to a step: nope"),
        (says(429, {"error": "nope"}), AgentBusy, "429 to a step: nope"),
        (says(401, {"detail": "who?"}), AgentFailed, "401 to a step: who?"),
        (says(200, {"error": "quota"}), AgentFailed, "the agent failed: quota"),
        (says(200, "not json"), AgentBroken, "not a step: it is no JSON document$"),
        (says(200, "<html></html>", "application/json"), AgentBroken, "not a step: it is no JSON document$"),
        (says(200, ""), AgentBroken, "not a step: it is no JSON document$"),
        (says(200, []), AgentBroken, "not a step: it should be a JSON object$"),
        (says(200, {"output": "x"}), AgentBroken, "not a step: step_id"),
        (says(200, {**DONE, "status": "exploded"}), AgentBroken, "not a step: status: should be 'created', 'run"),
        (says(307, b""), AgentBroken, r"answered 307 to .*: it redirects; the address must"),
        (
            says(200, {**DONE, "additional_output": {"error": {"code": "agent_failed", "message": "out of paint"}}}),
            AgentFailed,
            "^out of paint$",
        ),
    ],
)
async def test_a_first_step_that_goes_wrong_is_the_agents_error(
    answer: Any, error: type[Exception], message: str
) -> None:
    async with calling(Agent(override={STEPS: answer})) as (outbound, agent):
        made = context(AGENT, "x")
        with pytest.raises(error, match=message):
            await outbound.run(made)
        assert len(agent.posted()) == 1


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (says(422, {"detail": "bad input"}), AgentFailed, "422 to the task: bad input"),
        (says(500, b""), AgentFailed, "500 to the task$"),
        (says(200, {"input": "x"}), AgentBroken, "not the task: task_id"),
        (says(200, {"task_id": ".."}), AgentBroken, "as an id"),
    ],
)
async def test_a_task_that_goes_wrong_is_the_agents_error(answer: Any, error: type[Exception], message: str) -> None:
    async with calling(Agent(override={"POST /tasks": answer})) as (outbound, _):
        with pytest.raises(error, match=message):
            await outbound.run(context(AGENT, "x"))


async def test_an_answer_is_read_whatever_it_says_its_type_is() -> None:
    lying = says(200, json.dumps(DONE), "text/html")
    async with calling(Agent(override={STEPS: lying})) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["done"]


async def test_an_output_that_is_no_string_is_shown_as_json() -> None:
    async with calling(Agent(override={STEPS: says(200, {**DONE, "output": {"a": [1]}})})) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ['{"a":[1]}']


async def test_a_step_without_output_says_nothing() -> None:
    async with calling(Agent(plan=[{"output": None}])) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert made.said(e.PartStarted) == []
        assert isinstance(made.end, e.RunFinished)


async def test_a_step_answered_before_it_is_done_is_looked_at_until_it_is() -> None:
    running = {**DONE, "status": "running", "output": None, "is_last": False}
    agent = Agent(
        override={
            STEPS: says(200, running),
            "GET /tasks/t1/steps/t1s1": [says(200, running), says(500, b""), says(200, DONE)],
            "GET /tasks/t1/steps": says(200, [running]),
        }
    )
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["done"]
        assert len(agent.posted()) == 1


async def test_a_server_that_answers_any_step_with_the_first_one_is_seen_through() -> None:
    other = {**DONE, "step_id": "t1s0"}
    running = {**DONE, "status": "running", "is_last": False}
    agent = Agent(
        override={
            STEPS: says(200, running),
            "GET /tasks/t1/steps/t1s1": says(200, other),
            "GET /tasks/t1/steps": says(200, {"steps": [other, DONE], "pagination": {"total_items": 2}}),
        }
    )
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert [m.message for m in made.said(e.MessageStarted)] == ["t1s1"]


async def test_lists_are_read_to_the_end_though_total_pages_is_floored() -> None:
    plan = [{"name": f"s{n}", "output": str(n)} for n in range(5)]
    async with calling(Agent(plan=plan)) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert plans(made)[-1] == [(f"s{n}", "completed") for n in range(5)]


async def test_a_server_that_ignores_pages_is_read_once() -> None:
    same = says(200, {"steps": [DONE], "pagination": {"total_items": 99, "total_pages": 9}})
    async with calling(Agent(override={"GET /tasks/t1/steps": same})) as (outbound, agent):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert plans(made) == [[("Step 1", "completed")]]
        assert agent.asked.count("GET /tasks/t1/steps") == 4


async def test_old_servers_list_ids_and_their_steps_are_asked_for() -> None:
    agent = Agent(prefix="", plan=THREE[:1], files={"a": b"A"})
    agent.plan = [{**THREE[0], "artifacts": ["a"]}]
    agent.override = {
        "GET /tasks/t1/steps": says(200, ["t1s1"]),
        "GET /tasks/t1/artifacts": says(404, {"detail": "Not Found"}),
        "GET /tasks/t1/artifact": says(200, ["a"]),
    }
    async with calling(agent) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert plans(made)[-1] == [("Think", "completed")]
        assert "GET /tasks/t1/artifact/a" in agent.asked
        assert [(a.name, data) for a, data in made.artifacts] == [("a", b"A")]


async def test_a_list_of_steps_that_cannot_be_had_is_a_loss_and_no_more() -> None:
    async with calling(Agent(override={"GET /tasks/t1/steps": says(404, b"")})) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["done"]
        assert made.said(e.PlanUpdated) == []
        assert set(made.losses) == {"plan_unavailable"}


# --- where the agent is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "path", "options"),
    [
        ("/ap/v1", "", {}),
        ("/ap/v1", "/ap/v1", {}),
        ("/ap/v1", "/", {}),
        ("", "", {}),
        ("", "", {"base_path": "legacy"}),
        ("/ap/v1", "", {"base_path": "ap_v1"}),
        ("/ap/v1", "/ap/v1", {"base_path": "legacy"}),
        ("/deep/down/ap/v1", "/deep/down", {}),
        ("/many/poet/ap/v1", "/many", {"agent": "poet"}),
        ("/many/poet/ap/v1", "/many/ap/v1", {"agent": "poet"}),
    ],
)
async def test_the_agent_is_found_below_its_address(prefix: str, path: str, options: dict[str, Any]) -> None:
    async with calling(Agent(prefix=prefix), path=path, **options) as (outbound, _):
        await outbound.describe()
        made = context(AGENT, "x")
        await outbound.run(made)
        assert texts(made) == ["done"]


async def test_an_address_without_an_agent_says_what_was_tried() -> None:
    async with calling(Agent(prefix="/elsewhere")) as (outbound, _):
        with pytest.raises(NotFound, match="404 for /ap/v1/agent/tasks and /agent/tasks"):
            await outbound.describe()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (says(401, {"detail": "no"}), AgentBroken),
        (says(503, b""), AgentGone),
        (says(504, b""), AgentTimeout),
        (says(418, b""), AgentBroken),
        (says(200, "hello", "text/html"), AgentBroken),
    ],
)
async def test_an_agent_that_is_not_well_cannot_be_described(answer: Any, error: type[Exception]) -> None:
    async with calling(Agent(override={"GET /tasks": answer})) as (outbound, _):
        with pytest.raises(error):
            await outbound.describe()


async def test_an_agent_that_cannot_list_its_tasks_is_there_all_the_same() -> None:
    async with calling(Agent(override={"GET /tasks": says(405, b"")})) as (outbound, _):
        await outbound.describe()
        await outbound.run(context(AGENT, "x"))


async def test_an_agent_that_is_down_is_gone() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    outbound = AgentProtocolOutbound(AgentProtocolTarget(protocol="agent_protocol", url=url))
    try:
        with pytest.raises(AgentGone):
            await outbound.describe()
        with pytest.raises(AgentGone):
            await outbound.run(context(AGENT, "x"))
    finally:
        await outbound.aclose()


async def given_up(agent: Agent, asked: str) -> None:
    """Its step is, when the ten seconds have passed that it may take; the agent has been asked that before."""
    async with calling(agent, step_timeout=10) as (outbound, _):
        task = asyncio.create_task(outbound.run(context(AGENT, "x")))
        await until(lambda: asked in agent.asked)
        await later(11)
        with pytest.raises(AgentTimeout, match="not done within 10 s"):
            await asyncio.wait_for(task, 30)


def test_a_slow_step_is_given_up() -> None:
    async def never(exchange: Any) -> None:
        await exchange.gone()

    run(given_up(Agent(override={STEPS: never}), STEPS), 1000, loop_factory=Clock)


def test_a_step_that_is_running_for_ever_is_given_up() -> None:
    running, look = {**DONE, "status": "running"}, "GET /tasks/t1/steps/t1s1"
    agent = Agent(override={STEPS: says(200, running), look: says(200, running)})
    run(given_up(agent, look), 1000, loop_factory=Clock)


async def test_an_agent_that_dies_in_mid_step_is_gone_and_the_step_is_not_sent_again() -> None:
    async def dies(exchange: Any) -> None:
        exchange.reset()

    async with calling(Agent(override={STEPS: dies})) as (outbound, agent):
        with pytest.raises(AgentGone):
            await outbound.run(context(AGENT, "x"))
        assert len(agent.posted()) == 1


async def test_a_file_that_breaks_off_is_not_kept() -> None:
    async def half(exchange: Any) -> None:
        await exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        exchange.writer.close()

    plan = [{"output": "done", "artifacts": [file("a.txt")]}]
    async with calling(Agent(plan=plan, override={"GET /tasks/t1/artifacts/a": half})) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert made.artifacts == []
        assert made.losses == {"artifact_unavailable": 1}
