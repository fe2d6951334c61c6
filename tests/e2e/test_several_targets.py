"""One route, three targets: two servers of the Agent Protocol SDK and an agent of Agent Connect. One after the other is
killed while clients use them, and so is the gateway.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support import peers
from tests.support.processes import Gateway, Process

PATIENCE = 60.0
BREAKER = {"failures": 2, "first": "300ms", "longest": "1s"}


@dataclass(frozen=True)
class Scene:
    """The route `any` has all three; `alone` has the first."""

    gateway: Gateway
    client: httpx2.Client
    servers: tuple[Process, Process]
    connect: Process

    def wait(self, message: str, thread: str | None = None, agent: str = "any") -> dict[str, Any]:
        path = "/runs/wait" if thread is None else f"/threads/{thread}/runs/wait"
        answer = self.client.post(path, json={"agent_id": agent, "input": {"message": message}})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def thread(self) -> str:
        return str(self.client.post("/threads", json={}).json()["thread_id"])

    def states(self) -> dict[str, float]:
        """Of each target of `any`, as `/metrics` has it."""
        page = httpx2.get(f"{self.gateway.url}/metrics").text
        return {
            url: float(n) for url, n in re.findall(r'target_state\{agent="any",target="([^" ]+)[^"]*"\} (\d)', page)
        }


def said(whole: dict[str, Any]) -> str:
    assert whole["output"]["type"] == "result", whole
    return str(whole["output"]["values"]["message"])


def tasks(server: Process) -> list[str]:
    """The inputs of the tasks that a server's SDK has."""
    found = httpx2.get(f"{server.url}/ap/v1/agent/tasks", params={"page_size": 100}).json()
    return [str(task["input"]) for task in found["tasks"]]


def routes(first: Process, second: Process, connect: Process, *weights: float) -> str:
    targets: list[dict[str, Any]] = [
        {"protocol": "agent_protocol", "url": first.url},
        {"protocol": "agent_protocol", "url": second.url},
        {"protocol": "agent_connect", "url": connect.url, "agent": "echo"},
    ]
    weighed = [{**target, "weight": weight} for target, weight in zip(targets, weights, strict=True)]
    table = [{"name": "any", "targets": weighed, "breaker": BREAKER}]
    return json.dumps({"routes": [*table, {"name": "alone", "target": targets[0], "breaker": BREAKER, "retries": 0}]})


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(peers.agent_protocol_server(tmp_path / name)) for name in ("first", "second")
        )
        connect = stack.enter_context(peers.agent_connect_agent())
        gateway = stack.enter_context(Gateway(routes(first, second, connect, 1, 1e-9, 0), tmp_path))
        client = stack.enter_context(httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE))
        yield Scene(gateway, client, (first, second), connect)


def test_a_route_outlives_its_targets_and_no_run_is_lost_or_sent_twice(scene: Scene) -> None:
    first, second = scene.servers
    assert said(scene.wait("one begin")) == "step 1 of 1: one begin" and tasks(first) == ["one begin"]
    first.kill9()
    assert [said(scene.wait(f"one at {n}")) for n in range(4)] == [f"step 1 of 1: one at {n}" for n in range(4)]
    assert tasks(second) == [f"one at {n}" for n in range(4)]
    assert scene.states()[first.url] > 0
    second.kill9()
    assert said(scene.wait("one last")) == "one last", "the Agent Connect agent says it again"
    posts = [
        r for r in httpx2.get(f"{scene.connect.url}/_seen").json() if r["method"] == "POST" and "/runs" in r["path"]
    ]
    assert [json.loads(r["body"])["input"]["message"] for r in posts] == ["one last"]


def test_a_run_whose_target_is_killed_in_mid_step_fails_and_is_not_sent_again(scene: Scene) -> None:
    first, second = scene.servers
    begun = scene.client.post("/runs", json={"agent_id": "any", "input": {"message": "one slow 30"}}).json()["run_id"]
    deadline = time.monotonic() + PATIENCE
    while not tasks(first):
        assert time.monotonic() < deadline
    first.kill9()
    whole = scene.client.get(f"/runs/{begun}/wait", params={"timeout": PATIENCE}).json()
    assert whole["run"]["status"] == "error" and tasks(second) == []


def test_a_thread_stays_at_its_target_over_a_killed_gateway_and_moves_with_all_it_knows(scene: Scene) -> None:
    first, second = scene.servers
    thread = scene.thread()
    scene.wait("one alpha", thread)
    scene.gateway.kill9()
    scene.gateway.rewrite(routes(first, second, scene.connect, 1e-9, 1, 0))
    scene.gateway.restart()
    scene.wait("one beta", thread)
    assert len(tasks(first)) == 2 and tasks(second) == [], "by weight it would be at the second"
    first.kill9()
    scene.wait("one gamma", thread)
    (told,) = tasks(second)
    assert "one alpha" in told and "one beta" in told and told.endswith("one gamma")
    scene.wait("one delta", thread)
    assert len(tasks(second)) == 2


def test_a_route_whose_only_target_is_away_refuses_at_once_in_each_protocols_words_and_comes_back(
    scene: Scene, tmp_path: Path
) -> None:
    first, _ = scene.servers
    assert said(scene.wait("one begin", agent="alone")) and said(scene.wait("one begin"))
    first.kill9()
    deadline = time.monotonic() + PATIENCE
    while (
        answer := scene.client.post("/runs/wait", json={"agent_id": "alone", "input": {"message": "one"}})
    ).status_code != 503:
        assert time.monotonic() < deadline, answer.text
    assert int(answer.headers["retry-after"]) >= 1 and "alone is not there (no connection" in answer.text
    task = f"{scene.gateway.url}/agent-protocol/alone/ap/v1/agent/tasks"
    made = httpx2.post(task, json={"input": "one"}).json()["task_id"]
    refused = httpx2.post(f"{task}/{made}/steps", json={})
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    called = {"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": {"name": "alone", "input": {"message": "x"}}}
    said_so = httpx2.post(f"{scene.gateway.url}/agent-communication/mcp", json=called)
    assert "alone is not there" in said_so.text
    ready = httpx2.get(f"{scene.gateway.url}/readyz").json()["agents"]
    assert ready["alone"] is False and ready["any"] is True
    (row,) = [one for one in httpx2.get(f"{scene.gateway.url}/admin/agents").json()["agents"] if one["name"] == "alone"]
    assert row["targets"][0]["state"] in ("open", "tried") and row["targets"][0]["reason"]
    with peers.agent_protocol_server(tmp_path / "again", port=first.port):
        while httpx2.get(f"{scene.gateway.url}/readyz").json()["agents"]["alone"] is not True:
            assert time.monotonic() < deadline + PATIENCE
        assert said(scene.wait("one back", agent="alone")) == "step 1 of 1: one back"
