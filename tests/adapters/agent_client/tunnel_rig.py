"""Both halves over one engine: clients in memory that offer MCP servers, and `tunnel_agent.py`, or another program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from adapters.agent_client.inbound import AgentClientInbound
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe, AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.contract import Outbound
from gateway.governance.binding import Binding
from gateway.governance.enforcing import Enforcement
from gateway.runs import Engine
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore
from tests.adapters.agent_client.editor import Editor
from tests.support.pipes import LIMIT, pair

PROGRAM = Path(__file__).with_name("tunnel_agent.py")
TOOLS = {"name": "tools", "id": "tools-1", "type": "acp"}
"""A server as the proposal has it,"""
KIT = {"name": "kit", "serverId": "kit-1", "type": "acp", "_meta": {"acme": 1}}
"""and as the schema has it."""


class Provider(Editor):
    """A client that offers MCP servers. `connections`: the answers to `mcp/connect`; `replies`: by MCP method.

    What is not in `replies` waits in `asked` until it is answered. A result that is an exception's arguments
    `(code, message, data)` is an error.
    """

    def __init__(self, pipe: Any, *, stateless: bool = False, can: dict[str, Any] | None = None) -> None:
        super().__init__(pipe, can)
        self.lenient = True
        self.stateless = stateless
        self.connections: list[dict[str, Any]] = []
        self.replies: dict[str, Any] = {}
        self.on_ask = self.serve

    def of_mcp(self, method: str) -> list[dict[str, Any]]:
        """The params of what was asked with this method."""
        return [each["params"] for each in self.asked if each["method"] == method]

    def serve(self, message: dict[str, Any]) -> Any:
        """What the gateway asks."""
        method, params = message["method"], message["params"]
        if method == "mcp/connect":
            if self.stateless:
                self.inject(message, error={"code": -32601, "message": "Method not found"})
                return None
            answer = {"connectionId": f"mcp-{len(self.connections)}", "_meta": {"acme": 2}}
            self.connections.append(answer)
            return answer
        if method == "mcp/disconnect":
            return {}
        found = self.replies.get(params.get("method"))
        if isinstance(found, tuple):
            error = dict(zip(("code", "message", "data"), found, strict=False))
            if self.stateless:
                return {"error": error}
            self.inject(message, error=error)
            return None
        return {"result": found} if self.stateless and found is not None else found

    def inject(self, message: dict[str, Any], **answer: Any) -> None:
        """An answer."""
        self.pipe.inject(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())

    async def steps(self, session: str, *steps: Any) -> list[Any]:
        """What each step of a prompt gave."""
        before = len(self.updates)
        await self.prompt(session, json.dumps(steps))
        return self.said(before)

    def said(self, before: int) -> list[Any]:
        """The replies that were told since."""
        text = "".join(
            each["content"]["text"] for each in self.updates[before:] if each["sessionUpdate"] == "agent_message_chunk"
        )
        found: list[Any] = json.loads(text)
        return found

    async def message(self, method: str, number: int = 1) -> dict[str, Any]:
        """The `mcp/message` with that MCP method and number, from 1."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.asked if each["params"].get("method") == method]

        await self.until(lambda: len(found()) >= number)
        return found()[number - 1]


class ProviderV2(Provider):
    """One of version 2."""

    results: ClassVar[dict[str, str]] = {}


class Rig:
    """`connect` clients to `inbound`. `tunnels`: the outbound half's."""

    def __init__(
        self, engine: Engine, outbound: AgentClientOutbound, stack: contextlib.AsyncExitStack, serve: AgentClientServe
    ) -> None:
        self.engine = engine
        self.inbound = AgentClientInbound(serve, engine)
        self.inbound.linger = 0.0
        self.tunnels = outbound._tunnels
        self._stack = stack

    async def connect(
        self,
        *,
        stateless: bool = False,
        can: dict[str, Any] | None = None,
        kind: type[Provider] = Provider,
        shake: bool = True,
        token: str | None = None,
    ) -> Provider:
        """A client that has shaken hands, in version 1. `token`: by which it is known."""
        ours, theirs = pair(LIMIT)
        provider = kind(ours, stateless=stateless, can=can)
        await self._stack.enter_async_context(provider)
        people = self.inbound.clients.people
        known = None if token is None else Visitor(people, people.principal(token))
        served = self.inbound.welcome(theirs, "prog", known) if known else self.inbound.converse(theirs, "prog")
        task = asyncio.create_task(served)
        self._stack.push_async_callback(_ended, task)
        if shake:
            await provider.initialize()
        return provider


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=30)


@contextlib.asynccontextmanager
async def rig(
    *how: str,
    governed: Binding | None = None,
    clients: Sequence[dict[str, Any]] = (),
    file: Path | None = None,
    host: str | None = None,
    **target: Any,
) -> AsyncIterator[Rig]:
    """The agent is `tunnel_agent.py`, started with `how`, unless `target` names another.

    governed: by what. clients: those that are known, if any has to be. file: the store's; None: in memory.
    host: where this process is, if there are several on the file.
    """
    default = {} if "url" in target else {"command": (sys.executable, "-I", "-S", str(PROGRAM), *how)}
    options = AgentClientTarget.model_validate({"protocol": "agent_client", **default, **target})
    outbound = AgentClientOutbound(options)
    half: Outbound = outbound
    engine = Engine(SqliteStore(file, host=host) if file else open_store("sqlite://"))
    if governed is not None:
        enforcement = Enforcement(engine.records, engine.store.spend)
        half = enforcement.wrap(outbound, governed)
        engine.on_opened(enforcement.open)
        engine.accompany(closing=enforcement.aclose)
    engine.use([Entry(Route(name="prog", target=options), half)])
    await engine.open()
    try:
        async with contextlib.AsyncExitStack() as stack:
            serve = {"authentication": {"clients": clients}} if clients else {}
            yield Rig(engine, outbound, stack, AgentClientServe.model_validate({"v2": True, **serve}))
    finally:
        await engine.close()
