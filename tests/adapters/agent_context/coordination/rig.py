"""A coordinator in an engine of the test's own process; its agents are functions, its directory is a list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from adapters.agent_context.codec.ranking import Candidate
from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import KeptTask, Tasks, document
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.wire import PROTOCOL
from adapters.agent_context.wire.messages import DelegatedTask, task_in
from gateway.access import UsageLimits
from gateway.agents.entry import Entry
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Agent, Json, JsonObject, Run, RunQuery, RunRequest, Standing
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.support.scripted import AGENT, Script, Scripted, route, until

NAME = "interlingua-tasks"


class FakeDirectory:
    """Whatever candidates the test wants."""

    def __init__(self, *candidates: Candidate) -> None:
        self.there = list(candidates)
        self.asked = 0

    async def candidates(self) -> Sequence[Candidate]:
        self.asked += 1
        return list(self.there)

    coordinated_at = None
    conduct = SimpleNamespace(failed=lambda *_: None)

    def change(self, name: str, **fields: Any) -> None:
        self.there = [replace(one, **fields) if one.id == name else one for one in self.there]


def candidate(name: str, quality: float | None = None, *can: str, **fields: Any) -> Candidate:
    """An agent that can do `sums` and whatever else."""
    standing = Standing(quality=quality, approve=fields.pop("approve", False))
    return Candidate(id=name, labels={"specializations": ["sums", *can]}, standing=standing, **fields)


def task(
    task_id: str = "t1",
    *,
    text: str = "two and two",
    can: Sequence[str] = ("sums",),
    payload: Json = None,
    status: str | None = None,
    **limits: Json,
) -> DelegatedTask:
    """A task of the type `calc`."""
    said = {"messages": [{"text": text}]} if payload is None else payload
    needs = {"capabilities": list(can), "constraints": limits}
    return task_in({"id": task_id, "type": "calc", "payload": said, "requirements": needs, "status": status})


async def delegate(
    tasks: Tasks,
    one: DelegatedTask,
    principal: str = "me",
    *,
    attributes: JsonObject | None = None,
    metadata: JsonObject | None = None,
    creation: JsonObject | None = None,
    **marks: str,
) -> Run:
    """Delegate a task as the inbound half does. `marks`: `source` and `target`."""
    request = RunRequest(
        agent=tasks._agent,
        input={"task": document(one)},
        protocol=PROTOCOL,
        metadata={**(metadata or {}), "task": one.id},
        principal=principal,
        creation=creation or {},
        attributes={**(attributes or {}), **marks},
        id=tasks.run_of(one.id, principal),
    )
    return await tasks.delegate(request, tasks._gateway.runs.start)


@dataclass
class House:
    """An open engine with its coordinator."""

    engine: Engine
    coordinator: Coordinator
    tasks: Tasks
    directory: FakeDirectory
    agents: Mapping[str, Scripted] = field(default_factory=dict)

    async def delegate(self, one: DelegatedTask | None = None, **more: Any) -> Run:
        return await delegate(self.tasks, one or task(), **more)

    async def ended(self, run: Run | str) -> Run:
        """The run once it has ended, questions and all."""
        run_id = run if isinstance(run, str) else run.id
        while True:
            stopped = await self.engine.runs.wait(run_id, timeout=30)
            assert stopped is not None, await self.engine.runs.get(run_id)
            if stopped.status.ended:
                return stopped
            await asyncio.sleep(0)

    async def asked(self, run: Run, question: str | None = None) -> Run:
        """The run once it asks something (that question)."""
        live = self.engine.live[run.id]
        await until(lambda: any(question in (None, one.id) for one in live.run.interrupts))
        return live.run

    async def done(self, one: DelegatedTask | None = None, **more: Any) -> Run:
        return await self.ended(await self.delegate(one, **more))

    async def attempts(self, run: Run) -> list[Run]:
        """All runs of agents there ever were for the task, oldest first."""
        query = RunQuery(protocol=PROTOCOL, limit=100, oldest_first=True)
        mark = "interlingua/attempt"
        found = [one for one in await self.engine.runs.list(query) if mark in one.request.metadata]
        return [one for one in found if one.request.metadata[mark].startswith(run.id)]

    def kept(self, run: Run) -> KeptTask:
        live = self.engine.live.get(run.id)
        return KeptTask.of(live.run if live is not None else run)

    def text(self, run: Run) -> str:
        live = self.engine.live.get(run.id)
        document = json.loads(live.log.output.encoded if live is not None else bytes(run.output))
        return "" if document is None else document["messages"][0]["text"]


class Proxy:
    """Another object with some attributes replaced."""

    def __init__(self, inner: Any, **attributes: Any) -> None:
        self._inner = inner
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def held_back(starting: asyncio.Event, go: asyncio.Event) -> Callable[[Engine], Proxy]:
    """A gateway that sets `starting` when it is asked for a run, and starts it on `go`."""

    def slow(engine: Engine) -> Proxy:
        async def start(request: Any, **more: Any) -> Any:
            starting.set()
            await go.wait()
            return await engine.runs.start(request, **more)

        return Proxy(engine, runs=Proxy(engine.runs, start=start))

    return slow


@asynccontextmanager
async def house(
    *candidates: Candidate,
    file: Path | None = None,
    gateway: Callable[[Engine], Any] = lambda engine: engine,
    agents: Mapping[str, Script | Scripted],
    timeouts: Mapping[str, float] | None = None,
    grace: float = 0.05,
    limits: UsageLimits | None = None,
    **options: Json,
) -> AsyncIterator[House]:
    """`agents` by name; a candidate for each that is not among `candidates`. `gateway`: what the coordinator sees."""
    store = open_store(f"sqlite:///{file}" if file else "sqlite://")
    engine = Engine(store, cancel_grace=grace, limits=limits)
    known = {one.id for one in candidates}
    directory = FakeDirectory(*candidates, *(candidate(name) for name in agents if name not in known))
    made = {name: one if isinstance(one, Scripted) else Scripted(one) for name, one in agents.items()}
    coordinator = Coordinator(AgentContextServe(**options), gateway(engine), lambda: cast("Any", directory))
    entries = [Entry(route(coordinator.name, timeout=None), coordinator)]
    entries += [Entry(route(name, timeout=(timeouts or {}).get(name, 600)), one) for name, one in made.items()]
    engine.use(entries)
    await engine.open()
    try:
        yield House(engine, coordinator, Tasks(engine, coordinator.name), directory, made)
    finally:
        await engine.close()


# --- agents ----------------------------------------------------------------------------------------------------------


def says(text: str) -> Script:
    """An agent that says this, word by word."""

    async def script(context: RunContext) -> None:
        for word in text.split(" "):
            context.emit(e.PartDelta(part="text", delta=word + " "))
            await context.drain()
        context.emit(e.RunFinished())

    return script


def fails(error: Exception, after: str = "") -> Script:
    """An agent that fails, maybe after it has said something."""

    async def script(context: RunContext) -> None:
        if after:
            context.emit(e.PartDelta(part="text", delta=after))
            await context.drain()
        raise error

    return script


def holds(after: str, go: asyncio.Event) -> Script:
    """An agent that says something, waits, and goes on."""

    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": context.run.id})
        context.emit(e.PartDelta(part="text", delta=after))
        await context.drain()
        await go.wait()
        context.emit(e.PartDelta(part="text", delta=" done"), e.RunFinished())

    return script


def described(**fields: Any) -> Agent:
    """The scripted agent with other fields."""

    return replace(AGENT, **fields)


def ids(run: Run) -> list[JsonObject]:
    return [{"id": one.id, "kind": one.kind} for one in run.interrupts]
