"""Agents behind a TLS server that takes nobody without a certificate, over REST, event streams, Streamable HTTP and
WebSockets.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.certificates import authority
from tests.support.processes import Gateway, Process, free_port

PLACES: dict[str, dict[str, Any]] = {
    "connect": {"protocol": "agent_connect", "url": "https://{}/agent-connect", "agent": "echo"},
    "task": {"protocol": "agent_protocol", "url": "https://{}/agent-protocol/echo"},
    "streamable": {"protocol": "agent_communication", "url": "https://{}/agent-communication/mcp", "agent": "echo"},
    "socket": {"protocol": "agent_communication", "url": "wss://{}/agent-communication/ws", "agent": "echo"},
    "editor": {"protocol": "agent_client", "url": "wss://{}/agent-client/echo"},
    "editor-http": {"protocol": "agent_client", "url": "https://{}/agent-client/echo"},
}


@contextmanager
def demanding(pair: Path, clients: Path, port: int) -> Iterator[str]:
    """A TLS server that hands on to a port what comes from clients whose certificate it knows; its host and port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.load_verify_locations(clients)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = free_port()
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = loop.run_until_complete(asyncio.start_server(handle, "127.0.0.1", mine, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{mine}"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture(scope="module")
def outer(agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("mutual")
    (known, pair), (clients, mine) = authority(folder, "server"), authority(folder, "clients")
    inner_folder = folder / "inner"
    inner_folder.mkdir()
    echo = {"protocol": "agent_connect", "url": agent_connect_agent.url, "agent": "echo"}
    table = json.dumps({"routes": [{"name": "echo", "target": echo}]})
    with Gateway(table, inner_folder) as inner, demanding(pair, clients, inner.port) as address:
        routes = [
            {
                "name": name,
                "target": {**place, "url": place["url"].format(address), "tls": {"ca": known.name, "cert": mine.name}},
            }
            for name, place in PLACES.items()
        ]
        with Gateway(json.dumps({"routes": routes}), folder) as gateway:
            yield gateway


@pytest.mark.parametrize("agent", PLACES)
def test_an_agent_is_called_with_a_certificate(outer: Gateway, agent: str) -> None:
    body = {"agent_id": agent, "input": {"message": "hello there"}}
    whole = httpx2.post(f"{outer.url}/agent-connect/runs/wait", json=body, timeout=60).json()
    assert whole["run"]["status"] == "success", whole
    assert "hello there" in json.dumps(whole["output"]["values"])


def test_check_says_of_which_agents_no_connection_is_made_without_one(outer: Gateway) -> None:
    table = json.loads(outer.file.read_text())
    for route in table["routes"]:
        del route["target"]["tls"]["cert"]
    file = outer.file.with_name("without.yaml")
    file.write_text(json.dumps(table))
    done = interlingua("check", str(file), "--connect")
    told = [line for line in done.stderr.splitlines() if "the agent cannot be described" in line]
    assert len(told) == len(PLACES), done.stderr
    assert interlingua("check", str(outer.file), "--connect").stderr.count("cannot be described") == 0
