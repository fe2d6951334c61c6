"""An agent whose server fails to say that a run on a thread asks something: its clients are asked all the same.

The server answers as workflow-srv does (see `tests/peers/agent_connect_replay.py`); the clients are official SDKs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.doors import way
from tests.support import peers
from tests.support.agent_client import agent_client_client, asked, errors, results, text, turns
from tests.support.processes import Gateway, Process

ROUTES = """\
routes:
  - name: agent
    target: {{protocol: agent_connect, url: "{url}", agent: org.agntcy.rig_agent}}
"""
QUESTION = "How can I help you?"


@pytest.fixture
def server() -> Iterator[Process]:
    with peers.agent_connect_replay("--slow", "30") as process:
        yield process


@pytest.fixture
def gateway(server: Process, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(ROUTES.format(url=server.url), tmp_path) as running:
        yield running


def sent(server: Process) -> list[str]:
    """The messages of the runs that the server was asked to make and has made, in order."""
    seen = httpx2.get(f"{server.url}/_seen").json()
    made = [one for one in seen if one["method"] == "POST" and one["path"].endswith("/runs/wait")]
    return [json.loads(one["body"])["input"]["message"] for one in made]


def test_an_editor_fills_in_the_form_turn_after_turn(gateway: Gateway, server: Process) -> None:
    blue, red = '{"message": "blue"}', '{"message": "red"}'
    steps = ("--elicitation", blue, "--say", "interrupt me", "--elicitation", red, "--say", "interrupt again")
    lines = agent_client_client("py", *steps, "--say", "in thread", **way(gateway, "ws", "agent"))
    assert [QUESTION in json.dumps(one) for one in asked(lines, "elicitation/create")] == [True, True]
    assert [text(turn) for turn in turns(lines)] == [
        "resumed with {'message': 'blue'}",
        "resumed with {'message': 'red'}",
        "echo: in thread",
    ]
    assert sent(server) == ["interrupt me", "interrupt again", "in thread"], "nothing is sent twice"


def test_an_open_question_outlives_a_killed_gateway_for_an_editor_and_for_an_agent_protocol_client(
    gateway: Gateway, server: Process
) -> None:
    formless = ("--capabilities", "{}", "--say", "interrupt me")
    before = agent_client_client("py", *formless, **way(gateway, "ws", "agent"))
    assert QUESTION in text(before)
    (session,) = results(before, "session/new")
    tasks = f"{gateway.url}/agent-protocol/agent"
    created, step = agent_protocol("steps", tasks, "--input", "interrupt task", "--limit", "1")
    assert (step["status"], step["is_last"]) == ("completed", False) and QUESTION in step["output"]
    gateway.kill9()
    gateway.restart()
    again = ("--do", "initialize", "--session", session["sessionId"], "--do", "load", "--say", "blue")
    after = agent_client_client("py", "--bare", "--capabilities", "{}", *again, **way(gateway, "ws", "agent"))
    assert text(after).endswith("resumed with {'message': 'blue'}"), after
    (answered,) = agent_protocol("steps", tasks, "--task", created["task_id"], "--step-input", "red")
    assert (answered["output"], answered["is_last"]) == ("resumed with {'message': 'red'}", True)
    assert sent(server) == ["interrupt me", "interrupt task"], "nothing is sent twice"


def test_a_thread_on_which_the_agent_still_does_what_was_cancelled_is_busy_and_not_broken(gateway: Gateway) -> None:
    steps = ("--start", "slow", "--do", "cancel", "--finish", "--say", "hello")
    lines = agent_client_client("py", *steps, **way(gateway, "ws", "agent"))
    assert [one["stopReason"] for one in results(lines, "session/prompt")] == ["cancelled"]
    (error,) = errors(lines, "session/prompt")
    assert (error["code"], error["data"]["code"]) == (-32600, "conflict")
    assert "the agent is busy" in error["message"] and "has pending runs" in error["message"]

    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=60) as client:
        thread = client.post("/threads", json={}).json()["thread_id"]
        run = client.post(f"/threads/{thread}/runs", json=said("slow")).json()["run_id"]
        assert client.post(f"/threads/{thread}/runs/{run}/cancel", params={"wait": True}).status_code == 204
        output = client.post(f"/threads/{thread}/runs/wait", json=said("hello")).json()["output"]
        assert (output["type"], output["errcode"]) == ("error", 409) and "busy" in output["description"]


def said(message: str) -> dict[str, Any]:
    return {"agent_id": "agent", "input": {"message": message}}


def agent_protocol(command: str, url: str, *args: str) -> list[dict[str, Any]]:
    """The answers that a conversation of the SDK's client got."""
    return [line["result"] for line in peers.agent_protocol_client(command, url, *args)]
