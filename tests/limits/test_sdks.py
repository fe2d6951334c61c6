"""Too much for a client that is a real SDK: it raises its own error, which says when to come again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.core.types import agent_id
from tests.limits.rig import ANA, gateway
from tests.limits.test_doors import routes
from tests.support.agent_client import agent_client_client
from tests.support.agent_communication import client, errors, results
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.scripted import until


def failed(lines: Sequence[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """What the SDK raised: its exception's class, the status, and when to come again."""
    found = [line["error"] for line in lines if "error" in line]
    return [(each["type"], each["status"], each["retryAfter"]) for each in found]


async def test_the_rest_sdks_raise_their_own_exception_with_the_status_and_when_to_come_again() -> None:
    async with gateway(routes(own="runs: 1")) as there:
        await there.held()
        connect_url, task_url = f"{there.url}/agent-connect", f"{there.url}/agent-protocol/echo"
        wait = ["wait", f"--agent-id={agent_id('echo')}", "--bearer", ANA]
        step = ("steps", task_url, "--bearer", ANA)
        connected, tasks = await asyncio.gather(
            asyncio.to_thread(agent_connect_conversations, connect_url, wait),
            asyncio.to_thread(agent_protocol_client, *step),
        )
        for said in (failed(connected[0]), failed(tasks)):
            ((kind, status, seconds),) = said
            assert (kind, status) == ("ApiException", 429) and 1 <= int(seconds) <= 60
        there.gate.set()
        await until(lambda: not there.going_on)
        connected = await asyncio.to_thread(agent_connect_conversations, connect_url, wait)
        tasks = await asyncio.to_thread(agent_protocol_client, *step)
        assert failed(connected[0]) == failed(tasks) == []


async def test_the_editors_and_mcp_sdks_raise_their_own_error_with_its_code_and_when_to_come_again() -> None:
    async with gateway(routes(own="runs: 1")) as there:
        await there.held()
        header = ("--header", f"Authorization: Bearer {ANA}")
        url = f"{there.url.replace('http', 'ws')}/agent-client/echo"
        mcp = f"{there.url}/agent-communication/mcp"

        def edit() -> Any:
            return agent_client_client("py", *header, "--say", "hi", url=url)

        def call() -> Any:
            return client("mcp-2", *header, "--tool", 'echo {"message": "x"}', url=mcp)

        editor, tools = await asyncio.gather(asyncio.to_thread(edit), asyncio.to_thread(call))
        for lines, method in ((editor, "session/prompt"), (tools, "tools/call")):
            (error,) = errors(lines, method)
            assert error["code"] == -32029 and 1 <= error["data"]["retryAfter"] <= 60
        there.gate.set()
        await until(lambda: not there.going_on)
        assert not errors(await asyncio.to_thread(edit), "session/prompt")
        assert results(await asyncio.to_thread(call), "tools/call")
