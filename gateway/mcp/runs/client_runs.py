"""Shared by all calls of a protocol: the gateway, the agents that a session sees, the progress tokens in use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.structs import replace

from gateway.access import ScopedGateway
from gateway.contract import LIST_SECONDS, Gateway
from gateway.core.errors import AgentGone, Conflict, InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.files import Attachment
from gateway.core.types import (
    NULL,
    Agent,
    Answer,
    Identity,
    Interrupt,
    Json,
    JsonObject,
    Outcome,
    Run,
    RunRequest,
)
from gateway.mcp import versions, wire
from gateway.mcp.runs import questions
from gateway.mcp.runs.documents import Documents
from gateway.mcp.runs.keys import OUTCOME
from gateway.mcp.runs.log_messages import heard
from gateway.mcp.runs.questions import ELICITATION, given
from gateway.mcp.runs.tools import Tools
from gateway.mcp.server.contract import InputRequired, McpCall, McpSession
from gateway.mcp.wire import MESSAGE, ROOTS, SAMPLE
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, RpcError

log = logging.getLogger(__name__)

TOKEN_PATH = "/_meta/progressToken"

ASKABLE: Final[Mapping[str, str]] = {SAMPLE: "sampling", ROOTS: "roots"}
"""Requests of an agent other than questions -> the capability without which the client is not asked.

Clients made with some SDKs break off at a request that they do not know.
"""


Make: TypeAlias = Callable[[Interrupt, Json, Json], Answer]
"""(question, value, outcome) -> the answer that a call gives. Raises Invalid."""


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

    `protocol`: the adapter's name, in whose words clients speak. `who`: whom a call's client is known to be. `may`:
    whether it may answer a run's questions; it raises why nobody may. `over`: code of the error for a question that is
    open no more.
    """

    def __init__(
        self,
        protocol: str,
        gateway: Gateway,
        *,
        who: Callable[[McpCall], Identity | None] = lambda call: None,
        may: Callable[[McpCall, Run], bool] = lambda call, run: True,
        over: int = INVALID_REQUEST,
    ) -> None:
        self.protocol = protocol
        self.gateway = gateway
        self.documents = Documents(protocol)
        self.tools = Tools(self.documents)
        self.quiet = False
        self._who = who
        self._may = may
        self._code = over
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

    def _goes_on(self, run: Run, call: McpCall) -> None:
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

    # --- runs that wait for an answer -------------------------------------------------------------------------

    async def answered(self, call: McpCall, agent: Agent, value: Json, place: str, make: Make = given) -> Run | None:
        """The run whose question a call answers with a value, at `place` in the params: by a handle in its `_meta`, or
        as in `returned`. None for a call that asks for something new. Raises what those do.
        """
        run = await self.returned(call, agent)
        handle = None if run is not None else questions.resumed(call.meta)
        if handle is None:
            return run
        outcome = call.meta.get(OUTCOME)
        return await self.resumed(
            call,
            agent,
            handle,
            value,
            place,
            path=questions.RESUME_PATH,
            make=lambda asks: make(asks, value, outcome),
        )

    async def resumed(
        self,
        call: McpCall,
        agent: Agent,
        handle: tuple[str, str],
        value: Json,
        place: str,
        *,
        path: str,
        make: Callable[[Interrupt], Answer],
    ) -> Run:
        """Answer the question of a handle (at `path`) with a value (at `place`). `make` makes the answer of it.

        Raises Invalid, and it stays open; RpcError where it is open no more.
        """
        run_id, interrupt_id = handle
        run = await self._waiting(call, agent.name, run_id, path)
        interrupt = next((each for each in run.interrupts if each.id == interrupt_id), None)
        if interrupt is None:
            raise self._over(run, agent)
        answer = make(interrupt)
        self._goes_on(run, call)
        try:
            await self.answer(call, run.id, answer, interrupt.id)
        except Invalid as error:
            place = place if answer.value is value else f"{place}/{questions.ANSWER}"
            raise questions.elsewhere(error, {"": place}) from None
        except Conflict:
            raise self._over(await self.of(call.session).runs.get(run.id), agent) from None
        return run

    async def returned(self, call: McpCall, agent: Agent) -> Run | None:
        """The run that a modern client comes back to, with answers to its questions; None for any other call. A
        question that is closed by now needs no answer.

        An answer that does not fit is asked for again, with the reason, until it was asked for often enough. Raises
        Invalid, and InputRequired.
        """
        if not versions.modern(call.client.version):
            return None
        said = jsonrpc.read(call.params, wire.ReturnedParams)
        if said.requestState is None:
            return None
        run_id, missed = questions.named(said.requestState, questions.STATE_PATH)
        run = await self._waiting(call, agent.name, run_id, questions.STATE_PATH)
        misses = int(missed) + 1 if missed.isdecimal() else 1
        responses = said.inputResponses or {}
        unfit: JsonObject = {}
        for interrupt in run.interrupts:
            if interrupt.id not in responses:
                continue
            why = await self._take(call, run, interrupt, ELICITATION.answer(interrupt, responses[interrupt.id]))
            form = None if why is None else ELICITATION.form(interrupt, call)
            if form is not None and misses < questions.TRIES:
                unfit[interrupt.id] = {"method": form[0], "params": ELICITATION.again(form[1], str(why))}
            elif why is not None:
                await self._take(call, run, interrupt, Answer(outcome=Outcome.DECLINED))
        if unfit:
            raise InputRequired(unfit, questions.state_of(run.id, misses))
        return run

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

    async def _take(self, call: McpCall, run: Run, interrupt: Interrupt, answer: Answer) -> Invalid | None:
        """Hand an answer on; Invalid where it does not fit. One that comes too late is passed over."""
        try:
            await self.answer(call, run.id, answer, interrupt.id)
        except Conflict:
            return None
        except Invalid as why:
            return why
        return None

    async def _waiting(self, call: McpCall, name: str, run_id: str, path: str) -> Run:
        """The run, if it is one of that agent that was started here, and the client's: who does not know it learns
        nothing of others.
        """
        try:
            run = await self.of(call.session).runs.get(run_id)
        except NotFound:
            run = None
        known = run is not None and run.request.protocol == self.protocol and run.agent == name
        if run is None or not known or not self._may(call, run):
            raise Invalid(f"{path}: no run of agent {name} has this question", path=path)
        return run

    def _over(self, run: Run, agent: Agent) -> RpcError:
        """The error for a question that was answered already: it has the state of the run."""
        data: JsonObject = {"code": Conflict.code, "run": run.id, "status": run.status.value}
        said = f"this question is open no more; its run is {run.status.value}"
        if run.failure is not None:
            said = f"{said}: {run.failure.message}"
        if run.status.ended and run.output != NULL:
            data["output"] = Raw(self.documents.output_of(agent, bytes(run.output)))
        return RpcError(self._code, said, data)

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
