"""Every method of every JSON-RPC door takes whatever comes: never an internal error, a traceback or a hang.

Each test tells what it sent (`-s`). INTERLINGUA_FUZZ_SECONDS=60 goes on for so long, with new seeds each time;
INTERLINGUA_FUZZ_SEED names the first one.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fuzz import doors, messages
from tests.fuzz.conversation import ROUND, Conversation
from tests.fuzz.doors import Door
from tests.fuzz.judging import log_fault
from tests.fuzz.messages import Said
from tests.support.examples import FUZZ_SECONDS, FUZZ_SEED
from tests.support.processes import Gateway

ROUNDS = 8

Prepare = Callable[[Conversation], Awaitable[list[Said]]]


# --- what each protocol begins with, and goes on with -----------------------------------------------------------------


def _agent_client(said: Callable[[str], list[Said]]) -> Prepare:
    async def prepare(conversation: Conversation) -> list[Said]:
        answer = await conversation.ask("session/new", {"cwd": "/tmp", "mcpServers": []})
        if answer.get("error", {}).get("data", {}).get("code") == "unavailable":
            raise doors.Closed  # it has introduced itself in so many ways that no process is left for it
        assert "result" in answer, f"{answer}\nafter\n{conversation.told()}"
        return said(answer["result"]["sessionId"])

    return prepare


async def _agent_communication(conversation: Conversation) -> list[Said]:
    listed = await conversation.ask("agents/list", {})
    assert {"echo", "every"} <= {agent["name"] for agent in listed["result"]["agents"]}
    return messages.agent_communication(conversation.rng.choice(("echo", "every", "asker", "writer")))


async def _agent_context(conversation: Conversation) -> list[Said]:
    agent = f"fuzzer-{conversation.rng.randrange(10**9)}"
    said = messages.agent_context(agent)
    record = next(params["agent"] for method, params in said if method == "agent/register")
    answer = await conversation.ask("agent/register", {"agent": record})
    assert "result" in answer, answer
    return said


@dataclass(frozen=True)
class Protocol:
    """`http` and `socket` below the gateway's address."""

    name: str
    hello: list[Said]
    prepare: Prepare
    settled: Said
    methods: set[str]


V1 = Protocol(
    "agent_client",
    [("initialize", messages.INITIALIZE_V1)],
    _agent_client(messages.agent_client_v1),
    ("session/list", {}),
    {method for method, _ in messages.agent_client_v1("s")},
)
V2 = Protocol(
    "agent_client",
    [("initialize", messages.INITIALIZE_V2)],
    _agent_client(messages.agent_client_v2),
    ("session/list", {}),
    {method for method, _ in messages.agent_client_v2("s")},
)
COMMUNICATION = Protocol(
    "agent_communication",
    [messages.initialize("2025-11-25"), ("notifications/initialized", {})],
    _agent_communication,
    ("ping", {}),
    {method for method, _ in messages.agent_communication("a")},
)
CONTEXT = Protocol(
    "agent_context",
    [messages.initialize("2025-11-25"), ("notifications/initialized", {})],
    _agent_context,
    ("ping", {}),
    {method for method, _ in messages.agent_context("a")},
)
BATCHED = Protocol(
    "agent_communication",
    [messages.initialize("2025-03-26"), ("notifications/initialized", {})],
    _agent_communication,
    ("ping", {}),
    COMMUNICATION.methods,
)

