"""The inbound half on a real socket over a real engine.

| agent | does |
|---|---|
| `echo` | says the input's words one by one; keeps threads |
| `asker` | asks for `ok`, a boolean, and says what it was told |
| `held` | says `before `, waits for `Rig.gate` or a cancel, says `after` |
| `failer` | says `so far`, fails with `it failed on purpose` |
| `filer` | a file `notes.txt`, and the text `see the file` |
| `strict` | takes {"count": integer} only, gives {"count": integer + 1}; keeps no threads |
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from adapters.agent_context import ADAPTER
from adapters.agent_context.inbound import AgentContextInbound
from adapters.agent_context.options import AgentContextServe
from gateway.contract import RunContext
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.types import Agent, AgentCapabilities, Interrupt, Run, RunQuery
from gateway.routing import FixedPaths
from gateway.runs import Engine
from gateway.store import Store
from gateway.store.opening import open_store
from tests.adapters.agent_context.inbound_talker import Talker, over_http, over_socket
from tests.support.scripted import AGENT, Script, Scripted, bound, echo, failer, faultless, filer, held, route, use
from tests.support.serving import serving

YES_NO: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
COUNT: dict[str, Any] = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
STRICT = Agent(
    name="strict", input_schema=COUNT, output_schema=COUNT, capabilities=AgentCapabilities(streaming=True, cancel=True)
)


async def asker(context: RunContext) -> None:
    """See the table."""
    context.emit(e.PartDelta(part="text", delta="Let me see. "))
    answer = await context.ask(Interrupt(id="q1", kind="input", message="Is it?", answer_schema=YES_NO))
    context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} {answer.value}"), e.RunFinished())
    await context.drain()


async def strict(context: RunContext) -> None:
    """See the table."""
    count = context.run.request.input["count"]
    context.emit(e.RunFinished(output=Raw(deltas.encode({"count": count + 1}))))


class Rig:
    """A server: `url` is the mount's. `gate` lets `held` go on."""

    def __init__(self, url: str, engine: Engine, inbound: AgentContextInbound, gate: asyncio.Event) -> None:
        self.url = url
        self.engine = engine
        self.inbound = inbound
        self.gate = gate
        self.agents: dict[str, Scripted] = {}

    def socket(self, agent: str | None = None, **how: Any) -> AbstractAsyncContextManager[Talker]:
        """A client over a WebSocket that has shaken hands; `hello` are its capabilities."""
        url = self.url.replace("http", "ws", 1) + "/ws" + ("" if agent is None else f"/{agent}")
        return over_socket(url, **{"hello": {}, **how})

    def http(self, agent: str | None = None, **how: Any) -> AbstractAsyncContextManager[Talker]:
        """The same over Streamable HTTP."""
        return over_http(self.url + ("" if agent is None else f"/{agent}"), **{"hello": {}, **how})

    async def newest(self, agent: str | None = None) -> Run:
        """The newest run (of that agent), once there is one."""
        async with asyncio.timeout(30):
            while not (runs := await self.engine.runs.list(RunQuery(agent=agent))):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)
        return runs[0]


@asynccontextmanager
async def rig(
    *more: tuple[Any, Scripted],
    file: Path | None = None,
    store: Store | None = None,
    routes: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> AsyncIterator[Rig]:
    """One on `listener` or a free port, while the block lasts. `routes`: options of the routes by agent.

    AssertionError at the end if an error was logged, or a task failed.
    """
    store = store or open_store(f"sqlite:///{file}" if file else "sqlite://")
    with faultless():
        async with _rig(more, store, routes or {}, options) as made:
            yield made


@asynccontextmanager
async def _rig(
    more: tuple[tuple[Any, Scripted], ...], store: Store, routes: dict[str, dict[str, Any]], options: dict[str, Any]
) -> AsyncIterator[Rig]:
    gate = asyncio.Event()
    scripts: dict[str, Script] = {
        "echo": echo, "asker": asker, "held": held(lambda: gate), "failer": failer, "filer": filer, "strict": strict
    }  # fmt: skip
    described = replace(AGENT, text_input="/message", text_output="/message")
    agents = {n: Scripted(s, agent=STRICT if n == "strict" else described) for n, s in scripts.items()}
    agents["held"].on_cancel = gate.set
    made = [(route(name, **routes.get(name, {})), agent) for name, agent in agents.items()]
    listener, address = bound()
    engine = Engine(store, public_url=address, cancel_grace=0.1)
    use(engine, *made, *more)
    async with served(engine, gate, listener, opens=True, **options) as there:
        there.agents = agents
        yield there


@asynccontextmanager
async def served(
    engine: Engine,
    gate: asyncio.Event | None = None,
    listener: socket.socket | None = None,
    *,
    opens: bool = False,
    **options: Any,
) -> AsyncIterator[Rig]:
    """The inbound half over this engine on a free port, while the block lasts. `opens`: the engine is not open yet."""
    gate = gate or asyncio.Event()
    inbound = AgentContextInbound(AgentContextServe(**options), engine)
    engine.agents.on_change(inbound.agents_changed)
    if opens:
        engine.agents.host({ADAPTER.name: inbound})
        await engine.open()
    else:
        await engine.agents.add_host(ADAPTER.name, inbound)
    mounts: list[BaseRoute] = [Mount(ADAPTER.path, routes=list(inbound.routes()))]
    try:
        async with serving(FixedPaths(Starlette(routes=mounts), mounts), listener, interface="asgi3") as url:
            try:
                yield Rig(url + ADAPTER.path, engine, inbound, gate)
            finally:
                gate.set()
                inbound.quiet()
                await inbound.server.aclose()
    finally:
        await inbound.settled()
        if opens:
            await engine.close()
