"""Doors that ask who their clients are, on a socket over one engine; and clients made by hand.

Ana and Olga may use every agent, Bob `echo` and `asker` alone, Carl `maker`; Olga oversees. Whoever an issuer vouches
for may use `echo`, and `held`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters import agent_client, agent_communication, agent_connect, agent_protocol
from gateway.access import Authenticator, identifying
from gateway.contract import Adapter, RunContext
from gateway.core import events as e
from gateway.core.types import Interrupt
from gateway.routing import served
from gateway.runs import Engine
from tests.support.scripted import AGENT, Scripted, echo, engine, held, route
from tests.support.serving import serving

ANA, BOB, CARL, OLGA = (f"{name}-token-0123456789" for name in ("ana", "bob", "carl", "olga"))
SECRET = "a secret of the issuer that is long enough for HS256"
JWT: dict[str, Any] = {"key": SECRET, "algorithms": ["HS256"], "audience": "gateway", "roles": "groups"}
AUTHENTICATION: dict[str, Any] = {
    "clients": [
        {"name": "ana", "token": ANA, "roles": ["lead"], "tools": ["re*"]},
        {"name": "bob", "token_sha256": hashlib.sha256(BOB.encode()).hexdigest(), "agents": ["echo", "ask*"]},
        {"name": "carl", "token": CARL, "agents": ["maker"]},
        {"name": "olga", "token": OLGA, "roles": ["editor"], "oversees": True},
    ],
    "jwt": {**JWT, "agents": ["echo", "held"]},
}
ADAPTERS: tuple[Adapter, ...] = (agent_communication.ADAPTER, agent_connect.ADAPTER, agent_protocol.ADAPTER)


def token(sub: str = "visitor", *, seconds: float = 600, key: str = SECRET, **claims: Any) -> str:
    """A JSON Web Token that holds for so long."""
    return jwt.encode({"sub": sub, "aud": "gateway", "exp": int(time.time() + seconds), **claims}, key, "HS256")


def wrong_tokens() -> dict[str, str]:
    """Tokens that nobody has, by what is wrong with them."""
    return {
        "nobody's": "stolen-token",
        "longer than somebody's": f"{ANA}x",
        "expired": token(seconds=-60),
        "another issuer's": token(key="b secret of nobody at all, and long enough too"),
        "for somebody else": jwt.encode(
            {"sub": "ana", "aud": "others", "exp": int(time.time() + 600)}, SECRET, "HS256"
        ),
        "unsigned": jwt.encode({"sub": "ana", "aud": "gateway", "exp": int(time.time() + 600)}, "", "none"),
    }


def bearer(shown: str | None) -> dict[str, str]:
    """The headers that show a token; none for None."""
    return {} if shown is None else {"authorization": f"Bearer {shown}"}


@dataclass
class Doors:
    """`url`: their address. `gate`: what the agent `held` waits for. `people`: those of each door."""

    url: str
    engine: Engine
    inbound: dict[str, Any]
    gate: asyncio.Event
    http: httpx2.AsyncClient
    people: list[Authenticator]

    @contextlib.contextmanager
    def later(self, seconds: float) -> Iterator[None]:
        """In the block it is later, for who tells whether a token still holds."""
        with pytest.MonkeyPatch.context() as patch:
            for people in self.people:
                patch.setattr(people, "now", lambda: time.time() + seconds)
            yield

    async def call(self, method: str, path: str, shown: str | None = ANA, **options: Any) -> httpx2.Response:
        """One request below the address, with a token."""
        headers = {**bearer(shown), **options.pop("headers", {})}
        return await self.http.request(method, f"{self.url}{path}", headers=headers, **options)

    async def said(self, method: str, path: str, shown: str | None = ANA, **options: Any) -> Any:
        """What a request is answered with that succeeds."""
        found = await self.call(method, path, shown, **options)
        assert found.status_code in (200, 204), (found.status_code, found.text)
        return found.json() if found.content else None

    # --- Agent Connect -----------------------------------------------------------------------------------------

    async def started(self, agent: str, shown: str = ANA, **more: Any) -> str:
        """The id of a run that was started over Agent Connect."""
        body = {"agent_id": agent, "input": {"message": "hi there"}, "on_disconnect": "continue", **more}
        run = await self.said("POST", "/agent-connect/runs", shown, json=body)
        return str(run["run_id"])

    # --- Agent Communication -----------------------------------------------------------------------------------

    async def mcp(self, shown: str | None = ANA, path: str = "/mcp") -> Mcp:
        """A client of Streamable HTTP that has shaken hands."""
        client = Mcp(self, path, shown)
        await client.initialize()
        return client


class Mcp:
    """A client of Streamable HTTP. `shown` is the token that its next request shows."""

    def __init__(self, doors: Doors, path: str, shown: str | None) -> None:
        self.doors = doors
        self.path = f"/agent-communication{path}"
        self.shown = shown
        self.headers = {"accept": "application/json, text/event-stream"}
        self._last = 0

    def message(self, method: str, params: Any) -> dict[str, Any]:
        """A request with an id of its own."""
        self._last += 1
        return {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}

    async def post(self, method: str, **params: Any) -> httpx2.Response:
        """One request as it is answered over HTTP."""
        body = self.message(method, params)
        return await self.doors.call("POST", self.path, self.shown, json=body, headers=self.headers)

    async def greet(self) -> httpx2.Response:
        """Ask to shake hands."""
        who = {"name": "rig", "version": "0"}
        return await self.post("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=who)

    async def initialize(self) -> None:
        """Shake hands."""
        found = await self.greet()
        assert found.status_code == 200, (found.status_code, found.text)
        self.headers["mcp-session-id"] = found.headers["mcp-session-id"]

    async def ask(self, method: str, **params: Any) -> Any:
        """The answer of one request: its `result` or `error`."""
        found = await self.post(method, **params)
        assert found.status_code == 200, (found.status_code, found.text)
        text = found.text
        if found.headers["content-type"].startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data: {")][-1].removeprefix("data: ")
        answer = json.loads(text)
        return answer.get("result", answer.get("error"))


async def asker(context: RunContext) -> None:
    """Asks one thing, and says who answered what."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answer = await context.ask(Interrupt(id="q1", kind="input", message="Is it?", answer_schema=schema))
    who = answer.by.id if answer.by else "nobody"
    context.emit(e.PartDelta(part="text", delta=f"{who}: {answer.value}"), e.RunFinished())


