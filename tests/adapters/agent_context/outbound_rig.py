"""Agents that a test plays: at the other end of a pipe as a server, or on a session on which they registered."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import AgentContextOutbound, AgentContextTurn
from adapters.agent_context.outbound.answers import correlation
from adapters.agent_context.outbound.links import QUESTIONS, RegisteredLink, ServerLink, stray
from gateway.contract import Outbound
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp.client.called_run import CalledRuns
from gateway.mcp.client.calls import OutgoingCalls
from gateway.mcp.client.piped import PipedChannel
from gateway.mcp.client.session import ClientSession
from gateway.mcp.client.target import TargetPools
from gateway.mcp.server.contract import McpClient
from gateway.wire import jsonrpc
from tests.adapters.agent_context.wire_schema import valid
from tests.support.context import FakeContext, context
from tests.support.pipes import MemoryPipe, pair
from tests.support.rpc import hear, say, settled

RECORD: JsonObject = {
    "id": "it",
    "name": "It",
    "capabilities": {"tools": ["hammer"], "models": [], "specializations": ["nlp"], "protocols": ["ACP-0.1"]},
}
NATIVE: JsonObject = {"agent": {"coordination": True}, "resources": {"subscribe": True}}
PLAIN: JsonObject = {"tools": {"listChanged": True}}
CORRELATION = "corr-1"


def raw(value: Any) -> Raw:
    """A value as it comes from the wire."""
    return Raw(json.dumps(value).encode())


class Agent:
    """The agent's end of one connection: what it hears, one by one, and what it says."""

    correlation = CORRELATION

    async def hear(self, method: str) -> Any:
        """The next that is told or asked of this method; the notifications of the handshake are skipped."""
        raise NotImplementedError

    async def answer(self, id: Any, result: Any = None, error: Any = None) -> None:
        """Answer a request."""
        raise NotImplementedError

    async def tell(self, method: str, params: JsonObject) -> None:
        """A notification."""
        raise NotImplementedError

    async def ask(self, method: str, params: JsonObject) -> Any:
        """A request: its whole answer, with `result` or `error`."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        """The connection ends."""
        raise NotImplementedError

    def message(self, kind: str, payload: Any, **more: Any) -> JsonObject:
        """Params of an `agent/message` about the run."""
        meta = {"correlationId": self.correlation}
        return {
            "source": "it",
            "target": "interlingua",
            "content": {"type": kind, "payload": payload},
            "_meta": meta,
        } | more

    async def update(self, text: str, **more: Any) -> None:
        await self.tell("agent/message", self.message("update", {"messages": [{"text": text}]}, **more))

    async def respond(self, text: str, **more: Any) -> None:
        await self.tell("agent/message", self.message("response", {"messages": [{"text": text}]}, **more))

    async def fail(self, code: int = -32000, message: str = "broken", **more: Any) -> None:
        meta = {"correlationId": self.correlation}
        await self.tell("agent/error", {"error": {"code": code, "message": message}, "_meta": meta} | more)


SCHEMAS = {"agent/message": "Message", "agent/delegate": "Delegate", "agent/error": "ErrorNote"}


def checked(message: Any) -> Any:
    """What the gateway says, held against the protocol's published schema."""
    if message["method"] in SCHEMAS:
        valid(SCHEMAS[message["method"]], message["params"])
    return message


def says(text: str) -> JsonObject:
    """The answer that is the response."""
    return {"content": {"type": "response", "payload": {"messages": [{"text": text}]}}}


