"""HTTP+SSE, the transport of 2024-11-05, and the WebSocket: what they add to a pipe."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from gateway.mcp import versions
from tests.mcp.server.rig import Events, Rig, initialize, raw, rig, stalled, tool, valid
from tests.support.scripted import until

OLD = versions.V2024_11_05


class Link:
    """An open stream, and where to POST."""

    def __init__(self, http: httpx2.AsyncClient, events: Events, address: str) -> None:
        self.http = http
        self.events = events
        self.address = address

    async def post(self, message: Any, **headers: str) -> httpx2.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {"Content-Type": "application/json", **headers}
        return await self.http.post(self.address, content=content, headers=sent)

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> None:
        answer = await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        assert (answer.status_code, answer.text) == (202, "Accepted")

    async def next(self) -> Any:
        return valid(await self.events.next(), OLD)


@asynccontextmanager
async def link(there: Rig, path: str = "/sse", **headers: str) -> AsyncIterator[Link]:
    """A stream that was told where to POST."""
    async with (
        httpx2.AsyncClient(timeout=30, verify=False) as http,
        http.stream("GET", there.url + path, headers={"Accept": "text/event-stream", **headers}) as response,
    ):
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
        events = Events(response)
        first = await events.frame()
        assert first is not None and first.event == "endpoint"
        yield Link(http, events, str(response.url.join(first.data.decode())))


async def test_a_session_lives_on_its_stream_and_ends_with_it() -> None:
    async with rig() as there:
        async with link(there) as here:
            assert here.address.startswith(f"{there.url}/messages?session_id=")
            assert (await here.post(initialize(OLD))).status_code == 202
            assert (await here.next())["result"]["protocolVersion"] == OLD
            await here.ask("tools/call", tool("say", 0, words="one"))
            assert (await here.next())["params"] == {"progressToken": 0, "progress": 1}
            assert (await here.next())["result"]["content"][0]["text"] == "one"
            await here.ask("tools/call", tool("wait", 1), id="w")
            await here.next()
        await there.saw("cancelled w", "left")
        assert (await httpx_post(here.address)).status_code == 404


async def httpx_post(address: str) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=False) as http:
        return await http.post(address, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})


async def test_the_path_names_the_agent() -> None:
    async with rig() as there, link(there, "/sse/say") as here:
        await here.post(initialize(OLD))
        assert "result" in await here.next()
        assert [session.agent for session in there.server.sessions] == ["say"]


async def test_what_is_wrong_with_a_post_is_told_by_its_status() -> None:
    async with rig(max_body=100_000) as there, link(there) as here:
        await here.post(initialize(OLD))
        await here.next()
        assert (await here.post(b"{")).status_code == 400
        assert (await here.post({"jsonrpc": "2.0"})).status_code == 400
        assert (await here.post(b"x" * 200_000)).status_code == 413
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        wrong = {"Content-Type": "text/plain"}
        assert (await here.http.post(here.address, json=ping, headers=wrong)).status_code == 415
        assert (await here.post(ping, Origin="https://evil.example")).status_code == 403
        bare = here.address.partition("?")[0]
        assert (await here.http.post(bare, json=ping)).status_code == 400
        assert (await here.http.post(f"{bare}?session_id=x", json=ping)).status_code == 404
        assert (await here.http.get(here.address)).status_code == 405
        assert (await here.http.post(f"{there.url}/sse", json=ping)).status_code == 405
        other = here.address.replace("session_id", "sessionId")
        assert (await here.http.post(other, json=ping)).status_code == 202
        assert (await here.next())["result"] == {}
        assert (await here.post({**ping, "jsonrpc": "1.0"})).status_code == 202  # its sender waits for an answer
        assert (await here.next())["error"]["code"] == -32600


async def test_silence_is_broken_and_one_client_too_many_refused() -> None:
    async with rig(keep_alive=0.02, max_sessions=1) as there, link(there) as here:
        waiting = asyncio.create_task(here.events.frame())
        await until(lambda: here.events.comments >= 2)
        refused = await here.http.get(f"{there.url}/sse", headers={"Accept": "text/event-stream"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        waiting.cancel()


async def test_the_stream_ends_when_the_gateway_stops() -> None:
    async with rig() as there, link(there) as here:
        await here.post(initialize(OLD))
        await here.next()
        await here.ask("tools/call", tool("wait", 1))
        await here.next()
        there.server.quiet()
        assert await here.events.next() is None
        await there.saw("cancelled 1", "left")


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    flood = {"jsonrpc": "2.0", "id": "f", "method": "tools/call", "params": tool("flood", 1, count=2000, size=10_000)}
    async with rig() as there, httpx2.AsyncClient(verify=False) as http:
        async with raw("GET", f"{there.url}/sse", {"Accept": "text/event-stream"}) as reader:
            async with asyncio.timeout(30):
                found = re.search(rb"session_id=(\w+)", await reader.readuntil(b"\n\n"))
            assert found is not None
            for message in (initialize(), flood):
                await http.post(f"{there.url}/messages?session_id={found[1].decode()}", json=message)
            assert await stalled(lambda: there.words.flooded) < 1900
        await there.saw("cancelled f", "left")


# --- WebSocket --------------------------------------------------------------------------------------------------------


async def test_a_websocket_carries_a_session() -> None:
    async with rig() as there:
        url = there.url.replace("http:", "ws:") + "/ws"
        async with connect(url, subprotocols=[Subprotocol("mcp")]) as socket:
            assert socket.subprotocol == "mcp"
            await socket.send(json.dumps(initialize(OLD)))
            assert json.loads(await socket.recv())["result"]["protocolVersion"] == OLD
            call = {"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": tool("wait", 1)}
            await socket.send(json.dumps(call))
            assert valid(json.loads(await socket.recv()), OLD)["params"]["progress"] == 1
        await there.saw("cancelled w", "left")
        async with connect(f"{url}/say") as socket:
            assert socket.subprotocol is None
            await socket.send(json.dumps(initialize(OLD)))
            await socket.recv()
            assert [session.agent for session in there.server.sessions] == ["say"]
        await until(lambda: not there.server.sessions)


async def test_a_websocket_is_refused_before_it_is_one() -> None:
    async with rig(max_sessions=1) as there:
        url = there.url.replace("http:", "ws:") + "/ws"
        with pytest.raises(InvalidStatus, match="403"):
            await connect(url, additional_headers={"Origin": "https://evil.example"})
        async with connect(url):
            with pytest.raises(InvalidStatus, match="503"):
                await connect(url)


async def test_a_request_that_asks_for_no_websocket_is_told_that_this_is_one() -> None:
    async with rig() as there, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{there.url}/ws")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert answer.json()["error"]["message"] == "this is a WebSocket"


async def test_whom_the_agent_of_the_path_is_not_there_for_is_told_before_anything_is_open() -> None:
    async with rig() as there, httpx2.AsyncClient(timeout=30) as http:
        refused = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no agent nobody"}}
        answer = await http.get(f"{there.url}/sse/nobody", headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.json()) == (404, refused)
        with pytest.raises(InvalidStatus, match="404") as failed:
            await connect(there.url.replace("http:", "ws:") + "/ws/nobody")
        assert json.loads(failed.value.response.body or b"") == refused
        assert there.words.seen == []
