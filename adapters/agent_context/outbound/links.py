"""How agents are reached: over the connection that they registered on, or as an MCP server that is connected to. Either
way there is a `ClientSession` with them.

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
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import WAITED_FOR, note, refusal
from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import answers
from gateway.core.errors import AgentGone, InterlinguaError, Unavailable
from gateway.core.types import JsonObject
from gateway.mcp import wire as mcp
from gateway.mcp.client.calls import CallListener, OutgoingCall, OutgoingCalls
from gateway.mcp.client.session import Channel, ClientSession
from gateway.mcp.client.target import TargetPools
from gateway.mcp.server.contract import McpSession
from gateway.mcp.wire import META
from gateway.transport.guard import Guard
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

REMEMBERED: Final = 1000
"""Correlation ids of runs that have ended, of one link: what comes late is told from what is wrong."""
UNWANTED: Final = "nobody waits for it any more"
FAREWELL: Final = 2.0
"""Seconds that what was told last may take; the transport's own limits bound what is on its way."""


class ContextLink(ABC):
    """The way to one agent, or to all of a target, for any number of runs.

    knows_agents: whether the other end knows the gateway's agents: then it is told which of them sends a message.
    registered: whether the agents have registered on the connection. It is read for other things too, so it cannot be
    slowed; and they speak this protocol whatever they declare.
    """

    registered = False

    def __init__(self, *, knows_agents: bool) -> None:
        self.knows_agents = knows_agents
        self._lines: dict[str, AgentLine] = {}  # by correlation id
        self._over: dict[str, None] = {}

    @property
    @abstractmethod
    def reachable(self) -> bool | None:
        """Whether it is there now; None if nobody needed it yet."""

    @abstractmethod
    def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AbstractAsyncContextManager[ClientSession]:
        """A session. See `gateway.mcp.client.pool.McpPool.lease`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what it opened itself."""

    @asynccontextmanager
    async def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AsyncIterator[AgentLine]:
        """A line for one run. What the agent says on it after the end of the block is counted and dropped.

        It is a session of its own while there are enough: not every question says what it is about.
        capabilities: what the gateway declares as a client, where the connection is of its making.
        Raises AgentGone, AgentTimeout, AgentBroken, AgentFailed; Unavailable for one that cannot be asked now.
        """
        async with self.lease(capabilities) as session:
            others = (f"{correlation}~{number}" for number in itertools.count(2))
            key = next(each for each in itertools.chain([correlation], others) if each not in self._lines)
            with session.hearing(listener, key) as hearing:
                line = self._lines[key] = AgentLine(self, session, hearing, key)
                try:
                    yield line
                finally:
                    try:
                        await line.aclose()
                    finally:
                        del self._lines[key]
                        self._over[key] = None
                        if len(self._over) > REMEMBERED:
                            del self._over[next(iter(self._over))]

    def is_over(self, correlation: str) -> bool:
        """Whether a run with this id has just ended."""
        return correlation in self._over


