"""The questions of a run, put to the client of the call that follows it.

A client that can be asked is asked one question after the other, oldest first; an answer from elsewhere withdraws the
question. A question that no form can show, or whose client takes none, ends the call: its answer carries the question
and a handle, or (2026-07-28) a state, and the call that brings it back answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from gateway.core import events as e
from gateway.core.errors import AgentGone, Denied, InterlinguaError, Invalid
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from gateway.mcp.runs import questions
from gateway.mcp.runs.client_runs import ClientRuns
from gateway.mcp.runs.log_messages import Log
from gateway.mcp.runs.questions import QuestionFormat
from gateway.mcp.server.contract import McpCall
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


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
        for _ in range(questions.TRIES):
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
            result: Any = jsonrpc.unpack(await self._asker.ask(self._call, method, params))
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
