"""The messages of the protocols' own documents, POSTed as they stand there: plain JSON-RPC, without MCP's handshake.

Those of the Agent Context Protocol are the golden cases, those of the Agent Communication Protocol stand here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.golden import test_golden as golden
from tests.support.processes import ROOT, Gateway, Process

ROUTES = f"""\
inbound:
  agent_communication: {{}}
  agent_connect: {{}}
  agent_context: {{endpoints: [127.0.0.0/8]}}
routes:
  - name: gpa
    description: General purpose agent
    target: {{protocol: agent_communication, agent: librarian,
             command: ["{sys.executable}", "{ROOT}/examples/agents/librarian.py"]}}
    labels: {{specializations: [data-analysis, visualization]}}
    delegation: {{quality: 8.7, cost: 0.0008}}
    model: {{cost: 0.2}}
  - name: nameless
    target: {{protocol: agent_protocol, url: "http://127.0.0.1:9"}}
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{ROOT}/examples/agents/gardener.py"]}}
"""
EXAMPLES = {path.stem: golden.load(path).wire for path in golden.FILES if path.parts[-3] == "agent_context"}
AHEAD = b"2999-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(ROUTES, tmp_path_factory.mktemp("plain")) as running:
        yield running


def posted(gateway: Gateway, path: str, body: bytes | dict[str, Any]) -> httpx2.Response:
    """What curl is answered that POSTs this with a content type and no other header of its own."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with httpx2.Client(timeout=60, trust_env=False) as client:
        answer = client.post(gateway.url + path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 202 or answer.headers["content-type"] == "application/json"
    return answer


def context(gateway: Gateway, body: bytes | dict[str, Any], status: int = 200) -> Any:
    """The answer of the agent_context door, which has the id of its request."""
    answer = posted(gateway, "/agent-context", body)
    assert answer.status_code == status, answer.text
    sent = json.loads(body) if isinstance(body, bytes) else body
    assert (answer.json()["jsonrpc"], answer.json()["id"]) == ("2.0", sent["id"])
    return answer.json()


def asked(gateway: Gateway, method: str, **params: Any) -> Any:
    found = context(gateway, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert "result" in found, found
    return found["result"]


def entries(gateway: Gateway) -> dict[str, Any]:
    """The directory, by id."""
    (read,) = context(gateway, EXAMPLES["directory"])["result"]["contents"]
    assert read["uri"] == "agent://directory"
    return {entry["id"]: entry for entry in json.loads(read["text"])["agents"]}


@contextmanager
def registered(gateway: Gateway, peer: Process, id: str) -> Iterator[Any]:
    """The agent of section 3.1 under another id, at an endpoint, that can do what 3.2 requires; the answer."""
    sent = json.loads(EXAMPLES["registered_agent"])
    sent["params"]["agent"]["capabilities"]["specializations"].append("analysis")
    sent["params"]["agent"] |= {"id": id, "endpoint": {"url": f"{peer.url}/mcp"}}
    sent["params"]["agent"]["capabilities"]["tools"].append("analysis")  # which the message of section 3.2 requires
    yield context(gateway, sent)
    assert asked(gateway, "agent/unregister", agentId=id) == {"status": "unregistered"}
    assert id not in entries(gateway)


def test_an_agent_without_a_connection_is_refused_unless_it_names_an_endpoint(
    gateway: Gateway, agent_context_server: Process
) -> None:
    error = context(gateway, EXAMPLES["registered_agent"])["error"]
    assert (error["code"], error["data"]["path"]) == (-32001, "/agent/endpoint")
    assert "an agent that registers without a session" in error["data"]["details"]["expected"]
    with registered(gateway, agent_context_server, "unique-agent-id") as answer:
        assert answer == json.loads(EXAMPLES["told_registered"])
        assert entries(gateway)["unique-agent-id"]["status"] == "active"


def test_a_heartbeat_is_taken_and_an_error_that_belongs_to_nothing(
    gateway: Gateway, agent_context_server: Process
) -> None:
    for example in (EXAMPLES["heartbeat"], EXAMPLES["error"]):
        answer = posted(gateway, "/agent-context", example)
        assert (answer.status_code, answer.content) == (202, b"")
    with registered(gateway, agent_context_server, "unique-agent-id"):
        busy = EXAMPLES["heartbeat"].replace(b'"active"', b'"occupied"')
        assert posted(gateway, "/agent-context", busy).status_code == 202
        assert entries(gateway)["unique-agent-id"]["status"] == "busy"
        assert posted(gateway, "/agent-context", EXAMPLES["heartbeat"]).status_code == 202
        assert entries(gateway)["unique-agent-id"]["status"] == "active"


def test_a_message_reaches_an_agent_at_its_endpoint(gateway: Gateway, agent_context_server: Process) -> None:
    error = context(gateway, EXAMPLES["message"])["error"]
    assert (error["code"], error["data"]["correlationId"]) == (-32003, "corr-1234")
    assert "agent-id-1 is no agent of this client" in error["message"]
    with registered(gateway, agent_context_server, "agent-id-1"), registered(gateway, agent_context_server, "echo"):
        message = EXAMPLES["message"].replace(b"agent-id-2", b"echo")
        assert context(gateway, message)["error"]["code"] == -32006, "its deadline is past"
        result = context(gateway, message.replace(b"2025-02-22T00:00:00Z", AHEAD))["result"]
    assert result["content"]["payload"]["messages"] == [{"text": "Please perform analysis on dataset X. "}]
    assert (result["content"]["type"], result["_meta"]["correlationId"]) == ("response", "corr-1234")


def test_a_task_is_done_by_the_agent_that_can(gateway: Gateway) -> None:
    assert context(gateway, EXAMPLES["delegated"])["error"]["code"] == -32006, "its deadline is past"
    task = context(gateway, EXAMPLES["delegated"].replace(b"2025-02-22T12:00:00Z", AHEAD))["result"]
    assert (task["task"]["id"], task["task"]["status"]) == ("task-001", "completed")
    assert "dataset.csv" in json.dumps(task)


def test_a_search_is_answered_as_the_document_shows(gateway: Gateway) -> None:
    result = context(gateway, EXAMPLES["search"])["result"]
    found = {"id": "gpa", "name": "gpa", "qualityScore": 8.7, "costPerToken": 0.0008}
    assert result["content"][0] == {"type": "text", "text": "Found 1 matching agent"}
    assert result["_meta"] == {"agents": [found]}


def test_the_other_tools_are_called_likewise(gateway: Gateway) -> None:
    listed = {tool["name"] for tool in asked(gateway, "tools/list")["tools"]}
    assert {"agentSearch", "taskAssign", "agentEvaluate"} <= listed
    arguments: dict[str, Any] = {"agentId": "gpa", "score": 9}
    assert not asked(gateway, "tools/call", name="agentEvaluate", arguments=arguments).get("isError")
    arguments = {"message": "tongues", "capabilities": ["visualization"]}
    assert "On tongues we have" in json.dumps(asked(gateway, "tools/call", name="taskAssign", arguments=arguments))


def test_a_route_that_is_a_model_samples(gateway: Gateway) -> None:
    result = context(gateway, EXAMPLES["sampling"])["result"]
    assert result["role"] == "assistant" and "metrics for agent-id-1" in result["content"]["text"]


def test_an_agent_that_nobody_describes_has_the_same_description_at_every_door(gateway: Gateway) -> None:
    def listed(method: str, key: str) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method}
        found = posted(gateway, "/agent-communication/mcp", body).json()["result"][key]
        return {each["name"]: each["description"] for each in found}["nameless"]

    found = [each["metadata"] for each in posted(gateway, "/agent-connect/agents/search", {}).json()]
    (described,) = [each["description"] for each in found if each["ref"]["name"] == "nameless"]
    assert described == "The agent nameless, through Interlingua."
    assert listed("tools/list", "tools") == listed("agents/list", "agents") == described
    assert entries(gateway)["nameless"]["meta"]["description"] == described


def test_what_needs_a_session_is_refused(gateway: Gateway) -> None:
    subscribe = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "agent://directory"}}
    assert "needs a session" in context(gateway, subscribe, 404)["error"]["message"]


