"""What documents may say and is not done here: refused when the route table is read, with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config import DocumentError, load
from gateway.config.exposure import cautions
from tests.cli.conftest import interlingua
from tests.governance.support import OPERATOR, SANDBOX, Keys, governance, manifest, with_, write

STARTED = {"protocol": "agent_client", "command": ["agent"]}
SOCKET = {"protocol": "agent_client", "url": "wss://agents.example/acp"}
POSTED = {"protocol": "agent_client", "url": "https://agents.example/acp"}
OTHER = {"protocol": "agent_connect", "url": "http://127.0.0.1:1"}
BOXED = {"sandbox": "../SANDBOX.md"}


def table(folder: Path, target: Keys, **route: Any) -> Path:
    """A table of one route that is governed by coder/ACP.md."""
    inbound = route.pop("inbound", None)
    found = {"routes": [{"name": "coder", "target": target, "manifest": "coder/ACP.md", **route}]}
    file = folder / "routes.yaml"
    file.write_text(json.dumps({**found, **({"inbound": inbound} if inbound is not None else {})}))
    return file


def told(file: Path) -> list[str]:
    """The mistakes, with paths from the table's folder and without the lines of an ACP.md."""
    try:
        load(file)
    except DocumentError as error:
        return [str(mistake).replace(f"{file.parent}/", "") for mistake in error.mistakes]
    return []


@pytest.mark.parametrize(
    ("audit", "governed", "wrong"),
    [
        ({"kind": "external", "ref": "file:///var/log/agents"}, True, None),
        ({"kind": "external"}, True, "ref: an external audit log is a folder of this machine: write a ref of file:///"),
        ({"kind": "external", "ref": "https://audit.example"}, True, "ref: an external audit log is a folder of this"),
        ({"kind": "external", "ref": "file://[x"}, True, "ref: an external audit log is a folder of this machine"),
        ({"kind": "external", "ref": "file://far.example/x"}, True, "ref: an external audit log is a folder of this"),
        (
            {"kind": "external", "ref": "file:///x"},
            False,
            "kind: nothing governs this agent, so that nothing is audited",
        ),
        ({"ref": "file:///x"}, True, "ref: is for kind external, and not for governance"),
    ],
)
def test_an_audit_that_would_be_written_nowhere(audit: Keys, governed: bool, wrong: str | None, tmp_path: Path) -> None:
    if governed:
        governance(tmp_path)
    manifest(tmp_path / "coder", {"tier": "governance-aware" if governed else "basic", "audit": audit})
    lines = told(table(tmp_path, OTHER))
    assert len(lines) == bool(wrong)
    for line in lines:
        assert line.startswith(tuple(f"coder/ACP.md:{number} metadata.aip44.audit." for number in (11, 12, 13)))
        assert f".{wrong}" in line


@pytest.mark.parametrize(
    ("memory", "wrong"),
    [
        ({"kind": "external", "external": {"uri": "redis://x"}}, "kind: sessions are kept in the gateway's own store"),
        (
            {"kind": "thread", "external": {"uri": "redis://x"}},
            "external: sessions are kept in the gateway's own store",
        ),
        ({"kind": "thread", "share_with": ["painter"]}, "share_with: no operator is shown another's memory here"),
        ({"kind": "operator-context"}, None),
        ({"kind": "none"}, None),
    ],
)
def test_memory_that_the_gateway_does_not_have(memory: Keys, wrong: str | None, tmp_path: Path) -> None:
    write(tmp_path / "OPERATOR.md", with_(OPERATOR, memory=memory))
    manifest(tmp_path / "coder", {"operator": "../OPERATOR.md"})
    lines = told(table(tmp_path, OTHER))
    assert len(lines) == bool(wrong)
    for line in lines:
        assert line.startswith("OPERATOR.md:") and f" memory.{wrong}" in line


@pytest.mark.parametrize(
    ("keys", "target", "route", "wrong"),
    [
        ({"kind": "client"}, STARTED, {}, None),
        ({"kind": "client", "transport": "websocket"}, SOCKET, {}, None),
        ({"kind": "client", "transport": "websocket"}, STARTED, {}, "6 transport: the target is driven by stdio"),
        ({"kind": "client"}, SOCKET, {}, "6 transport: the target is driven by websocket"),
        ({"kind": "client"}, POSTED, {}, "6 transport: the target is driven by https, which AIP-44 has no word for"),
        ({"kind": "client"}, OTHER, {}, "5 kind: a client drives an agent of the Agent Client Protocol"),
        ({"transport": ["stdio", "websocket"]}, OTHER, {}, None),
        ({"transport": "websocket"}, OTHER, {"inbound": {"agent_connect": {}}}, "6 transport: promises websocket, and"),
        ({"transport": "stdio"}, OTHER, {"inbound": {"agent_connect": {}}}, None),
        ({"transport": "websocket"}, OTHER, {"match": {"protocol": "agent_connect"}}, None),
    ],
)
def test_a_transport_that_the_route_does_not_have(
    keys: Keys, target: Keys, route: Keys, wrong: str | None, tmp_path: Path
) -> None:
    manifest(tmp_path / "coder", **keys)
    lines = told(table(tmp_path, target, **route))
    assert len(lines) == bool(wrong)
    for line in lines:
        assert line.startswith(f"coder/ACP.md:{wrong}")


