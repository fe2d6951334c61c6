"""An agent in the test's own process: what the gateway sends is seen at once, what it gets is said in so many words."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from adapters.agent_client.wire import PROTOCOL
from gateway.core.errors import AgentGone
from gateway.core.types import Agent, JsonObject, Thread
from gateway.transport.pipe import Unreadable
from tests.support.context import FakeContext, context
from tests.support.scripted import until

MANUAL = object()
"""A handler's answer for "the test answers this one itself"."""
INITIALIZED: JsonObject = {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": {"name": "wire", "version": "1"}}
OPTIONS = [
    {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}
SETUP = {"cwd": "/w", "mcpServers": [{"name": "m", "command": "/m", "args": [], "env": []}]}


class Refusal(Exception):
    """What a handler raises to answer with an error."""

    def __init__(self, code: int, message: str = "refused", data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class Wire:
    """One connection, seen from the agent. A `Pipe` for the gateway.

    got: every message of the gateway's. `prompt` and `find` wait for one. may_close: closing waits for it.
    """

    def __init__(self, handlers: dict[str, Callable[[JsonObject], Any]]) -> None:
        self.name = "wire"
        self.got: list[JsonObject] = []
        self.closed = False
        self.may_close = asyncio.Event()
        self.may_close.set()
        self._handlers = handlers
        self._out: list[bytes | Unreadable] = []
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        self._seen: set[int] = set()
        self._gone: AgentGone | None = None

    # --- the gateway's side ----------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[bytes]) -> None:
        if self.closed or self._gone:
            raise AgentGone("wire is closed")
        for data in messages:
            message = json.loads(data)
            self.got.append(message)
            self._take(message)
        self._news.set()

    async def receive(self) -> Sequence[bytes | Unreadable]:
        while not self._out and not self.closed and self._gone is None:
            self._ready.clear()
            await self._ready.wait()
        out, self._out = self._out, []
        if not out and self._gone is not None:
            raise self._gone
        return out

    async def aclose(self) -> None:
        await self.may_close.wait()
        self.closed = True
        self._ready.set()
        self._news.set()

    def _take(self, message: JsonObject) -> None:
        handler = self._handlers.get(message.get("method", ""))
        if handler is None or "id" not in message:
            return
        try:
            result = handler(message.get("params", {}))
        except Refusal as refusal:
            self.say({"id": message["id"], "error": refusal.error})
            return
        if result is not MANUAL:
            self.say({"id": message["id"], "result": result})

    # --- the agent's side --------------------------------------------------------------------------------------------

    def say(self, *messages: JsonObject) -> None:
        """Send messages in one go."""
        self.raw(*(json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages))

    def raw(self, *lines: bytes | Unreadable) -> None:
        """Send what need not be messages."""
        self._out += lines
        self._ready.set()

    def die(self, why: str = "wire exited with 3: out of luck") -> None:
        """The process ends."""
        self._gone = AgentGone(why)
        self._ready.set()

    def update(self, session: str, kind: str, /, **fields: Any) -> None:
        """A `session/update`."""
        self.say(update(session, kind, **fields))

    def chunk(self, session: str, text: str) -> None:
        """A piece of the agent's answer."""
        self.say(chunk(session, text))

    async def find(self, method: str, within: float = 30) -> JsonObject:
        """The next message of that method that was not found before."""
        return await self._until(lambda m: m.get("method") == method, within)

    async def answer(self, id: Any, within: float = 30) -> JsonObject:
        """The gateway's answer to a request of ours."""
        return await self._until(lambda m: "method" not in m and m.get("id") == id, within)

    async def prompt(self) -> JsonObject:
        """The next prompt."""
        return await self.find("session/prompt")

    async def ask(self, id: Any, method: str, **params: Any) -> JsonObject:
        """Ask the gateway something and wait for the answer."""
        self.say({"id": id, "method": method, "params": params})
        return await self.answer(id)

    def end(self, prompt: JsonObject, reason: str = "end_turn", **more: Any) -> None:
        """Answer a prompt."""
        self.say({"id": prompt["id"], "result": {"stopReason": reason, **more}})

    def sent(self, method: str) -> list[JsonObject]:
        """The params of all messages of that method so far."""
        return [message.get("params", {}) for message in self.got if message.get("method") == method]

    async def _until(self, wanted: Callable[[JsonObject], bool], within: float) -> JsonObject:
        async with asyncio.timeout(within):
            while True:
                for at, message in enumerate(self.got):
                    if at not in self._seen and wanted(message):
                        self._seen.add(at)
                        return message
                self._news.clear()
                await self._news.wait()


class Rig:
    """An outbound adapter and the connections it makes. `handlers` may be changed at any time."""

    def __init__(self, **target: Any) -> None:
        options = {"protocol": PROTOCOL, "command": ("wire",), **target}
        self.outbound = AgentClientOutbound(AgentClientTarget.model_validate(options))
        self.wires: list[Wire] = []
        self.initialized = INITIALIZED
        self.made = 0
        self.handlers: dict[str, Callable[[JsonObject], Any]] = {
            "initialize": lambda _: self.initialized,
            "session/new": self._new,
        }
        self.outbound._connections._pipe = self._pipe  # type: ignore[method-assign]

    async def _pipe(self) -> Wire:
        self.wires.append(Wire(self.handlers))
        return self.wires[-1]

    def _new(self, params: JsonObject) -> JsonObject:
        self.made += 1
        return {"sessionId": f"s{self.made}"}

    def can(self, **capabilities: Any) -> None:
        """What the agent declares."""
        self.initialized = {**INITIALIZED, "agentCapabilities": capabilities}

    async def connected(self, count: int = 1) -> Wire:
        """Wait for that many connections; the newest."""
        await until(lambda: len(self.wires) >= count)
        return self.wire

    @property
    def wire(self) -> Wire:
        """The newest connection."""
        return self.wires[-1]

    def context(self, message: Any = "hello", *, run: str = "run-1", **fields: Any) -> FakeContext:
        """A run's context."""
        made = context(AGENT, message, **fields)
        made.run = _renamed(made.run, id=run)
        return made

    async def started(self, *contexts: FakeContext) -> list[asyncio.Task[None]]:
        """Runs under way, each with its prompt sent."""
        tasks = []
        for each in contexts:
            before = sum(len(wire.sent("session/prompt")) for wire in self.wires)
            tasks.append(asyncio.create_task(self.outbound.run(each)))
            async with asyncio.timeout(30):
                while sum(len(wire.sent("session/prompt")) for wire in self.wires) == before:
                    if tasks[-1].done():
                        await tasks[-1]
                        return tasks
                    await asyncio.sleep(0)
        return tasks

    async def turn(self, each: FakeContext, *texts: str, reason: str = "end_turn") -> None:
        """A whole turn in which the agent says that."""
        known = {id(message) for wire in self.wires for message in wire.got}
        task = asyncio.create_task(self.outbound.run(each))
        asked: list[tuple[Wire, JsonObject]] = []
        async with asyncio.timeout(30):
            while not asked and not task.done():
                await asyncio.sleep(0)
                asked = [
                    (wire, message)
                    for wire in self.wires
                    for message in wire.got
                    if message.get("method") == "session/prompt" and id(message) not in known
                ]
        for wire, prompt in asked:
            if "session/prompt" not in self.handlers:
                for text in texts:
                    wire.chunk(prompt["params"]["sessionId"], text)
                wire.end(prompt, reason)
        await task


AGENT = Agent(
    name="wire",
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    text_input="/message",
    text_output="/message",
    extra={PROTOCOL: INITIALIZED},
)


@contextlib.asynccontextmanager
async def rig(**target: Any) -> AsyncIterator[Rig]:
    """A rig that is closed in the end."""
    made = Rig(**target)
    try:
        yield made
    finally:
        async with asyncio.timeout(30):
            await made.outbound.aclose()


class Client:
    """A client of this protocol that is connected; see `gateway.contract.Caller`."""

    protocol = PROTOCOL
    tools = None

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities: JsonObject = capabilities
        self.asked: list[tuple[str, JsonObject]] = []
        self.told: list[tuple[str, JsonObject]] = []
        self.answers: dict[str, Any] = {}
        self.withdrawn: list[str] = []

    async def ask(self, method: str, params: Any) -> Any:
        self.asked.append((method, json.loads(bytes(params) or b"{}")))
        answer = self.answers[method]
        if answer is MANUAL:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.withdrawn.append(method)
                raise
        if isinstance(answer, Exception):
            raise answer
        return raw(answer)

    def tell(self, method: str, params: Any) -> None:
        self.told.append((method, json.loads(bytes(params) or b"{}")))


async def settled() -> None:
    """Let everyone do what can be done without anything new."""
    for _ in range(100):
        await asyncio.sleep(0)


def beside(
    thread: str | None = None, *, caller: Client | None = None, upstream: JsonObject | None = None
) -> FakeContext:
    """A conversation's context, as a relay gets it."""
    made = context(AGENT, "", thread=thread, upstream_thread=upstream)
    made.caller = caller
    return made


def thread_of(made: FakeContext) -> Thread:
    """The record as it is now."""
    assert made.thread is not None
    return made.thread


def update(session: str, kind: str, /, **fields: Any) -> JsonObject:
    """A `session/update`."""
    said = {"sessionUpdate": kind, **fields}
    return {"method": "session/update", "params": {"sessionId": session, "update": said}}


def chunk(session: str, text: str) -> JsonObject:
    """A piece of the agent's answer."""
    return update(session, "agent_message_chunk", content={"type": "text", "text": text})


def raw(value: Any) -> Raw:
    """A value as it is relayed."""
    return Raw(json.dumps(value).encode())


async def relay(it: Rig, context: FakeContext, method: str, **params: Any) -> Any:
    """What a client of the same protocol is answered."""
    return json.loads(bytes(await it.outbound.relay(context, method, raw(params))))


async def new(it: Rig, thread: str = "t1", client: Client | None = None, **more: Any) -> FakeContext:
    """A session made by a client of the same protocol."""
    context = beside(thread, caller=client or Client())
    await relay(it, context, "session/new", **{**SETUP, **more})
    return context


def _renamed(run: Any, **fields: Any) -> Any:
    return replace(run, **fields)