@asynccontextmanager
async def doors(
    running: Engine,
    authentication: dict[str, Any] | None = AUTHENTICATION,
    gate: asyncio.Event | None = None,
    **mcp: Any,
) -> AsyncIterator[Doors]:
    """The doors to an engine, on a free port of this machine, while the block lasts. `mcp`: options of MCP's."""
    inbound: dict[str, Any] = {}
    mounts = []
    asked: list[Authenticator] = []
    for adapter in (*ADAPTERS, agent_client.ADAPTER):
        more = mcp if adapter is agent_communication.ADAPTER else {}
        options = adapter.serve_options.model_validate({"authentication": authentication, **more})
        assert adapter.serve is not None
        inbound[adapter.name] = adapter.serve(options, running)
        routes = inbound[adapter.name].routes()
        if options.by_request:  # type: ignore[attr-defined]
            asked.append(Authenticator(options.authentication, created=running.agents.created))  # type: ignore[attr-defined]
            routes = served(routes, adapter.name, inbound[adapter.name].refusal, identify=identifying(asked[-1]))
        mounts.append(Mount(adapter.path, routes=list(routes)))
    async with serving(Starlette(routes=mounts)) as url:
        try:
            async with httpx2.AsyncClient(timeout=None) as http:
                yield Doors(url, running, inbound, gate or asyncio.Event(), http, asked)
        finally:
            inbound["agent_client"].quiet()
            inbound["agent_communication"].quiet()
            await inbound["agent_communication"].server.aclose()
    await inbound["agent_communication"].runs.settled()


@asynccontextmanager
async def house(
    authentication: dict[str, Any] | None = AUTHENTICATION, file: Any = None, **mcp: Any
) -> AsyncIterator[Doors]:
    """The same with agents: `echo`, `asker`, `held`, and `maker`, of which others can be made."""
    gate = asyncio.Event()

    tone = {"type": "object", "properties": {"tone": {"type": "string"}}}
    agents = [
        (route(name), Scripted(script))
        for name, script in (("echo", echo), ("asker", asker), ("held", held(lambda: gate)))
    ]
    agents.append((route("maker"), Scripted(echo, agent=replace(AGENT, config_schema=tone))))
    async with engine(*agents, file=file) as running, doors(running, authentication, gate, **mcp) as there:
        try:
            yield there
        finally:
            gate.set()