Way = Callable[[str], Door]
OVER_NETWORK: dict[str, tuple[Protocol, Way]] = {
    "agent_client v1 WebSocket": (V1, lambda url: doors.WebSocketDoor(f"{url}/agent-client/every")),
    "agent_client v1 WebSocket, any agent": (V1, lambda url: doors.WebSocketDoor(f"{url}/agent-client")),
    "agent_client v1 Streamable HTTP": (V1, lambda url: doors.AgentClientHttpDoor(f"{url}/agent-client/every")),
    "agent_client v2 WebSocket": (V2, lambda url: doors.WebSocketDoor(f"{url}/agent-client/every")),
    "agent_client v2 WebSocket, foreign": (V2, lambda url: doors.WebSocketDoor(f"{url}/agent-client/asker")),
    "agent_client v2 Streamable HTTP": (V2, lambda url: doors.AgentClientHttpDoor(f"{url}/agent-client/every")),
    "agent_communication WebSocket": (COMMUNICATION, lambda url: doors.WebSocketDoor(f"{url}/agent-communication/ws")),
    "agent_communication Streamable HTTP": (
        COMMUNICATION,
        lambda url: doors.McpHttpDoor(f"{url}/agent-communication/mcp"),
    ),
    "agent_communication HTTP+SSE, batches": (
        BATCHED,
        lambda url: doors.McpEventsDoor(f"{url}/agent-communication/sse"),
    ),
    "agent_context WebSocket": (CONTEXT, lambda url: doors.WebSocketDoor(f"{url}/agent-context/ws")),
    "agent_context Streamable HTTP": (CONTEXT, lambda url: doors.McpHttpDoor(f"{url}/agent-context")),
}
STDIO: dict[str, tuple[Protocol, list[str]]] = {
    "agent_client v1": (V1, ["every"]),
    "agent_client v2": (V2, ["every"]),
    "agent_communication": (COMMUNICATION, []),
    "agent_context": (CONTEXT, []),
}


@pytest.mark.parametrize("name", OVER_NETWORK)
def test_no_message_over_the_network_is_an_internal_error(name: str, served: Gateway) -> None:
    protocol, way = OVER_NETWORK[name]
    before = len(served.process.stderr())
    asyncio.run(_fuzz(name, protocol, lambda: way(served.url), lambda: served.process.stderr()[before:]))


@pytest.mark.parametrize("name", STDIO)
def test_no_message_on_standard_input_is_an_internal_error(name: str, served: Gateway, tmp_path: Path) -> None:
    protocol, words = STDIO[name]
    routes = tmp_path / "routes.yaml"
    routes.write_bytes(served.file.read_bytes())
    args = [*words, "--protocol", protocol.name, "--routes", str(routes)]
    with tempfile.TemporaryFile() as log:

        def logged() -> str:
            size = os.fstat(log.fileno()).st_size
            return os.pread(log.fileno(), size, 0).decode(errors="replace")

        asyncio.run(_fuzz(name, protocol, lambda: doors.StdioDoor(log, *args), logged))


async def _fuzz(name: str, protocol: Protocol, way: Callable[[], Door], logged: Callable[[], str]) -> None:
    began = time.monotonic()
    seed = FUZZ_SEED
    done: dict[str, int] = {"sent": 0, "answered": 0, "rounds": 0, "opened": 0}
    methods: set[str] = set()
    while True:
        talk = Conversation(random.Random(f"{name} {seed}"), way, protocol.hello, protocol.prepare, protocol.settled)
        try:
            for _ in range(ROUNDS):
                await talk.round()
                done["rounds"] += 1
                _judge(talk, logged(), seed)
        finally:
            await talk.close()
        _judge(talk, logged(), seed)
        methods |= talk.methods
        done["sent"] += talk.sent
        done["answered"] += talk.answered
        done["opened"] += talk.opened
        seed += 1
        if time.monotonic() - began >= FUZZ_SECONDS:
            break
    print(f"{name}: {done} in {time.monotonic() - began:.1f} s, {len(methods)} methods")
    assert done["sent"] >= ROUNDS * ROUND // 2 and done["answered"] >= done["sent"] // 3, done
    assert len(methods) >= 0.8 * len(protocol.methods), protocol.methods - methods


def _judge(talk: Conversation, log: str, seed: int) -> None:
    """Fail with the first fault, and the messages that came before it."""
    fault = log_fault(log)
    found = talk.faults[:1] if fault is None else [f"{fault}\nafter\n{talk.told(ROUND)}"]
    assert not found, f"INTERLINGUA_FUZZ_SEED={seed}\n{found[0]}"
