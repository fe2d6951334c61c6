"""The clients and servers of both BeeAI SDKs against each other: known good before a gateway stands between them."""

import json
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
    asked,
    client,
    clients,
    deltas,
    errors,
    results,
    told,
)
from tests.support.processes import Process

SCRIPT = """
--do ping --do list --do templates --do roots
--run 'echo {"prompt": "hello"}' --run 'stream {"prompt": "hello big"}'
--token 0 --run 'stream {"prompt": "zero"}' --token none --run 'stream {"prompt": "none"}' --token auto
--run 'nested {"prompt": "a b"}' --run 'count {"upto": 2}' --run 'nulls {"prompt": "a"}'
--run 'log {"prompt": "a"}' --run 'ask {"prompt": "a"}' --sampling error --run 'ask {"prompt": "a"}'
--run 'fail {"prompt": "a"}' --within 3 --cancel-after 2 --run 'slow {"prompt": "a"}' --within 20
--run 'nobody {}' --run 'echo {"wrong": 1}' --run 'big {"chunks": 3, "size": 100000}'
--create 'nothing {}' --create 'maker {"greeting": "hi"}' --run 'made-1 {"prompt": "you"}'
--destroy echo --destroy made-1
"""
RUNS = [
    *["echo", "stream", "zero", "none", "nested", "count", "nulls", "log", "ask", "refused", "fail", "slow"],
    *["nobody", "wrong", "big", "made"],
]
PAIRS: list[tuple[Sdk, Sdk, str]] = [("py", "ts", "stdio"), ("ts", "py", "ws"), ("ts", "py", "sse")]
NOWHERE = "http://127.0.0.1:9/sse"


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
    """The whole script, as each pair had it, all at once; of the first, also what is said where no server is."""
    steps = shlex.split(SCRIPT)
    with ThreadPoolExecutor() as pool:
        there = {"steps": [*steps, "--within", "0.5", "--run", 'die {"prompt": "a"}']}
        there["command"] = agents_command("ts", "--told", str(notes))
        first = pool.submit(clients, "py", there, {"steps": ["--do", "ping"], "url": NOWHERE})
        places = [f"ws://127.0.0.1:{python_server.port}/ws", f"{python_server.url}/sse"]
        others = [pool.submit(client, "ts", *steps, url=place) for place in places]
        story, nowhere = first.result()
        return [story, *(other.result() for other in others), nowhere]


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


def of(lines: list[Line], name: str) -> list[Any]:
    """The deltas of a run whose token the client made."""
    return deltas(lines, f"run-{RUNS.index(name) + 1}")


def test_both_agree_on_the_version_and_tell_their_agents_with_all_their_keys(lines: list[Line]) -> None:
    (initialized,) = results(lines, "initialize")
    assert initialized["capabilities"]["agents"] == {"templates": True, "listChanged": lines[0]["server"] == "ts"}
    assert initialized.get("protocolVersion", "2024-11-05") == "2024-11-05"
    agents = {one["name"]: one for one in results(lines, "agents/list")[0]["agents"]}
    assert agents["stream"]["tags"] == ["rig", "test"] and agents["stream"]["ui"]["type"] == "hands-off"
    (template,) = results(lines, "agents/templates/list")[0]["agentTemplates"]
    assert template["configSchema"]["properties"]["greeting"]["type"] == "string" and template["tags"]
    assert results(lines, "ping") == [{}]


