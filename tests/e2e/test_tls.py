"""Agents behind TLS, as they are anywhere but on one's own machine: with an authority that the gateway was told of."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import httpx2
import pytest

from tests.support.certificates import authority
from tests.support.processes import Gateway, Process

PATIENCE = 60.0


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def terminated(ports: Mapping[str, int], chain: Path) -> Iterator[dict[str, int]]:
    """What an ingress is to each of these ports: a port that speaks TLS and hands on what is in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, dict[str, int]]] = Future()

    async def listen(port: int, stack: contextlib.AsyncExitStack) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, thither = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(_pass_on(reader, thither), _pass_on(there, writer))
            finally:
                writer.transport.abort()
                thither.transport.abort()

        server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
        address: tuple[str, int] = server.sockets[0].getsockname()
        return address[1]

    async def main() -> None:
        over = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            found = {name: await listen(port, stack) for name, port in ports.items()}
            ready.set_result((asyncio.get_running_loop(), over, found))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    loop, over, found = ready.result(PATIENCE)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@pytest.fixture(scope="module")
def gateway(
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    agent_client_server: Process,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """It knows one authority; what another vouches for stands behind the route `stranger`."""
    folder = tmp_path_factory.mktemp("tls")
    known, chain = authority(folder, "known")
    _, strange = authority(folder, "strange")
    agents = {"tasks": agent_protocol_server, "runs": agent_connect_agent, "editor": agent_client_server}
    ports = {name: agent.port for name, agent in agents.items() if agent.port is not None}
    with terminated(ports, chain) as ours, terminated({"runs": ports["runs"]}, strange) as theirs:
        targets = {
            "tasks": {"protocol": "agent_protocol", "url": f"https://127.0.0.1:{ours['tasks']}"},
            "runs": {"protocol": "agent_connect", "url": f"https://127.0.0.1:{ours['runs']}", "agent": "echo"},
            "stranger": {"protocol": "agent_connect", "url": f"https://127.0.0.1:{theirs['runs']}", "agent": "echo"},
            "sockets": {"protocol": "agent_client", "url": f"wss://127.0.0.1:{ours['editor']}/acp", "cwd": str(folder)},
            "posts": {"protocol": "agent_client", "url": f"https://127.0.0.1:{ours['editor']}/acp", "cwd": str(folder)},
        }
        routes = [
            {"name": name, "target": target, "text": {"input": "/message", "output": "/message"}}
            for name, target in targets.items()
        ]
        # a process of its own: what it trusts is read when its libraries are imported
        with Gateway(json.dumps({"routes": routes}), folder, env={"SSL_CERT_FILE": str(known)}, fresh=True) as running:
            yield running


def asked(gateway: Gateway, agent: str) -> httpx2.Response:
    body = {"agent_id": agent, "input": {"message": "hello"}}
    return httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=PATIENCE, trust_env=False)


@pytest.mark.parametrize("agent", ["tasks", "runs", "sockets", "posts"])
def test_an_agent_whose_authority_is_known_answers(gateway: Gateway, agent: str) -> None:
    answer = asked(gateway, agent)
    assert answer.status_code == 200, answer.text
    output = answer.json()["output"]
    assert output["type"] == "result" and "hello" in json.dumps(output), output


def test_an_agent_that_nobody_vouches_for_is_not_spoken_to(gateway: Gateway) -> None:
    answer = asked(gateway, "stranger")
    assert answer.status_code == 502 and "unable to get local issuer certificate" in answer.text
