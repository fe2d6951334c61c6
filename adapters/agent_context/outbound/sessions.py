"""How an agent is reached: over the connection that it registered on (here), or as an MCP server that is connected to
(pools.py).

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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

from msgspec import Raw

from adapters.agent_context.codec.errors import WAITED_FOR, note, refusal
from adapters.agent_context.outbound import answers
from adapters.agent_context.wire import ERROR, MESSAGE, NOT_FOUND, SELF
from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError, Unavailable, Unsupported
from gateway.core.types import JsonObject
from gateway.mcp.client.contract import CallListener
from gateway.mcp.server.contract import McpSession
from gateway.mcp.wire import CANCELLED, ELICIT, META, PROGRESS, PROGRESS_TOKEN, REQUEST_CANCELLED
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


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
        """Whether it can still say something once it has answered. See `UpstreamSession.lasting`."""

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done, with the reason, once nothing more can come of the agent."""

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        """Ask, and wait for the result; `_meta` gets the correlation id and a progress token besides what it has.

        All that was told before the answer has been heard when it returns. Cancelling the wait tells the agent
        (`notifications/cancelled`), also if it has just answered. Raises what
        `gateway.mcp.client.contract.UpstreamSession.call` does.
        """

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        """See `gateway.mcp.client.contract.UpstreamSession.list`.

        Only of a server: Unsupported over a registered session.
        """

    def tell(self, method: str, params: JsonObject) -> None:
        """A notification; dropped once the agent has gone. Never blocks."""

    def withdraw(self, reason: str) -> None:
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
        Raises AgentGone, AgentTimeout, AgentBroken, AgentFailed, Denied; Unavailable for one that cannot be asked now.
        """

    async def aclose(self) -> None:
        """Close what it opened itself."""


# --- agents that are clients of the gateway ---------------------------------------------------------------------------


MOST_WAITING = 32 * 1024 * 1024
"""Bytes that an agent may be ahead of the run's log: its connection is read for other things too, so it cannot be
slowed."""
REMEMBERED = 1000
"""Correlation ids of runs that have ended, of one session: what comes late is told from what is wrong."""
UNWANTED = "nobody waits for it any more"
ENDS = frozenset({"response", "update"})
"""Kinds of messages that only make sense to who waits for them."""


def _nobody(session: McpSession) -> None:
    """Where nobody wants to know."""


class SessionLinks:
    """All agents that registered on connections to this process. Every message of a client goes here first."""

    def __init__(self, answered: Callable[[McpSession], None] = _nobody) -> None:
        """`answered` is told the session whenever an agent there has answered: that is a sign of life."""
        self.answered = answered
        self._ends: dict[McpSession, _Ends] = {}

    def to(self, session: McpSession) -> SessionLink:
        """The link to the agents of a session."""
        return SessionLink(session, self)

    def heard(self, session: McpSession, method: str, params: Raw) -> bool:
        """A notification of a client: progress by its token, `agent/message` and `agent/error` by their correlation id.

        True if it belonged to a run of an agent there, or was meant to.
        """
        ends = self._ends.get(session)
        if method == PROGRESS:
            line = None if ends is None else ends.by_token(answers.token(params))
            if line is not None:
                line.take(method, params)
            return line is not None
        correlation = answers.correlation(method, params)
        if correlation is None:
            return False
        line = None if ends is None else ends.lines.get(correlation)
        if line is not None and line.claims(method, params):
            line.take(method, params)
            return True
        if method != ERROR and (method != MESSAGE or answers.head(params).kind not in ENDS):
            return False
        if ends is not None and correlation in ends.over:
            return True
        if method == ERROR or answers.head(params).target not in (None, SELF):
            return False
        session.tell(ERROR, unknown(correlation))
        return True

    def asked(self, session: McpSession, method: str, params: Raw) -> Awaitable[Any] | None:
        """A request of a client, a question say: the awaitable of its result; None if it belongs to no run there.

        It raises RpcError for an error answer.
        """
        ends = self._ends.get(session)
        correlation = None if ends is None else answers.correlation(method, params)
        line = None if ends is None or correlation is None else ends.lines.get(correlation)
        if line is None or not line.claims(method, params):
            return None
        return line.asked(method, params)

    def left(self, session: McpSession) -> None:
        """The session has ended: runs of its agents fail with AgentGone."""
        ends = self._ends.pop(session, None)
        if ends is not None:
            for line in list(ends.lines.values()):
                line.end(AgentGone(ENDED))

    def ends(self, session: McpSession) -> _Ends:
        """The open `lines` of a session by correlation id. Do not change it."""
        return self._ends.get(session) or _Ends()

    def begun(self, session: McpSession) -> _Ends:
        """The same, for `SessionLink` to open a line on."""
        return self._ends.setdefault(session, _Ends())


class _Ends:
    """The lines of one session."""

    def __init__(self) -> None:
        self.lines: dict[str, SessionLine] = {}
        self.over: dict[str, None] = {}

    def by_token(self, token: str | None) -> SessionLine | None:
        return next((line for line in self.lines.values() if line.token == token), None) if token else None

    def ended(self, correlation: str) -> None:
        del self.lines[correlation]
        self.over[correlation] = None
        if len(self.over) > REMEMBERED:
            del self.over[next(iter(self.over))]


class SessionLink:
    """See `ContextLink`. Closes nothing: the connection is the client's."""

    def __init__(self, session: McpSession, links: SessionLinks) -> None:
        self.session = session
        self._links = links

    @property
    def reachable(self) -> bool:
        return self.session.alive and self.session.can_ask

    @asynccontextmanager
    async def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AsyncIterator[AgentLine]:
        """See `ContextLink`. Raises AgentGone, Unavailable for a client that cannot be asked."""
        session = self.session
        if not session.alive:
            raise AgentGone("the agent is not connected")
        if not session.can_ask:
            raise Unavailable("the agent's connection does not take requests now")
        ends = self._links.begun(session)
        correlation = unused(correlation, ends.lines)
        line = ends.lines[correlation] = SessionLine(session, correlation, listener, self._links.answered)
        try:
            yield line
        finally:
            ends.ended(correlation)
            await line.aclose()

    async def aclose(self) -> None:
        """See `ContextLink`."""


