"""Tasks, pages, paths and agents, as a client of the inbound half sees them."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.agent_protocol import ADAPTER
from gateway.core.types import Thread, agent_id
from tests.adapters.agent_protocol.support import Client, app, echo, serving
from tests.support.scripted import Scripted, engine, route


async def test_a_created_task_is_what_was_asked_for() -> None:
    async with serving(echo) as (client, _):
        made = (await client.call("POST", "/tasks", json={"input": "hi", "additional_input": {"k": 1}})).json()
        assert made["input"] == "hi"
        assert made["additional_input"] == {"k": 1}
        assert made["artifacts"] == []
        assert await client.get(f"/tasks/{made['task_id']}") == made


@pytest.mark.parametrize("body", [b"", b"  ", b"null", b"{}"], ids=["absent", "blank", "null", "empty"])
async def test_a_task_may_be_created_without_a_body(body: bytes) -> None:
    async with serving(echo) as (client, _):
        headers = {"content-type": "application/json"}
        response = await client.call("POST", "/tasks", content=body, headers=headers)
        assert response.status_code == 200
        assert response.json()["input"] is None
        assert response.json()["additional_input"] == {}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"input": 5}', "/input"),
        (b'{"additional_input": "x"}', "/additional_input"),
        (b'{"input": "\xff"}', "body"),
        (b'{"additional_input": {"x": NaN}}', "body"),
        (b'{"additional_input": {"x": 1e400}}', "body"),
    ],
    ids=["malformed", "array", "number", "string", "not utf-8", "not a number", "beyond numbers"],
)
async def test_a_bad_body_is_refused_and_nothing_is_made(body: bytes, path: str) -> None:
    async with serving(echo) as (client, _):
        response = await client.call("POST", "/tasks", content=body)
        assert response.status_code == 422
        assert response.json()["message"].startswith(path)
        assert (await client.get("/tasks"))["tasks"] == []


async def test_a_compressed_body_is_said_to_be_so() -> None:
    async with serving(echo) as (client, _):
        answer = await client.call("POST", "/tasks", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
        told = "Content-Encoding: a body that is encoded (gzip) is not taken"
        assert (answer.status_code, answer.json()) == (422, {"message": told})


async def test_an_oversized_body_is_refused_announced_or_not() -> None:
    async def pieces() -> Any:
        yield b'{"input": "'
        yield b"x" * 200

    async with serving(echo, max_body=100) as (client, _):
        announced = await client.call("POST", "/tasks", content=b'{"input": "' + b"x" * 200 + b'"}')
        chunked = await client.call("POST", "/tasks", content=pieces())
        assert announced.status_code == chunked.status_code == 413
        assert "100" in announced.json()["message"]


async def test_pages_are_exact_and_oldest_first() -> None:
    async with serving(echo) as (client, _):
        made = [await client.task(f"task {n}") for n in range(5)]
        first = await client.get("/tasks?page_size=2")
        assert [task["task_id"] for task in first["tasks"]] == made[:2]
        assert first["pagination"] == {"total_items": 5, "total_pages": 3, "current_page": 1, "page_size": 2}
        last = await client.get("/tasks?current_page=3&page_size=2")
        assert [task["task_id"] for task in last["tasks"]] == made[4:]
        beyond = await client.get("/tasks?current_page=4&page_size=2")
        assert beyond["tasks"] == []
        assert beyond["pagination"]["total_items"] == 5
        assert (await client.get("/tasks"))["pagination"]["page_size"] == 10


async def test_no_tasks_are_no_pages() -> None:
    async with serving(echo) as (client, _):
        empty = await client.get("/tasks")
        assert empty["pagination"] == {"total_items": 0, "total_pages": 0, "current_page": 1, "page_size": 10}


@pytest.mark.parametrize(
    "query",
    [
        "current_page=0",
        "page_size=0",
        "page_size=-1",
        "page_size=ten",
        "page_size=2147483648",
        "current_page=",
        "page_size=1.5",
    ],
)
async def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async with serving(echo) as (client, _):
        response = await client.call("GET", f"/tasks?{query}")
        assert response.status_code == 422
        assert query.split("=", maxsplit=1)[0] in response.json()["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tasks/nope"),
        ("GET", "/tasks/nope/steps"),
        ("POST", "/tasks/nope/steps"),
        ("GET", "/tasks/nope/steps/nope"),
        ("GET", "/tasks/nope/artifacts"),
        ("POST", "/tasks/nope/artifacts"),
        ("GET", "/tasks/nope/artifacts/nope"),
    ],
)
async def test_an_unknown_task_is_404_for_every_operation(method: str, path: str) -> None:
    async with serving(echo) as (client, _):
        response = await client.call(method, path)
        assert response.status_code == 404
        assert response.json() == {"message": "Task with nope not found."}


async def test_a_thread_of_another_protocol_or_agent_is_no_task() -> None:
    async with serving(echo) as (client, gateway):
        for number, (protocol, agent) in enumerate([("agent_connect", "writer"), ("agent_protocol", "reader")]):
            thread = Thread(id=f"t{number}", created_at=0, updated_at=0, protocol=protocol, agent=agent)
            await gateway.threads.create(thread)
            assert (await client.call("GET", f"/tasks/t{number}")).status_code == 404
        assert (await client.get("/tasks"))["tasks"] == []


@pytest.mark.parametrize(
    "prefix",
    [
        "/agent-protocol/ap/v1",
        "/agent-protocol",
        "/agent-protocol/ap/v1/ap/v1",
        "/agent-protocol/writer/ap/v1",
        "/agent-protocol/writer",
        "/agent-protocol/writer/ap/v1/ap/v1",
        f"/agent-protocol/{agent_id('writer')}/ap/v1",
    ],
)
async def test_every_path_there_has_been_leads_to_the_agent(prefix: str) -> None:
    async with serving(echo) as (client, _):
        there = Client(client.app, prefix)
        task = await there.task("hello")
        step = await there.step(task)
        assert step["output"] == "you said: hello"
        assert await there.get(f"/tasks/{task}/steps/{step['step_id']}") == step
        for word in ("artifacts", "artifact"):
            up = await there.call("POST", f"/tasks/{task}/{word}", files={"file": ("a.txt", b"a")})
            path = f"/tasks/{task}/{word}/{up.json()['artifact_id']}"
            assert (await there.call("GET", path)).content == b"a"
        assert len((await there.get(f"/tasks/{task}/artifact"))["artifacts"]) == 2
        assert [found["task_id"] for found in (await client.get("/tasks"))["tasks"]] == [task]


async def test_several_agents_are_told_apart_by_path_and_named_when_they_are_not() -> None:
    agents = (route("writer"), Scripted(echo)), (route("reader"), Scripted(echo))
    async with engine(*agents) as gateway:
        served = app(gateway)
        writer, reader = (Client(served, f"/agent-protocol/{name}/ap/v1") for name in ("writer", "reader"))
        task = await writer.task("for the writer")
        assert [found["task_id"] for found in (await writer.get("/tasks"))["tasks"]] == [task]
        assert (await reader.get("/tasks"))["tasks"] == []
        assert (await reader.call("GET", f"/tasks/{task}")).status_code == 404
        for prefix in ("/agent-protocol/ap/v1", "/agent-protocol/nobody/ap/v1"):
            response = await Client(served, prefix).call("POST", "/tasks", json={"input": "for whom?"})
            assert response.status_code == 404
            assert "writer, reader" in response.json()["message"]


async def test_a_method_that_is_no_operation_says_which_are() -> None:
    async with serving(echo) as (client, _):
        response = await client._http.request("DELETE", "http://gateway/agent-protocol/ap/v1/agent/tasks")
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, POST"
        assert "DELETE" in response.json()["message"]


def test_the_adapter_is_named_after_its_folder() -> None:
    assert ADAPTER.name == "agent_protocol"
    assert ADAPTER.path == "/agent-protocol"
