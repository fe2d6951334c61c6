"""An engine with all the agents that live on a real server, by their names there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import AgentContextOutbound
from adapters.agent_context.wire import PROTOCOL
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.contract import Caller, next_batch
from gateway.core import events as e
from gateway.core.types import Json, Run, RunRequest
from gateway.runs import Engine
from gateway.store.opening import open_store

PATIENCE = 30.0


@dataclass
class House:
    """The engine, and its agent's outbound half."""

    engine: Engine
    outbound: AgentContextOutbound

    async def start(self, agent: str, input: Json, *, caller: Caller | None = None, **fields: Any) -> Run:
        """A run that goes on meanwhile."""
        request = RunRequest(**{"agent": agent, "protocol": "test", "input": input, **fields})
        return await self.engine.runs.start(request, caller=caller)

    async def stopped(self, run: Run) -> Run:
        """The same once it has ended, or asks something."""
        found = await self.engine.runs.wait(run.id, timeout=PATIENCE)
        assert found is not None, f"{run.id} goes on"
        return found

    async def go(self, agent: str, input: Json, **more: Any) -> Run:
        """A run to its end, or to its first question."""
        return await self.stopped(await self.start(agent, input, **more))

    async def events(self, run: Run, kind: type[Any]) -> list[Any]:
        """Its events of one kind."""
        return [event for _, event in await self.engine.runs.events(run.id) if isinstance(event, kind)]

    async def until(self, run: Run, kind: type[e.Event]) -> None:
        """Wait until such an event is in the log."""
        async with self.engine.runs.watch(run.id) as watch:
            while batch := await next_batch(watch, PATIENCE):
                if any(isinstance(event, kind) for _, event in batch.events):
                    return
        raise AssertionError(f"{run.id} ended without one")


def output(run: Run) -> Json:
    """The run's output."""
    return json.loads(bytes(run.output))


@contextlib.asynccontextmanager
async def house(**target: Any) -> AsyncIterator[House]:
    """The agents are those that `discover` finds."""
    options = AgentContextTarget.model_validate({"protocol": PROTOCOL, "stop_timeout": 1, "agents": "*", **target})
    outbound = AgentContextOutbound(options)
    engine = Engine(open_store("sqlite://"))
    try:
        found = await outbound.discover()
        engine.use([Entry(Route(name=name, target=options), half) for name, half in found.items()])
        await engine.open()
        yield House(engine, outbound)
    finally:
        await engine.close()
        await outbound.aclose()
