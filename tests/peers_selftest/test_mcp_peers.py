"""The client and the server of each `mcp` release against each other: known good before a gateway is between them."""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_communication import (
    Line,
    asked,
    client,
    deltas,
    errors,
    mcp_agents_command,
    mcp_agents_server,
    results,
    told,
)

SCRIPT = """
--do tools --do list --do 'list {"cursor": "3"}' --do 'list {"cursor": "x"}' --call 'no/such {}'
--run 'stream {"prompt": "a b"}' --tool 'stream {"prompt": "a b"}'
--elicitation '{"name": "Bo"}' --tool 'elicit {"prompt": "a"}' --run 'elicit {"prompt": "a"}'
--tool 'sample {"prompt": "a"}' --run 'log {"prompt": "a"}' --run 'fail {"prompt": "a"}' --tool 'fail {"prompt": "a"}'
--within 20 --cancel-after 2 --run 'slow {"prompt": "a"}' --cancel-after 2 --tool 'slow {"prompt": "a"}'
--run 'nobody {}' --run 'big {"chunks": 3, "size": 100000}'
"""
CALLS = [
    "stream",
    "tool",
    "asks",
    "run asks",
    "samples",
    "log",
    "fail",
    "tool fails",
    "slow",
    "tool slow",
    "nobody",
    "big",
]
VERSIONS = ("1", "2")
"""1.30.0 on stdio, which speaks 2025-11-25, and 2.3.0 over HTTP, which speaks 2026-07-28."""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers tell, whichever it is."""
    return tmp_path_factory.mktemp("agents") / "told"


@pytest.fixture(scope="module")
def stories(notes: Path) -> dict[str, list[Line]]:
    """The whole script, as the client of each release had it with its own server; both at once."""
    steps = shlex.split(SCRIPT)
    with ThreadPoolExecutor() as pool:
        command = mcp_agents_command("1", "--told", str(notes))
        first = pool.submit(client, "mcp-1", *steps, command=command)
        with mcp_agents_server("2", "--told", str(notes)) as server:
            second = client("mcp-2", "--log", "info", *steps, url=f"{server.url}/mcp")
        return {"1": first.result(), "2": second}


@pytest.fixture(params=VERSIONS)
def lines(request: pytest.FixtureRequest, stories: dict[str, list[Line]]) -> list[Line]:
    """The whole script, after a line that says which release it was."""
    return [{"op": "release", "modern": request.param == "2"}, *stories[request.param]]


def call(lines: list[Line], name: str) -> Line:
    """What came of the run or tool call."""
    (found,) = [line for line in lines if line.get("run") == CALLS.index(name) + 1 and line["op"] != "progress"]
    return found


def text(lines: list[Line], name: str) -> Any:
    result = call(lines, name)["result"]
    return result["output"]["text"] if "output" in result else result["content"][0]["text"]


def of(lines: list[Line], name: str) -> list[str]:
    """The texts of a run's deltas."""
    return [one["text"] for one in deltas(lines, f"run-{CALLS.index(name) + 1}")]


def test_both_agree_on_the_latest_version_that_they_share(lines: list[Line]) -> None:
    (initialized,) = results(lines, "initialize")
    if lines[0]["modern"]:
        assert initialized["supportedVersions"] == ["2026-07-28"]
    else:
        assert initialized["protocolVersion"] == "2025-11-25"
    # 2.3.0's client takes out of capabilities what it does not know
    assert ("agents" in initialized["capabilities"]) != lines[0]["modern"]


def test_agents_and_tools_are_listed_and_what_is_wrong_refused(lines: list[Line]) -> None:
    first, second = results(lines, "agents/list")
    assert [one["name"] for one in first["agents"] + second["agents"]][:4] == ["echo", "stream", "elicit", "sample"]
    assert first["nextCursor"] == "3" and first["agents"][0]["provider"] == "https://example.com/rig"
    assert [one["code"] for one in errors(lines, "agents/list")] == [-32602]
    assert len(results(lines, "tools/list")[0]["tools"]) == 7
    assert [one["code"] for one in errors(lines, "no/such")] == [-32601 if lines[0]["modern"] else -32602]
    assert call(lines, "nobody")["error"]["code"] == -32602


def test_runs_send_deltas_and_tools_progress(lines: list[Line]) -> None:
    assert sorted(of(lines, "stream")) == ["a ", "b "] and text(lines, "stream") == "a b "
    assert [line["told"] for line in lines if line["op"] == "progress"][:2] == [[1, None, "a "], [2, None, "b "]]
    assert text(lines, "tool") == "a b "
    assert [len(one) for one in of(lines, "big")] == [100000] * 3


def test_a_call_asks_its_client_in_the_way_of_its_revision(lines: list[Line]) -> None:
    assert asked(lines, "elicitation/create")[0]["requestedSchema"]["required"] == ["name"]
    answer = {"action": "accept", "content": {"name": "Bo"}, **({"state": "at who"} if lines[0]["modern"] else {})}
    assert json.loads(text(lines, "asks")) == answer
    assert json.loads(text(lines, "samples"))["content"] == {"type": "text", "text": "hello"}
    if lines[0]["modern"]:
        assert call(lines, "run asks")["result"]["inputRequests"]["who"]["method"] == "elicitation/create"
    else:
        assert json.loads(text(lines, "run asks")) == answer


def test_logs_come_at_the_level_that_a_request_of_the_modern_revision_names(lines: list[Line]) -> None:
    levels = ["info", "warning", "error"] if lines[0]["modern"] else ["debug", "info", "warning", "error"]
    assert sorted(one["level"] for one in told(lines, "notifications/message")) == sorted(levels)


def test_what_fails_is_an_error_of_a_run_and_of_a_tool_as_its_server_has_it(lines: list[Line]) -> None:
    error = call(lines, "fail")["error"]
    assert (error["code"], error["data"]) == (-32050, {"why": "told to"}) and of(lines, "fail") == ["so far "]
    if lines[0]["modern"]:
        assert call(lines, "tool fails")["error"]["code"] == -32050
    else:
        assert call(lines, "tool fails")["result"]["isError"] and text(lines, "tool fails") == "boom"


def test_a_cancelled_call_ends_and_1_30_waits_for_its_answer(lines: list[Line], notes: Path) -> None:
    for name in ("slow", "tool slow"):
        error = call(lines, name)["error"]
        if lines[0]["modern"]:
            assert error["type"] == "CancelledError"
        else:
            assert (error["code"], error["message"]) == (0, "Request cancelled")
    assert notes.read_text().count("slow cancelled") % 2 == 0
