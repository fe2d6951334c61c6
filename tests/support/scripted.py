"""An engine in the test's own process, with agents that are functions."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.contract import RunContext, TargetOptions
from gateway.contract.interception import RunRecorder
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import AgentFailed, Unsupported
from gateway.core.types import Agent, AgentCapabilities, Json, RunRequest
from gateway.runs import Engine
from gateway.store import Store
from gateway.store.opening import open_store

Script = Callable[[RunContext], Awaitable[None]]

AGENT = Agent(
    name="scripted",
    input_schema=projection.MESSAGE_SCHEMA,
    output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
    capabilities=AgentCapabilities(threads=True, interrupts=True, streaming=True, cancel=True, files=("*/*",)),
)


class Scripted:
    """An outbound adapter whose agent is a function of the run's context. `asks`: it asks for its input before."""

    asks = True

    def __init__(self, script: Script, *, agent: Agent = AGENT, attach: Script | None = None) -> None:
        self.script = script
        self.agent = agent
        self.attached = attach
        self.contexts: list[RunContext] = []
        self.cancels = 0
        self.closed = False
        self.on_cancel: Callable[[], None] = lambda: None

    async def describe(self) -> Agent:
        return self.agent

    async def run(self, context: RunContext) -> None:
        self.contexts.append(context)
        if self.asks:
            await context.recall(fresh=not self.agent.capabilities.threads or context.upstream_thread is None)
        await self.script(context)

    async def attach(self, context: RunContext) -> None:
        if self.attached is None:
            raise Unsupported("this agent cannot be found again")
        self.contexts.append(context)
        await self.attached(context)

    async def cancel(self, context: RunContext) -> None:
        self.cancels += 1
        self.on_cancel()

    async def aclose(self) -> None:
        self.closed = True


async def echo(context: RunContext) -> None:
    """Says the input again, word by word."""
    for word in context.run.request.input["message"].split():
        context.emit(e.PartDelta(part="text", delta=word + " "))
        await context.drain()
    context.emit(e.RunFinished())


async def failer(context: RunContext) -> None:
    """Says `so far`, and fails."""
    context.emit(e.PartDelta(part="text", delta="so far"))
    await context.drain()
    raise AgentFailed("it failed on purpose", detail="a secret")


async def filer(context: RunContext) -> None:
    """Makes the file `notes.txt`, and says so."""
    context.emit(e.PartDelta(part="text", delta="see the file"))
    await context.add_artifact("notes.txt", b"hello", media_type="text/plain")
    context.emit(e.RunFinished())


def route(name: str = "scripted", **options: Json) -> Route:
    """A route that the tests' entries are made for."""
    return Route(name=name, target=TargetOptions(protocol="scripted"), **options)


def bound() -> tuple[socket.socket, str]:
    """A socket on a free port, for a server whose address is to be known before it starts; and that address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def use(engine: Engine, *agents: tuple[Route, Scripted]) -> None:
    """Give an engine its agents."""
    engine.use([Entry(route, outbound) for route, outbound in agents])


@asynccontextmanager
async def engine(
    *agents: tuple[Route, Scripted],
    file: Path | None = None,
    cancel_grace: float = 5.0,
    store: Store | None = None,
    public_url: str = "",
    recorder: RunRecorder | None = None,
) -> AsyncIterator[Engine]:
    """An open engine; its store is in memory or in `file`, or the one given."""
    store = store or open_store(f"sqlite:///{file}" if file else "sqlite://")
    made = Engine(store, public_url=public_url, cancel_grace=cancel_grace, recorder=recorder)
    use(made, *agents)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def held(until: Callable[[], asyncio.Event]) -> Script:
    """An agent that says one thing, waits, and says another."""

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before "))
        await context.drain()
        await until().wait()
        context.emit(e.PartDelta(part="text", delta="after"))
        context.emit(e.RunFinished())
        await context.drain()

    return script


def request(message: Json = "hello there", **fields: Json) -> RunRequest:
    """What a client would ask of the agent `scripted`."""
    fields = {"agent": "scripted", "protocol": "test", "input": {"message": message}, **fields}
    return RunRequest(**fields)


@contextmanager
def faultless() -> Iterator[None]:
    """AssertionError at the end if an error was logged or a task of the loop failed: nothing that a client or an agent
    does is an error of ours.

    What asyncio logs of the loop goes to its handler; the rest of it is the garbage of a test before.
    """
    mistakes: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(str(context)))
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: record.name == "asyncio" or mistakes.append(handler.format(record))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert not mistakes, mistakes


async def until(condition: Callable[[], bool], timeout: float = 30.0) -> None:
    """Yield to the loop until something has become true; TimeoutError if it does not."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - the condition is in no one's hands
            await asyncio.sleep(0.001)
