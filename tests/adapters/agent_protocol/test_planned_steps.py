"""The steps that an Agent Protocol agent lists when its task is created: listed at once, the same when executed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.core.types import JsonObject
from tests.adapters.agent_protocol.fake_agent import Agent, calling, says
from tests.adapters.agent_protocol.support import Client, app, echo, native, serving
from tests.adapters.agent_protocol.test_same_protocol import through
from tests.support.aio import run
from tests.support.scripted import engine

PLAN: list[dict[str, Any]] = [
    {"name": "Think", "output": "thought"},
    {"name": None, "output": "more"},
    {"name": "Check", "output": "checked"},
]


class Planner(Agent):
    """Lists all of its steps when the task is created."""

    def _announce(self, task: str) -> None:
        if not self.steps[task]:
            for _ in self.plan:
                super()._announce(task)


async def listed(client: Client, task: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = (await client.get(f"/tasks/{task}/steps"))["steps"]
    return steps


async def test_steps_listed_at_creation_are_listed_before_the_first_run_and_keep_their_ids() -> None:
    agent = Planner(plan=PLAN)
    async with through(agent) as (client, _):
        task = await client.task("write", additional_input={"k": 1})
        assert agent.bodies["POST /tasks"] == [{"input": "write", "additional_input": {"k": 1}}]
        before = await listed(client, task)
        assert [(step["name"], step["status"], step["is_last"]) for step in before] == [
            ("Think", "created", False),
            (None, "created", False),
            ("Check", "created", False),
        ]
        assert await client.get(f"/tasks/{task}/steps/{before[1]['step_id']}") == before[1]
        page = await client.get(f"/tasks/{task}/steps?current_page=2&page_size=2")
        assert page["steps"] == before[2:] and page["pagination"]["total_items"] == 3
        done = [await client.step(task) for _ in PLAN]
        assert [step["step_id"] for step in done] == [step["step_id"] for step in before]
        assert [step["output"] for step in done] == ["thought", "more", "checked"]
        assert await listed(client, task) == done
        assert len(agent.bodies["POST /tasks"]) == 1, "the first run uses the task that is there"


async def test_a_follow_up_has_steps_of_its_own() -> None:
    agent = Planner(plan=PLAN[:1])
    async with through(agent) as (client, _):
        task = await client.task("write")
        first = await client.step(task)
        second = await client.step(task, "again")
        assert first["step_id"] != second["step_id"]
        assert [step["step_id"] for step in await listed(client, task)] == [first["step_id"], second["step_id"]]
        assert len(agent.bodies["POST /tasks"]) == 2


async def test_the_step_under_way_takes_the_place_of_the_first_that_was_listed() -> None:
    entered, going = asyncio.Event(), asyncio.Event()
    agent = Planner(plan=PLAN)

    async def slow(exchange: Any) -> None:
        entered.set()
        await going.wait()
        await says(200, agent._page("steps", agent.steps["t1"], {}))(exchange)

    async with through(agent) as (client, gateway):
        task = await client.task("write")
        before = await listed(client, task)
        agent.override["GET /tasks/t1/steps"] = [slow]
        executing = asyncio.ensure_future(client.step(task))
        await asyncio.wait_for(entered.wait(), 30)
        await gateway.store.flush()
        now = await listed(client, task)
        assert [step["step_id"] for step in now] == [step["step_id"] for step in before]
        assert [step["status"] for step in now] == ["running", "created", "created"]
        going.set()
        assert (await executing)["output"] == "thought"


async def test_a_plan_that_has_changed_is_listed_as_it_is_in_the_first_run() -> None:
    agent = Planner(plan=PLAN)
    async with through(agent) as (client, _):
        task = await client.task("write")
        del agent.steps["t1"][1:]
        agent.plan = [PLAN[0], {"name": "Instead", "output": "other"}]
        agent._announce = lambda task: Agent._announce(agent, task)  # type: ignore[method-assign]
        first = await client.step(task)
        assert [step["name"] for step in await listed(client, task)] == ["Think", "Instead"]
        assert (await client.step(task))["output"] == "other"
        assert len(await listed(client, task)) == 2 and first["name"] == "Think"


async def test_an_agent_that_lists_no_steps_is_given_the_task_and_nothing_is_listed() -> None:
    agent = Agent(override={"GET /tasks/t1/steps": [says(200, [])]})
    async with through(agent) as (client, _):
        task = await client.task(None)
        assert await listed(client, task) == []
        assert (await client.step(task))["output"] == "done"
        assert agent.bodies["POST /tasks"] == [{"input": None}]


async def test_a_task_without_any_input_is_created_at_the_agent_as_it_is() -> None:
    agent = Planner(plan=PLAN)
    async with through(agent) as (client, _):
        task = (await client.call("POST", "/tasks")).json()["task_id"]
        assert agent.bodies["POST /tasks"] == [{}]
        assert len(await listed(client, task)) == 3
        await client.step(task)
        assert agent.posted() == [{"input": None}]


async def test_a_list_of_steps_that_cannot_be_read_costs_the_list_and_not_the_task() -> None:
    agent = Planner(plan=PLAN, override={"GET /tasks/t1/steps": [says(500, "boom", "text/plain")]})
    async with through(agent) as (client, _):
        task = await client.task("write")
        assert await listed(client, task) == []
        assert (await client.step(task))["name"] == "Think"
        assert len(agent.bodies["POST /tasks"]) == 1


async def test_an_agent_that_is_down_at_the_creation_gets_the_task_with_the_first_step() -> None:
    agent = Planner(plan=PLAN, override={"POST /tasks": [says(503, "busy", "text/plain")]})
    async with through(agent) as (client, _):
        task = await client.task("write")
        assert await listed(client, task) == []
        assert (await client.step(task))["name"] == "Think"
        assert [step["name"] for step in await listed(client, task)] == ["Think", None, "Check"]
        assert agent.bodies["POST /tasks"] == [{"input": "write"}] * 2


async def test_an_agent_that_has_lost_the_task_gets_it_anew_as_the_client_created_it() -> None:
    agent = Planner(plan=PLAN)
    async with through(agent) as (client, _):
        task = await client.task("write", additional_input={"k": 1})
        before = await listed(client, task)
        del agent.tasks["t1"]
        agent.tasks["gone"] = {}
        assert (await client.step(task, "a"))["step_id"] == before[0]["step_id"]
        assert agent.bodies["POST /tasks"] == [{"input": "write", "additional_input": {"k": 1}}] * 2
        assert agent.posted("t2") == [{"input": "a"}]


async def test_a_restarted_gateway_goes_on_with_the_task_that_it_created(tmp_path: Path) -> None:
    agent = Planner(plan=PLAN)
    async with calling(agent):

        async def told(then: Any) -> Any:
            outbound = AgentProtocolOutbound(AgentProtocolTarget(protocol="agent_protocol", url=agent.url))
            async with engine((native("writer"), outbound), file=tmp_path / "i.db") as gateway:
                return await then(Client(app(gateway)))

        task = await told(lambda client: client.task("write"))
        before = await told(lambda client: listed(client, task))
        assert [step["name"] for step in before] == ["Think", None, "Check"]
        first = await told(lambda client: client.step(task))
        assert first["step_id"] == before[0]["step_id"]
        assert len(agent.bodies["POST /tasks"]) == 1


async def test_a_deleted_task_has_no_steps_any_more() -> None:
    async with through(Planner(plan=PLAN)) as (client, gateway):
        task = await client.task("write")
        (step, *_) = await listed(client, task)
        await gateway.threads.delete(task)
        for path in (f"/tasks/{task}/steps", f"/tasks/{task}/steps/{step['step_id']}"):
            assert (await client.call("GET", path)).status_code == 404


async def test_an_agent_of_another_protocol_is_sent_nothing_when_a_task_is_created() -> None:
    async with serving(echo) as (client, _):
        task = await client.task("write")
        assert await listed(client, task) == []
        assert (await client.step(task))["output"] == "you said: write"


def test_the_steps_of_other_peoples_tasks_are_not_there_and_no_task_is_made_of_an_agent_that_is_not_theirs() -> None:
    clients: list[JsonObject] = [
        {"name": name, "token": f"{name}-token-0123456789", "agents": [agents]}
        for name, agents in (("ana", "*"), ("bob", "writer"), ("carl", "other"))
    ]

    def shown(name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {name}-token-0123456789"}

    async def scene() -> None:
        agent = Planner(plan=PLAN)
        async with calling(agent) as (outbound, _), engine((native("writer"), outbound)) as gateway:
            client = Client(app(gateway, authentication={"clients": clients}), "/agent-protocol/writer/ap/v1")
            made = await client.call("POST", "/tasks", json={"input": "write"}, headers=shown("ana"))
            steps = f"/tasks/{made.json()['task_id']}/steps"
            (mine, *_) = (await client.call("GET", steps, headers=shown("ana"))).json()["steps"]
            for path in (steps, f"{steps}/{mine['step_id']}"):
                assert (await client.call("GET", path, headers=shown("bob"))).status_code == 404
            assert (await client.call("POST", "/tasks", json={}, headers=shown("carl"))).status_code == 404
            assert (await client.call("POST", "/tasks", json={})).status_code == 401
            assert len(agent.tasks) == 1
            done = await client.call("POST", steps, json={}, headers=shown("ana"))
            assert done.json()["step_id"] == mine["step_id"]

    run(scene())
