"""A stream that has lasted as long as it may ends in order; what it was about goes on, and so does its client."""

from __future__ import annotations

import asyncio
import re

from gateway import tracing
from gateway.core.types import RunQuery, RunStatus
from tests.limits.rig import gateway
from tests.support.agent_communication import client, results
from tests.support.aio import run
from tests.support.scripted import until

ROUTES = """
store: {url: 'sqlite://'}
inbound:
  agent_connect: {max_stream: 0.05}
  agent_communication: {max_stream: 0.05}
  example: {max_stream: 0.05}
routes: []
"""


def test_a_stream_of_agent_connect_is_resumed_behind_its_last_event_and_its_run_is_not_cancelled() -> None:
    async def main() -> None:
        async with gateway(ROUTES) as there:
            body = {"agent_id": "held", "input": {"message": "x"}, "on_disconnect": "cancel"}
            first = await there.call("POST", "/agent-connect/runs/stream", None, json=body)
            assert first.status_code == 200 and '"type":"values"' in first.text.replace(" ", "")
            assert "error" not in first.text
            last = re.findall(r"^id: (\S+)", first.text, re.MULTILINE)[-1]
            (found,) = await there.app.gateway.runs.list(RunQuery())
            assert found.status is RunStatus.RUNNING
            path = f"/agent-connect/runs/{found.id}/stream"
            again = await there.call("GET", path, None, headers={"last-event-id": last})
            assert again.status_code == 200 and "id: " not in again.text
            there.gate.set()
            await until(lambda: not there.going_on)
            rest = await there.call("GET", path, None, headers={"last-event-id": last})
            assert "before after" in rest.text and '"success"' in rest.text.replace(" ", "")

    run(main())


def test_a_stream_of_the_example_is_resumed_behind_its_last_line() -> None:
    async def main() -> None:
        async with gateway(ROUTES) as there:
            first = await there.call("POST", "/example/held", None, json={"input": {"message": "x"}})
            lines = [line for line in first.text.splitlines() if '"n":' in line]
            assert '"before "' in lines[-1] and "done" not in first.text
            number = re.findall(r'"n":(\d+)', lines[-1])[0]
            (found,) = await there.app.gateway.runs.list(RunQuery())
            there.gate.set()
            await until(lambda: not there.going_on)
            rest = await there.call("GET", f"/example/runs/{found.id}?after={number}", None)
            assert '"after"' in rest.text and '"before "' not in rest.text.partition("done")[0]

    run(main())


def test_the_mcp_sdk_goes_on_with_another_stream_and_gets_its_result() -> None:
    async def main() -> None:
        async with gateway(ROUTES) as there:
            mcp = f"{there.url}/agent-communication/mcp"
            call = ("--mode", "legacy", "--tool", 'held {"message": "x"}')
            calling = asyncio.create_task(asyncio.to_thread(client, "mcp-2", *call, url=mcp))
            await until(lambda: there.going_on == 1, 60)
            before = tracing.metrics.requests.value("agent_communication", "200")
            await until(lambda: tracing.metrics.requests.value("agent_communication", "200") >= before + 3, 60)
            there.gate.set()
            (result,) = results(await calling, "tools/call")
            assert "before after" in str(result)

    run(main(), timeout=100)
