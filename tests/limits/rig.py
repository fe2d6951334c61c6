"""A whole gateway on a free port of this machine, with a clock for its limits that only a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from gateway import tracing
from gateway.app import App
from gateway.config import loads
from tests.authentication.rig import bearer
from tests.support.scripted import Scripted, bound, echo, held, route, use
from tests.support.serving import serving

ANA, BOB = "ana-token-0123456789", "bob-token-0123456789"
PEOPLE = f"""
      clients:
        - {{name: ana, token: {ANA}, limits: {{ANA}}}}
        - {{name: bob, token: {BOB}}}
"""


@dataclass
class Clock:
    """Seconds, of a clock that stands still."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Limited:
    """`gate`: what the agent `held` waits for."""

    url: str
    app: App
    http: httpx2.AsyncClient
    clock: Clock = field(default_factory=Clock)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, path: str, token: str | None = ANA, **options: Any) -> httpx2.Response:
        """One request, with a token."""
        headers = {**bearer(token), **options.pop("headers", {})}
        return await self.http.request(method, f"{self.url}{path}", headers=headers, **options)

    async def held(self, token: str | None = ANA, **more: Any) -> httpx2.Response:
        """Start a run that does not end, in the background, over Agent Connect."""
        body = {"agent_id": "held", "input": {"message": "x"}, "on_disconnect": "continue", **more}
        return await self.call("POST", "/agent-connect/runs", token, json=body)

    @property
    def going_on(self) -> int:
        """How many runs have not ended."""
        return len(self.app.gateway.live)


@asynccontextmanager
async def gateway(routes: str, **limits: Any) -> AsyncIterator[Limited]:
    """A gateway with this routes.yaml and two agents: `echo`, and `held` with these `limits` of its route."""
    tracing.metrics.clear()
    listener, url = bound()
    app = App(loads(routes), address=url)
    async with httpx2.AsyncClient(timeout=60) as http:
        there = Limited(url, app, http)
        app.gateway.limits.rates.now = there.clock

        holding = Scripted(held(lambda: there.gate))
        use(app.gateway, (route("echo"), Scripted(echo)), (route("held", limits=limits), holding))
        await app.start()
        try:
            async with serving(app.asgi, listener, interface="asgi3"):
                try:
                    yield there
                finally:
                    there.gate.set()
                    app.quiet()
        finally:
            await app.stop()
