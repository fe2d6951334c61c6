"""A tool of an MCP server with several arguments, called by people through every door: what they leave out is asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.cli.test_terminal import terminal
from tests.e2e.doors import way
from tests.support import agent_client
from tests.support.agent_client import Sdk, agent_client_conversations
from tests.support.curl import curl
from tests.support.forking import standing_in
from tests.support.peers import PEERS, agent_connect_conversations, agent_protocol_client, peer_python
from tests.support.processes import Gateway

ANSWER = {"units": "celsius", "days": 2}
SUN = "2 days of sun in Bonn, in celsius"
WHOLE = {"city": "Bonn", "units": "celsius", "days": 2, "source": "dwd"}
PLAIN = ("--capabilities", "{}")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tool was called with, a line each."""
    return tmp_path_factory.mktemp("calls") / "calls.jsonl"


@pytest.fixture(scope="module")
def gateway(calls: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    command = standing_in([str(peer_python("mcp-1")), str(PEERS / "mcp_forecast.py"), str(calls)])
    target = {"protocol": "agent_context", "command": command, "agent": "forecast"}
    with Gateway(json.dumps({"routes": [{"name": "forecast", "target": target}]}), tmp_path_factory.mktemp("f")) as up:
        yield up


def called(calls: Path) -> list[object]:
    """What the tool was called with since it was asked last."""
    found = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
    calls.write_text("")
    return found


def say(gateway: Gateway, words: str) -> Any:
    """What an Agent Connect client gets for words, as of this release's SDK it cannot send them."""
    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", trust_env=False, timeout=60) as client:
        return client.post("/runs/wait", json={"agent_id": "forecast", "input": words}).json()


@pytest.mark.parametrize(("sdk", "door"), [("py", "ws"), ("py", "stdio"), ("ts-2", "ws")])
def test_an_editor_fills_in_a_form_or_writes_json_or_answers_in_the_next_prompt(
    sdk: Sdk, door: str, gateway: Gateway, calls: Path
) -> None:
    called(calls)
    there = way(gateway, door, "forecast")
    form, declined, words = agent_client_conversations(
        sdk,
        {"steps": ("--elicitation", json.dumps(ANSWER), "--say", "Bonn", "--say", json.dumps(WHOLE)), **there},
        {"steps": ("--elicitation", "decline", "--say", "Bonn"), **there},
        {"steps": (*PLAIN, "--say", "Bonn", "--say", "days: 9\nunits: celsius", "--say", "celsius\n2"), **there},
    )
    (asked,) = agent_client.asked(form, "elicitation/create")
    asked = asked if "requestedSchema" in asked else asked["mode"]  # as the Python SDK has it
    assert list(asked["requestedSchema"]["properties"]) == ["units", "days"]
    assert asked["requestedSchema"]["properties"]["units"]["enum"] == ["celsius", "fahrenheit"]
    assert [agent_client.text(turn) for turn in agent_client.turns(form)] == [SUN, SUN]
    assert [result["stopReason"] for result in agent_client.results(declined, "session/prompt")] == ["cancelled"]
    question, again, answer = (agent_client.text(turn) for turn in agent_client.turns(words))
    assert "- units: celsius or fahrenheit (Of the temperatures)\n- days: a whole number" in question
    assert "9 is greater than the maximum of 7" in again and answer == SUN
    assert called(calls) == [WHOLE] * 3, "the declined form was not sent"


def test_a_step_of_an_agent_protocol_task_asks_and_the_next_one_answers(gateway: Gateway, calls: Path) -> None:
    called(calls)
    url = f"{gateway.url}/agent-protocol/forecast"
    lines = agent_protocol_client("steps", url, "--input", "Bonn", "--step-input", "", "--step-input", "celsius\n2")
    steps = [line["result"] for line in lines if "step_id" in (line.get("result") or {})]
    assert "- units: celsius or fahrenheit" in steps[0]["output"] and not steps[0]["is_last"]
    assert steps[-1]["output"] == SUN and steps[-1]["is_last"]
    assert called(calls) == [WHOLE]


def test_an_agent_connect_client_is_interrupted_for_words_and_refused_for_half_a_document(
    gateway: Gateway, calls: Path
) -> None:
    called(calls)
    answer = ("--name", "forecast", "--answer", json.dumps(ANSWER))
    half, prompt, whole = agent_connect_conversations(
        f"{gateway.url}/agent-connect",
        ["resume", "--input", '{"city": "Bonn", "days": 2}', *answer],
        ["resume", "--input", '{"city": "Bonn"}', *answer],
        ["resume", "--input", json.dumps(WHOLE), *answer],
    )
    assert any("units" in str(line.get("error")) for line in half), half
    assert "interrupted" in json.dumps(prompt) and SUN in json.dumps(prompt)
    assert SUN in json.dumps(whole) and "interrupted" not in json.dumps(whole)
    words = say(gateway, "Bonn")
    asked = words["output"]["interrupt"]["input"]
    assert asked["input"] == {"city": "Bonn", "source": "dwd"} and asked["schema"]["required"] == ["units", "days"]
    (reached,) = agent_connect_conversations(
        f"{gateway.url}/agent-connect", ["reach", "--run-id", words["run"]["run_id"], *answer]
    )
    assert SUN in json.dumps(reached)
    assert called(calls) == [WHOLE] * 3


def test_a_gateway_that_is_killed_while_it_asks_keeps_the_question_and_calls_once(
    gateway: Gateway, calls: Path
) -> None:
    called(calls)
    words = say(gateway, "Bonn")
    gateway.kill9()
    gateway.restart()
    (reached,) = agent_connect_conversations(
        f"{gateway.url}/agent-connect", ["reach", "--run-id", words["run"]["run_id"], "--answer", json.dumps(ANSWER)]
    )
    assert SUN in json.dumps(reached)
    gateway.kill9()
    gateway.restart()
    assert called(calls) == [WHOLE]


def test_the_schema_is_published_as_it_is_in_every_directory(gateway: Gateway) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    with httpx2.Client(base_url=gateway.url, trust_env=False, timeout=60) as client:

        def ask(path: str, method: str, **params: Any) -> Any:
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            if "uri" in params:
                headers["mcp-name"] = params["uri"]
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
            return client.post(path, json=body, headers=headers).json()["result"]

        (agent,) = client.post("/agent-connect/agents/search", json={}).json()
        found = [client.get(f"/agent-connect/agents/{agent['agent_id']}/descriptor").json()["specs"]["input"]]
        found += [one["inputSchema"] for one in ask("/agent-communication/mcp", "tools/list")["tools"]]
        found += [one["inputSchema"] for one in ask("/agent-communication/mcp", "agents/list")["agents"]]
        listed = ask("/agent-context", "resources/read", uri="agent://directory")["contents"][0]["text"]
        found += [one["inputSchema"] for one in json.loads(listed)["agents"]]
    schemas = [schema for schema in found if "city" in schema.get("properties", {})]
    assert len(schemas) == 4
    for schema in schemas:
        assert schema["properties"]["units"]["enum"] == ["celsius", "fahrenheit"]
        assert (schema["properties"]["days"]["maximum"], schema["properties"]["source"]["default"]) == (7, "dwd")
        assert schema["required"] == ["city", "units", "days"]


@pytest.mark.parametrize("there", ["--gateway", "--routes"])
def test_a_terminal_asks_value_by_value(there: str, gateway: Gateway, calls: Path) -> None:
    called(calls)
    where = gateway.url if there == "--gateway" else str(gateway.file)
    with terminal("run", "forecast", "Bonn", there, where) as screen:
        screen.until("units: celsius or fahrenheit")
        screen.until("> ")
        screen.type("kelvin\n")
        screen.until("it must be celsius or fahrenheit")
        screen.type("celsius\n")
        screen.until("days: a whole number")
        screen.type("2\n")
        assert screen.ended() == 0
        assert SUN in screen.shown
    assert called(calls) == [WHOLE]


@pytest.mark.parametrize("there", ["--gateway", "--routes"])
def test_what_an_agent_wants_is_shown_with_calls_that_work(there: str, gateway: Gateway, calls: Path) -> None:
    called(calls)
    shown = interlingua("agents", "forecast", there, gateway.url if there == "--gateway" else str(gateway.file)).stdout
    assert (
        "  units: celsius or fahrenheit (Of the temperatures)\n  days: a whole number, at least 1, at most 7" in shown
    )
    lines = [line.strip().replace("http://127.0.0.1:8080", gateway.url) for line in shown.splitlines()]
    curls = [line for line in lines if line.startswith("curl")]
    assert len(curls) >= 4
    for line in curls:
        told = curl(line).text
        if "/ap/v1/" in line:
            address = shlex.split(line)[2]
            told = curl(f"curl -s {address}/{json.loads(told)['task_id']}/steps -X POST").text
        assert "1 days of sun in text, in celsius" in told, line
    assert len(called(calls)) == len(curls)


@pytest.mark.parametrize("there", ["--gateway", "--routes"])
def test_without_a_terminal_a_document_runs_and_what_is_missing_is_exit_code_3(
    there: str, gateway: Gateway, calls: Path, tmp_path: Path
) -> None:
    called(calls)
    where = (there, gateway.url if there == "--gateway" else str(gateway.file))
    (tmp_path / "input.json").write_text(json.dumps(WHOLE))
    for document in (json.dumps(WHOLE), str(tmp_path / "input.json")):
        assert interlingua("run", "forecast", "--input", document, *where).stdout.strip() == SUN
    assert interlingua("run", "forecast", "Bonn", "--answer", "celsius\n2", *where).stdout.strip() == SUN
    asked = interlingua("run", "forecast", *where)
    assert asked.returncode == 3 and "- city: text" in asked.stderr
    assert called(calls) == [WHOLE] * 3
