"""How an agent is reached: over the connection that it registered on, or as an MCP server that is connected to.

    Turn -> ContextLink.open(correlation, listener) -> AgentLine.request / AgentLine.tell -> agent
    Turn <- CallListener.notification / CallListener.asked                                <- agent

An AgentLine is held for the whole run: an agent may acknowledge a message at once and say the rest later, on the same
connection. What it says meanwhile reaches the listener by the progress token that went along or by
`_meta.correlationId`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Protocol

from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import WAITED_FOR, note, refusal
from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import answers
from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError, Unavailable, Unsupported
from gateway.core.types import JsonObject
from gateway.mcp import wire as mcp
from gateway.mcp.client.calls import CallListener, OutgoingCall
from gateway.mcp.client.session import ClientSession
from gateway.mcp.client.target import TargetPools
from gateway.mcp.server.contract import McpSession
from gateway.mcp.wire import (
    META,
)
from gateway.transport.guard import Guard
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

REMEMBERED: Final = 1000
"""Correlation ids of runs that have ended, of one link: what comes late is told from what is wrong."""
UNWANTED: Final = "nobody waits for it any more"


class AgentLine(Protocol):
    """One run's hold of a connection to its agent."""

    @property
    def correlation(self) -> str:
        """The id sent in `_meta.correlationId`: the requested one, or the same with a suffix where another run of
        the same connection has it."""

    @property
    def native(self) -> bool:
        """Whether the other end speaks this protocol; else it is a plain MCP server, which has tools."""

    @property
    def gateway(self) -> bool:
        """Whether the other end is such a gateway too: its updates say all that its progress says."""

    @property
    def knows_agents(self) -> bool:
        """Whether the other end knows the gateway's agents: then it is told which of them sends a message."""

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that it declared in its handshake."""

    @property
    def lasting(self) -> bool:
        """Whether it can still say something once it has answered. See `ClientSession.lasting`."""

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done, with the reason, once nothing more can come of the agent."""

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        """Ask, and wait for the result; `_meta` gets the correlation id and a progress token besides what it has.

        All that was told before the answer has been heard when it returns. Cancelling the wait tells the agent
        (`notifications/cancelled`), also if it has just answered. Raises what
        `gateway.mcp.client.session.ClientSession.call` does.
        """

    async def list(self, method: str, key: str) -> list[JsonObject]:
        """See `gateway.mcp.client.session.ClientSession.list`. Raises Unsupported over a registered session."""

    def tell(self, method: str, params: JsonObject) -> None:
        """A notification, in the order of the calls; dropped once the agent has gone. Never blocks."""

    def withdraw(self) -> None:
        """`notifications/cancelled` for the last request, which has been answered (acknowledged) already."""


class ContextLink(Protocol):
    """The way to one agent, for any number of runs."""

    @property
    def reachable(self) -> bool | None:
        """Whether it is there now; None if nobody needed it yet."""

    def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AbstractAsyncContextManager[AgentLine]:
        """A line for one run. What the agent says on it after the end of the block is counted and dropped.

        capabilities: what the gateway declares as a client, where the connection is of its making.
        Raises AgentGone, AgentTimeout, AgentBroken, AgentFailed; Unavailable for one that cannot be asked now.
        """

    async def aclose(self) -> None:
        """Close what it opened itself."""


class LineIds:
    """The correlation ids of one link's runs: those under way, and the last that are `over`."""

    def __init__(self) -> None:
        self.over: dict[str, None] = {}
        self._used: set[str] = set()

    @contextmanager
    def held(self, wanted: str) -> Iterator[str]:
        """While the block lasts, a run has the id, or the first of `ID~2`, `ID~3`, ... that no other has."""
        others = (f"{wanted}~{number}" for number in itertools.count(2))
        correlation = next(each for each in itertools.chain([wanted], others) if each not in self._used)
        self._used.add(correlation)
        try:
            yield correlation
        finally:
            self._used.discard(correlation)
            self.over[correlation] = None
            if len(self.over) > REMEMBERED:
                del self.over[next(iter(self.over))]


def with_meta(params: JsonObject, more: JsonObject) -> JsonObject:
    given = params.get(META)
    return {**params, META: {**(given if isinstance(given, dict) else {}), **more}}


