"""The questions of a run's agent, and their answers; what its input lacks is asked before the run is sent.

That is an ordinary interrupt of kind `input`, whose answer schema is the form of `gateway.contract.filling`. An
answer that is committed and not yet merged when the gateway dies is given again to the same question; the question that
is open is asked again as it is. What the answers make is committed together with the mark that the run is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

from msgspec.structs import replace

from gateway import tracing
from gateway.agents.entry import Entry
from gateway.contract.filling import Filled, joined
from gateway.core import delta, wording
from gateway.core import events as e
from gateway.core.errors import Conflict, InterlinguaError, Invalid
from gateway.core.stream import Item
from gateway.core.types import Answer, Interrupt, Json, Outcome, Run, RunStatus
from gateway.runs.run_record import RunRecord
from gateway.transport.waiting import Deadline

CANCELLED: Final = Answer(outcome=Outcome.CANCELLED)


class Clock(Deadline):
    """A run's time: a deadline that can be paused while it is entered, by several at once: while a person is asked."""

    _pauses: int = 0
    _left: float | None = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time does not count inside."""
        self._pauses += 1
        if self._pauses == 1 and self.due is not None:
            self._left = max(0.0, self.due - asyncio.get_running_loop().time())
            self.move(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._left is not None:
                self.move(asyncio.get_running_loop().time() + self._left)
                self._left = None


class AskingRun(Protocol):
    """The run whose agent asks."""

    span: tracing.RunSpan | None

    @property
    def closed(self) -> bool:
        """Whether no question is put any more: the run is cancelled, or ends."""

    @property
    def gone(self) -> bool:
        """Whether the run has ended, or the gateway has let go of it: its open questions stay as they are."""

    async def answer(self, answer: Answer, interrupt_id: str | None) -> None:
        """Commit an answer, as `LiveRun.answer` does."""


class Questions:
    """The questions of one run. Holds no reference to the run: an ended run is freed at once, not by a collection."""

    def __init__(self, record: RunRecord, clock: Clock) -> None:
        self.given: dict[str, Answer] = {}
        """Answers committed before a restart, by interrupt id: given again when the agent asks again."""
        self.waiting: dict[str, asyncio.Future[Answer]] = {}
        """Of each open question, the answer that its adapter waits for."""
        self._record = record
        self._clock = clock

    async def ask(self, asker: AskingRun, interrupt: Interrupt) -> Answer:
        record = self._record
        async with record.lock:  # an answer to it that is being written has been given, or it has not
            interrupt = self._named(delta.sound(interrupt))
            if interrupt.id in self.given:
                return self.given.pop(interrupt.id)
            if asker.closed:
                return CANCELLED
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self.waiting[interrupt.id] = future
        withdrawn = False
        try:
            await record.change(self._put(asker, interrupt, future))
            with self._clock.paused():
                return await future
        except asyncio.CancelledError:
            withdrawn = not asker.gone
            raise
        finally:
            if withdrawn:  # its name stays taken until that is written: it is no answer for whoever asks under it again
                record.keep(asyncio.ensure_future(self._withdraw(asker, interrupt.id)))
            else:
                del self.waiting[interrupt.id]

    def _named(self, interrupt: Interrupt) -> Interrupt:
        """The question under a name of its own: its agent's, with a count where an earlier question has that name and
        waits for its answer or was answered.
        """
        item, name, count = self._record.log.opener.state.item, interrupt.id, 1
        while name in self.waiting or item("interrupt", name) is Item.CLOSED:
            count += 1
            following = f"{interrupt.id}#{count}"
            if name in self.given and item("interrupt", following) is Item.ABSENT:
                break  # the newest of before a restart: its answer was not delivered yet
            name = following
        return replace(interrupt, id=name)

    async def _put(self, asker: AskingRun, interrupt: Interrupt, answer: asyncio.Future[Answer]) -> None:
        record = self._record
        async with record.lock:
            asked = record.log.opener.state.item("interrupt", interrupt.id) is Item.OPEN
            if asked or answer.done() or asker.closed:  # the last two set the answer
                return
            if asker.span is not None:
                asker.span.record_interrupt(interrupt)
            interrupts = (*record.run.interrupts, interrupt)
            run = replace(record.run, status=RunStatus.INTERRUPTED, interrupts=interrupts, updated_at=time.time())
            await record.write((e.Interrupted(interrupt=interrupt),), run)

    async def answer(
        self,
        answer: Answer,
        interrupt_id: str | None,
        *,
        cancelled: bool,
        span: tracing.RunSpan | None,
        accepts: Callable[[Interrupt, Answer], Awaitable[bool]] | None = None,
    ) -> None:
        """Commit an answer to an open interrupt and hand it to the adapter. Raises Conflict if none is open, or the run
        is `cancelled`. One that `accepts` does not accept leaves the question open.
        """
        record = self._record
        async with record.lock:
            interrupts = record.run.interrupts
            chosen = next((i for i in interrupts if interrupt_id in (None, i.id)), None)
            if chosen is None or cancelled:
                raise Conflict("the run is not waiting for an answer")
            if accepts is not None and not await accepts(chosen, answer):
                return
            left = tuple(i for i in interrupts if i.id != chosen.id)
            status = RunStatus.INTERRUPTED if left else RunStatus.RUNNING
            run = replace(record.run, status=status, interrupts=left, updated_at=time.time())
            await record.write((e.Resumed(interrupt=chosen.id, answer=answer),), run)
        if span is not None:
            span.record_answer(chosen.id, answer.outcome)
        future = self.waiting.get(chosen.id)
        if future is None:  # a re-attached adapter has not asked again yet
            self.given[chosen.id] = answer
        elif not future.done():
            future.set_result(answer)

    async def _withdraw(self, asker: AskingRun, interrupt_id: str) -> None:
        """The agent does not wait for this answer any more."""
        try:
            with contextlib.suppress(InterlinguaError):
                await asker.answer(CANCELLED, interrupt_id)
        finally:
            del self.waiting[interrupt_id]

    def cancel_all(self) -> None:
        """Give every open question the answer `cancelled`."""
        for future in self.waiting.values():
            if not future.done():
                future.set_result(CANCELLED)


# --- what a run's input lacks ----------------------------------------------------------------------------------------

KIND: Final = "input"
TRIES: Final = 5
"""How often is asked; each answer fits its form, but may not fit the rest of the input."""


class NotGiven(Exception):
    """The question was declined or cancelled: the run ends cancelled."""


class IncompleteRun(Protocol):
    """The run in progress."""

    entry: Entry

    @property
    def run(self) -> Run:
        """The run as it is now."""

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the caller, as `RunContext.ask` does."""