OF_THE_PROVIDER: Keys = {
    "identity": {"ref": "../IDENTITY.md"},
    "lifecycle": {"destroy_on": "workspace-close"},
    "policy": {"ref": "../POLICY.md"},
}


@pytest.mark.parametrize(
    ("sandbox", "target", "wrong"),
    [
        ({}, STARTED, []),
        ({"network": {"egress": ["a.example"]}}, STARTED, ["network: is not kept where the gateway starts the agent"]),
        (
            {"limits": {"memory_mb": 5}, "env": {"passthrough": ["HOME"]}, "config": {"x": 1}},
            STARTED,
            ["config: is not kept", "limits: is not kept", "env: is not kept"],
        ),
        *(
            ({"provider": provider}, SOCKET, [])
            for provider in ("local", "mastra-modal", "mastra-daytona", "mastra-blaxel", "node-permission")
        ),
        *(({key: value}, STARTED, [f"{key}: is not kept"]) for key, value in OF_THE_PROVIDER.items()),
        ({"provider": "mastra-e2b"}, STARTED, ["provider: the gateway starts the agent as a program of this machine"]),
        ({"provider": "home-made"}, SOCKET, ["provider: 'home-made' is unknown: have local, mastra-e2b"]),
        ({"provider": "mastra-e2b", "network": {"egress": ["a.example"]}}, SOCKET, []),
    ],
)
def test_what_of_a_sandbox_the_gateway_would_have_to_keep_itself(
    sandbox: Keys, target: Keys, wrong: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "SANDBOX.md", with_(SANDBOX, **sandbox))
    manifest(tmp_path / "coder", BOXED)
    lines = told(table(tmp_path, target))
    assert sorted(line.split(" ", 1)[1][:15] for line in lines) == sorted(each[:15] for each in wrong)
    for line in lines:
        assert line.startswith("SANDBOX.md:") and any(each in line for each in wrong)


@pytest.mark.parametrize(
    ("sandbox", "target", "said"),
    [
        ({}, STARTED, "SANDBOX.md:2 provider: the gateway starts the agent with this machine's network"),
        (
            {"provider": "mastra-e2b", "network": {"egress": ["a.example"]}},
            SOCKET,
            "SANDBOX.md:2 provider: provider, network: left to who runs the agent at agents.example",
        ),
    ],
)
def test_what_is_left_to_others_is_a_caution(sandbox: Keys, target: Keys, said: str, tmp_path: Path) -> None:
    write(tmp_path / "SANDBOX.md", with_(SANDBOX, **sandbox))
    manifest(tmp_path / "coder", BOXED)
    found = [str(caution).replace(f"{tmp_path}/", "") for caution in cautions(load(table(tmp_path, target)))]
    assert len([line for line in found if line.startswith(said)]) == 1
    manifest(tmp_path / "coder")
    assert "SANDBOX.md" not in str([*cautions(load(table(tmp_path, target)))])


def test_mcp_servers_are_for_agents_that_are_given_some_and_can_start_them(tmp_path: Path) -> None:
    for transport, server in (
        ("stdio", {"kind": "npm", "package": "x"}),
        ("http", {"kind": "remote", "url": "https://x"}),
    ):
        write(tmp_path / "mcp" / "box.MCP.md", {"kind": "mcp", "server": server, "transport": transport})
        manifest(
            tmp_path / "coder", {"mcp_servers": [{"name": "box", "transport": transport, "ref": "mcp/box.MCP.md"}]}
        )
        assert told(table(tmp_path, STARTED)) == []
        (line,) = told(table(tmp_path, OTHER))
        assert "metadata.aip44.mcp_servers[0]: an agent of another protocol is given no MCP servers" in line
        lines = told(table(tmp_path, SOCKET))
        assert len(lines) == (transport == "stdio")
        assert all("mcp_servers[0].transport: the agent at agents.example starts no program" in line for line in lines)


def test_files_and_commands_of_a_client_are_for_agents_that_can_ask_for_them(tmp_path: Path) -> None:
    manifest(tmp_path / "coder", {"capabilities": {"client": {"terminal": True}}})
    assert told(table(tmp_path, STARTED)) == []
    (line,) = told(table(tmp_path, OTHER))
    assert line.startswith(
        "coder/ACP.md:12 metadata.aip44.capabilities.client: an agent of another protocol asks for no"
    )


def test_check_and_serve_refuse_a_file_that_promises_what_is_not_done(tmp_path: Path) -> None:
    governance(tmp_path)
    manifest(tmp_path / "coder", {"tier": "governance-aware", "audit": {"kind": "external"}})
    table(tmp_path, OTHER)
    for command, code in (("check", 1), ("serve", 2)):
        done = interlingua(command, "routes.yaml", cwd=tmp_path)
        assert done.returncode == code
        assert done.stderr == (
            "coder/ACP.md:11 metadata.aip44.audit.ref: an external audit log is a folder of this machine: "
            "write a ref of file:///FOLDER\n"
        )
