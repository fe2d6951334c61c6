"""Agents that know no MCP over the connection: the program that they start instead, and the socket that it calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from adapters.agent_client.tunnel import shim
from adapters.agent_client.tunnel.shim_ends import PROGRAM, ShimEnd
from tests.adapters.agent_client.tunnel_rig import KIT, TOOLS, Provider, Rig, rig
from tests.support.scripted import until

SERVERS = ["servers"]
OPEN = ["open", 0]


def line(method: str, id: int | None = None, **params: Any) -> dict[str, Any]:
    """A message."""
    said = {"jsonrpc": "2.0", "method": method, "params": params}
    return said if id is None else {**said, "id": id}


async def opened(it: Rig, *servers: dict[str, Any]) -> tuple[Provider, str]:
    """A client and its session."""
    client = await it.connect()
    return client, await client.new(mcpServers=list(servers))


async def there(client: Provider, session: str) -> None:
    """Start the first server, and see that it is connected."""
    client.replies["ping"] = {}
    said = await client.steps(session, OPEN, ["write", 0, line("ping", 0)], ["read", 0])
    assert said[2]["result"] == {}


async def test_an_agent_gets_a_program_to_start_that_is_the_clients_server() -> None:
    async with rig() as it:
        client, session = await opened(it, TOOLS, KIT)
        big = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
        client.replies |= {"initialize": {"serverInfo": {"name": "mine"}}, "tools/call": big}
        client.replies["tools/list"] = (-32602, "no", {"why": 1})
        said = await client.steps(
            session,
            SERVERS,
            OPEN,
            ["open", 1],
            ["write", 0, line("initialize", 1, protocolVersion="2025-06-18")],
            ["read", 0],
            ["write", 0, line("notifications/initialized")],
            ["write", 0, line("tools/call", 2, name="big")],
            ["read", 0],
            ["write", 1, line("tools/list", 1)],
            ["read", 1],
            ["close", 0],
            ["close", 1],
        )
        tools, kit = said[0]
        assert sorted(tools) == ["args", "command", "env", "name"]
        assert (tools["name"], kit["name"], kit["_meta"]) == ("tools", "kit", {"acme": 1})
        assert said[4]["result"] == client.replies["initialize"]
        assert said[7]["result"] == big
        assert said[9]["error"] == {"code": -32602, "message": "no", "data": {"why": 1}}
        assert said[10:] == [0, 0]
        assert client.of_mcp("mcp/connect") == [{"acpId": "tools-1"}, {"serverId": "kit-1"}]
        assert {each["connectionId"] for each in client.of_mcp("mcp/disconnect")} == {"mcp-0", "mcp-1"}
        assert [each["params"]["method"] for each in client.told] == ["notifications/initialized"]


async def test_both_sides_ask_tell_and_cancel_through_it() -> None:
    async with rig() as it:
        client, session = await opened(it, KIT)
        steps = [
            OPEN,
            ["write", 0, line("tools/call", 7, name="slow")],
            ["read", 0],
            ["read", 0],
            ["write", 0, {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}],
            ["write", 0, line("notifications/cancelled", requestId=7)],
            ["read", 0],
            ["read", 0],
            ["read", 0],
            ["close", 0],
        ]
        prompt = await client.start(session, json.dumps(steps))
        called = await client.message("tools/call")
        told = {"connectionId": "mcp-0", "method": "notifications/progress", "params": {"progress": 1}}
        await client.notify("mcp/message", told)
        asked = {"connectionId": "mcp-0", "method": "roots/list"}
        assert await client.request("mcp/message", asked) == {"roots": []}
        await client.until(lambda: any(each["method"] == "$/cancel_request" for each in client.told))
        assert {"requestId": called["id"]} in [each["params"] for each in client.told]
        # what the server cancels in its own words names no request of ours
        own = {"connectionId": "mcp-0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        await client.notify("mcp/message", own)
        given_up = await client.begin("mcp/message", {"connectionId": "mcp-0", "method": "elicitation/create"})
        [end] = it.tunnels.ends._ends.values()
        assert isinstance(end, ShimEnd)
        await until(lambda: end._mcp.peer.pending == 1)
        await client.notify("$/cancel_request", {"requestId": client._id})
        with contextlib.suppress(Exception):
            await given_up
        await prompt
        _, _, progress, roots, _, _, answer, question, taken_back, code = client.said(0)
        assert (progress["method"], progress["params"]) == (told["method"], told["params"])
        assert (roots["id"], roots["method"]) == (1, "roots/list")
        assert answer["id"] == 7
        assert answer["error"]["code"] == -32800
        assert (question["id"], question["method"]) == (2, "elicitation/create")
        assert (taken_back["method"], taken_back["params"]["requestId"]) == ("notifications/cancelled", 2)
        assert code == 0


async def test_it_ends_with_its_session_and_with_its_gateway_in_mid_call() -> None:
    async with rig() as it:
        client, session = await opened(it, KIT)
        await there(client, session)
        other = await client.new(mcpServers=[])
        await client.request("session/close", {"sessionId": session})
        assert await client.steps(other, ["read", 0], ["code", 0]) == [None, 0]
        assert not len(it.tunnels.ends)
        session = await client.new(mcpServers=[KIT])
        [_, pid] = await client.steps(session, OPEN, ["pid", 1])
        await client.start(session, json.dumps([["write", 1, line("tools/call", 1)], ["read", 1]]))
        await client.message("tools/call")
    async with asyncio.timeout(30):
        while _lives(pid):  # noqa: ASYNC110 - it is no child of ours
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_who_does_not_know_the_secret_is_told_nothing_and_a_crowd_of_such_is_turned_away() -> None:
    async with rig() as it:
        client, session = await opened(it, KIT)
        [[server]] = await client.steps(session, SERVERS)
        env = {each["name"]: each["value"] for each in server["env"]}
        place = env[shim.ADDRESS].replace("@", "\0")
        for proof in (shim.proof(b"guess", "shim", "x", "y"), "", "\x00", "x" * 100_000):
            reader, writer = await asyncio.open_unix_connection(place)
            await reader.readline()
            writer.write(f"{env[shim.SERVER]} 00 {proof}\n".encode())
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        crowd = [await asyncio.open_unix_connection(place) for _ in range(65)]
        assert [bool(await reader.readline()) for reader, _ in crowd].count(False) == 1
        for _, writer in crowd:
            writer.close()
        assert not client.of_mcp("mcp/connect")


@contextlib.contextmanager
def listener() -> Iterator[tuple[socket.socket, str]]:
    """Where the program calls."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place := os.path.join(folder, "it"))
        listening.listen()
        listening.settimeout(60)
        yield listening, place


