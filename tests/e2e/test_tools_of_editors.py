"""MCP servers that editors offer over their connection, for agents that take them so and for all others: real SDKs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.doors import way
from tests.support.forking import standing_in
from tests.support.peers import lines_of, node, peer_modules, peer_python
from tests.support.processes import PEERS, Gateway, free_port, start

PATIENCE = 100.0
YES = json.dumps({"sure": True})
ACCEPTED = '{"action":"accept","content":{"sure":true}}'
TOOLS = ["echo", "count", "ask", "slow", "fail"]
INFO = {"name": "n", "version": "1"}
META = {"progressToken": "p"}


def py(env: str, program: str, *args: str) -> list[str]:
    """A Python program on an SDK."""
    return [str(peer_python(env)), "-P", str(PEERS / program), *args]


def ts(program: str, *args: str) -> list[str]:
    """A program on the newest TypeScript SDK."""
    return [str(node()), str(PEERS / program), "--sdk", str(peer_modules("agent-client-ts-2")), *args]


def server(version: int) -> list[str]:
    """An MCP server on stdio."""
    return standing_in(py(f"mcp-{version}", f"mcp_server_{version}.py", "stdio"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Agents that know nothing of it, as a program and as a server, and two that do, each in its way."""
    folder = tmp_path_factory.mktemp("agents")
    port = free_port()
    agent = "agent_client_mcp_agent.py"
    with start(py("agent-client-py", agent, "--http", str(port)), port=port) as remote:
        targets: dict[str, dict[str, Any]] = {
            "plain": {"command": standing_in(py("agent-client-py", agent))},
            "remote": {"url": f"{remote.url}/acp"},
            "native": {"command": standing_in(py("agent-client-py-2", agent, "--native"))},
            "stateless": {"command": ts("agent_client_mcp_agent.mjs")},
        }
        routes = [
            {"name": name, "target": {"protocol": "agent_client", "cwd": str(folder), **target}}
            for name, target in targets.items()
        ]
        with Gateway(json.dumps({"routes": routes}), folder) as running:
            yield running


def held(gateway: Gateway, agent: str, backend: int | None, *prompts: Any) -> tuple[list[Any], list[Any]]:
    """A conversation of the Python editor, or without `backend` of the TypeScript one; what was said, and all lines."""
    said = [json.dumps(prompt) for prompt in prompts]
    command = ["--", *way(gateway, "pipe", agent)["command"]]
    if backend is None:
        argv = ts("agent_client_mcp_client.mjs", *said, *command)
    else:
        backing = json.dumps(server(backend))
        argv = py("agent-client-py-2", "agent_client_mcp_client.py", "--server", backing, *said, *command)
    with start(argv) as process:
        lines = lines_of(process, PATIENCE)
    [hello] = [line["result"] for line in lines if line["op"] == "initialize"]
    assert hello["agentCapabilities"]["mcpCapabilities"]["acp"] is True
    return [line["text"] for line in lines if line["op"] == "prompt"], lines


def used(version: int, *steps: str) -> dict[str, Any]:
    """A prompt: what an MCP client is to do with the server."""
    client = standing_in([str(peer_python(f"mcp-{version}")), str(PEERS / f"mcp_tools_client_{version}.py")])
    return {"run": [*client, "--elicitation", YES, *steps]}


def tool(name: str, **arguments: Any) -> list[str]:
    """A step."""
    return ["--tool", f"{name} {json.dumps(arguments)}"]


