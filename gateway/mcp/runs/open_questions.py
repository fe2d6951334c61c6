"""The questions of runs: put to the client of the call that follows a run, or answered by a later call.

A client that can be asked is asked one question after the other, oldest first; an answer from elsewhere withdraws the
question. A question that no form can show, or whose client takes none, ends the call: its answer carries the question
and a handle, or (2026-07-28) a state, and the call that brings it back answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from gateway.core import events as e
from gateway.core.errors import AgentGone, Conflict, Denied, InterlinguaError, Invalid, NotFound
from gateway.core.types import Agent, Answer, Interrupt, Json, JsonObject, Outcome, Run
from gateway.mcp.runs import questions
from gateway.mcp.runs.client_runs import ClientRuns
from gateway.mcp.runs.log_messages import Log
from gateway.mcp.runs.questions import ELICITATION, QuestionFormat
from gateway.mcp.server.contract import InputRequired, McpCall
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import INVALID_REQUEST, RpcError

log = logging.getLogger(__name__)

STATE_PATH: Final = "/requestState"
TRIES: Final = 3
"""How often a question is put to a client whose answers do not fit; then it is declined."""


def state_of(run_id: str, misses: int = 0) -> str:
    """The state that a modern client sends back: the run, and how many answers did not fit."""
    return f"{run_id}.{misses}"


class Given(msgspec.Struct, frozen=True):
    """The answer that a call brings: `value`, at `place` in the params. `path` is its handle's; `make` makes it."""

    path: str
    value: Json
    place: str
    make: Callable[[Interrupt], Answer]


class WaitingRuns:
    """Finds runs that wait for an answer. One per gateway process."""

    def __init__(
        self,
        runs: ClientRuns,
        *,
        may: Callable[[McpCall, Run], bool] = lambda call, run: True,
        over: int = INVALID_REQUEST,
    ) -> None:
        """`may`: whether a call's client may answer the run's questions; it raises why nobody may. `over`: code of the
        error for one that is open no more.
        """
        self._runs = runs
        self._may = may
        self._code = over

    async def answer(self, call: McpCall, handle: tuple[str, str], agent: Agent, given: Given) -> Run:
        """Answer the question of a handle. Raises Invalid, and it stays open; RpcError where it is open no more."""
        run_id, interrupt_id = handle
        run = await self._run(call, agent.name, run_id, given.path)
        interrupt = next((each for each in run.interrupts if each.id == interrupt_id), None)
        if interrupt is None:
            raise self._over(run, agent)
        answer = given.make(interrupt)
        self._runs.goes_on(run, call)
        try:
            await self._runs.answer(call, run.id, answer, interrupt.id)
        except Invalid as error:
            place = given.place if answer.value is given.value else f"{given.place}/{questions.ANSWER}"
            raise elsewhere(error, {"": place}) from None
        except Conflict:
            raise self._over(await self._runs.of(call.session).runs.get(run.id), agent) from None
        return run

    async def again(self, call: McpCall, agent: Agent, state: str, responses: JsonObject | None) -> Run:
        """Return the run whose questions a modern client answers. A question that is closed by now needs no answer.

        An answer that does not fit is asked for again, with the reason, until it was asked for often enough.
        """
        run_id, missed = questions.named(state, STATE_PATH)
        run = await self._run(call, agent.name, run_id, STATE_PATH)
        misses = int(missed) + 1 if missed.isdecimal() else 1
        unfit: JsonObject = {}
        for interrupt in run.interrupts:
            if interrupt.id not in (responses or ()):
                continue
            why = await self._take(call, run, interrupt, ELICITATION.answer(interrupt, (responses or {})[interrupt.id]))
            form = None if why is None else ELICITATION.form(interrupt, call)
            if form is not None and misses < TRIES:
                unfit[interrupt.id] = {"method": form[0], "params": ELICITATION.again(form[1], str(why))}
            elif why is not None:
                await self._take(call, run, interrupt, Answer(outcome=Outcome.DECLINED))
        if unfit:
            raise InputRequired(unfit, state_of(run.id, misses))
        return run

    async def _take(self, call: McpCall, run: Run, interrupt: Interrupt, answer: Answer) -> Invalid | None:
        """Hand an answer on; Invalid where it does not fit. One that comes too late is passed over."""
        try:
            await self._runs.answer(call, run.id, answer, interrupt.id)
        except Conflict:
            return None
        except Invalid as why:
            return why
        return None

    async def _run(self, call: McpCall, name: str, run_id: str, path: str) -> Run:
        """The run, if it is one of that agent that was started here, and the client's: who does not know it learns
        nothing of others.
        """
        try:
            run = await self._runs.of(call.session).runs.get(run_id)
        except NotFound:
            run = None
        known = run is not None and run.request.protocol == self._runs.protocol and run.agent == name
        if run is None or not known or not self._may(call, run):
            raise Invalid(f"{path}: no run of agent {name} has this question", path=path)
        return run

    def _over(self, run: Run, agent: Agent) -> RpcError:
        """The error for a question that was answered already: it has the state of the run."""
        data: JsonObject = {"code": Conflict.code, "run": run.id, "status": run.status.value}
        said = f"this question is open no more; its run is {run.status.value}"
        if run.failure is not None:
            said = f"{said}: {run.failure.message}"
        if run.status.ended and bytes(run.output) != b"null":
            data["output"] = Raw(self._runs.documents.output_of(agent, bytes(run.output)))
        return RpcError(self._code, said, data)


