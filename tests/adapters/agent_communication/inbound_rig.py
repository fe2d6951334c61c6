"""The inbound half over an engine with scripted agents, with calls made in memory: no transport is in the way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_communication.inbound import AgentCommunicationInbound
from adapters.agent_communication.options import AgentCommunicationServe
from gateway.access import Visit
from gateway.config import Route
from gateway.contract import RunContext, TargetOptions
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, Run, RunQuery
from gateway.mcp.server.contract import InputRequired, McpCall, McpClient, ProgressToken
from gateway.mcp.versions import V2025_11_25, V2026_07_28
from gateway.mcp.wire import META_LOG_LEVEL
from gateway.runs import Engine
from gateway.wire.jsonrpc import ErrorObject, RpcError
from tests.support.scripted import AGENT, Script, Scripted, engine, faultless, route

YES_NO: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
PROGRESS = "notifications/agents/run/progress"
Answerer = Callable[[str, Any], Awaitable[Any]]


class FakeSession:
    """See `gateway.mcp.server.contract.Session`. What it was told is in `told`."""

    def __init__(self, client: McpClient, agent: str | None = None, level: str | None = None) -> None:
        self.id = "session-1"
        self.agent = agent
        self.client = client
        self.log_level = level
        self.told: list[tuple[str, Any]] = []
        self.alive = True
        self.bearer: str | None = None
        self.visit: Visit | None = None
        self.can_ask = False

    def tell(self, method: str, params: Any = None) -> None:
        self.told.append((method, params))

    def subscribed(self, uri: str) -> bool:
        return False

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        raise AssertionError(f"the client was asked {method}")


class FakeCall:
    """See `gateway.mcp.server.contract.Call`. `said` are its notifications; `answers` answers what the client is asked.

    `room`: cleared, it makes `drain` wait, as a reader does who is away.
    """

    def __init__(self, session: FakeSession, id: int, method: str, params: dict[str, Any]) -> None:
        self.session = session
        self.client = session.client
        self.id = id
        self.method = method
        self.params = Raw(msgspec.json.encode(params))
        self.meta: dict[str, Any] = params.get("_meta", {})
        self.said: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.withdrawn: list[str] = []
        self.answers: Answerer | None = None
        self.room = asyncio.Event()
        self.room.set()
        self.bearer = session.bearer

    @property
    def progress_token(self) -> ProgressToken | None:
        return self.meta.get("progressToken")

    @property
    def log_level(self) -> str | None:
        return self.meta.get(META_LOG_LEVEL) or self.session.log_level

    @property
    def can_ask(self) -> bool:
        return self.client.version != V2026_07_28

    wants: Any = McpCall.wants

    def notify(self, method: str, params: Any = None) -> None:
        self.send(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def send(self, notification: bytes) -> None:
        assert b"\n" not in notification
        self.said.append(msgspec.json.decode(notification))

    async def drain(self) -> None:
        await self.room.wait()

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        assert self.can_ask
        assert self.answers is not None, f"the client was asked {method}"
        shown = msgspec.json.decode(msgspec.json.encode(params))
        self.asked.append((method, shown))
        try:
            return Raw(msgspec.json.encode(await self.answers(method, shown)))
        except asyncio.CancelledError:
            self.withdrawn.append(method)
            raise

    # --- what tests read off ------------------------------------------------------------------------------------

    def params_of(self, method: str) -> list[Any]:
        """The params of every notification of a method, in order."""
        return [each["params"] for each in self.said if each["method"] == method]

    @property
    def deltas(self) -> list[Any]:
        """The deltas that were sent, those that only carry a `_meta` left out."""
        return [each["delta"] for each in self.params_of(PROGRESS) if each["delta"] != {}]

    @property
    def folded(self) -> Any:
        """What a client makes of the deltas."""
        document: Any = deltas.ABSENT
        for each in self.deltas:
            document = deltas.combine(document, each)
        return document


class Refused(Exception):
    """A call was answered with this error."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(f"{error.code} {error.message}")
        self.code = error.code
        self.message = error.message
        self.data: Any = msgspec.json.decode(msgspec.json.encode(error.data)) if error.data else None