def unknown(correlation: str) -> JsonObject:
    """The params of an `agent/error` about a message that belongs to nothing."""
    said = "No message with this correlation id is under way."
    return note(refusal(wire.NOT_FOUND, said, "not_found", WAITED_FOR, correlation), correlation)


# --- agents that are clients of the gateway ---------------------------------------------------------------------------


MOST_WAITING = 32 * 1024 * 1024
"""Bytes that an agent may be ahead of the run's log: its connection is read for other things too, so it cannot be
slowed."""
ENDED: Final = "the agent's connection has ended"
ENDS: Final = frozenset((wire.RESPONSE, wire.UPDATE))
"""Kinds of messages that only make sense to who waits for them."""
_numbers = itertools.count(1)


class SessionLinks:
    """All agents that registered on connections to this process. Every message of a client goes here first.

    `answered` is told the session whenever an agent there has answered: that is a sign of life.
    """

    def __init__(self, answered: Callable[[McpSession], None] = lambda session: None) -> None:
        self._answered = answered
        self._links: dict[McpSession, SessionLink] = {}

    def to(self, session: McpSession) -> SessionLink:
        found = self._links.get(session) or SessionLink(session, self._answered)
        if session.alive:  # else it has left already
            self._links[session] = found
        return found

    def heard(self, session: McpSession, method: str, params: Raw) -> bool:
        """A notification of a client: progress by its token, `agent/message` and `agent/error` by their correlation id.

        True if it belonged to a run of an agent there, or was meant to.
        """
        link = self._links.get(session)
        if method == mcp.PROGRESS:
            token, lines = answers.token(params), {} if link is None else link.lines
            line = next((each for each in lines.values() if each.token == token), None)
            if line is not None:
                line.take(method, params)
            return line is not None
        correlation = answers.correlation(method, params)
        if correlation is None:
            return False
        line = None if link is None else link.lines.get(correlation)
        if line is not None and line.claims(method, params):
            line.take(method, params)
            return True
        if method != wire.ERROR and (method != wire.MESSAGE or answers.head(params).kind not in ENDS):
            return False
        if link is not None and correlation in link.ids.over:
            return True
        if method == wire.ERROR or answers.head(params).target not in (None, wire.SELF):
            return False
        session.tell(wire.ERROR, unknown(correlation))
        return True

    def asked(self, session: McpSession, method: str, params: Raw) -> Awaitable[Any] | None:
        """A request of a client, a question say: the awaitable of its result; None if it belongs to no run there.

        It raises RpcError for an error answer.
        """
        correlation = answers.correlation(method, params) if session in self._links else None
        line = None if correlation is None else self._links[session].lines.get(correlation)
        return None if line is None or not line.claims(method, params) else line.asked(method, params)

    def has(self, session: McpSession, correlation: str) -> bool:
        return session in self._links and correlation in self._links[session].lines

    def left(self, session: McpSession) -> None:
        """The session has ended: runs of its agents fail with AgentGone."""
        link = self._links.pop(session, None)
        for line in () if link is None else list(link.lines.values()):
            line.end(AgentGone(ENDED))


class SessionLink:
    """See `ContextLink`. Closes nothing: the connection is the client's. `lines`: the open ones, by correlation id."""

    def __init__(self, session: McpSession, answered: Callable[[McpSession], None]) -> None:
        self.lines: dict[str, SessionLine] = {}
        self.ids = LineIds()
        self._session = session
        self._answered = answered

    @property
    def reachable(self) -> bool:
        return self._session.alive and self._session.can_ask

    @asynccontextmanager
    async def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AsyncIterator[AgentLine]:
        if not self._session.alive:
            raise AgentGone("the agent is not connected")
        if not self._session.can_ask:
            raise Unavailable("the agent's connection does not take requests now")
        line = None
        try:
            with self.ids.held(correlation) as held:
                line = self.lines[held] = SessionLine(self._session, held, listener, self._answered)
                yield line
        finally:
            if line is not None:
                del self.lines[line.correlation]
                await line.aclose()

    async def aclose(self) -> None:
        """See `ContextLink`."""


