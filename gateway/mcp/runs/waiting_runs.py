"""Runs that wait for an answer, and the calls that bring it: by a handle, or by a state that comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.errors import Conflict, Invalid, NotFound
from gateway.core.types import Agent, Answer, Interrupt, Json, JsonObject, Outcome, Run
from gateway.mcp.runs import questions
from gateway.mcp.runs.client_runs import ClientRuns
from gateway.mcp.runs.question_format import ELICITATION
from gateway.mcp.server.contract import InputRequired, McpCall
from gateway.wire.jsonrpc import INVALID_REQUEST, RpcError

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
        """`may`: whether a call's client may answer the run's questions; `over`: code of the error for one that is
        open no more.
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
