"""Agents that take no more requests now, and say when (429 with `Retry-After`), as clients of each protocol hear it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.processes import Gateway
from tests.support.serving import Quiet, in_a_thread


class Busy(Quiet):
    """An Agent Protocol agent that lists its tasks and takes no more; nothing else of it answers, either."""

    def do_GET(self) -> None:
        if self.path.startswith("/ap/v1/agent/tasks"):
            self.answer(200, {"tasks": [], "pagination": {}})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(429, {"message": "later"})

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After", "30")
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with in_a_thread(Busy) as agent:
        targets = [{"protocol": f"agent_{kind}", "url": agent} for kind in ("protocol", "connect", "communication")]
        routes = [{"name": target["protocol"], "target": target} for target in targets]
        with Gateway(json.dumps({"routes": routes}), tmp_path_factory.mktemp("busy")) as running:
            yield running


@pytest.mark.parametrize("agent", ["agent_connect", "agent_communication"])
def test_before_a_run_is_begun_it_is_503_and_when_to_try_again(gateway: Gateway, agent: str) -> None:
    asked = {"agent_id": agent, "input": {"message": "x"}}
    tasks = f"{gateway.url}/agent-protocol/{agent}/ap/v1/agent/tasks"
    task = httpx2.post(tasks, json={"input": "x"}, timeout=60).json()["task_id"]
    for answer in (
        httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=asked, timeout=60),
        httpx2.post(f"{tasks}/{task}/steps", json={}, timeout=60),
    ):
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "30"), answer.text
        assert "429" in answer.text


def test_a_run_that_fails_of_it_says_when_to_try_again(gateway: Gateway) -> None:
    asked = {"agent_id": "agent_protocol", "input": {"message": "x"}}
    output = httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=asked, timeout=60).json()["output"]
    assert (output["type"], output["errcode"]) == ("error", 503) and "429" in output["description"]


@pytest.mark.parametrize("agent", ["agent_protocol", "agent_connect", "agent_communication"])
def test_json_rpc_has_the_seconds_in_its_data(gateway: Gateway, agent: str) -> None:
    params = {"name": agent, "input": {"message": "x"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": params}
    answer = httpx2.post(f"{gateway.url}/agent-communication/mcp", json=call, timeout=60)
    error = json.loads(answer.text.rpartition("data: ")[2])["error"]
    assert (error["data"]["code"], error["data"]["retryable"], error["data"]["retryAfter"]) == ("agent_busy", True, 30)