class Rig:
    """`call` what clients call; `engine` is what they are connected to."""

    def __init__(self, engine: Engine, options: AgentCommunicationServe) -> None:
        self.engine = engine
        self.inbound = AgentCommunicationInbound(options, engine)
        self.service = self.inbound.service
        self._ids = itertools.count()

    def session(
        self,
        version: str = V2025_11_25,
        *,
        agent: str | None = None,
        capabilities: dict[str, Any] | None = None,
        level: str | None = None,
    ) -> FakeSession:
        """A client that has introduced itself."""
        return FakeSession(McpClient(version, capabilities or {}), agent, level)

    def make(self, method: str, params: dict[str, Any], session: FakeSession | None = None) -> FakeCall:
        """A request that was not sent yet."""
        return FakeCall(session or self.session(), next(self._ids), method, params)

    async def serve(self, call: FakeCall) -> Any:
        """Its result as the client reads it. Raises Refused for an error, InputRequired as it is."""
        try:
            return msgspec.json.decode(msgspec.json.encode(await self.service.request(call)))
        except (InputRequired, AssertionError):
            raise
        except RpcError as error:
            raise Refused(error.error) from error
        except Exception as error:
            raise Refused(self.service.error(call, error).error) from error

    async def call(self, method: str, session: FakeSession | None = None, **params: Any) -> Any:
        """`make` and `serve`. A parameter `meta` is the `_meta`."""
        if "meta" in params:
            params["_meta"] = params.pop("meta")
        return await self.serve(self.make(method, params, session))

    async def run(self, name: str = "scripted", message: str = "hi", **more: Any) -> Any:
        """`agents/run` with a text."""
        return await self.call("agents/run", name=name, input={"message": message}, **more)

    async def newest(self) -> Run:
        """The newest run, once there is one."""
        async with asyncio.timeout(30):
            while not (runs := await self.engine.runs.list(RunQuery())):  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0)
        return runs[0]


@asynccontextmanager
async def rig(
    *agents: tuple[Route, Scripted], file: Path | None = None, cancel_grace: float = 5.0, **options: Any
) -> AsyncIterator[Rig]:
    """An inbound half with these agents. AssertionError at the end if an error was logged, or a task failed."""
    with faultless():
        async with engine(*agents, file=file, cancel_grace=cancel_grace) as made:
            found = Rig(made, AgentCommunicationServe(**options))
            yield found
            await found.inbound.runs.settled()


def scripted(script: Script, name: str = "scripted", **fields: Any) -> tuple[Route, Scripted]:
    """An agent of another protocol."""
    return route(name), Scripted(script, agent=replace(AGENT, **fields))


NATIVE = replace(
    AGENT,
    input_schema={"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    output_schema={"type": "object", "properties": {"text": {"type": "string"}, "logs": {"type": "array"}}},
    extra={"agent_communication": {"name": "far", "provider": "me", "ui": {"type": "hands-off"}, "tags": ["x"]}},
)
"""An agent that speaks the protocol itself."""


def native(script: Script, name: str = "scripted", agent: Agent = NATIVE) -> tuple[Route, Scripted]:
    """An agent of this protocol."""
    return Route(name=name, target=TargetOptions(protocol="agent_communication")), Scripted(script, agent=agent)


def asking(*schemas: dict[str, Any], kind: str = "input", message: str = "Which one?") -> Script:
    """An agent that asks, one question after the other, and says what it was told."""

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="Let me see. "))
        for number, schema in enumerate(schemas, 1):
            asked = Interrupt(id=f"q{number}", kind=kind, message=message, answer_schema=schema)
            answer = await context.ask(asked)
            context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} {answer.value}. "))
        context.emit(e.RunFinished())
        await context.drain()

    return script


def says(*events: e.Event) -> Script:
    """An agent that says these, one after the other."""

    async def script(context: RunContext) -> None:
        for event in events:
            context.emit(event)
            await context.drain()
            await asyncio.sleep(0)

    return script
