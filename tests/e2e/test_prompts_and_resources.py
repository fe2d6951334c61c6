"""Prompts and resources of an MCP server behind the gateway, read by the real MCP SDKs' clients."""

from __future__ import annotations

import base64
import json

import httpx2
import pytest

from tests.support.peers import PEERS, peer_python, run_program
from tests.support.processes import Gateway

ROUTES = """\
inbound:
  agent_connect: {{}}
  agent_context:
    access:
      clients: [{{name: reader, token: reader-token, may: [read]}}]
      anonymous: [read, message]
routes:
  - name: library
    target: {{protocol: agent_context, command: {command}}}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> object:
    command = json.dumps([str(peer_python("mcp-1")), "-P", str(PEERS / "mcp_library_server.py")])
    with Gateway(ROUTES.format(command=command), tmp_path_factory.mktemp("library")) as running:
        yield running


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_client_of_its_agent_reads_a_servers_prompts_and_resources(gateway: Gateway, version: str) -> None:
    door = f"{gateway.url}/agent-context/library"
    (saw,) = run_program(f"mcp-{version}", f"mcp_library_client_{version}.py", door)
    assert saw["prompts"] == ["review"] and saw["prompt"] == "Write a kind review of Emma."
    assert saw["resources"][:3] == ["agent://directory", "agent://tasks", "agent://status"]
    assert saw["resources"][-2:] == ["library://opening-hours", "library://cover"]
    assert saw["templates"] == ["agent://metrics/{agentId}", "library://books/{title}"]
    contents = saw["contents"]
    assert contents["opening-hours"]["text"] == "9 to 5" and contents["books/Emma"]["text"] == "the text of Emma"
    assert base64.b64decode(contents["cover"]["blob"]) == b"\x89PNG"
    assert "nothing" in saw["missing"]


def test_elsewhere_and_without_the_right_there_are_none(gateway: Gateway) -> None:
    def asked(path: str, method: str, params: object, token: str | None = None) -> object:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with httpx2.Client(trust_env=False, timeout=60) as http:
            return http.post(f"{gateway.url}/agent-context{path}", json=message, headers=headers).json()

    assert asked("", "prompts/list", {})["result"]["prompts"] == []
    assert asked("", "prompts/get", {"name": "review"})["error"]["code"] == -32001
    assert asked("", "resources/read", {"uri": "library://cover"})["error"]["code"] == -32002
    for method, params in (("resources/read", {"uri": "library://cover"}), ("prompts/get", {"name": "review"})):
        assert asked("/library", method, params, "reader-token")["error"]["code"] == -32003
    listed = asked("/library", "resources/list", {}, "reader-token")["result"]["resources"]
    assert all(each["uri"].startswith("agent://") for each in listed)
