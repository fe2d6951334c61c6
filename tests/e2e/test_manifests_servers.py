"""MCP servers that a manifest gives its agent, and files and commands that it lends it, with real SDKs throughout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.e2e.doors import way
from tests.governance.support import manifest, write
from tests.support.agent_client import agent_client_agent_command, agent_client_client, results, text
from tests.support.forking import standing_in
from tests.support.peers import peer_python
from tests.support.processes import PEERS, Gateway

MCP = {"kind": "mcp", "transport": "stdio"}


def py(env: str, program: str, *args: str) -> list[str]:
    """A Python program on an SDK, as something other than these tests can start it."""
    return standing_in([str(peer_python(env)), "-P", str(PEERS / program), *args])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """`tooled` has an agent that uses the MCP server of its manifest; `lent` one whose client may only read files."""
    folder = tmp_path_factory.mktemp("servers")
    program, *args = py("mcp-1", "mcp_server_1.py", "stdio")
    server = {"kind": "binary", "path": program, "args": args, "env": {"COLOUR": "blue"}}
    write(folder / "mcp" / "toolbox.MCP.md", {**MCP, "server": server})
    manifest(
        folder / "tooled", {"mcp_servers": [{"name": "toolbox", "transport": "stdio", "ref": "mcp/toolbox.MCP.md"}]}
    )
    manifest(folder / "lent", {"capabilities": {"client": {"fs": {"readTextFile": True}}}})
    (folder / "x").write_text("FILE BODY")
    targets: dict[str, Any] = {
        "tooled": {"command": py("agent-client-py", "agent_client_mcp_agent.py")},
        "lent": {"command": agent_client_agent_command("py")},
    }
    routes = [
        {
            "name": name,
            "target": {"protocol": "agent_client", "cwd": str(folder), **target},
            "manifest": f"{name}/ACP.md",
        }
        for name, target in targets.items()
    ]
    with Gateway(json.dumps({"routes": routes}), folder) as running:
        yield running


def prompt() -> str:
    """What has the agent run a real MCP client on the server that it was given, and say what that prints."""
    client = standing_in([str(peer_python("mcp-1")), str(PEERS / "mcp_tools_client_1.py")])
    return json.dumps({"run": [*client, "--tool", 'sum {"numbers": [1, 2]}']})


def summed(said: str) -> Any:
    """The structured result of the tool."""
    lines = [json.loads(line) for line in said.splitlines()]
    (result,) = [line["result"] for line in lines if line["op"] == "tools/call" and "result" in line]
    return result["structuredContent"]


def test_an_agent_has_the_manifests_server_whatever_its_client_speaks(gateway: Gateway) -> None:
    body = {"agent_id": "tooled", "input": {"message": prompt()}}
    answer = httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=100, trust_env=False).json()
    assert summed(answer["output"]["values"]["message"]) == {"sum": 3}, answer


def test_an_editors_server_of_the_same_name_does_not_take_its_place(gateway: Gateway) -> None:
    theirs = {"name": "toolbox", "command": "/bin/false", "args": [], "env": []}
    opened = json.dumps({"mcpServers": [theirs]})
    root = ["--root", str(gateway.file.parent)]
    steps = ["--do", f"new {opened}", "--say", prompt()]
    lines = agent_client_client("py", *root, *steps, **way(gateway, "ws", "tooled"))
    assert summed(text(lines)) == {"sum": 3}, lines
    assert results(lines, "session/new")[-1]["_meta"]["interlingua"]["lost"] == ["mcp_servers"]


def test_an_agent_is_told_of_and_gets_no_more_of_its_client_than_the_manifest_lends(gateway: Gateway) -> None:
    root = ["--root", str(gateway.file.parent)]
    lines = agent_client_client("py", *root, "--say", "client fs term", **way(gateway, "ws", "lent"))
    said = text(lines)
    told, _ = json.JSONDecoder().raw_decode(said.partition("client ")[2])
    able = told.get("clientCapabilities") or told["capabilities"]
    assert able["fs"] == {"readTextFile": True, "writeTextFile": False} and not able["terminal"], said
    assert "read FILE BODY" in said and "fs failed -32601" in said and "term failed -32601" in said, said
