"""A stream that has lasted as long as it may, and a WebSocket that nobody uses, end in order; what they were about goes
on, and so does their client.
"""

from __future__ import annotations

import asyncio
import json
import re
from time import monotonic
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from gateway import tracing
from gateway.core.types import RunQuery, RunStatus
from tests.limits.rig import Limited, gateway
from tests.limits.test_doors import EDITOR, HELLO, SOCKETS
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
IDLE = 0.4
SILENT = f"""
store: {{url: 'sqlite://'}}
inbound:
  agent_client: {{socket_idle: {IDLE}}}
  agent_communication: {{socket_idle: {IDLE}}}
  agent_context: {{socket_idle: {IDLE}}}
routes: []
"""


def at(there: Limited, path: str) -> connect:
    """A client that pings more often than it may be silent."""
    return connect(f"{there.url.replace('http', 'ws')}{path}", ping_interval=IDLE / 4)


async def ask(socket: ClientConnection, id: int, method: str, **params: Any) -> None:
    await socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))


async def answer(socket: ClientConnection, id: int) -> tuple[Any, str]:
    """The result of a request, and the text of all that came before it."""
    said = ""
    async with asyncio.timeout(30):
        while (message := json.loads(text := await socket.recv())).get("id") != id:
            said += str(text)
    return message["result"], said


async def stays(socket: ClientConnection, seconds: float = 3 * IDLE) -> None:
    """It says nothing for longer than it may, and is still connected."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await socket.recv()


async def closed(socket: ClientConnection) -> None:
    with pytest.raises(ConnectionClosed) as end:
        async with asyncio.timeout(30):
            while True:
                await socket.recv()
    assert end.value.rcvd is not None
    assert (end.value.rcvd.code, end.value.rcvd.reason) == (1001, f"idle for {IDLE} s")


@pytest.mark.parametrize("door", SOCKETS)
async def test_a_silent_websocket_is_closed_with_the_reason_and_left_alone_where_nothing_says_so(door: str) -> None:
    hello = json.dumps(EDITOR if door == "agent_client" else HELLO)
    async with gateway(SILENT) as there:
        async with at(there, SOCKETS[door]) as socket:
            await closed(socket)  # who never says a word
        async with at(there, SOCKETS[door]) as socket:
            await stays(socket, IDLE / 8)
            said = monotonic()
            await socket.send(hello)
            assert "result" in json.loads(await socket.recv())
            await closed(socket)
            assert monotonic() - said >= IDLE
    async with gateway(SILENT.replace(f"socket_idle: {IDLE}", "")) as there, at(there, SOCKETS[door]) as socket:
        await socket.send(hello)
        assert "result" in json.loads(await socket.recv())
        await stays(socket)


def test_an_editor_stays_while_its_prompt_or_a_run_that_it_watches_goes_on_and_loads_its_session_when_it_is_back() -> (
    None
):
    async def main() -> None:
        async with gateway(SILENT) as there, at(there, "/agent-client/held") as first:
            await first.send(json.dumps(EDITOR))
            await answer(first, 1)
            await ask(first, 2, "session/new", cwd="/", mcpServers=[])
            session = (await answer(first, 2))[0]["sessionId"]
            await ask(first, 3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x"}])
            await until(lambda: there.going_on == 1)
            async with at(there, "/agent-client/held") as other:
                await other.send(json.dumps(EDITOR))
                await answer(other, 1)
                await ask(other, 2, "session/load", sessionId=session, cwd="/", mcpServers=[])
                await answer(other, 2)
                await stays(first)
                await stays(other)
                there.gate.set()
                result, said = await answer(first, 3)
                assert result["stopReason"] == "end_turn" and "after" in said
                await closed(first)
                await closed(other)
            async with at(there, "/agent-client/held") as again:
                await again.send(json.dumps(EDITOR))
                await answer(again, 1)
                await ask(again, 2, "session/load", sessionId=session, cwd="/", mcpServers=[])
                assert "after" in (await answer(again, 2))[1]

    run(main())


async def test_an_mcp_client_stays_while_its_call_goes_on() -> None:
    async with gateway(SILENT) as there, at(there, SOCKETS["agent_communication"]) as socket:
        await socket.send(json.dumps(HELLO))
        await answer(socket, 1)
        await socket.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        await ask(socket, 2, "tools/call", name="held", arguments={"message": "x"})
        await until(lambda: there.going_on == 1)
        await stays(socket)
        there.gate.set()
        assert "before after" in str((await answer(socket, 2))[0])
        await closed(socket)


async def test_a_stream_of_agent_connect_is_resumed_behind_its_last_event_and_its_run_is_not_cancelled() -> None:
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


async def test_a_stream_of_the_example_is_resumed_behind_its_last_line() -> None:
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


async def test_the_mcp_sdk_goes_on_with_another_stream_and_gets_its_result() -> None:
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
