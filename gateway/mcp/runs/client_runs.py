"""Shared by all calls of a protocol: the gateway, the agents that a session sees, the progress tokens in use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.structs import replace

from gateway.access import ScopedGateway
from gateway.contract import LIST_SECONDS, Gateway
from gateway.core.errors import AgentGone, InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.files import Attachment
from gateway.core.types import Agent, Answer, Identity, JsonObject, Run, RunRequest
from gateway.mcp.runs.documents import Documents
from gateway.mcp.runs.log_messages import heard
from gateway.mcp.runs.tools import Tools
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.mcp.wire import MESSAGE, ROOTS, SAMPLE
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, RpcError

log = logging.getLogger(__name__)

TOKEN_PATH = "/_meta/progressToken"

ASKABLE: Final[Mapping[str, str]] = {SAMPLE: "sampling", ROOTS: "roots"}
"""Requests of an agent other than questions -> the capability without which the client is not asked.

Clients made with some SDKs break off at a request that they do not know.
"""


class CallCaller:
    """See `gateway.contract.Caller`. One for each run: the client of the call that follows it now."""

    tools = None

    def __init__(self, protocol: str, call: McpCall) -> None:
        self.protocol = protocol
        self._call = call

    def follow(self, call: McpCall) -> None:
        self._call = call

    @property
    def capabilities(self) -> JsonObject:
        return self._call.client.capabilities

    async def ask(self, method: str, params: Raw) -> Raw:
        """See `Caller.ask`. What the client did not say that it can is answered for it.

        Once the call is answered, and its run goes on or waits, the client is asked outside of it where that can be.
        """
        needed = ASKABLE.get(method)
        if needed is None or not self._call.client.can(needed):
            raise RpcError(METHOD_NOT_FOUND, f"the client does not take {method}", {"method": method})
        try:
            return await self._asked(method, params)
        except AgentGone as error:
            raise Unavailable(f"the client has gone: {error}") from None

    def tell(self, method: str, params: Raw) -> None:
        """See `Caller.tell`. The agent's own log reaches a client from the level on that it asked for."""
        if method != MESSAGE or heard(self._call, params):
            self._call.notify(method, params)

    async def _asked(self, method: str, params: Raw) -> Raw:
        call = self._call
        if call.can_ask:
            try:
                return await call.ask(method, params)
            except AgentGone:
                if not call.session.can_ask:
                    raise
        return await call.session.ask(method, params)


