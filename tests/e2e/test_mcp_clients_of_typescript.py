"""Agents as tools for the official TypeScript SDKs of MCP, which most programs that call tools are made with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import routes
from tests.support.forking import standing_in
from tests.support.peers import lines_of, node, peer_modules
from tests.support.processes import PEERS, PROGRAM, Gateway, Process, start

PATIENCE = 100.0
Line = dict[str, Any]
WAYS: dict[str, tuple[str, str]] = {
    "1-http": ("http", "2025-11-25"),
    "1-sse": ("sse", "2025-11-25"),
    "1-ws": ("ws", "2025-11-25"),
    "1-pipe": ("pipe", "2025-11-25"),
    "2-http": ("http", "2025-11-25"),
    "2-http-latest": ("http", "2026-07-28"),
    "2-sse-latest": ("sse", "2026-07-28"),
    "2-pipe-latest": ("pipe", "2026-07-28"),
}
"""The door of each conversation, and the revision that it is in; the line of the SDK is the first letter."""


def way(gateway: Gateway, name: str, **more: Any) -> str:
    """The argument of `mcp_ts_client.mjs` for that conversation."""
    door, _ = WAYS[name]
    base = f"{gateway.url}/agent-communication"
    command = [*PROGRAM, "stdio", "--protocol", "agent_communication", "--gateway", gateway.url]
    there: dict[str, Any] = {
        "http": {"url": f"{base}/mcp"},
        "sse": {"url": f"{base}/sse"},
        "ws": {"url": f"{base.replace('http', 'ws')}/ws"},
        "pipe": {"command": standing_in(command)},
    }[door]
    return json.dumps({**there, "latest": name.endswith("latest"), **more})


@pytest.fixture(scope="module")
def gateway(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One of its own, so that all its runs are of these clients."""
    with Gateway(routes(agent_protocol_server, agent_connect_agent), tmp_path_factory.mktemp("gateway")) as running:
        yield running


@contextmanager
def client(line: str, *ways: str) -> Iterator[Process]:
    sdk = str(peer_modules("mcp-ts"))
    with start([str(node()), str(PEERS / "mcp_ts_client.mjs"), "--sdk", sdk, "--line", line, *ways]) as process:
        yield process


@pytest.fixture(scope="module")
def told(gateway: Gateway) -> dict[str, list[Line]]:
    """What the client of each way printed; one process for each line of the SDK."""

    def tell(line: str) -> dict[str, list[Line]]:
        names = [name for name in WAYS if name.startswith(line)]
        with client(line, *(way(gateway, name) for name in names)) as process:
            lines = lines_of(process, PATIENCE)
        begun = [at for at, one in enumerate(lines) if one["op"] == "way"]
        each = [lines[at + 1 : end] for at, end in zip(begun, [*begun[1:], len(lines)], strict=True)]
        return dict(zip(names, each, strict=True))

    with ThreadPoolExecutor() as pool:
        return {name: lines for found in pool.map(tell, "12") for name, lines in found.items()}


@pytest.fixture(params=WAYS)
def lines(told: dict[str, list[Line]], request: pytest.FixtureRequest) -> list[Line]:
    return told[request.param]


def of(lines: list[Line], op: str) -> list[Line]:
    return [line for line in lines if line["op"] == op]


def test_each_speaks_the_newest_revision_it_knows(told: dict[str, list[Line]]) -> None:
    spoken = {name: of(lines, "connected")[0] for name, lines in told.items()}
    assert {one["server"]["name"] for one in spoken.values()} == {"interlingua"}
    known = {name: one["version"] for name, one in spoken.items() if one["version"]}
    assert known == {name: WAYS[name][1] for name in known} and len(known) >= 5


def test_agents_are_tools_whose_answers_pass_the_sdks_check_of_their_schema(lines: list[Line]) -> None:
    (listed,) = of(lines, "tools")
    assert {"echo", "asker", "slow"} <= {tool["name"] for tool in listed["tools"] if "outputSchema" in tool}
    for said, line in zip(["hello", "again"], of(lines, "echo"), strict=True):
        assert said in line["result"]["content"][0]["text"] and said in json.dumps(line["result"]["structuredContent"])


def test_mistakes_are_told_to_the_model_or_to_the_program(lines: list[Line]) -> None:
    (unknown,) = of(lines, "nobody")
    assert unknown["error"]["code"] == -32602 and "echo" in unknown["error"]["message"]
    wrong = of(lines, "asker")[0]["result"]
    assert wrong["isError"] and "message" in wrong["content"][0]["text"]


def test_a_question_is_a_form_and_its_answer_goes_on(lines: list[Line]) -> None:
    (asked,) = of(lines, "asked")
    assert {"approved", "reason"} <= asked["params"]["requestedSchema"]["properties"].keys()
    assert "approved" in of(lines, "asker")[1]["result"]["content"][0]["text"]


def test_a_call_that_its_user_gives_up_is_a_run_that_is_cancelled(
    told: dict[str, list[Line]], gateway: Gateway
) -> None:
    for lines in told.values():
        (slow,) = of(lines, "slow")
        assert "enough" in slow["error"]["message"]
        assert any(line["of"] == "slow" for line in of(lines, "progress"))

    def ends() -> list[str]:
        runs = httpx2.get(f"{gateway.url}/admin/runs", params={"agent": "slow", "limit": 100}).json()["runs"]
        return [run["status"] for run in runs]

    gateway.process.wait_until(lambda: ends() == ["cancelled"] * len(WAYS), "every slow run is cancelled", PATIENCE)


@pytest.mark.parametrize("name", ["1-http", "2-http", "2-http-latest", "2-pipe-latest"])
def test_who_follows_the_tools_is_told_of_a_new_one(name: str, agent_connect_agent: Process, tmp_path: Path) -> None:
    target = f'{{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: echo}}'
    one, two = (f"  - name: {each}\n    target: {target}\n" for each in ("first", "second"))
    with Gateway(f"routes:\n{one}", tmp_path) as running, client(name[0], way(running, name, watch=True)) as process:
        process.wait_until(lambda: '"op":"tools"' in process.stdout(), "the first list", PATIENCE)
        running.file.write_text(f"routes:\n{one}{two}")
        lines = lines_of(process, PATIENCE)
    assert [of(lines, op)[-1]["tools"] for op in ("tools", "changed")] == [["first"], ["first", "second"]]
