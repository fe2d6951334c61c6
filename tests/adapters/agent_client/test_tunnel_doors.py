"""MCP servers over the gateway's own port, for agents that are elsewhere: who comes in, and until when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.server import ServerConnection

from adapters.agent_client import ADAPTER
from adapters.agent_client.tunnel.http_doors import MOUNT
from gateway.store.sqlite import disk_thread
from tests.adapters.agent_client.tunnel_agent import Agent
from tests.adapters.agent_client.tunnel_rig import KIT, Provider, Rig, rig
from tests.support.scripted import until
from tests.support.serving import serving
from tests.support.websockets import library_serving

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
TAKES = {"accept": "application/json, text/event-stream"}
INFO = {"name": "mine", "version": "1"}
SERVER = {"capabilities": {"tools": {}}, "protocolVersion": "2025-06-18", "serverInfo": INFO}


@asynccontextmanager
async def there(*transports: str, port: bool = True, file: Path | None = None) -> AsyncIterator[tuple[Rig, Provider]]:
    """A client, and an agent behind a WebSocket that takes servers over these transports. `file`: see `rig`."""

    async def agent(socket: ServerConnection) -> None:
        lines: asyncio.Queue[str] = asyncio.Queue()
        program = Agent(*transports, out=lines.put_nowait)

        async def write() -> None:
            while True:
                await socket.send(await lines.get())

        writing = asyncio.create_task(write())
        with contextlib.suppress(Exception):
            async for data in socket:
                program.take(json.loads(data))
        writing.cancel()

    async with library_serving(agent) as url, rig(url=url, file=file) as it:
        app = Starlette(routes=[Mount(MOUNT, routes=it.inbound.routes())] if port else [])
        async with serving(app) as address:
            it.engine.public_url = address
            client = await it.connect()
            client.replies |= {"initialize": SERVER, "tools/list": {"tools": []}, "ping": {}}
            yield it, client


def post(entry: dict[str, Any], method: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    """A request as `httpx2` takes it."""
    headers = {each["name"]: each["value"] for each in entry["headers"]} | TAKES
    if session is not None:
        headers["mcp-session-id"] = session
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}, **more}
    return {"url": entry["url"], "headers": headers, "json": message}


async def test_an_agent_that_goes_by_http_gets_an_address_and_a_key_until_the_session_is_closed() -> None:
    async with there("http") as (it, client), httpx2.AsyncClient() as http:
        session = await client.new(mcpServers=[KIT])
        [[entry]] = await client.steps(session, ["servers"])
        assert sorted(entry) == ["headers", "name", "type", "url"]
        assert not client.of_mcp("mcp/connect")
        hello = await http.post(**post(entry, "initialize", params=HELLO))
        assert hello.status_code == 200, hello.text
        assert hello.json()["result"]["serverInfo"] == INFO
        id = hello.headers["mcp-session-id"]
        listed = await http.post(**post(entry, "tools/list", id))
        assert '"tools":[]' in listed.text
        strange = {**entry, "headers": [{"name": "Authorization", "value": "Bearer guess"}]}
        assert (await http.post(**post(strange, "tools/list", id))).status_code == 404
        assert (await http.post(**post({**entry, "headers": []}, "tools/list", id))).status_code == 404
        other = {**entry, "url": entry["url"][:-1] + "x"}
        assert (await http.post(**post(other, "tools/list", id))).status_code == 404
        await client.request("session/close", {"sessionId": session})
        await client.until(lambda: bool(client.of_mcp("mcp/disconnect")))
        assert (await http.post(**post(entry, "tools/list", id))).status_code == 404
        assert not len(it.tunnels.ends)


async def test_a_notification_of_an_agent_by_http_is_told_once_its_run_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = threading.Event()
    disk.set()
    monkeypatch.setattr(disk_thread, "sync", lambda _: disk.wait(30))
    told = "mcp/message"

    async with there("http", file=tmp_path / "store.db") as (it, client), httpx2.AsyncClient() as http:
        session = await client.new(mcpServers=[KIT])
        [[entry]] = await client.steps(session, ["servers"])
        id = (await http.post(**post(entry, "initialize", params=HELLO))).headers["mcp-session-id"]
        [server] = it.tunnels._servers.values()
        disk.clear()
        prompting = await client.start(session, json.dumps([["hear"]]))
        await until(lambda: server.session.prompted is not None)
        client.order.clear()
        changed = post(entry, "notifications/roots/list_changed", id)
        del changed["json"]["id"]
        assert (await http.post(**changed)).status_code == 202
        await asyncio.wait([prompting], timeout=0.05)
        early = list(client.order)
        disk.set()
        await client.until(lambda: told in client.order)
        assert told not in early
        prompting.cancel()


async def test_without_a_port_it_gets_a_program_to_start_and_one_that_is_elsewhere_is_told_of_no_server() -> None:
    async with there("http", port=False) as (it, client):
        session = await client.new(mcpServers=[KIT])
        [[entry]] = await client.steps(session, ["servers"])
        assert "command" in entry  # it is on this machine
        it.tunnels._shims.possible = False
        answer = await client.request("session/new", {"cwd": "/work", "mcpServers": [KIT]})
        assert answer["_meta"] == {"interlingua": {"lost": ["mcp_servers"]}}
        [servers] = await client.steps(answer["sessionId"], ["servers"])
        assert servers == []


def test_the_mount_is_the_adapters() -> None:
    assert ADAPTER.path == MOUNT
