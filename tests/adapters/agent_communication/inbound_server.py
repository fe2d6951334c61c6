"""The inbound half on a real socket over a real engine, for clients of every kind.

| agent | does |
|---|---|
| `echo` | says the input's words one by one |
| `asker` | asks for `ok`, a boolean, and says what it was told |
| `held` | says `before `, waits for `Served.gate` or a cancel, says `after` |
| `failer` | says `so far`, fails with `it failed on purpose` |
| `filer` | a file `notes.txt`, and the text `see the file` |
| `maker` | a template: says its configuration's `tone` |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.agent_communication import ADAPTER
from adapters.agent_communication.inbound import AgentCommunicationInbound
from adapters.agent_communication.options import AgentCommunicationServe
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.runs import Engine
from tests.adapters.agent_communication.inbound_rig import YES_NO, asking
from tests.support.scripted import AGENT, Scripted, bound, echo, engine, failer, filer, held, route
from tests.support.serving import serving

TONE: dict[str, Any] = {"type": "object", "properties": {"tone": {"type": "string"}}, "required": ["tone"]}


async def maker(context: RunContext) -> None:
    """See the table."""
    context.emit(e.PartDelta(part="text", delta=str(context.run.request.config["tone"])), e.RunFinished())


class Served:
    """A server: `url` is the mount's. `gate` lets `held` go on."""

    def __init__(self, url: str, engine: Engine, inbound: AgentCommunicationInbound, gate: asyncio.Event) -> None:
        self.url = url
        self.engine = engine
        self.inbound = inbound
        self.gate = gate

    @property
    def socket(self) -> str:
        """The same for a WebSocket."""
        return self.url.replace("http", "ws", 1)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Served]:
    """One on a free port of this machine, in this loop, while the block lasts."""
    gate = asyncio.Event()

    agents = {"echo": echo, "asker": asking(YES_NO), "held": held(lambda: gate), "failer": failer, "filer": filer}
    mute = replace(AGENT, capabilities=replace(AGENT.capabilities, interrupts=False))
    made = [(route(n), Scripted(script, agent=AGENT if n == "asker" else mute)) for n, script in agents.items()]
    made.append((route("maker"), Scripted(maker, agent=replace(mute, config_schema=TONE))))
    (_, holding) = made[2]
    holding.on_cancel = gate.set
    listener, address = bound()
    async with engine(*made, public_url=address) as running:
        inbound = AgentCommunicationInbound(AgentCommunicationServe(**options), running)
        running.agents.on_change(inbound.agents_changed)
        app = Starlette(routes=[Mount(ADAPTER.path, routes=list(inbound.routes()))])
        async with serving(app, listener):
            try:
                yield Served(f"{address}{ADAPTER.path}", running, inbound, gate)
            finally:
                gate.set()
                inbound.quiet()
                await inbound.server.aclose()
        await inbound.runs.settled()
