"""The tools of a server that its authors made of all that MCP has, as agents of another protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.peers import node, peer_modules
from tests.support.processes import Gateway
from tests.transport.stdio_support import until

PATIENCE = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    modules = peer_modules("mcp-ts") / "node_modules"
    command = [str(node()), str(modules / "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"]
    target = {"protocol": "agent_context", "command": command, "agents": "*"}
    table = json.dumps({"routes": [{"name": "everything", "target": target}]})
    with Gateway(table, tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE, trust_env=False) as client:
        yield client


def ran(http: httpx2.Client, tool: str, **arguments: Any) -> Any:
    return http.post("/runs/wait", json={"agent_id": tool, "input": arguments}).json()


def test_a_tool_that_must_be_a_task_is_one_and_its_question_is_the_runs(http: httpx2.Client) -> None:
    asked = ran(http, "simulate-research-query", topic="tides", ambiguous=True)
    question = asked["output"]["interrupt"]["elicitation"]
    assert "tides" in question["message"]
    run = asked["run"]["run_id"]
    assert http.post(f"/runs/{run}", json={"interpretation": "technical"}).status_code == 200
    ended = http.get(f"/runs/{run}/wait", params={"timeout": PATIENCE}).json()
    assert "# Research Report: tides (technical)" in ended["output"]["values"]["message"]


def test_a_task_is_cancelled_with_its_run(gateway: Gateway, http: httpx2.Client) -> None:
    run = ran(http, "simulate-research-query", topic="ebbs", ambiguous=True)["run"]["run_id"]
    assert http.post(f"/runs/{run}/cancel", params={"wait": "true"}).status_code == 204
    until(lambda: 'from terminal status "cancelled"' in gateway.process.stderr(), PATIENCE)


def test_a_result_that_is_only_a_link_is_told(http: httpx2.Client) -> None:
    ended = ran(http, "gzip-file-as-resource", name="notes.gz", data="data:text/plain,hello", outputType="resourceLink")
    assert ended["output"]["values"]["message"] == "[notes.gz](demo://resource/session/notes.gz)"
