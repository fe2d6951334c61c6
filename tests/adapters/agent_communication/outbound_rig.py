"""Servers that are functions: sessions and pools as the outbound half sees them, without a transport."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Raw

from adapters.agent_communication.codec.agents import agent_of
from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound import AgentCommunicationOutbound
from adapters.agent_communication.outbound.server import QUESTIONS
from adapters.agent_communication.wire import PROTOCOL, RUN_PROGRESS
from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp.client.calls import CallListener
from gateway.mcp.client.session import ClientSession
from gateway.mcp.client.target import TargetPools
from gateway.wire.jsonrpc import RpcError
from tests.support.context import FakeContext, context

PROMPT: JsonObject = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
TEXT: JsonObject = {
    "type": "object",
    "properties": {"text": {"type": "string", "default": ""}, "logs": {"type": "array", "default": []}},
}


def entry(name: str, **more: Any) -> JsonObject:
    """What a server lists."""
    return {"name": name, "description": f"It is {name}", "inputSchema": PROMPT, "outputSchema": TEXT, **more}


def raw(value: Any) -> Raw:
    """A value as it comes from the wire."""
    return Raw(json.dumps(value).encode())


@dataclass
class Asked:
    """One call of an agent, as the server sees it."""

    session: FakeSession
    params: JsonObject
    listener: CallListener

    async def progress(self, delta: Any, **more: Any) -> None:
        """Say a delta, and wait as long as the listener wants."""
        await self.tell(RUN_PROGRESS, {"progressToken": "t", "delta": delta, **more})

    async def tell(self, method: str, params: Any) -> None:
        """Say anything."""
        waiting = self.listener.notification(method, raw(params))
        if waiting is not None:
            await waiting

    async def ask(self, method: str, params: Any) -> Any:
        """Ask the client, in a task of its own as every session does."""
        task = asyncio.create_task(self.listener.asked(method, raw(params)))
        found = await task
        return msgspec.json.decode(found) if isinstance(found, Raw) else found


Behaviour = Callable[[Asked], Awaitable[Any]]


@dataclass
class FakeServer:
    """Who lives there, and what they do. `gone` ends every session there is."""

    agents: dict[str, Behaviour] = field(default_factory=dict)
    listed: list[JsonObject] | None = None
    templates: list[JsonObject] = field(default_factory=list)
    capabilities: JsonObject = field(default_factory=lambda: {"agents": {"templates": True}})
    creating: Callable[[JsonObject], Awaitable[JsonObject]] | None = None

    def __post_init__(self) -> None:
        self.calls: list[tuple[str, JsonObject]] = []
        self.pools: list[FakePool] = []
        self.cancelled = 0
        self.up = True

    def pool(self, capabilities: JsonObject) -> FakePool:
        """See `TargetPools`."""
        self.pools.append(FakePool(self, capabilities))
        return self.pools[-1]

    def named(self, method: str) -> list[JsonObject]:
        """The params of all calls of a method."""
        return [params for called, params in self.calls if called == method]

    def gone(self) -> None:
        """Die, with all sessions."""
        for pool in self.pools:
            for session in pool.sessions:
                session.die()


class FakeSession:
    """See `gateway.mcp.client.session.ClientSession`."""

    version = "2025-11-25"
    capabilities: Any = ClientSession.capabilities
    offers: Any = ClientSession.offers
    offered: Any = ClientSession.offered

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.alive = True
        self.closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.leases = 0
        self._calls: set[asyncio.Future[Any]] = set()
        self.server: JsonObject = {"capabilities": server.capabilities, "serverInfo": {"name": "fake"}}

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        listener: CallListener | None = None,
        timeout: float | None = None,
    ) -> Raw:
        if not self.alive:
            raise AgentGone("the session has ended")
        self._server.calls.append((method, params or {}))
        task = asyncio.ensure_future(self._answered(method, params or {}, listener))
        self._calls.add(task)
        try:
            return raw(await task)
        except asyncio.CancelledError:
            if self.alive:
                self._server.cancelled += 1
                raise
            raise AgentGone("the server has gone") from None
        finally:
            self._calls.discard(task)

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        found = json.loads(bytes(await self.call(method, timeout=timeout)))[key]
        assert isinstance(found, list)
        return found

    def die(self) -> None:
        """The connection ends."""
        self.alive = False
        if not self.closed.done():
            self.closed.set_result(None)
        for call in self._calls:
            call.cancel()

    async def _answered(self, method: str, params: JsonObject, listener: CallListener | None) -> Any:
        server = self._server
        if method == "agents/list":
            listed = server.listed
            return {"agents": [entry(name) for name in server.agents] if listed is None else listed}
        if method == "agents/templates/list":
            return {"agentTemplates": server.templates}
        if method == "agents/create" and server.creating is not None:
            return await server.creating(params)
        if method == "agents/destroy":
            return {}
        assert method == "agents/run", method
        behaviour = server.agents.get(params["name"])
        if behaviour is None:
            raise RpcError(0, f"Unknown agent: {params['name']}")
        return await behaviour(Asked(self, params, cast(CallListener, listener)))


class FakePool:
    """See `gateway.mcp.client.pool.McpPool`. A session to each lease that wants one alone, reused afterwards."""

    def __init__(self, server: FakeServer, capabilities: JsonObject) -> None:
        self._server = server
        self.capabilities = capabilities
        self.sessions: list[FakeSession] = []
        self.heard: list[Callable[[str, Raw], None]] = []
        self.closed = False

    @asynccontextmanager
    async def lease(self, *, alone: bool = True) -> AsyncIterator[FakeSession]:
        await asyncio.sleep(0)
        if not self._server.up:
            raise AgentGone("nobody answers")
        free = [each for each in self.sessions if each.alive and not (alone and each.leases)]
        session = free[0] if free else FakeSession(self._server)
        if not free:
            self.sessions.append(session)
        session.leases += 1
        try:
            yield session
        finally:
            session.leases -= 1

    @property
    def reachable(self) -> bool | None:
        return any(each.alive for each in self.sessions) if self.sessions else None

    def on_notification(self, heard: Callable[[str, Raw], None]) -> None:
        self.heard.append(heard)

    def tell(self, method: str, params: Any = None) -> None:
        """Say something that belongs to no call."""
        for heard in self.heard:
            heard(method, raw(params or {}))

    async def aclose(self) -> None:
        self.closed = True
        for session in self.sessions:
            session.die()


def outbound(server: FakeServer, **target: Any) -> AgentCommunicationOutbound:
    """The outbound half, calling this server."""
    options = {"protocol": PROTOCOL, "command": ["nobody"], **target}
    target = AgentCommunicationTarget.model_validate(options)
    return AgentCommunicationOutbound(target, TargetPools(target, QUESTIONS, make=server.pool))


numbers = itertools.count(1)


def running(name: str = "echo", input: Any = None, **more: Any) -> FakeContext:
    """A context for a run of an agent listed like `entry`."""
    given = {"prompt": "hello"} if input is None else input
    found = context(agent_of(entry(name)), given, **more)
    found.run = msgspec.structs.replace(found.run, id=f"run-{next(numbers)}")
    return found


async def echo(asked: Asked) -> JsonObject:
    """Says its input word by word, and returns it."""
    said = ""
    for word in asked.params["input"]["prompt"].split():
        said += f"{word} "
        await asked.progress({"text": f"{word} "})
    return {"output": {"text": said}}