class SessionLine:
    """See `AgentLine`. Made by `SessionLink.open`."""

    native = True
    lasting = True
    knows_agents = True
    gateway = False

    def __init__(
        self, session: McpSession, correlation: str, listener: CallListener, answered: Callable[[McpSession], None]
    ) -> None:
        self.correlation = correlation
        self.token = f"run-{next(_numbers)}"
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._answered = answered
        self._session = session
        self._listener = listener
        self._source = wire.SELF
        self._waiting: deque[tuple[str, Raw]] = deque()
        self._size = 0
        self._pump: asyncio.Task[None] | None = None
        self._broken: AgentBroken | None = None
        self._asked: set[asyncio.Task[Any]] = set()

    @property
    def capabilities(self) -> JsonObject:
        return self._session.client.capabilities

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        source = params.get("source")
        self._source = source if isinstance(source, str) else wire.SELF
        sent = with_meta(params, {wire.CORRELATION: self.correlation, mcp.PROGRESS_TOKEN: self.token})
        asking = asyncio.ensure_future(self._session.ask(method, sent, timeout=timeout))
        either: tuple[asyncio.Future[Any], ...] = (asking, self.closed)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise self._broken or AgentGone.of(self.closed.result())
            self._answered(self._session)
            while self._pump is not None:
                await asyncio.wait([self._pump])
        except asyncio.CancelledError:
            if asking.done():
                self.withdraw()
            raise
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])
        if self._broken is not None:
            raise self._broken
        try:
            return asking.result()
        except AgentGone as error:  # whose words name the address it called from
            raise AgentGone(ENDED, detail=str(error)) from error

    async def list(self, method: str, key: str) -> list[JsonObject]:
        raise Unsupported("an agent that registered lists nothing")

    def tell(self, method: str, params: JsonObject) -> None:
        self._session.tell(method, params)

    def withdraw(self) -> None:
        """What the request was called on the wire is not known here: the correlation id says it."""
        meta = {wire.CORRELATION: self.correlation}
        self.tell(mcp.CANCELLED, {"requestId": self.correlation, "reason": UNWANTED, META: meta})

    # --- what the agent says ------------------------------------------------------------------------------------

    def claims(self, method: str, params: Raw) -> bool:
        """Whether what has its correlation id is about the run: a message to a third agent is not."""
        if method == wire.MESSAGE:
            return answers.head(params).target in (None, wire.SELF, self._source)
        return method in (wire.ERROR, mcp.ELICIT) or method.startswith("notifications/")

    def take(self, method: str, params: Raw) -> None:
        """A notification about the run. In order; held while the log does not grow."""
        if self._pump is None:
            waiting = self._listener.notification(method, params)
            if waiting is not None:
                self._pump = asyncio.create_task(self._pumped(waiting))
            return
        self._waiting.append((method, params))
        self._size += len(params)
        if self._size > MOST_WAITING and self._broken is None:
            self._broken = AgentBroken("the agent says more than can be written down")
            self.end(AgentGone(str(self._broken)))

    async def asked(self, method: str, params: Raw) -> Any:
        """A request about the run. Cancelled when the run ends first."""
        task = asyncio.ensure_future(self._listener.asked(method, params))
        self._asked.add(task)
        try:
            await asyncio.wait([task])
        finally:
            self._asked.discard(task)
            task.cancel()
        if task.cancelled():
            raise RpcError(mcp.REQUEST_CANCELLED, "the run that this is about has ended")
        return task.result()

    def end(self, why: AgentGone) -> None:
        if not self.closed.done():
            self.closed.set_result(why)

    async def aclose(self) -> None:
        self.end(AgentGone("the run has ended"))
        for task in list(self._asked):
            task.cancel()
        if self._pump is not None:
            self._waiting.clear()
            self._pump.cancel()
            await asyncio.wait([self._pump])

    async def _pumped(self, waiting: Awaitable[None] | None) -> None:
        try:
            while True:
                if waiting is not None:
                    with suppress(InterlinguaError):
                        await waiting
                if not self._waiting:
                    return
                method, params = self._waiting.popleft()
                self._size -= len(params)
                waiting = self._listener.notification(method, params)
        finally:
            self._pump = None


# --- agents that are servers: a route's target, or an endpoint --------------------------------------------------------


QUESTIONS: Final[JsonObject] = {"elicitation": {}, wire.AGENT: {wire.MESSAGES: True, "protocols": [wire.VERSION]}}
"""Capabilities for every agent, whatever its client: take messages, and ask with a form."""
FAREWELL: Final = 2.0
"""Seconds that what was told last may take; the transport's own limits bound what is on its way."""


