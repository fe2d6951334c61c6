"""The clients and servers of both `mcp` releases against each other, and the clients against BeeAI's server."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_communication import (
    Client,
    Line,
    agents_server,
    asked,
    clients,
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
--within 0.5 --cancel-after 2 --run 'slow {"prompt": "a"}' --cancel-after 2 --tool 'slow {"prompt": "a"}' --within 20
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
PAIRS = [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
"""The client and the server, 1.30.0 on stdio and 2.3.0 over HTTP; the last speak 2026-07-28, the others 2025-11-25."""

Pair = tuple[str, str]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers tell, whichever it is."""
    return tmp_path_factory.mktemp("agents") / "told"


@pytest.fixture(scope="module")
def all_lines(notes: Path) -> dict[Pair, list[Line]]:
    """The whole script with each server, and what the agents of BeeAI's server are asked, in one process a client."""
    wanted = shlex.split(SCRIPT)
    bee = ["--do", "list", "--run", 'stream {"prompt": "a b"}', "--run", "nobody {}"]
    command = mcp_agents_command("1", "--told", str(notes))
    found: dict[Pair, list[Line]] = {}
    with mcp_agents_server("2", "--told", str(notes)) as server, agents_server("py") as agents:
        http, sse = f"{server.url}/mcp", f"{agents.url}/sse"
        for kind, log, legacy in (("1", [], []), ("2", ["--log", "info"], ["--mode", "legacy"])):
            name: Client = "mcp-1" if kind == "1" else "mcp-2"
            found[kind, "1"], found[kind, "2"], found[kind, "bee"] = clients(
                name,
                {"steps": [*log, *wanted], "command": command},
                {"steps": [*log, *wanted], "url": http},
                {"steps": [*legacy, *bee], "url": sse},
            )
    return found


@pytest.fixture(params=PAIRS, ids="-".join)
def lines(request: pytest.FixtureRequest, all_lines: dict[Pair, list[Line]]) -> list[Line]:
    """The whole script, after a line that says who spoke with whom."""
    pair: Pair = request.param
    return [{"op": "pair", "client": pair[0], "server": pair[1], "modern": pair == ("2", "2")}, *all_lines[pair]]


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
    assert ("agents" in initialized["capabilities"]) == (lines[0]["client"] == "1")


def test_agents_and_tools_are_listed_and_what_is_wrong_refused(lines: list[Line]) -> None:
    first, second = results(lines, "agents/list")
    assert [one["name"] for one in first["agents"] + second["agents"]][:4] == ["echo", "stream", "elicit", "sample"]
    assert first["nextCursor"] == "3" and first["agents"][0]["provider"] == "https://example.com/rig"
    assert [one["code"] for one in errors(lines, "agents/list")] == [-32602]
    assert len(results(lines, "tools/list")[0]["tools"]) == 7
    assert [one["code"] for one in errors(lines, "no/such")] == [-32602 if lines[0]["server"] == "1" else -32601]
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
    if lines[0]["server"] == "1":
        assert call(lines, "tool fails")["result"]["isError"] and text(lines, "tool fails") == "boom"
    else:
        assert call(lines, "tool fails")["error"]["code"] == -32050


def test_a_cancelled_call_ends_and_1_30_waits_for_its_answer(lines: list[Line], notes: Path) -> None:
    for name in ("slow", "tool slow"):
        error = call(lines, name)["error"]
        if lines[0]["client"] == "2":
            assert error["type"] == "CancelledError"
        else:
            code = 0 if lines[0]["server"] == "1" else -32800
            assert (error["code"], error["message"]) == (code, "Request cancelled")
    assert notes.read_text().count("slow cancelled") % 2 == 0


def test_both_run_the_agents_of_beeai_s_server(all_lines: dict[Pair, list[Line]]) -> None:
    for lines in (all_lines["1", "bee"], all_lines["2", "bee"]):
        assert results(lines, "initialize")[0]["protocolVersion"] == "2024-11-05"
        assert [one["text"] for one in deltas(lines)] == ["a ", "b "]
        assert results(lines, "agents/run")[0]["output"]["text"] == "a b "
        assert results(lines, "agents/list")[0]["agents"][0]["tags"] == ["rig", "test"]
        assert [one["code"] for one in errors(lines, "agents/run")] == [0]