_numbers = itertools.count(1)
ENDED = "the agent's connection has ended"


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
        self._source = SELF
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
        self._source = source if isinstance(source, str) else SELF
        given = params.get(META)
        meta = {**(given if isinstance(given, dict) else {}), "correlationId": self.correlation}
        sent = {**params, META: {**meta, PROGRESS_TOKEN: self.token}}
        asking = asyncio.ensure_future(self._session.ask(method, sent, timeout=timeout))
        either: tuple[asyncio.Future[Any], ...] = (asking, self.closed)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise self._gone()
            self._answered(self._session)
            while self._pump is not None:
                await asyncio.wait([self._pump])
        except asyncio.CancelledError:
            if asking.done():
                self.withdraw(UNWANTED)
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

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        raise Unsupported("an agent that registered lists nothing")

    def tell(self, method: str, params: JsonObject) -> None:
        self._session.tell(method, params)

    def withdraw(self, reason: str) -> None:
        """See `AgentLine`. What the request was called on the wire is not known here: the correlation id says it."""
        meta = {"correlationId": self.correlation}
        self.tell(CANCELLED, {"requestId": self.correlation, "reason": reason, META: meta})

    # --- what the agent says ------------------------------------------------------------------------------------

    def claims(self, method: str, params: Raw) -> bool:
        """Whether what has its correlation id is about the run: a message to a third agent is not."""
        if method == MESSAGE:
            return answers.head(params).target in (None, SELF, self._source)
        return method in (ERROR, ELICIT) or method.startswith("notifications/")

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
            raise RpcError(REQUEST_CANCELLED, "the run that this is about has ended")
        return task.result()

    def end(self, why: AgentGone) -> None:
        """Nothing more comes."""
        if not self.closed.done():
            self.closed.set_result(why)

    async def aclose(self) -> None:
        """Stop listening."""
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

    def _gone(self) -> InterlinguaError:
        if self._broken is not None:
            return self._broken
        why = self.closed.result()
        return AgentGone.of(why)


def unused(correlation: str, used: Any) -> str:
    """The id, or the first of `ID~2`, `ID~3`, ... that nobody uses."""
    if correlation not in used:
        return correlation
    return next(each for number in itertools.count(2) if (each := f"{correlation}~{number}") not in used)


def unknown(correlation: str) -> JsonObject:
    """The params of an `agent/error` about a message that belongs to nothing."""
    said = "No message with this correlation id is under way."
    return note(refusal(NOT_FOUND, said, "not_found", WAITED_FOR, correlation), correlation)