class PoolLink:
    """See `ContextLink`. All agents of one target share it.

    guard: judges the addresses of an endpoint, which an agent named that registered. pools: for tests.
    """

    def __init__(
        self, target: AgentContextTarget, *, guard: Guard | None = None, pools: TargetPools | None = None
    ) -> None:
        self.target = target
        self.guard = guard
        self._pools = pools or TargetPools(
            target,
            QUESTIONS,
            keyed=answers.correlation,
            unclaimed=self.unclaimed,
            dialects={wire.VERSION: wire.MCP_VERSION},
            guard=guard,
        )
        self.on_notification = self._pools.on_notification
        """The callback for notifications that belong to no run."""
        self._ids = LineIds()
        self._telling = TaskSet()

    @classmethod
    def to_endpoint(cls, endpoint: JsonObject, *, allow: Iterable[str] = ()) -> PoolLink:
        """The link to an endpoint that an agent named when it registered: `{url, transport?}`. Its connections are
        guarded, since a stranger named the address.

        `allow`: CIDRs of internal addresses that may be called. Raises ValueError for no URL, and for a transport that
        does not go with it.
        """
        transport = endpoint.get("transport", "auto")
        target = AgentContextTarget(protocol=wire.PROTOCOL, url=endpoint["url"], transport=transport)
        return cls(target, guard=Guard(allow, what="endpoint"))

    @property
    def reachable(self) -> bool | None:
        return self._pools.reachable

    @asynccontextmanager
    async def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AsyncIterator[AgentLine]:
        """A session of its own while there are enough: not every question says what it is about."""
        with self._ids.held(correlation) as held:
            async with self.lease(capabilities) as session:
                with session.hearing(listener, held) as hearing:
                    line = PoolLine(session, hearing, held, knows_agents=self.guard is not None)
                    try:
                        yield line
                    finally:
                        await line.aclose()

    def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AbstractAsyncContextManager[ClientSession]:
        """A session for what is no run: lists, resources. See `gateway.mcp.client.pool.McpPool.lease`."""
        return self._pools.lease(capabilities, alone=alone)

    def unclaimed(self, session: ClientSession, method: str, params: Raw) -> None:
        """Something came with the correlation id of no run: the agent is told, unless the run has just ended."""
        correlation = answers.correlation(method, params)
        if correlation is None or method not in (wire.MESSAGE, wire.ERROR) or correlation in self._ids.over:
            return
        log.info("%s with the correlation id of no message", method)
        if method == wire.MESSAGE:  # an error is never answered with one
            self._telling.start(_tell(session, wire.ERROR, unknown(correlation)))

    async def aclose(self) -> None:
        self._telling.cancel()
        await self._pools.aclose()


class PoolLine:
    """See `AgentLine`. Made by `PoolLink.open`."""

    def __init__(self, session: ClientSession, hearing: OutgoingCall, correlation: str, *, knows_agents: bool) -> None:
        self.correlation = correlation
        self.knows_agents = knows_agents
        self._hearing = hearing
        self._session = session
        self._last: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> JsonObject:
        return self._session.capabilities

    @property
    def native(self) -> bool:
        return self._session.offers(wire.AGENT)

    @property
    def gateway(self) -> bool:
        return self.native and mcp.server_info(self._session.server).get("name") == wire.SELF

    @property
    def lasting(self) -> bool:
        return self._session.lasting

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        return self._session.closed

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        if self.native:  # a plain MCP server is told no correlation id
            params = with_meta(params, {wire.CORRELATION: self.correlation})
        return await self._session.call(method, params, listener=self._hearing, timeout=timeout)

    async def list(self, method: str, key: str) -> list[JsonObject]:
        return await self._session.list(method, key)

    def tell(self, method: str, params: JsonObject) -> None:
        self._last = asyncio.create_task(self._tell_after(self._last, method, params))

    def withdraw(self) -> None:
        id = self._hearing.id
        if id is not None:
            self.tell(mcp.CANCELLED, {"requestId": id, "reason": UNWANTED, META: {wire.CORRELATION: self.correlation}})

    async def aclose(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last], timeout=FAREWELL)
            self._last.cancel()

    async def _tell_after(self, before: asyncio.Task[None] | None, method: str, params: JsonObject) -> None:
        if before is not None:
            await asyncio.wait([before])
        await _tell(self._session, method, params)


async def _tell(session: ClientSession, method: str, params: JsonObject) -> None:
    try:
        await session.tell(method, params)
    except InterlinguaError as error:
        log.debug("%s was not taken: %s", method, error)