def test_agents_are_listed_and_run_without_a_handshake(gateway: Gateway) -> None:
    def ask(id: int, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return posted(gateway, "/agent-communication/mcp", body).json()

    listed = ask(1, "agents/list")
    assert (listed["id"], listed["result"].keys()) == (1, {"agents"})
    (gpa,) = [agent for agent in listed["result"]["agents"] if agent["name"] == "gpa"]
    assert gpa["description"] == "General purpose agent" and gpa["inputSchema"]["required"] == ["text"]
    run = ask(2, "agents/run", name="gpa", input={"text": "Howdy!"})
    assert run["id"] == 2 and run["result"]["output"]["text"].startswith("On Howdy! we have")
    progress = ask(3, "agents/run", name="gpa", input={"text": "Howdy!"}, _meta={"progressToken": "abc123"})
    assert progress["result"]["output"] == run["result"]["output"], "without a stream there are no deltas"

    error = ask(4, "agents/run", name="gardener", input={"message": "a rose"})["error"]
    assert (error["code"], error["data"]["interrupt"]["kind"]) == (-32050, "permission")
    handle = {"interlingua/resume": error["data"]["resume"]}
    resumed = ask(5, "agents/run", name="gardener", input={"optionId": "plant"}, _meta=handle)
    assert "rose" in resumed["result"]["output"]["message"]