class ClientRuns:
    """One per gateway process and protocol.

    `protocol`: the adapter's name, in whose words clients speak. `who`: whom a call's client is known to be.
    """

    def __init__(
        self,
        protocol: str,
        gateway: Gateway,
        *,
        who: Callable[[McpCall], Identity | None] = lambda call: None,
    ) -> None:
        self.protocol = protocol
        self.gateway = gateway
        self.documents = Documents(protocol)
        self.tools = Tools(self.documents)
        self.quiet = False
        self._who = who
        self._callers: WeakValueDictionary[str, CallCaller] = WeakValueDictionary()  # by run, which holds it
        self._work = TaskSet(lambda error: log.debug("for whoever still waits: %r", error))
        self.whole = self._work.whole
        """Awaits a change of the gateway's records."""
        self._tokens: set[tuple[str, bool, Any]] = set()

    def go_quiet(self) -> None:
        """The gateway stops: a call that ends from now on was not given up by its client."""
        self.quiet = True

    # --- agents -----------------------------------------------------------------------------------------------

    def of(self, session: McpSession) -> Gateway:
        """The gateway as it is for the session's client."""
        return self.gateway if session.visit is None else ScopedGateway(self.gateway, session.visit)

    def names(self, session: McpSession) -> Sequence[str]:
        """The agents that a session may see and call."""
        names = self.of(session).agents.names(self.protocol)
        return names if session.agent is None else [name for name in names if name == session.agent]

    async def agent(self, session: McpSession, name: str, path: str = "/name") -> Agent:
        """One of them, by name or UUID. Raises NotFound with the names there are."""
        with contextlib.suppress(NotFound):
            agent = await self.of(session).agents.get(name, self.protocol)
            if session.agent in (None, agent.name):
                return agent
        raise NotFound(f"{path}: no agent {name}; there are {', '.join(self.names(session)) or 'none'}")

    async def agents(self, names: Sequence[str]) -> list[Agent]:
        """Those of them that are there still, described."""
        found = await asyncio.gather(*(self._described(name) for name in names))
        return [agent for agent in found if agent is not None]

    async def _described(self, name: str) -> Agent | None:
        try:
            return await self.gateway.agents.get(name, self.protocol, within=LIST_SECONDS)
        except NotFound:
            return None

    # --- runs -------------------------------------------------------------------------------------------------

    async def start(
        self,
        request: RunRequest,
        call: McpCall,
        *,
        files: Sequence[Attachment] = (),
        outlives: bool = False,
        told: bool = True,
    ) -> Run:
        """`Gateway.runs.start`; a run that starts while its client takes the call back is cancelled. `outlives`: not so
        where that is because the client's connection ends, nor where its token has expired. `told`: whether the client
        is told anything before the run has stopped.
        """
        asked = call.can_ask or call.session.can_ask
        caller = CallCaller(self.protocol, call) if asked else None
        work = self.of(call.session).runs.start(request, files=files, caller=caller, told=told)
        run = await (self._kept(work, call, outlives) if outlives or call.session.visit is not None else work)
        if caller is not None:
            self._callers[run.id] = caller
        return run

    async def _kept(self, work: Coroutine[Any, Any, Run], call: McpCall, outlives: bool) -> Run:
        """Start a run that may be kept although its call is cancelled meanwhile."""
        starting = asyncio.ensure_future(work)
        try:
            return await self.whole(starting)
        except asyncio.CancelledError:
            if not left(call.session, outlives=outlives):
                starting.add_done_callback(self._unwanted)
            raise

    def goes_on(self, run: Run, call: McpCall) -> None:
        """A run that waited is followed by another call now: its agent may ask that one's client."""
        caller = self._callers.get(run.id)
        if caller is not None and (call.can_ask or call.session.can_ask):
            caller.follow(call)

    def cancel(self, run_id: str) -> None:
        """Cancel a run whose call was given up, in the background. While the gateway stops, runs go on."""
        if self.quiet:
            return
        self._work.start(self._cancel(run_id))

    async def answer(self, call: McpCall, run_id: str, answer: Answer, interrupt_id: str) -> None:
        """`Gateway.runs.answer`, by the call's client."""
        by = self._who(call)
        gateway = self.of(call.session)
        await self.whole(gateway.runs.answer(run_id, answer if by is None else replace(answer, by=by), interrupt_id))

    async def settled(self) -> None:
        await self._work.settled()

    @contextlib.contextmanager
    def progressing(self, call: McpCall) -> Iterator[None]:
        """While a call lasts, its progress token is its own. Raises Invalid if another call has it."""
        token = call.progress_token
        if token is None:
            yield
            return
        mark = (call.session.id, isinstance(token, str), token)
        if mark in self._tokens:
            raise Invalid(f"{TOKEN_PATH}: another request that is under way has the same", path=TOKEN_PATH)
        self._tokens.add(mark)
        try:
            yield
        finally:
            self._tokens.discard(mark)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _cancel(self, run_id: str) -> None:
        try:
            await self.gateway.runs.cancel(run_id, reason="cancelled by the client")
        except InterlinguaError as error:
            log.debug("run %s goes on: %s", run_id, error)

    def _unwanted(self, started: asyncio.Future[Run]) -> None:
        if not started.cancelled() and started.exception() is None:
            self.cancel(started.result().id)


def left(session: McpSession, *, outlives: bool) -> bool:
    """Whether a call that is cancelled was not given up by its client: its connection has gone, which the run
    `outlives`, or was ended because its token had expired.
    """
    expired = session.visit is not None and session.visit.expired
    return (outlives or expired) and not session.alive
