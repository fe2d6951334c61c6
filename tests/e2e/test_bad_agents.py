"""Agents as they are: the recorded server with its quirks, and one that dies while it speaks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support import peers
from tests.support.processes import Gateway, Process

ROUTE = """\
routes:
  - name: agent
    target: {{protocol: agent_connect, url: "{url}"{more}}}
"""
RECORDED = ", agent: org.agntcy.rig_agent, idle_timeout: 1"


@pytest.fixture(scope="module")
def replayed(agent_connect_replay: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a gateway in front of the recorded server."""
    text = ROUTE.format(url=agent_connect_replay.url, more=RECORDED)
    with (
        Gateway(text, tmp_path_factory.mktemp("replay")) as gateway,
        httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=30) as client,
    ):
        yield client


def body(message: str) -> dict[str, Any]:
    return {"agent_id": "agent", "input": {"message": message}, "stream_mode": "values"}


def stream(client: httpx2.Client, message: str) -> list[dict[str, Any]]:
    with client.stream("POST", "/runs/stream", json=body(message)) as response:
        assert response.status_code == 200, response.read()
        return [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]


def test_a_server_that_refuses_stream_mode_and_never_says_the_end_is_streamed_to_its_end(
    replayed: httpx2.Client,
) -> None:
    events = stream(replayed, "stream this")
    assert [event["status"] for event in events[:-1]] == ["pending"] * (len(events) - 1)
    assert events[-1]["status"] == "success"
    assert events[-1]["values"] == {"message": "echo: stream this", "steps": ["a", "b"]}


def test_an_error_that_is_repeated_for_ever_is_one_error_and_the_end(replayed: httpx2.Client) -> None:
    events = stream(replayed, "fail")
    assert [event["type"] for event in events] == ["error"]
    assert "boom" in events[0]["description"]
    waited = replayed.post("/runs/wait", json=body("fail")).json()
    assert waited["run"]["status"] == "error" and "boom" in waited["output"]["description"]


def test_an_interrupt_that_the_stream_does_not_tell_is_found_and_can_be_answered(replayed: httpx2.Client) -> None:
    events = stream(replayed, "interrupt me")
    assert events[-1]["type"] == "interrupt"
    assert "How can I help you?" in json.dumps(events[-1]["interrupt"])
    run = events[-1]["run_id"]
    assert replayed.post(f"/runs/{run}", json={"message": "blue"}).status_code == 200
    waited = replayed.get(f"/runs/{run}/wait").json()
    assert waited["run"]["status"] == "success"
    assert "blue" in waited["output"]["values"]["message"]


def test_an_agent_that_dies_while_it_speaks_leaves_what_it_said_and_an_error(tmp_path: Path) -> None:
    with peers.agent_connect_agent() as agent:
        text = ROUTE.format(url=agent.url, more=", agent: slow, reconnect_timeout: 1")
        with Gateway(text, tmp_path) as gateway, httpx2.Client(base_url=f"{gateway.url}/agent-connect") as client:
            seen: list[dict[str, Any]] = []
            with client.stream("POST", "/runs/stream", json=body("30 seconds"), timeout=30) as response:
                for line in response.iter_lines():
                    if not line.startswith("data: "):
                        continue
                    seen.append(json.loads(line[6:]))
                    if "tick 3" in seen[-1].get("values", {}).get("message", ""):
                        agent.kill9()
            assert seen[-1]["type"] == "error", seen[-1]
            said = seen[-2]["values"]["message"]
            assert "tick 3" in said
            run = client.get(f"/runs/{seen[-1]['run_id']}").json()
            assert run["status"] == "error"