class PipedAgent(Agent):
    """A server, over a pipe."""

    def __init__(self, pipe: MemoryPipe) -> None:
        self.pipe = pipe
        self.heard: list[Any] = []
        self._ids = itertools.count(1)

    async def hear(self, method: str) -> Any:
        async with asyncio.timeout(30):
            while True:
                for at, message in enumerate(self.heard):
                    if message.get("method") == method:
                        return checked(self.heard.pop(at))
                arrived = await hear(self.pipe, 1)
                assert arrived, f"{method}: the gateway hung up"
                self.heard += arrived

    async def answer(self, id: Any, result: Any = None, error: Any = None) -> None:
        said = {"result": {} if result is None else result} if error is None else {"error": error}
        await say(self.pipe, {"jsonrpc": "2.0", "id": id, **said})

    async def tell(self, method: str, params: JsonObject) -> None:
        await say(self.pipe, {"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: JsonObject) -> Any:
        id = f"theirs-{next(self._ids)}"
        await say(self.pipe, {"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        async with asyncio.timeout(30):
            while True:
                for at, message in enumerate(self.heard):
                    if message.get("id") == id and "method" not in message:
                        return self.heard.pop(at)
                self.heard += await hear(self.pipe, 1)

    async def hang_up(self) -> None:
        await self.pipe.aclose()


class PipedPool:
    """See `gateway.mcp.client.pool.McpPool`. One session, to a server that the test plays."""

    def __init__(self, capabilities: JsonObject, server: JsonObject, link: ServerLink) -> None:
        self.declared = capabilities
        self.agent: PipedAgent
        self.heard: list[Callable[[str, Raw], None]] = []
        self._link = link
        self._server = server
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def lease(self, *, alone: bool = True) -> AsyncIterator[ClientSession]:
        if self._session is None:
            here, there = pair()
            calls = OutgoingCalls("it", self._news, correlation)
            session = ClientSession(PipedChannel(here, calls), calls, self.declared, {}, {"ACP-0.1": "2025-11-25"})
            calls.on_unclaimed(lambda method, params: self._link.unclaimed(session, method, params))
            agent = PipedAgent(there)
            starting = asyncio.create_task(session.start())
            hello = await agent.hear("initialize")
            await agent.answer(hello["id"], self._server)
            await starting
            await agent.hear("notifications/initialized")
            self.agent, self._session = agent, session
        if not self._session.alive:
            raise AgentGone("it has hung up")
        yield self._session

    @property
    def reachable(self) -> bool | None:
        return None if self._session is None else self._session.alive

    def on_notification(self, heard: Callable[[str, Raw], None]) -> None:
        self.heard.append(heard)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    def _news(self, method: str, params: Raw) -> None:
        for heard in self.heard:
            heard(method, params)


class FakeSession:
    """See `gateway.mcp.server.contract.Session`: a client on which an agent registered.

    `link`: what the inbound half hands its messages to.
    """

    def __init__(self) -> None:
        self.link: RegisteredLink
        self.client = McpClient("2025-11-25", {"agent": {"messages": True}})
        self.alive = True
        self.can_ask = True
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)

    def tell(self, method: str, params: Any = None) -> None:
        if self.alive:
            self.inbox.put_nowait({"method": method, "params": params})

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        id = next(self._ids)
        self.waiting[id] = asyncio.get_running_loop().create_future()
        self.inbox.put_nowait({"method": method, "params": params, "id": id})
        try:
            return raw(await self.waiting[id])
        except asyncio.CancelledError:
            self.tell("notifications/cancelled", {"requestId": id})
            raise
        finally:
            del self.waiting[id]


class SessionAgent(Agent):
    """A client that registered."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self._held: list[Any] = []

    async def hear(self, method: str) -> Any:
        async with asyncio.timeout(30):
            while True:
                for at, message in enumerate(self._held):
                    if message["method"] == method:
                        return checked(self._held.pop(at))
                self._held.append(json.loads(msgspec.json.encode(await self.session.inbox.get())))

    async def answer(self, id: Any, result: Any = None, error: Any = None) -> None:
        waiting = self.session.waiting.get(id)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result({} if result is None else result)
        else:
            waiting.set_exception(jsonrpc.RpcError(error["code"], error["message"], error.get("data")))
        await settled(2)

    async def tell(self, method: str, params: JsonObject) -> None:
        if not self.session.link.heard(method, raw(params)) and (error := stray(method, raw(params))) is not None:
            self.session.tell("agent/error", error)
        await settled(2)

    async def ask(self, method: str, params: JsonObject) -> Any:
        waiting = self.session.link.asked(method, raw(params))
        if waiting is None:
            return {"error": {"code": -32601, "message": "not the run's"}}
        try:
            found = await asyncio.wait_for(asyncio.ensure_future(waiting), 30)
        except jsonrpc.RpcError as error:
            return {"error": {"code": error.error.code, "message": error.error.message}}
        return {"result": json.loads(msgspec.json.encode(found))}

    async def hang_up(self) -> None:
        self.session.alive = False
        for waiting in self.session.waiting.values():
            if not waiting.done():
                waiting.set_exception(AgentGone("it has hung up"))
        self.session.link.end()


class House:
    """An outbound half, its agent, and the runs under way."""

    def __init__(self, outbound: Outbound, agent: Callable[[], Agent]) -> None:
        self.outbound = outbound
        self.pools: list[PipedPool] = []
        self.session: FakeSession | None = None
        self._agent = agent
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def agent(self) -> Agent:
        """The other end; there once somebody has called."""
        return self._agent()

    def start(self, run: FakeContext) -> asyncio.Task[None]:
        """Run it meanwhile. What `run` raises is for who awaits the task."""
        task = asyncio.create_task(self.outbound.run(run))
        self._tasks.append(task)
        return task

    async def begun(self, run: FakeContext, method: str = "agent/message") -> tuple[asyncio.Task[None], Any]:
        """A run under way, and the request that it was sent with."""
        task = self.start(run)
        return task, await (await self.called()).hear(method)

    async def called(self) -> Agent:
        """The other end, once somebody has called it."""
        async with asyncio.timeout(30):
            while True:
                try:
                    return self.agent
                except (AttributeError, IndexError):
                    await asyncio.sleep(0)

    async def done(self, task: asyncio.Task[None]) -> None:
        """Wait for a run's end."""
        await asyncio.wait_for(task, 30)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.outbound.aclose()


@asynccontextmanager
async def piped(
    capabilities: JsonObject | None = None, *, version: str = "2025-11-25", **target: Any
) -> AsyncIterator[House]:
    """An agent that is a server at a route's target."""
    said = {"protocolVersion": version, "capabilities": NATIVE if capabilities is None else capabilities}
    said["serverInfo"] = {"name": "It", "version": "1"}
    pools: list[PipedPool] = []

    def pool(declared: JsonObject) -> Any:
        pools.append(PipedPool(declared, said, made._link))
        return pools[-1]

    options = AgentContextTarget.model_validate(
        {"protocol": "agent_context", "command": ["nobody"], "agent": "it"} | target
    )
    before = asyncio.all_tasks()
    made = AgentContextOutbound(options, TargetPools(options, QUESTIONS, make=pool))
    house = House(made, lambda: pools[-1].agent)
    house.pools = pools
    try:
        yield house
    finally:
        await house.aclose()
        await settled()
        assert not (left := asyncio.all_tasks() - before), left


class Registered(CalledRuns):
    """The runs of an agent over one connection."""

    def __init__(self, link: RegisteredLink, name: str) -> None:
        super().__init__(lambda context: AgentContextTurn(context, lambda: link, name, "auto"))
        self._link = link

    @property
    def reachable(self) -> bool:
        return self._link.reachable

    async def aclose(self) -> None:
        """The connection is the agent's."""


@asynccontextmanager
async def registered(record: JsonObject | None = None) -> AsyncIterator[House]:
    """An agent that registered on its connection."""
    session = FakeSession()
    session.link = RegisteredLink(session)  # type: ignore[arg-type]
    before = asyncio.all_tasks()
    outbound = Registered(session.link, (RECORD if record is None else record)["id"])
    agent = SessionAgent(session)
    house = House(outbound, lambda: agent)
    house.session = session
    try:
        yield house
    finally:
        await house.aclose()
        await settled()
        assert not (left := asyncio.all_tasks() - before), left


BOTH: dict[str, Callable[[], AbstractAsyncContextManager[House]]] = {"piped": piped, "registered": registered}
"""The two ways to an agent, of which most holds alike."""

_numbers = itertools.count(1)


def running(input: Any = "hello", *, record: JsonObject | None = None, **more: Any) -> FakeContext:
    """A context for a run of the agent, whose messages have the correlation id `CORRELATION`."""
    request: JsonObject = {"attributes": {"correlationId": CORRELATION}, **more}
    found = context(agent_of(RECORD if record is None else record), input, **request)
    found.run = msgspec.structs.replace(found.run, id=f"run-{next(_numbers)}")
    return found


def failure(run: FakeContext) -> Any:
    """Why it failed."""
    end = run.end
    assert isinstance(end, e.RunFailed), end
    return end.failure
