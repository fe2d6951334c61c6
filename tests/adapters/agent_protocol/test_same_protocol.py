"""Agent Protocol in and out: a client sees of the agent what it would have seen without the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.runs import Engine
from tests.adapters.agent_protocol.fake_agent import Agent, calling, file, says
from tests.adapters.agent_protocol.support import Client, serving

PLAN: list[dict[str, Any]] = [
    {
        "name": "Think",
        "output": "thought",
        "additional_output": {"tokens": 7},
        "additional_properties": {"mood": "fine"},
        "artifacts": [file("one.txt", relative_path="src/x")],
    },
    {"name": None, "output": None, "additional_output": {"custom": {"a": [1]}}},
    {"name": "Check", "output": "checked"},
]


@asynccontextmanager
async def through(agent: Agent, **options: Any) -> AsyncIterator[tuple[Client, Engine]]:
    """A client of a gateway whose agent is reached over the same protocol."""
    async with calling(agent, **options) as (outbound, _), serving(outbound) as (client, gateway):
        yield client, gateway


@pytest.mark.parametrize("options", [{"drive": "one"}, {}], ids=["one", "auto"])
async def test_driven_one_step_at_a_time_every_step_is_the_agents_own(options: dict[str, Any]) -> None:
    agent = Agent(plan=PLAN, files={"one": b"1"})
    async with through(agent, **options) as (client, _):
        task = await client.task("write", additional_input={"debug": True})
        seen = [
            await client.step(task, "a", additional_input={"k": 1}),
            await client.step(task, None, additional_input={"k": 2}),
            await client.step(task, "c"),
        ]
        assert agent.bodies["POST /tasks"] == [{"input": "write", "additional_input": {"debug": True}}]
        assert agent.posted() == [
            {"input": "a", "additional_input": {"k": 1}},
            {"additional_input": {"k": 2}},
            {"input": "c"},
        ]
        rewritten = {"task_id", "step_id", "artifacts", "input", "additional_input"}
        for step, theirs in zip(seen, agent.steps["t1"], strict=True):
            expected = {key: value for key, value in theirs.items() if key not in rewritten}
            assert {key: step.get(key) for key in expected} == expected
        assert [step["input"] for step in seen] == ["a", None, "c"]
        assert [step["additional_input"] for step in seen] == [{"k": 1}, {"k": 2}, {}]
        (artifact,) = seen[0]["artifacts"]
        assert (artifact["file_name"], artifact["relative_path"]) == ("one.txt", "src/x")
        content = await client.call("GET", f"/tasks/{task}/artifacts/{artifact['artifact_id']}")
        assert content.content == b"1"
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == seen


async def test_a_step_that_the_agent_announced_is_listed_and_keeps_its_id_when_it_is_done() -> None:
    async with through(Agent(plan=PLAN[:2]), drive="one") as (client, _):
        task = await client.task()
        first = await client.step(task)
        done, announced = (await client.get(f"/tasks/{task}/steps"))["steps"]
        assert done == first
        assert (announced["status"], announced["name"], announced["is_last"]) == ("created", None, False)
        assert await client.get(f"/tasks/{task}/steps/{announced['step_id']}") == announced
        second = await client.step(task)
        assert second["step_id"] == announced["step_id"]
        assert len((await client.get(f"/tasks/{task}/steps"))["steps"]) == 2


async def test_the_step_under_way_is_not_listed_as_announced_too() -> None:
    entered, going = asyncio.Event(), asyncio.Event()
    agent = Agent(plan=PLAN[:2])

    async def slow(exchange: Any) -> None:
        entered.set()
        await going.wait()
        await says(200, agent._execute("t1", {}))(exchange)

    agent.override["POST /tasks/t1/steps"] = [slow, None]
    async with through(agent, drive="one") as (client, gateway):
        task = await client.task()
        executing = asyncio.ensure_future(client.step(task))
        await asyncio.wait_for(entered.wait(), 30)
        await gateway.store.flush()
        (only,) = (await client.get(f"/tasks/{task}/steps"))["steps"]
        assert (only["status"], only["is_last"]) == ("running", False)
        going.set()
        assert (await executing)["step_id"] == only["step_id"]


async def test_driven_to_the_end_the_one_step_tells_of_all_the_agents() -> None:
    agent = Agent(plan=PLAN, files={"one": b"1"})
    async with through(agent, drive="all") as (client, _):
        task = await client.task("write")
        step = await client.step(task)
        assert step["output"] == "thought\n\nchecked"
        assert step["is_last"]
        inner = step["additional_output"]["steps"]
        assert [(s["name"], s["output"], s["additional_output"]) for s in inner] == [
            ("Think", "thought", {"tokens": 7}),
            (None, None, {"custom": {"a": [1]}}),
            ("Check", "checked", None),
        ]
        assert inner[0]["additional_properties"] == {"mood": "fine"}
        assert [a["file_name"] for a in step["artifacts"]] == ["one.txt"]
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == [step]


async def test_an_uploaded_file_reaches_the_agent() -> None:
    agent = Agent()
    async with through(agent) as (client, _):
        task = await client.task("write")
        files = {"file": ("in.txt", b"content", "text/plain")}
        await client.call("POST", f"/tasks/{task}/artifacts", files=files, data={"relative_path": "d"})
        await client.step(task)
        (body,) = agent.bodies["POST /tasks/t1/artifacts"]
        assert b"content" in body and b'filename="in.txt"' in body


@pytest.mark.parametrize("drive", ["all", "one"])
async def test_an_agent_that_fails_is_a_last_step_with_its_words(drive: str) -> None:
    async def boom(exchange: Any) -> None:
        await exchange.answer(b"boom", "500 X", Content_Type="text/plain")

    async with through(Agent(override={"POST /tasks/t1/steps": boom}), drive=drive) as (client, _):
        step = await client.step(await client.task("write"))
        assert (step["status"], step["is_last"]) == ("completed", True)
        assert step["additional_output"]["error"]["message"] == "the agent answered 500 to a step: boom"