def printed(text: str, op: str, key: str = "result") -> list[Any]:
    """Of what an MCP client printed."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line[key] for line in lines if line["op"] == op and key in line]


def texts(results: list[Any]) -> list[str]:
    """Of results of tools."""
    return [result["content"][0]["text"] for result in results]


STEPS = [*tool("count", upto=2), *tool("ask", about="you"), *tool("fail")]


@pytest.mark.parametrize("agent", ["plain", "remote"])
def test_an_agent_uses_an_editors_server_as_any_other(gateway: Gateway, agent: str) -> None:
    wire = ["--do", "tools", *STEPS, *tool("sum", numbers=[1, 2]), "--sampling", "mine", *tool("sample", about="x")]
    slow = (
        ["--start-tool", "slow {}", "--within", "3", "--await", "never", "--within", "60", "--cancel", *tool("seen")]
        if agent == "plain"
        else []
    )
    said, lines = held(gateway, agent, 1, used(1, *wire, *slow))
    results = printed(said[0], "tools/call")
    assert texts(results)[:2] == ["2", ACCEPTED], (said[0], lines, gateway.process.describe())
    assert results[2]["isError"] is True
    assert results[3]["structuredContent"] == {"sum": 3}
    assert "mine" in texts(results)[4]
    assert [progress for progress, _, _ in printed(said[0], "progress", "told")] == [1.0, 2.0]
    if slow:
        assert {"op": "cancelled", "method": "tools/call"} in lines
        assert json.loads(texts(results)[-1])["cancelled"]
    connected = [line["asked"] for line in lines if line["op"] == "mcp/connect"]
    assert connected == ["toolbox-1"]
    assert len([line for line in lines if line["op"] == "mcp/disconnect"]) == 1


def test_mcp_clients_of_all_revisions_use_the_server_of_a_stateless_editor(gateway: Gateway) -> None:
    steps = ["--do", "tools", *tool("echo", text="hi"), *STEPS]
    said, _ = held(gateway, "plain", None, used(1, *steps), used(2, *steps))
    for each in said:
        assert [one["name"] for one in printed(each, "tools/list")[0]["tools"]] == [
            "echo",
            "count",
            "ask",
            "slow",
            "fail",
        ]
        results = printed(each, "tools/call")
        assert texts(results) == ["hi", "2", ACCEPTED]
        assert [progress for progress, _, _ in printed(each, "progress", "told")] == [1.0, 2.0]
        [error] = printed(each, "tools/call", "error")
        assert (error["code"], error["data"]["have"][0]) == (-32602, "echo")


def call(name: str, **arguments: Any) -> list[Any]:
    """An MCP request."""
    return ["tools/call", {"name": name, "arguments": arguments, "_meta": META}]


ANSWER = {"answer": {"action": "accept", "content": {"sure": True}}}
ABORT = {"abort": call("slow")}


@pytest.mark.parametrize("backend", [None, 1, 2])
def test_a_stateless_agent_uses_the_servers_of_all_editors(gateway: Gateway, backend: int | None) -> None:
    calls = [["tools/list", {}], call("count", upto=2), call("ask", about="x"), ANSWER, ABORT]
    said, lines = held(gateway, "stateless", backend, {"calls": calls})
    found = json.loads(said[0])
    listed, counted, asked, answered, aborted = found["results"]
    assert "count" in [each["name"] for each in listed["result"]["tools"]]
    assert counted["result"]["content"][0]["text"] == "2"
    [question] = asked["result"]["inputRequests"].values()
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "x")
    assert json.loads(answered["result"]["content"][0]["text"])["content"] == {"sure": True}
    assert aborted["raised"]["code"] == -32800
    assert {"op": "cancelled", "method": "tools/call"} in lines
    if backend is None:  # the others tell progress together with the answer, which this SDK hands out first
        assert [params["progress"] for _, params in found["heard"]] == [1, 2]


def test_an_agent_with_connections_is_asked_by_an_editors_server(gateway: Gateway) -> None:
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "n", "version": "1"},
    }
    calls = [["initialize", hello], call("count", upto=2), call("ask", about="x"), ["nothing/there", {}]]
    said, lines = held(gateway, "native", 1, {"calls": calls}, {"calls": calls[:1]})
    found = json.loads(said[0])
    greeting, counted, answered, unknown = found["results"]
    assert greeting["serverInfo"]["name"] == "tests-mcp-1"
    assert counted["content"][0]["text"] == "2"
    assert json.loads(answered["content"][0]["text"])["content"] == {"sure": True}
    assert unknown["error"]["code"] == -32602
    assert [method for method, _ in found["heard"]] == ["notifications/progress"] * 2 + ["elicitation/create"]
    assert [line["asked"] for line in lines if line["op"] == "mcp/disconnect"] == ["backend-0", "backend-1"]


def test_the_secret_of_a_server_is_in_no_log(gateway: Gateway) -> None:
    assert "Bearer" not in gateway.process.describe()
    assert shlex.quote("INTERLINGUA_MCP_SECRET") not in gateway.process.describe()