class AgentLine:
    """One run's hold of a connection to its agent. Made by `ContextLink.open`.

    correlation: the id sent in `_meta.correlationId`: the requested one, or the same with a suffix where another run of
    the same link has it. source: the agent in whose name the last request was sent. registered: see `ContextLink`.
    """

    def __init__(self, link: ContextLink, session: ClientSession, hearing: OutgoingCall, correlation: str) -> None:
        self.correlation = correlation
        self.source = wire.SELF
        self.knows_agents = link.knows_agents
        self.registered = link.registered
        self._hearing = hearing
        self._session = session
        self._last: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the other end declared in its handshake."""
        return self._session.capabilities

    @property
    def native(self) -> bool:
        """Whether the other end speaks this protocol; else it is a plain MCP server, which has tools."""
        return self.registered or self._session.offers(wire.AGENT)

    @property
    def gateway(self) -> bool:
        """Whether the other end is such a gateway too: its updates say all that its progress says."""
        return self.native and mcp.server_info(self._session.server).get("name") == wire.SELF

    @property
    def lasting(self) -> bool:
        """Whether it can still say something once it has answered. See `ClientSession.lasting`."""
        return self._session.lasting

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done, with the reason, once nothing more can come of the agent."""
        return self._session.closed

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        """Ask, and wait for the result; `_meta` gets the correlation id and a progress token besides what it has.

        All that was told before the answer has been heard when it returns. Cancelling the wait tells the agent
        (`notifications/cancelled`). Raises what `ClientSession.call` does.
        """
        if self.native:  # a plain MCP server is told no correlation id
            self.source = params.get("source", self.source)
            params = with_meta(params, {wire.CORRELATION: self.correlation})
        return await self._session.call(method, params, listener=self._hearing, timeout=timeout)

    async def list(self, method: str, key: str) -> list[JsonObject]:
        """See `ClientSession.list`."""
        return await self._session.list(method, key)

    def tell(self, method: str, params: JsonObject) -> None:
        """A notification, in the order of the calls; dropped once the agent has gone. Never blocks."""
        self._last = asyncio.create_task(self._tell_after(self._last, method, params))

    def withdraw(self) -> None:
        """`notifications/cancelled` for the last request, which has been answered (acknowledged) already."""
        id = self._hearing.id
        if id is not None:
            self.tell(mcp.CANCELLED, {"requestId": id, "reason": UNWANTED, META: {wire.CORRELATION: self.correlation}})

    def claims(self, method: str, said: answers.MessageMarks) -> bool:
        """Whether what has its correlation id is about the run: a message to a third agent is not."""
        if method == wire.MESSAGE:
            return said.target in (None, wire.SELF, self.source)
        return method in (wire.ERROR, mcp.ELICIT) or method.startswith("notifications/")

    def heard(self, method: str, params: Raw) -> None:
        """Hand over a notification about the run, of an agent that cannot be slowed."""
        self._hearing.heard(method, params)

    async def asked(self, method: str, params: Raw) -> Any:
        """Hand over a request about the run. Cancelled when the run ends first."""

        def stop() -> None:
            asking.cancel()

        asking = asyncio.ensure_future(self._hearing.asked(method, params, stop))
        try:
            await asyncio.wait([asking])
        finally:
            asking.cancel()
        if asking.cancelled():
            raise RpcError(mcp.REQUEST_CANCELLED, "the run that this is about has ended")
        return asking.result()

    async def aclose(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last], timeout=FAREWELL)
            self._last.cancel()

    async def _tell_after(self, before: asyncio.Task[None] | None, method: str, params: JsonObject) -> None:
        if before is not None:
            await asyncio.wait([before])
        await _tell(self._session, method, params)


def with_meta(params: JsonObject, more: JsonObject) -> JsonObject:
    given = params.get(META)
    return {**params, META: {**(given if isinstance(given, dict) else {}), **more}}


async def _tell(session: ClientSession, method: str, params: JsonObject) -> None:
    try:
        await session.tell(method, params)
    except InterlinguaError as error:
        log.debug("%s was not taken: %s", method, error)


def unknown(correlation: str) -> JsonObject:
    """The params of an `agent/error` about a message that belongs to nothing."""
    said = "No message with this correlation id is under way."
    return note(refusal(wire.NOT_FOUND, said, "not_found", WAITED_FOR, correlation), correlation)


def stray(method: str, params: Raw) -> JsonObject | None:
    """The params of the `agent/error` that answers a client's word on a run that is none of its agents'; None for
    another message, which may begin a run.
    """
    said = answers.marks(params) if method == wire.MESSAGE else answers.MessageMarks()
    if said.correlation is None or said.kind not in ENDS or said.target not in (None, wire.SELF):
        return None
    return unknown(said.correlation)


# --- agents that are clients of the gateway ---------------------------------------------------------------------------


ENDED: Final = "the agent's connection has ended"
ENDS: Final = frozenset((wire.RESPONSE, wire.UPDATE))
"""Kinds of messages that only make sense to who waits for them."""


