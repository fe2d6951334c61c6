"""An engine with one agent of this protocol, on a real server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound import AgentCommunicationOutbound
from adapters.agent_communication.wire import PROTOCOL
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.contract import Caller, next_batch
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.types import Json, Run, RunRequest
from gateway.runs import Engine
from gateway.store.opening import open_store

PATIENCE = 30.0


@dataclass
class House:
    """The engine, and its agent's outbound half."""

    engine: Engine
    outbound: AgentCommunicationOutbound

    async def start(self, input: Json = None, *, caller: Caller | None = None, **fields: Any) -> Run:
        """A run that goes on meanwhile."""
        given = {"prompt": "hello big world"} if input is None else input
        request = RunRequest(**{"agent": "it", "protocol": "test", "input": given, **fields})
        return await self.engine.runs.start(request, caller=caller)

    async def stopped(self, run: Run) -> Run:
        """The same once it has ended, or asks something."""
        found = await self.engine.runs.wait(run.id, timeout=PATIENCE)
        assert found is not None, f"{run.id} goes on"
        return found

    async def go(self, input: Json = None, **more: Any) -> Run:
        """A run to its end, or to its first question."""
        return await self.stopped(await self.start(input, **more))

    async def snapshots(self, run: Run) -> list[Json]:
        """What a watcher saw of the output, each state once."""
        fold, seen = Output(await self.engine.agents.get("it", "test")), list[Json]()
        for _, event in await self.engine.runs.events(run.id):
            if fold.apply(event) and seen[-1:] != [document := json.loads(fold.encoded)]:
                seen.append(document)
        return seen

    async def said_something(self, run: Run) -> None:
        """Wait until the first of its output is in the log."""
        async with self.engine.runs.watch(run.id) as watch:
            while batch := await next_batch(watch, PATIENCE):
                if any(isinstance(event, e.PartDelta) for _, event in batch.events):
                    return
        ended = await self.engine.runs.get(run.id)
        raise AssertionError(f"{run.id} had said nothing when it ended {ended.status}: {ended.failure}")


def output(run: Run) -> Json:
    """The run's output."""
    return json.loads(bytes(run.output))


@contextlib.asynccontextmanager
async def house(**target: Any) -> AsyncIterator[House]:
    """The agent is `it`, wherever `target` says."""
    options = AgentCommunicationTarget.model_validate({"protocol": PROTOCOL, "stop_timeout": 30, **target})
    outbound = AgentCommunicationOutbound(options)
    engine = Engine(open_store("sqlite://"))
    engine.use([Entry(Route(name="it", target=options), outbound)])
    await engine.open()
    try:
        yield House(engine, outbound)
    finally:
        await engine.close()
