"""The inbound half over an engine with scripted agents, with clients in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.inbound import AgentClientInbound
from adapters.agent_client.inbound.client import EditorClient
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from gateway.config import Route
from gateway.contract import RunContext, TargetOptions, ThreadContext
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, Run, RunQuery, ThreadUpdate
from gateway.runs import Engine
from tests.adapters.agent_client.editor import Editor
from tests.support.pipes import LIMIT, MemoryPipe, pair
from tests.support.scripted import AGENT, Script, Scripted, engine, faultless, route

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}
OPTIONS = [{"id": "m", "name": "M", "type": "select", "currentValue": "a", "options": [{"value": "a", "name": "A"}]}]
LOAD = {"cwd": "/work", "mcpServers": []}
YES_NO: dict[str, Any] = {"type": "boolean"}
NATIVE = replace(
    AGENT,
    extra={
        "agent_client": {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True},
                "sessionCapabilities": {"close": {}},
                "_meta": {"acme": 1},
            },
            "agentInfo": {"name": "acme", "title": "Acme", "version": "3"},
            "authMethods": [{"id": "login", "name": "Log in"}],
        }
    },
)
"""An agent that speaks the protocol itself."""


class Native(Scripted):
    """One whose outbound half relays. `answers`: method -> what it answers, or a function of context and params.

    greeted: the contexts in which it was asked what it answers to `initialize`.
    """

    def __init__(self, script: Script, *, agent: Agent = NATIVE) -> None:
        super().__init__(script, agent=agent)
        self.answers: dict[str, Any] = {}
        self.relayed: list[tuple[str, bytes, str | None]] = []
        self.forwarded: list[tuple[str, bytes, str | None]] = []
        self.beside: list[ThreadContext] = []
        self.greeted: list[ThreadContext] = []

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        if method == "initialize":
            self.greeted.append(context)
            greeting = self.answers.get(method, context.agent.extra["agent_client"])
            if isinstance(greeting, Exception):
                raise greeting
            return Raw(msgspec.json.encode(greeting))
        thread = context.thread.id if context.thread else None
        self.relayed.append((method, bytes(params), thread))
        self.beside.append(context)
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(context, params)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if answer is None and method == "session/new":
            return Raw(b'{"sessionId": "%s"}' % (thread or "").encode())
        return answer if isinstance(answer, Raw) else Raw(msgspec.json.encode(answer if answer is not None else {}))

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        self.forwarded.append((method, bytes(params), context.thread.id if context.thread else None))


class Rig:
    """`connect` clients; `engine` is what they are connected to."""

    def __init__(self, engine: Engine, options: AgentClientServe, stack: AsyncExitStack) -> None:
        self.engine = engine
        self.inbound = AgentClientInbound(options, engine)
        self.inbound.linger = 0.0
        self._stack = stack

    async def raw(
        self,
        agent: str | None = "scripted",
        *,
        capabilities: dict[str, Any] | None = None,
        limit: int = LIMIT,
        visitor: Visitor | None = None,
    ) -> Editor:
        """A client that has said nothing yet. `visitor`: what is known of it; left out for one that nobody asks."""
        ours, theirs = pair(limit)
        editor = Editor(ours, capabilities)
        await self.enter(editor)
        self.serve(theirs, agent, visitor)
        return editor

    async def enter(self, editor: Editor) -> None:
        """It begins to read, until the test ends."""
        await self._stack.enter_async_context(editor)

    async def connect(
        self, agent: str | None = "scripted", *, capabilities: dict[str, Any] | None = None, limit: int = LIMIT
    ) -> Editor:
        """A client that has shaken hands."""
        editor = await self.raw(agent, capabilities=capabilities, limit=limit)
        await editor.initialize()
        return editor

    async def opened(self, agent: str | None = "scripted", **how: Any) -> tuple[Editor, str]:
        """A client that has shaken hands, and its new session."""
        editor = await self.connect(agent, **how)
        return editor, await editor.new()

    async def runs(self, session: str) -> Sequence[Run]:
        """The runs of a session, newest first."""
        return await self.engine.runs.list(RunQuery(thread=session))

    async def run(self, session: str) -> Run:
        """Its newest run, once there is one."""
        async with asyncio.timeout(30):
            while not (runs := await self.runs(session)):  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0)
        return runs[0]

    def connections(self, session: str) -> list[EditorClient]:
        """The clients that have the session open."""
        return [each.client for each in self.inbound.clients.open(session)]

    def serve(self, pipe: MemoryPipe, agent: str | None, visitor: Visitor | None = None) -> asyncio.Task[None]:
        """Have the gateway talk to who is at the other end, in a task that ends with the test."""
        served = self.inbound.converse(pipe, agent) if visitor is None else self.inbound.welcome(pipe, agent, visitor)
        task = asyncio.create_task(served)
        self._stack.push_async_callback(_ended, task)
        return task


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=30)


@asynccontextmanager
async def rig(
    *agents: tuple[Route, Scripted], file: Path | None = None, cancel_grace: float = 5.0, **options: Any
) -> AsyncIterator[Rig]:
    """An inbound half with these agents. AssertionError at the end if an error was logged, or a task failed."""
    with faultless():
        async with engine(*agents, file=file, cancel_grace=cancel_grace) as made, AsyncExitStack() as stack:
            yield Rig(made, AgentClientServe(**options), stack)


def scripted(script: Script, name: str = "scripted", **fields: Any) -> tuple[Route, Scripted]:
    """An agent of another protocol."""
    return route(name), Scripted(script, agent=replace(AGENT, **fields))


def native(script: Script, name: str = "scripted") -> tuple[Route, Native]:
    """An agent of this protocol."""
    return Route(name=name, target=TargetOptions(protocol="agent_client")), Native(script)


def asking(schema: dict[str, Any], *, id: str = "q1", kind: str = "input", message: str = "Which one?") -> Script:
    """An agent that asks one thing and says what it was told."""

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="Let me see. "))
        answer = await context.ask(Interrupt(id=id, kind=kind, message=message, answer_schema=schema))
        context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} {answer.value}."))
        context.emit(e.RunFinished())
        await context.drain()

    return script


def update(kind: str, /, **fields: Any) -> dict[str, Any]:
    """An update of a session."""
    return {"sessionUpdate": kind, **fields}


def chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    """A piece of text, the agent's answer unless it is another kind."""
    return update(kind, content={"type": "text", "text": text})


def note(context: Any, data: dict[str, Any], *, kept: bool = False) -> None:
    """Have an agent of the protocol tell an update; `kept`, if it is part of the conversation."""
    kind = "output" if kept else data["sessionUpdate"]
    context.note(ThreadUpdate(protocol="agent_client", kind=kind, data=data, kept=kept))