def elsewhere(error: Invalid, places: Mapping[str, str]) -> Invalid:
    """The complaint with the place in the params; the longest beginning that is known counts."""
    before = max((each for each in places if error.path.startswith(each)), key=len, default=None)
    if before is None:
        return error
    path = places[before] + error.path.removeprefix(before)
    told = str(error)
    said = told.removeprefix(f"{error.path or '/'}: ")
    return Invalid(f"{path}: {said}" if said != told else told, path=path, detail=error.detail)


class OpenQuestions:
    """The open questions of one run. Fed every interrupt and answer in order; asks only when `ask` is called."""

    def __init__(self, runs: ClientRuns, call: McpCall, run_id: str, asker: QuestionFormat, log: Log) -> None:
        self._runs = runs
        self._call = call
        self._log = log
        self._run_id = run_id
        self._asker = asker
        self._open: dict[str, Interrupt] = {}
        self._formless: set[str] = set()
        self._asking: tuple[str, asyncio.Task[None]] | None = None
        self._answering: str | None = None

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> None:
        """Note questions, and their answers, given here or elsewhere."""
        for _, event in events:
            if type(event) is e.Interrupted:
                self._open[event.interrupt.id] = event.interrupt
            elif type(event) is e.Resumed:
                self._open.pop(event.interrupt, None)
                asking = self._asking
                if asking is not None and asking[0] == event.interrupt != self._answering:
                    asking[1].cancel()

    @property
    def under_way(self) -> asyncio.Task[None] | None:
        """Done when the client was asked something, and what it said was handed on."""
        return None if self._asking is None else self._asking[1]

    @property
    def any(self) -> bool:
        return bool(self._open)

    def forms(self) -> JsonObject:
        """Every open question that has a form: id -> request, for a client that is asked by an answer to its call."""
        found = {each.id: self._form(each) for each in self._open.values()}
        return {id: {"method": form[0], "params": form[1]} for id, form in found.items() if form is not None}

    def ask(self) -> Interrupt | None:
        """Ask the oldest question that has a form, unless one is being asked. To be called when the client has been
        told everything that came before. Returns the oldest question once only such are left that have none.
        """
        if self._asking is not None or not self._open:
            return None
        for interrupt in self._open.values():
            form = self._form(interrupt)
            if form is not None and self._call.can_ask:
                task = asyncio.create_task(self._ask(interrupt, form), name=f"question {interrupt.id}")
                self._asking = (interrupt.id, task)
                task.add_done_callback(self._over)
                return None
        return next(iter(self._open.values()))

    def leave(self) -> None:
        """Stop asking: the run is not followed any more. Open questions stay open."""
        if self._asking is not None:
            self._asking[1].cancel()

    # --- inside -----------------------------------------------------------------------------------------------

    def _form(self, interrupt: Interrupt) -> tuple[str, JsonObject] | None:
        return None if interrupt.id in self._formless else self._asker.form(interrupt, self._call)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._asking = self._answering = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("run %s: asking the client failed", self._run_id, exc_info=error)

    async def _ask(self, interrupt: Interrupt, form: tuple[str, JsonObject]) -> None:
        """Ask until an answer fits. The question is closed here before the log says so: it is not asked twice."""
        method, params = form
        shown = params
        for _ in range(TRIES):
            answer = await self._answer_to(interrupt, method, shown)
            if answer is None:
                return
            why = await self._commit(interrupt, answer)
            if why is None:
                return
            shown = self._asker.again(params, str(why))
        await self._commit(interrupt, Answer(outcome=Outcome.DECLINED))

    async def _answer_to(self, interrupt: Interrupt, method: str, params: JsonObject) -> Answer | None:
        """Return the client's answer; None if it cannot give one. Whatever is unclear is a refusal."""
        try:
            result: Any = jsonrpc.unpack(await self._call.ask(method, params))
            return self._asker.answer(interrupt, result)
        except AgentGone:
            self._formless.add(interrupt.id)
            return None
        except RpcError as error:
            if error.error.code == jsonrpc.METHOD_NOT_FOUND:
                self._formless.add(interrupt.id)
                return None
            log.info("run %s: the client answers the question %s with %s", self._run_id, interrupt.id, error)
        except (InterlinguaError, ValueError) as error:
            log.info("run %s: the answer to %s cannot be read: %s", self._run_id, interrupt.id, error)
        return Answer(outcome=Outcome.DECLINED)

    async def _commit(self, interrupt: Interrupt, answer: Answer) -> Invalid | None:
        """Hand the answer on; Invalid where it does not fit, which leaves the question open."""
        self._answering = interrupt.id
        try:
            await self._runs.answer(self._call, self._run_id, answer, interrupt.id)
        except Invalid as error:
            self._answering = None
            return error
        except Denied as error:  # it stays open for others, and the call goes on
            self._log.refused(interrupt.id, error)
        except InterlinguaError as error:
            log.info("run %s: an answer came to nothing: %s", self._run_id, error)
        self._open.pop(interrupt.id, None)
        return None