async def completed(run: IncompleteRun, filled: Filled | None) -> Json:
    """The run's input with what was missing. `filled`: what is missing, None if that is not known after a restart.

    Raises NotGiven, Invalid if it still does not fit, the errors of `Entry.need`.
    """
    agent = await run.entry.need()
    filling = run.entry.filling(agent)
    document = run.run.request.input
    open_ = next((asked for asked in run.run.interrupts if asked.kind == KIND), None)
    if open_ is not None:
        filled = Filled(_so_far(open_, document), open_.answer_schema)
    elif filled is None:
        filled = filling.completed(document)
    for _ in range(TRIES):
        if filled.form is None:
            break
        answer = await run.ask(open_ or question(agent.name, filled))
        open_ = None
        if answer.outcome is not Outcome.ANSWERED:
            raise NotGiven(f"the input was not completed: the question was {answer.outcome.value}")
        filled = filling.completed(joined(filled.document, answer.value))
    else:
        if filled.form is not None:
            raise Invalid(filled.why or "the input is not complete", path="/input")
    run.entry.validate("input", agent.input_schema, filled.document, "/input")
    return filled.document


def question(name: str, filled: Filled) -> Interrupt:
    """The question for what is missing; its payload has the form too, and the input as far as it is known."""
    form = filled.form or {}
    names = ", ".join(leaf.name for leaf in wording.leaves(form))
    message = f"{name} needs more input: {names}" if names else f"{name} needs an input: {wording.kind(form)}"
    return Interrupt(
        id=KIND,
        kind=KIND,
        message=f"{filled.why}\n\n{message}" if filled.why else message,
        payload={"message": message, "schema": form, "input": filled.document},
        answer_schema=form,
    )


def _so_far(asked: Interrupt, document: Json) -> Json:
    """The input as it was when the question was asked."""
    return asked.payload.get("input", document) if isinstance(asked.payload, dict) else document
