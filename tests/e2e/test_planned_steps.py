"""An agent of the `agent-protocol` SDK lists its steps when the task is created: clients of every protocol that has a
place for a plan are told of them before the first output. The clients are the official SDKs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.e2e.doors import way
from tests.matrix.agent_context import Exchange
from tests.support import agent_client
from tests.support.agent_client import Sdk, agent_client_conversations
from tests.support.agent_client_v2 import SDKS_V2, SdkV2, conversations_v2
from tests.support.agent_communication import PROGRESS, Client, clients
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.processes import Gateway, Process

NAMES = ["Step 1", "Step 2", "Step 3"]
SAID = [f"step {number} of 3: " for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def gateway(agent_protocol_server: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    target = {"protocol": "agent_protocol", "url": agent_protocol_server.url}
    served = {"agent_client": {"v2": True}, "agent_connect": {}, "agent_protocol": {}, "agent_communication": {}}
    routes = {"inbound": {**served, "agent_context": {}}, "routes": [{"name": "writer", "target": target}]}
    with Gateway(json.dumps(routes), tmp_path_factory.mktemp("p")) as up:
        yield up


def tasks(server: Process, words: str) -> int:
    """How many tasks the agent itself has with this input."""
    found = httpx2.get(f"{server.url}/ap/v1/agent/tasks?page_size=1000", timeout=60).json()["tasks"]
    return sum(task["input"] == words for task in found)


def listed(url: str, task: str) -> list[dict[str, Any]]:
    (steps, first) = agent_protocol_client("planned", url, "--task", task)
    found: list[dict[str, Any]] = steps["result"]["steps"]
    assert first["result"] == found[0]
    return found


def test_a_client_lists_the_steps_at_once_and_executes_these_after_a_kill(
    gateway: Gateway, agent_protocol_server: Process
) -> None:
    words = "plan a garden"
    url = f"{gateway.url}/agent-protocol/writer"
    (made,) = agent_protocol_client("create", url, "--input", words)
    task = made["result"]["task_id"]
    before = listed(url, task)
    assert [(step["name"], step["status"]) for step in before] == [(name, "created") for name in NAMES]
    gateway.kill9()
    gateway.restart()
    assert listed(url, task) == before
    done = [line["result"] for line in agent_protocol_client("steps", url, "--task", task)]
    assert [step["output"] for step in done] == [f"{said}{words}" for said in SAID]
    assert [step["step_id"] for step in done] == [step["step_id"] for step in before]
    assert [step["is_last"] for step in done] == [False, False, True]
    assert tasks(agent_protocol_server, words) == 1


@pytest.mark.parametrize("sdk", ["py", "ts-2"])
def test_an_editor_sees_the_plan_before_the_first_word(gateway: Gateway, sdk: Sdk) -> None:
    steps = ("--say", "plan a walk")
    (lines,) = agent_client_conversations(sdk, {"steps": steps, **way(gateway, "ws", "writer")})
    told = [one for one in agent_client.updates(lines) if one["sessionUpdate"] in ("plan", "agent_message_chunk")]
    assert told[0]["sessionUpdate"] == "plan"
    assert [(entry["content"], entry["status"]) for entry in told[0]["entries"]] == [(n, "pending") for n in NAMES]
    assert agent_client.text(lines) == "\n\n".join(f"{said}plan a walk" for said in SAID)


def test_a_stream_of_agent_connect_begins_with_the_plan(gateway: Gateway) -> None:
    asked = ["stream", "--name", "writer", "--message", "plan a trip", "--stream-mode", "custom"]
    (lines,) = agent_connect_conversations(f"{gateway.url}/agent-connect", [*asked, "--stream-mode", "values"])
    first, second, *_ = [line["event"]["data"] for line in lines if "event" in line]
    assert [entry["content"] for entry in first["update"]["entries"]] == NAMES
    assert second["values"] == {"message": f"{SAID[0]}plan a trip"}


@pytest.mark.parametrize("client", ["py", "ts"])
def test_the_progress_of_a_beeai_run_begins_with_the_plan(gateway: Gateway, client: Client) -> None:
    call = ("--token", "1", "--run", f"writer {json.dumps({'message': 'plan a day'})}")
    (lines,) = clients(client, {"steps": call, "url": f"{gateway.url}/agent-communication/sse"})
    first, second, *_ = [line["told"] for line in lines if line["op"] == PROGRESS and "told" in line]
    assert [entry["content"] for entry in first["_meta"]["interlingua/event"]["entries"]] == NAMES
    assert second["delta"] == {"message": f"{SAID[0]}plan a day"}


@pytest.mark.parametrize("sdk", SDKS_V2)
def test_an_editor_of_version_2_sees_the_plan_before_the_first_word(gateway: Gateway, sdk: SdkV2) -> None:
    (lines,) = conversations_v2(sdk, {"steps": ("--say", "plan a swim"), **way(gateway, "ws", "writer")})
    told = [
        one for one in agent_client.updates(lines) if one["sessionUpdate"] in ("plan_update", "agent_message_chunk")
    ]
    assert told[0]["sessionUpdate"] == "plan_update"
    entries = told[0]["plan"]["entries"]
    assert [(entry["content"], entry["status"]) for entry in entries] == [(name, "pending") for name in NAMES]


def test_an_agent_context_client_is_told_of_the_plan_before_the_first_word(gateway: Gateway) -> None:
    heard: list[Any] = []

    class Listening(Exchange):
        def _next(self) -> dict[str, Any]:
            heard.append(message := super()._next())
            return message

    assert Listening(f"{gateway.url.replace('http', 'ws')}/agent-context/ws", "writer", "plan a nap").until_asked()
    first, second, *_ = [one["params"] for one in heard if one.get("method") == "agent/message"]
    assert [entry["content"] for entry in first["_meta"]["interlingua/event"]["entries"]] == NAMES
    assert second["content"]["payload"] == {"messages": [{"text": f"{SAID[0]}plan a nap"}]}
