"""The servers of both BeeAI SDKs do, with each other's clients, what the adapter's README says of them."""

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_communication import (
    Line,
    Sdk,
    agents_command,
    agents_server,
    client,
    deltas,
    errors,
    results,
    told,
)
from tests.support.processes import Process

SCRIPT = """
--token 0 --run 'stream {"prompt": "zero"}' --token none --run 'stream {"prompt": "none"}' --token auto
--run 'fail {"prompt": "a"}' --within 3 --cancel-after 2 --run 'slow {"prompt": "a"}' --within 20
--run 'nobody {}' --create 'nothing {}' --create 'maker {"greeting": "hi"}' --run 'made-1 {"prompt": "you"}'
--destroy echo --destroy made-1 --do ping
"""
RUNS = ["zero", "none", "fail", "slow", "nobody", "made"]
PAIRS: list[tuple[Sdk, Sdk, str]] = [("py", "ts", "stdio"), ("ts", "py", "ws"), ("ts", "py", "sse")]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers tell, whichever it is."""
    return tmp_path_factory.mktemp("agents") / "told"


@pytest.fixture(scope="module")
def python_server(notes: Path) -> Iterator[Process]:
    with agents_server("py", "--told", str(notes)) as process:
        yield process


@pytest.fixture(scope="module")
def stories(notes: Path, python_server: Process) -> list[list[Line]]:
    """The whole script, as each pair had it, all at once."""
    steps = shlex.split(SCRIPT)
    places = [f"ws://127.0.0.1:{python_server.port}/ws", f"{python_server.url}/sse"]
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(client, "ts", *steps, url=place) for place in places]
        return [
            client("py", *steps, command=agents_command("ts", "--told", str(notes))),
            *(other.result() for other in others),
        ]


@pytest.fixture(params=range(len(PAIRS)), ids=["-".join(pair) for pair in PAIRS])
def lines(request: pytest.FixtureRequest, stories: list[list[Line]]) -> list[Line]:
    """The whole script, after a line that says who spoke with whom."""
    kind, sdk, transport = PAIRS[request.param]
    return [{"op": "pair", "client": kind, "server": sdk, "transport": transport}, *stories[request.param]]


def run(lines: list[Line], name: str) -> Line:
    """What came of the run."""
    (found,) = [line for line in lines if line.get("run") == RUNS.index(name) + 1]
    return found


def output(lines: list[Line], name: str) -> Any:
    return run(lines, name)["result"]["output"]


def test_only_python_s_server_takes_the_token_0_for_none(lines: list[Line]) -> None:
    assert len(deltas(lines, 0)) == (0 if lines[0]["server"] == "py" else 1)
    assert not any(one["text"] == "none " for one in deltas(lines) if "text" in one)
    assert output(lines, "none") == {"text": "none ", "logs": [{"message": "none"}]}


def test_each_server_has_its_own_codes_for_what_fails(lines: list[Line]) -> None:
    python = lines[0]["server"] == "py"
    assert run(lines, "fail")["error"]["code"] == (0 if python else -32603)
    assert "boom" in run(lines, "fail")["error"]["message"]
    assert run(lines, "nobody")["error"]["code"] == (0 if python else -32602)


def test_a_cancelled_run_ends_and_is_answered_by_python_s_server_alone(lines: list[Line], notes: Path) -> None:
    error = run(lines, "slow")["error"]
    if lines[0]["client"] == "ts":
        assert error["message"] == "told to"
        late = [line["told"] for line in lines if line["op"] == "stray"]
        assert len(late) == (lines[0]["server"] == "py") and all("Request cancelled" in one for one in late)
    else:
        assert error["type"] == "TimeoutError"
    assert "slow cancelled" in notes.read_text()


def test_only_typescript_s_server_creates_and_destroys_agents(lines: list[Line]) -> None:
    if lines[0]["server"] == "py":
        assert [one["code"] for one in errors(lines, "agents/create")] == [0, 0]
        assert [one["code"] for one in errors(lines, "agents/destroy")] == [0, 0]
        return
    (made,) = results(lines, "agents/create")
    assert made["agent"]["name"] == "made-1" and made["agent"]["tags"] == ["rig", "test"]
    assert output(lines, "made")["text"] == "hi you"
    assert results(lines, "agents/destroy") == [{}]
    assert len(told(lines, "notifications/agents/list_changed")) == 2
    assert [one["code"] for one in errors(lines, "agents/create") + errors(lines, "agents/destroy")] == [-32602] * 2


def test_an_unknown_method_ends_a_session_of_python_s_server_and_no_other(python_server: Process) -> None:
    address = f"ws://127.0.0.1:{python_server.port}/ws"
    lines = client("ts", "--call", "no/such {}", "--run", 'echo {"prompt": "a"}', url=address)
    assert errors(lines, "no/such")[0]["message"] == "MCP error -32000: Connection closed"
    assert errors(lines, "agents/run")[0]["message"] == "Not connected"
    assert python_server.alive