@contextlib.contextmanager
def started(secret: bytes = b"s" * 32) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The program alone, and the gateway's end of its connection once both know each other."""
    with listener() as (listening, address):
        env = {shim.ADDRESS: address, shim.SERVER: "it", shim.SECRET: secret.hex()}
        argv = [sys.executable, "-I", "-S", PROGRAM]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
            try:
                gateway, _ = listening.accept()
                with gateway:
                    gateway.settimeout(60)
                    gateway.sendall(b"challenge\n")
                    server, theirs, proof = gateway.makefile().readline().split()
                    assert (server, proof) == ("it", shim.proof(secret, "shim", "challenge", theirs))
                    gateway.sendall(f"{shim.proof(secret, 'gateway', theirs, 'challenge')}\n".encode())
                    yield process, gateway
            finally:
                process.kill()


def test_it_ends_when_its_agent_reads_nothing_and_the_gateway_is_gone() -> None:
    with started() as (process, gateway):
        gateway.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:  # until the agent's pipe, the program and the socket are full
                gateway.send(b"x" * 65536)
        gateway.close()  # as the kernel does for a gateway that is killed
        assert process.wait(60) == 0


def test_what_the_gateway_said_before_it_closed_is_all_told() -> None:
    with started() as (process, gateway):
        said = b"y" * 1_000_000 + b"\n"
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert gateway.recv(100) == b"hello\n"
        gateway.sendall(said[:100])
        assert process.stdout.read(100) == said[:100]
        read = process.stdout.read
        gateway.setblocking(False)
        left = memoryview(said)[100:]
        got = b""
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[gateway.send(left) :]
            got += read(min(len(said) - 100 - len(left) - len(got), 65536))
        gateway.close()
        assert got + read() == said[100:]
        assert process.wait(60) == 0


def test_it_ends_when_its_agent_is_gone_and_the_gateway_does_not_move() -> None:
    with started() as (process, gateway):
        process.send_signal(signal.SIGSTOP)
        assert process.stdin is not None
        process.stdin.close()
        process.send_signal(signal.SIGCONT)
        assert gateway.recv(1) == b""
        assert process.wait(60) == 0  # though the gateway has not closed


def test_it_does_not_talk_to_a_gateway_that_cannot_prove_itself() -> None:
    with listener() as (listening, address):
        env = {shim.ADDRESS: address, shim.SERVER: "it", shim.SECRET: "00"}
        argv = [sys.executable, "-I", "-S", PROGRAM]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
            gateway, _ = listening.accept()
            with gateway:
                gateway.sendall(b"challenge\n")
                gateway.recv(1000)
                gateway.sendall(b"let me in\n")
                _, complaint = process.communicate(timeout=60)
        assert process.returncode == 1
        assert b"is not there" in complaint


async def test_a_shim_that_does_not_move_holds_up_nobody_else_and_little_memory() -> None:
    async with rig() as it:
        client, session = await opened(it, KIT)
        await there(client, session)
        [end] = it.tunnels.ends._ends.values()
        assert isinstance(end, ShimEnd)
        peer = end._mcp.peer
        [pid] = await client.steps(session, ["pid", 0])
        os.kill(pid, signal.SIGSTOP)
        note = {"connectionId": "mcp-0", "method": "notifications/message", "params": {"data": "x" * 200_000}}

        async def flood() -> None:
            while True:
                await client.notify("mcp/message", note)

        flooding = asyncio.create_task(flood())
        try:
            await until(lambda: not peer.flowing)
            other = await it.connect()
            assert await other.new(mcpServers=[])
            assert peer.queued < 2_000_000
        finally:
            flooding.cancel()
            os.kill(pid, signal.SIGCONT)
