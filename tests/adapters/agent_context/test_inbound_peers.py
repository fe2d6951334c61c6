"""Clients made with the real SDKs of MCP, which know nothing of this protocol, look around and have a task done.

Starting them takes long: all tell their whole stories at once, and the tests look at what they saw.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tests.adapters.agent_context.inbound_rig import rig
from tests.support.aio import run
from tests.support.forking import standing_in
from tests.support.peers import PEERS, peer_python

CLIENTS = {"mcp 1.30.0": ("1", "2025-11-25"), "mcp 2.3.0": ("2", "2026-07-28")}
METRICS = "agent://metrics/echo"


async def look(url: str, kind: str) -> Any:
    """What one of them saw."""
    command = standing_in([str(peer_python(f"mcp-{kind}")), str(PEERS / f"mcp_directory_client_{kind}.py")])
    process = await asyncio.create_subprocess_exec(
        *command, "--message", "hello there", "--http", url, "echoing", stdout=-1, stderr=-1
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-3000:]
    return json.loads(out)


@cache
def stories() -> Mapping[str, Any]:
    async def main() -> dict[str, Any]:
        async with rig(routes={"echo": {"labels": {"specializations": ["echoing"]}}}) as there:
            found = await asyncio.gather(*(look(there.url, kind) for kind, _ in CLIENTS.values()))
            return dict(zip(CLIENTS, found, strict=True))

    return run(main())


every = pytest.mark.parametrize("client", CLIENTS)


@every
def test_it_shakes_hands_and_sees_resources_and_tools(client: str) -> None:
    saw = stories()[client]
    assert saw["version"] == CLIENTS[client][1]
    assert saw["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
    assert {"agent://directory", "agent://tasks", "agent://status", METRICS} <= saw["resources"].keys()
    assert saw["templates"] == ["agent://metrics/{agentId}"]
    assert {"agentSearch", "taskAssign", "agentEvaluate", "taskCancel", "agentRevoke"} <= {*saw["tools"]}


@every
def test_it_lists_the_directory_and_searches_it(client: str) -> None:
    saw = stories()[client]
    agents = {each["id"]: each for each in saw["resources"]["agent://directory"]["agents"]}
    assert agents.keys() == {"echo", "asker", "held", "failer", "filer", "strict"}
    assert agents["echo"]["capabilities"]["specializations"] == ["echoing"]
    assert saw["found"]["text"] == "Found 1 matching agent"
    assert saw["found"]["structured"]["agents"] == saw["found"]["meta"]["agents"] == [{"id": "echo", "name": "echo"}]
    assert saw["resources"][METRICS]["agentId"] == "echo"


@every
def test_it_has_a_task_done_and_is_told_of_it(client: str) -> None:
    saw = stories()[client]
    assert saw["said"] == {"text": "hello there ", "isError": False}
    assert "".join(saw["progress"]) == "hello there "
    assert "agent://tasks" in saw["updated"]
