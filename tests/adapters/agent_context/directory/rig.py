"""Gateways with a directory each, on one store if need be, and sessions of agents that tests play."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from adapters.agent_context.directory import Directory
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire import PROTOCOL
from gateway.core.types import JsonObject, Run, RunRequest
from gateway.mcp.server.contract import McpClient
from gateway.runs import Engine
from gateway.store import Store
from gateway.store.opening import open_store
from tests.support.scripted import Scripted, use

Reply = Callable[[str, JsonObject], Awaitable[Any]]

ANYBODY = ClientPrincipal("anonymous")
ANNA = ClientPrincipal("anna")
BERT = ClientPrincipal("bert")

_ids = itertools.count(1)


class Clock:
    """What the time is, for one gateway: it stands still until it is moved."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at
        self._wall = time.time() - at

    def monotonic(self) -> float:
        return self.at

    def now(self) -> float:
        return self.at + self._wall

    def pass_(self, seconds: float) -> None:
        self.at += seconds


async def says_done(method: str, params: JsonObject) -> Any:
    """An agent that answers every message with `done`."""
    payload = {"messages": [{"text": "done"}]}
    return {"status": "completed", "content": {"type": "response", "payload": payload}}


class FakeSession:
    """See `gateway.mcp.server.contract.Session`. `reply` is the agent's; `asked` what it was asked."""

    def __init__(self, reply: Reply = says_done) -> None:
        self.id = f"session-{next(_ids)}"
        self.agent: str | None = None
        self.client = McpClient("2025-11-25", {"agent": {"messages": True}})
        self.log_level: str | None = None
        self.bearer: str | None = None
        self.alive = True
        self.can_ask = self.connected = True
        self.reply = reply
        self.asked: list[tuple[str, JsonObject]] = []
        self.told: list[tuple[str, Any]] = []

    def tell(self, method: str, params: Any = None) -> None:
        self.told.append((method, params))

    def subscribed(self, uri: str) -> bool:
        return False

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        self.asked.append((method, params))
        return Raw(msgspec.json.encode(await self.reply(method, params)))


def session(reply: Reply = says_done) -> Any:
    """A session, to be handed over as one."""
    return FakeSession(reply)


@dataclass
class House:
    """One gateway. `uris`: what was told to have changed."""

    engine: Engine
    directory: Directory
    clock: Clock
    uris: list[frozenset[str]] = field(default_factory=list)

    async def register(self, agent: str = "it", who: Any = ANNA, at: Any = None, **changes: Any) -> Any:
        """Register an agent, on a new session unless one is given. Returns the session."""
        at = at if at is not None else session()
        await self.directory.register(record(agent, **changes), who, at)
        return at

    def connection(self, agent: str = "it") -> Any:
        """The session that an agent speaks through here; None where there is none."""
        sessions = list(self.directory._members.connections)
        return next((each for each in sessions if agent in self.directory.agents_of(each)), None)

    async def status(self, name: str = "it") -> str:
        return str((await self.directory.entry(name))["status"])

    async def look(self) -> None:
        """What the gateway does every second."""
        await self.engine.agents.refresh_hosted()

    async def start(self, name: str = "it", message: str = "hello", protocol: str = "test") -> Run:
        return await self.engine.runs.start(RunRequest(agent=name, protocol=protocol, input={"message": message}))

    async def ended(self, name: str = "it", message: str = "hello") -> Run:
        """A run of it, once it is over."""
        run = await self.engine.runs.wait((await self.start(name, message)).id, timeout=30)
        assert run is not None
        return run

    def hang_up(self, at: Any) -> None:
        """What the transport and the inbound half do when a connection ends."""
        at.alive = False
        self.directory.left(at)


@asynccontextmanager
async def house(
    *agents: tuple[Any, Scripted],
    file: Path | None = None,
    store: Store | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[House]:
    """A gateway with these routes and a directory, while the block lasts."""
    engine = Engine(store or open_store(f"sqlite:///{file}" if file else "sqlite://", fsync=False))
    use(engine, *agents)
    clock = clock or Clock()
    directory = Directory(AgentContextServe(**options), engine, monotonic=clock.monotonic, now=clock.now)
    made = House(engine, directory, clock)
    directory.on_change(made.uris.append)
    engine.agents.host({PROTOCOL: directory})
    await engine.open()
    try:
        yield made
    finally:
        await engine.close()


def record(agent: str = "it", **changes: Any) -> JsonObject:
    """An agent as it registers; None takes a member away."""
    capabilities = {
        "tools": ["hammer"],
        "models": ["gpt"],
        "specializations": ["data-analysis"],
        "protocols": ["ACP-0.1"],
    }
    found = {"id": agent, "name": agent.title(), "capabilities": capabilities, **changes}
    return {key: value for key, value in found.items() if value is not None}
