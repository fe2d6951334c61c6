"""The inbound half on a real socket over a real engine, with scripted agents: what `test_inbound_*` talk to.

| agent | does |
|---|---|
| `echo` | says the input's words one by one |
| `gated` | `one`, then waits for `Server.open("gate")`, then ` two` |
| `asker` | asks for `approval`; `input` in the message asks a bare question; `twice` asks both at once |
| `failer` | says `so far`, fails with `it failed on purpose` |
| `thinker` | a thought, a tool call, a plan, usage, an agent's own update, and the text `done` |
| `filer` | a file `notes.txt`, and the text `see the file` |
| `writer` | a document that grows to the size that the message says, in bytes |
| `keeper` | like echo, but it keeps the thread's state itself and can roll back |
| `silent` | ends without a word |
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.agent_connect import ADAPTER
from adapters.agent_connect.options import AgentConnectServe
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import AgentCapabilities, Interrupt, InterruptSpec, Outcome
from gateway.runs import Engine
from gateway.transport.asgi.uvicorn import PieceProtocol
from tests.support import scripted
from tests.support.scripted import AGENT, Scripted, failer, filer, route
from tests.support.serving import serving

T = TypeVar("T")
WITHIN = 60.0

APPROVAL = InterruptSpec(
    kind="approval",
    payload_schema={"type": "object", "properties": {"question": {"type": "string"}}},
    answer_schema={"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
)
CONFIG = {"type": "object", "properties": {"pace": {"type": "number", "minimum": 0}}}


def said(context: RunContext) -> str:
    return str(context.run.request.input["message"])


async def asker(context: RunContext) -> None:
    asked = Interrupt(
        id="q1", kind="approval", payload={"question": "Is it right?"}, answer_schema=APPROVAL.answer_schema
    )
    bare = Interrupt(id="q2", kind="input", message="What is your name?")
    questions = [asked, bare] if "twice" in said(context) else [bare] if "input" in said(context) else [asked]
    context.emit(e.PartDelta(part="text", delta="well: "))
    await context.drain()
    tasks = [asyncio.create_task(context.ask(question)) for question in questions]
    answers = [await task for task in tasks]
    told = " and ".join(
        msgspec.json.encode(a.value).decode() if a.outcome is Outcome.ANSWERED else a.outcome for a in answers
    )
    context.emit(e.PartDelta(part="text", delta=told), e.RunFinished())


async def thinker(context: RunContext) -> None:
    context.emit(e.MessageStarted(message="m"), e.PartStarted(part="t", message="m", kind="thought"))
    context.emit(e.PartDelta(part="t", delta="hm"), e.PartDelta(part="t", delta=", yes"))
    context.emit(e.PartDelta(part="answer", delta="do"))
    await context.drain()
    context.emit(
        e.ToolCallStarted(call="c", name="look", input={"at": 1}),
        e.ToolCallEnded(call="c", output="seen"),
        e.PlanUpdated(entries=(e.PlanEntry(content="think", status="completed"),)),
        e.UsageReported(input_tokens=3, output_tokens=4),
        e.Custom(name="agent_connect", data={"words": 1}),
        e.Custom(name="other", data=[1, 2]),
        e.PartDelta(part="answer", delta="ne"),
        e.RunFinished(),
    )


async def writer(context: RunContext) -> None:
    size, chunk = int(said(context)), "0123456789abcdefghi "
    for number in range(size // len(chunk)):
        context.emit(e.PartDelta(part="text", delta=chunk))
        if number % 64 == 63:
            await context.drain()
            await asyncio.sleep(0)
    context.emit(e.RunFinished())


async def keeper(context: RunContext) -> None:
    await context.set_upstream({"run": "r"}, thread={"thread": "t"})
    await scripted.echo(context)


async def silent(context: RunContext) -> None:
    context.emit(e.RunFinished())


class Server:
    """One engine and one HTTP server in a thread of their own, from `serve`."""

    def __init__(self, options: AgentConnectServe) -> None:
        self.options = options
        self.url = ""
        self.engine: Engine
        self.gates: dict[str, asyncio.Event] = {}
        self.agents: dict[str, Scripted] = {}
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._failed: BaseException | None = None

    def on_loop(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine where the engine lives; its result."""
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(WITHIN)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something has become true at the engine."""
        self.on_loop(lambda: scripted.until(condition))

    def open(self, gate: str) -> None:
        """Let an agent that waits at `gate` go on."""

        async def go() -> None:
            self._gate(gate).set()

        self.on_loop(go)

    def _gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def _gated(self, context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one"))
        await context.drain()
        await self._gate(str(context.run.request.config.get("gate", "gate"))).wait()
        context.emit(e.PartDelta(part="text", delta=" two"), e.RunFinished())

    def _table(self) -> list[tuple[Any, Scripted]]:
        can = AGENT.capabilities
        rich = replace(AGENT, config_schema=CONFIG, version="1.2.3", description="Says it again.")
        scripts: dict[str, tuple[Callable[[RunContext], Awaitable[None]], Any]] = {
            "echo": (scripted.echo, rich),
            "gated": (self._gated, AGENT),
            "asker": (asker, replace(AGENT, interrupts=(APPROVAL,))),
            "failer": (failer, AGENT),
            "thinker": (thinker, AGENT),
            "filer": (filer, replace(AGENT, capabilities=replace(can, artifacts=True))),
            "writer": (writer, AGENT),
            "keeper": (keeper, replace(AGENT, capabilities=replace(can, rollback=True))),
            "silent": (silent, replace(AGENT, capabilities=AgentCapabilities(cancel=True))),
        }
        self.agents = {name: Scripted(script, agent=agent) for name, (script, agent) in scripts.items()}
        return [(route(name), agent) for name, agent in self.agents.items()]

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with scripted.engine(*self._table(), cancel_grace=0.1) as self.engine:
            assert ADAPTER.serve is not None
            inbound = ADAPTER.serve(self.options, self.engine)
            app = Starlette(routes=[Mount(ADAPTER.path, routes=list(inbound.routes()))])
            async with serving(app, http=PieceProtocol) as url:
                self.url = f"{url}{ADAPTER.path}"
                self._ready.set()
                await self._stop.wait()

    def run(self) -> None:
        """The thread."""
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Start, give, stop."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        assert self._ready.wait(WITHIN), "the server did not start"
        try:
            assert self._failed is None, repr(self._failed)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(WITHIN)
            assert not thread.is_alive(), "the server did not stop"
        if self._failed is not None:
            raise self._failed


def serve(**options: Any) -> contextlib.AbstractContextManager[Server]:
    """A server with these `inbound:` options, while the block lasts."""
    return Server(AgentConnectServe(**options)).running()