def test_deltas_come_in_order_before_the_result_that_they_add_up_to(lines: list[Line]) -> None:
    assert output(lines, "echo") == {"text": "hello", "logs": []}
    assert of(lines, "stream") == [
        {"text": "hello ", "logs": [None, {"message": "hello"}]},
        {"text": "big ", "logs": [None, {"message": "big"}]},
    ]
    assert output(lines, "stream") == {"text": "hello big ", "logs": [{"message": "hello"}, {"message": "big"}]}
    assert of(lines, "count") == [{"total": 1, "half": 0.5}] * 2 and output(lines, "count") == {"total": 2, "half": 1}
    opened, more = of(lines, "nested")[:2]
    assert opened == {"answer": {"title": "a ", "lines": [None, {"text": "a"}]}, "usage": {"tokens": 1}}
    assert more["answer"]["lines"] == [{"text": "!"}]
    assert output(lines, "nested")["answer"] == {"title": "a b ", "lines": [{"text": "a!"}, {"text": "b!"}]}
    last = max(n for n, line in enumerate(lines) if '"run-2"' in json.dumps(line))
    assert last < lines.index(run(lines, "stream"))
    assert [len(one["text"]) for one in of(lines, "big")] == [100000] * 3


def test_only_python_s_server_takes_the_token_0_for_none(lines: list[Line]) -> None:
    assert len(deltas(lines, 0)) == (0 if lines[0]["server"] == "py" else 1)
    assert not any(one["text"] == "none " for one in deltas(lines) if "text" in one)
    assert output(lines, "none") == {"text": "none ", "logs": [{"message": "none"}]}


def test_nulls_stay_where_they_are(lines: list[Line]) -> None:
    wanted = {"text": "a", "note": None, "data": {"none": None, "list": [1, None]}}
    assert of(lines, "nulls") == [wanted] and output(lines, "nulls") == wanted


def test_a_server_logs_and_asks_its_client(lines: list[Line]) -> None:
    assert [one["level"] for one in told(lines, "notifications/message")] == ["debug", "info", "warning", "error"]
    (progress,) = told(lines, "notifications/progress")
    assert (progress["progress"], progress["total"]) == (1, 2)
    assert asked(lines, "sampling/createMessage")[0]["messages"][0]["content"] == {"type": "text", "text": "a"}
    assert '"text":"hello"' in output(lines, "ask")["text"].replace(" ", "")
    assert "the client was told to fail" in output(lines, "refused")["text"]


def test_each_server_has_its_own_codes_for_what_fails(lines: list[Line]) -> None:
    python = lines[0]["server"] == "py"
    assert of(lines, "fail")[0]["text"] == "so far "
    assert run(lines, "fail")["error"]["code"] == (0 if python else -32603)
    assert "boom" in run(lines, "fail")["error"]["message"]
    assert run(lines, "nobody")["error"]["code"] == (0 if python else -32602)
    if python:
        assert run(lines, "wrong")["error"]["code"] == 0
    else:
        assert output(lines, "wrong") == {"logs": []}


def test_a_cancelled_run_ends_and_is_answered_by_python_s_server_alone(lines: list[Line], notes: Path) -> None:
    error = run(lines, "slow")["error"]
    if lines[0]["client"] == "ts":
        assert error["message"] == "told to"
        late = [line["told"] for line in lines if line["op"] == "stray"]
        assert len(late) == (lines[0]["server"] == "py") and all("Request cancelled" in one for one in late)
    elif lines[0]["server"] == "py":
        assert (error["code"], error["message"]) == (0, "Request cancelled")
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


def test_python_s_client_is_not_told_that_a_process_has_gone(lines: list[Line]) -> None:
    died = [line["error"]["type"] for line in lines if line.get("run") == len(RUNS) + 1]
    assert died == (["TimeoutError"] if lines[0]["transport"] == "stdio" else [])


def test_an_unknown_method_ends_a_session_of_python_s_server_and_no_other(python_server: Process) -> None:
    address = f"ws://127.0.0.1:{python_server.port}/ws"
    lines = client("ts", "--call", "no/such {}", "--run", 'echo {"prompt": "a"}', url=address)
    assert errors(lines, "no/such")[0]["message"] == "MCP error -32000: Connection closed"
    assert errors(lines, "agents/run")[0]["message"] == "Not connected"
    assert python_server.alive


def test_a_server_that_is_not_there_is_reported(stories: list[list[Line]]) -> None:
    for lines in (stories[-1], client("ts", "--do", "ping", url=NOWHERE)):
        assert [line["op"] for line in lines if "error" in line] == ["connect"]