def test_an_agent_that_is_down_is_told_as_such_and_works_again_once_it_is_up(tmp_path: Path) -> None:
    from tests.support.processes import free_port

    port = free_port()
    text = ROUTE.format(url=f"http://127.0.0.1:{port}", more=", agent: echo")
    with Gateway(text, tmp_path) as gateway, httpx2.Client(base_url=f"{gateway.url}/agent-connect") as client:
        refused = client.post("/runs/wait", json=body("hi"), timeout=30)
        assert refused.status_code >= 500 and f"127.0.0.1:{port}" in refused.text
        assert client.post("/agents/search", json={}).status_code == 200, "directories stay complete"
        with peers.agent_connect_agent(port=port):
            deadline = time.monotonic() + 60
            while (answer := client.post("/runs/wait", json=body("hello again"), timeout=30)).status_code != 200:
                assert time.monotonic() < deadline, answer.text
            assert answer.json()["output"]["values"]["message"] == "hello again"


LATE = """\
import json, sys, time
def say(**more): print(json.dumps({"jsonrpc": "2.0", **more}), flush=True)
def told(kind, text):
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    say(method="session/update", params={"sessionId": "s", "update": update})
able = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        told("agent_message_chunk", "answer to " + asked["params"]["prompt"][-1]["text"])
    if "id" in asked:
        results = {"initialize": able, "session/new": {"sessionId": "s"}, "session/prompt": {"stopReason": "end_turn"}}
        say(id=asked["id"], result=results.get(asked["method"], {}))
    if asked["method"] == "session/load":
        for number in range(3):
            time.sleep(0.03)
            told("agent_message_chunk", f"history {number} ")
"""


def test_history_that_comes_after_a_session_was_loaded_is_not_the_answer_to_the_next_prompt(tmp_path: Path) -> None:
    target = {"protocol": "agent_client", "command": [sys.executable, "-c", LATE]}
    table, thread = json.dumps({"routes": [{"name": "agent", "target": target}]}), ""
    for word in ("first", "second"):
        with (
            Gateway(table, tmp_path) as gateway,
            httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=30) as client,
        ):
            thread = thread or client.post("/threads", json={}).json()["thread_id"]
            asked = {"agent_id": "agent", "input": {"message": word}}
            ended = client.post(f"/threads/{thread}/runs/wait", json=asked).json()
            assert ended["output"]["values"]["message"] == f"answer to {word}", "the second one has loaded the session"


TWICE = """\
import json, sys
loads = 0
able = {"loadSession": True, "sessionCapabilities": {"close": {}}}
def say(**more): print(json.dumps({"jsonrpc": "2.0", **more}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method = asked["method"]
    loads = {"session/new": 1, "session/load": loads + 1, "session/close": 0}.get(method, loads)
    if method == "session/prompt":
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "well. "}}
        for _ in range(loads):
            say(method="session/update", params={"sessionId": "s", "update": update})
    if "id" in asked:
        results = {"initialize": {"protocolVersion": 1, "agentCapabilities": able}, "session/new": {"sessionId": "s"}}
        say(id=asked["id"], result=results.get(method, {"stopReason": "end_turn"}))
"""


def test_an_agent_that_tells_twice_in_a_session_that_is_loaded_twice_is_told_once(tmp_path: Path) -> None:
    """As it is where each editor starts an agent of its own."""
    target = {"protocol": "agent_client", "command": [sys.executable, "-c", TWICE]}
    with Gateway(json.dumps({"routes": [{"name": "agent", "target": target}]}), tmp_path) as gateway:
        session, told = "", []
        for _ in range(2):
            with connect(f"{gateway.url.replace('http', 'ws')}/agent-client/agent") as editor:

                def asked(method: str, editor: ClientConnection = editor, **params: Any) -> Any:
                    editor.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))
                    while (message := json.loads(editor.recv(30))).get("id") != method:
                        told.append(message["params"]["update"]["sessionUpdate"])
                    return message["result"]

                asked("initialize", protocolVersion=1, clientCapabilities={})
                setup = {"cwd": str(tmp_path), "mcpServers": []}
                if session:
                    asked("session/load", sessionId=session, **setup)
                else:
                    session = asked("session/new", **setup)["sessionId"]
                asked("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "how are you?"}])
        assert told.count("agent_message_chunk") == 2
