"""A manifest's MCP servers are in every request that opens a session of its agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.contract.governing import ToolServer
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import Client, beside, relay, rig
from tests.support.context import FakeContext

OURS = (
    ToolServer("box", "stdio", ("/usr/bin/box", "-v"), {"A": "1"}),
    ToolServer("far", "http", url="https://mcp.example/v1"),
)
TOLD = [
    {"name": "box", "command": "/usr/bin/box", "args": ["-v"], "env": [{"name": "A", "value": "1"}]},
    {"type": "http", "name": "far", "url": "https://mcp.example/v1", "headers": []},
]
THEIRS = {"name": "theirs", "command": "/usr/bin/theirs", "args": [], "env": []}
SAME = {"name": "far", "command": "/usr/bin/other", "args": [], "env": []}


def governed(context: FakeContext, folder: Path) -> FakeContext:
    """The context, on a route whose manifest gives those servers."""
    context.governor = context.governed = rules = Rules(folder)
    rules.servers = OURS
    return context


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
async def test_whatever_opens_a_session_for_a_client_has_the_manifests_servers_first(
    method: str, tmp_path: Path
) -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"resume": {}})
        for each in ("session/load", "session/resume"):
            it.handlers[each] = lambda _: {}
        it.handlers["session/fork"] = lambda _: {"sessionId": "forked"}
        setup = {"cwd": str(tmp_path), "mcpServers": [SAME, THEIRS]}
        context = governed(beside("t1", caller=Client()), tmp_path)
        if method == "session/fork":
            await relay(it, context, "session/new", cwd=str(tmp_path), mcpServers=[])
        asked = {} if method == "session/new" else {"sessionId": "t1"}
        result = await relay(it, context, method, **asked, **setup)
        assert it.wire.sent(method)[-1]["mcpServers"] == [*TOLD, THEIRS]
        assert result["_meta"] == {"interlingua": {"lost": ["mcp_servers"]}}


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
async def test_whatever_opens_a_session_for_a_run_has_them_too(method: str, tmp_path: Path) -> None:
    """Of a client of another protocol, and of a session that is taken up again."""
    known = {"session": "s1", "cwd": str(tmp_path)} if method != "session/new" else None

    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"resume": {}} if method == "session/resume" else {})
        for each in ("session/load", "session/resume"):
            it.handlers[each] = lambda _: {}
        context = governed(it.context(thread="t1", upstream_thread=known), tmp_path)
        await it.turn(context, "x")
        assert it.wire.sent(method)[-1]["mcpServers"] == TOLD