class RegisteredLink(ContextLink):
    """The connection that agents registered on. It is the client's: nothing is closed.

    `answered` is called whenever an agent has answered: that is a sign of life.
    """

    registered = True

    def __init__(self, client: McpSession, answered: Callable[[], None] = lambda: None) -> None:
        super().__init__(knows_agents=True)
        self._client = client
        self._calls = OutgoingCalls("an agent that registered", lambda method, params: None, answers.correlation)
        self._channel = RegisteredChannel(client, answered)

    @property
    def reachable(self) -> bool:
        return self._client.alive and self._client.can_ask

    @asynccontextmanager
    async def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AsyncIterator[ClientSession]:
        if not self._client.alive:
            raise AgentGone("the agent is not connected")
        if not self._client.can_ask:
            raise Unavailable("the agent's connection does not take requests now")
        server = {"capabilities": self._client.client.capabilities}
        yield ClientSession(self._channel, self._calls, {}, {}, server=server)

    def heard(self, method: str, params: Raw) -> bool:
        """A notification of the client's. Whether it is, or was, about a run of an agent here."""
        if method == mcp.PROGRESS:
            self._calls.heard(method, params)
            return True
        said = answers.marks(params)
        line = self._lines.get(said.correlation or "")
        if line is not None and line.claims(method, said):
            line.heard(method, params)
            return True
        late = method == wire.ERROR or (method == wire.MESSAGE and said.kind in ENDS)
        return late and self.is_over(said.correlation or "")

    def asked(self, method: str, params: Raw) -> Awaitable[Any] | None:
        """A request of the client's, a question say: the awaitable of its result; None if it belongs to no run here.

        It raises RpcError for an error answer.
        """
        said = answers.marks(params)
        line = self._lines.get(said.correlation or "")
        return None if line is None or not line.claims(method, said) else line.asked(method, params)

    def has(self, correlation: str) -> bool:
        return correlation in self._lines

    def end(self) -> None:
        """The connection has ended: runs of its agents fail with AgentGone."""
        self._channel.end()

    async def aclose(self) -> None:
        """See `ContextLink`."""


class RegisteredChannel(Channel):
    """A client's connection from its other end: what the gateway asks is a request to the client."""

    def __init__(self, client: McpSession, answered: Callable[[], None]) -> None:
        super().__init__("the agent")
        self.speak(wire.MCP_VERSION)
        self._client = client
        self._answered = answered

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        if call is not None:  # the id on the wire is not known here
            call.named(call.key)
        asking = asyncio.ensure_future(self._client.ask(method, params))
        either: tuple[asyncio.Future[Any], ...] = (asking, self.closed)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])
        if asking.cancelled() and self.closed.done():
            raise AgentGone.of(self.closed.result())
        self._answered()
        try:
            return asking.result()
        except AgentGone as error:  # whose words name the address it called from
            raise AgentGone(ENDED, detail=str(error)) from error

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        self._client.tell(method, params)

    def end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone(ENDED))

    async def aclose(self) -> None:
        self.end()


# --- agents that are servers: a route's target, or an endpoint --------------------------------------------------------


QUESTIONS: Final[JsonObject] = {"elicitation": {}, wire.AGENT: {wire.MESSAGES: True, "protocols": [wire.VERSION]}}
"""Capabilities for every agent, whatever its client: take messages, and ask with a form."""


class ServerLink(ContextLink):
    """A target's server. All agents of one target share it.

    guard: judges the addresses of an endpoint, which an agent named that registered. pools: for tests.
    """

    def __init__(
        self, target: AgentContextTarget, *, guard: Guard | None = None, pools: TargetPools | None = None
    ) -> None:
        super().__init__(knows_agents=guard is not None)
        self.target = target
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
        self._telling = TaskSet()

    @classmethod
    def to_endpoint(cls, endpoint: JsonObject, *, allow: Iterable[str] = ()) -> ServerLink:
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

    def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AbstractAsyncContextManager[ClientSession]:
        return self._pools.lease(capabilities, alone=alone)

    def unclaimed(self, session: ClientSession, method: str, params: Raw) -> None:
        """Something came with the correlation id of no run: the agent is told, unless the run has just ended."""
        correlation = answers.correlation(method, params)
        if correlation is None or method not in (wire.MESSAGE, wire.ERROR) or self.is_over(correlation):
            return
        log.info("%s with the correlation id of no message", method)
        if method == wire.MESSAGE:  # an error is never answered with one
            self._telling.start(_tell(session, wire.ERROR, unknown(correlation)))

    async def aclose(self) -> None:
        self._telling.cancel()
        await self._pools.aclose()
