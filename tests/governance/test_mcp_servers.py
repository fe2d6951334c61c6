"""`mcp_servers` of a manifest: each is an MCP.md (AIP-32), or a mistake with file, line and key."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.governance.binding import bind
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.journal import Journal
from gateway.governance.manifests import McpDocument
from gateway.governance.tiers import lent
from gateway.yaml_document import DocumentError
from tests.governance.support import Keys, manifest, spends_nothing, told, write
from tests.support.scripted import AGENT

REMOTE = {"kind": "remote", "url": "https://mcp.example/v1"}


def bound(folder: Path, server: Keys, transport: str = "stdio", keys: Keys | None = None) -> McpDocument:
    """The one server of a manifest."""
    write(folder / "mcp" / "box.MCP.md", {"kind": "mcp", "server": server, "transport": transport})
    own = {"name": "box", "transport": transport, "ref": "mcp/box.MCP.md", **(keys or {})}
    (found,) = bind(manifest(folder / "coder", {"mcp_servers": [own]}), folder).servers
    return found


@pytest.mark.parametrize(
    ("server", "command"),
    [
        ({"kind": "binary", "path": "/usr/bin/box", "args": ["/x"]}, ("/usr/bin/box", "/x")),
        ({"kind": "binary", "path": "box"}, ("box",)),
        ({"kind": "binary", "path": "./tool"}, ("{folder}/mcp/tool",)),
        ({"kind": "npm", "package": "@acme/box", "args": ["-v"]}, ("npx", "-y", "@acme/box", "-v")),
        (
            {"kind": "docker", "image": "acme/box", "env": {"A": "1"}},
            ("docker", "run", "-i", "--rm", "-e", "A", "acme/box"),
        ),
    ],
)
def test_a_program_is_started_as_its_document_says(server: Keys, command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "tool").write_text("")
    found = bound(tmp_path, server)
    assert found.command == tuple(word.format(folder=tmp_path) for word in command)
    assert (found.transport, found.env, found.url) == ("stdio", server.get("env", {}), "")


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_remote_one_has_an_address(transport: str, tmp_path: Path) -> None:
    found = bound(tmp_path, REMOTE, transport)
    assert (found.command, found.transport, found.url) == ((), transport, REMOTE["url"])


@pytest.mark.parametrize(
    ("server", "transport", "keys", "wrong"),
    [
        (REMOTE, "stdio", {}, "mcp/box.MCP.md:6 transport: a remote server is not spoken to over stdio here"),
        ({**REMOTE, "url": "ftp://x"}, "http", {}, "mcp/box.MCP.md:5 server.url: should be an http or https URL"),
        ({"kind": "npm", "package": "x"}, "http", {}, "transport: a npm server is not spoken to over http here"),
        ({"kind": "binary", "path": "../../x"}, "stdio", {}, "server.path: "),
        (
            {"kind": "binary", "path": "x", "env": {"K": "${secrets.K}"}},
            "stdio",
            {},
            "server.env.K: nothing is filled in",
        ),
        ({"kind": "npm", "package": "x", "args": ["${A}"]}, "stdio", {}, "server.args[0]: nothing is filled in here"),
        ({"kind": "carrier"}, "stdio", {}, "mcp/box.MCP.md:"),
        ({}, "stdio", {}, "mcp/box.MCP.md:"),
        (REMOTE, "http", {"transport": "sse"}, "metadata.aip44.mcp_servers[0].transport: mcp/box.MCP.md says http"),
        (REMOTE, "http", {"ref": "mcp/gone.MCP.md"}, "metadata.aip44.mcp_servers[0].ref: there is no mcp/gone.MCP.md"),
    ],
)
def test_a_server_that_is_nowhere_is_a_mistake(
    server: Keys, transport: str, keys: Keys, wrong: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError) as refused:
        bound(tmp_path, server, transport, keys)
    lines = [line.replace(f"{tmp_path}/", "") for line in told(refused.value, tmp_path)]
    assert [line for line in lines if wrong in line], lines


def test_one_without_a_document_and_one_that_is_given_twice_are_mistakes(tmp_path: Path) -> None:
    servers = [{"name": "a", "transport": "stdio"}, {"name": "a", "transport": "stdio"}]
    with pytest.raises(DocumentError) as refused:
        bind(manifest(tmp_path / "coder", {"mcp_servers": servers}), tmp_path)
    required = "required: the MCP.md (AIP-32) that says where the server is"
    assert [line.partition("mcp_servers")[2] for line in told(refused.value, tmp_path)] == [
        f"[0].ref: {required}",
        "[1].name: 'a' is given twice",
        f"[1].ref: {required}",
    ]


@pytest.mark.parametrize(("able", "kept"), [({"http": True}, True), ({"sse": True}, False), ({}, False)])
def test_an_agent_that_does_not_speak_to_its_server_breaks_the_promise(able: Keys, kept: bool, tmp_path: Path) -> None:
    bound(tmp_path, REMOTE, "http")
    governor = RouteGovernor(bind(tmp_path / "coder" / "ACP.md", tmp_path), Journal(None, spend=spends_nothing))
    said = {"agentCapabilities": {"loadSession": True, "mcpCapabilities": able}}
    agent = msgspec.structs.replace(AGENT, extra={"x": said})
    lines = [str(mistake) for mistake in governor.broken(agent)]
    assert bool(lines) != kept
    for line in lines:
        assert "metadata.aip44.mcp_servers: promises agent.mcpCapabilities.http, which agent" in line


def test_a_client_lends_what_the_manifest_has_of_files_and_terminals_and_all_else(tmp_path: Path) -> None:
    can = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "elicitation": {"form": {}}}
    for stated, found in (
        (None, can),
        ({}, {"elicitation": {"form": {}}}),
        ({"terminal": True, "fs": {"readTextFile": False}}, {"terminal": True, "elicitation": {"form": {}}}),
        ({"fs": {"writeTextFile": True}}, {"fs": {"writeTextFile": True}, "elicitation": {"form": {}}}),
    ):
        capabilities = {} if stated is None else {"capabilities": {"client": stated}}
        assert lent(bind(manifest(tmp_path / "coder", capabilities), tmp_path).manifest, can) == found
