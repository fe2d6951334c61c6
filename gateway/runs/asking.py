"""What the agent of a run asks in mid-run, and who answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import Conflict, InterlinguaError
from gateway.core.state import Item
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.runs.clock import Clock
from gateway.runs.run_record import RunRecord

CANCELLED = Answer(outcome=Outcome.CANCELLED)


@dataclass(kw_only=True)
class Asking(RunRecord):
    """A part of `LiveRun`."""

    answered: dict[str, Answer] = field(default_factory=dict)
    """Answers committed before a restart, by interrupt id: given again to whoever asks again."""
    _asks: dict[str, asyncio.Future[Answer]] = field(default_factory=dict, init=False)
    _clock: Clock = field(init=False)

    @property
    def cancelled(self) -> bool:
        """True once a cancel was asked for."""
        return self.run.cancel_reason is not None

    async def ask(self, interrupt: Interrupt) -> Answer:
        async with self._record:  # an answer to it that is being written has been given, or it has not
            interrupt = self._named(delta.sound(interrupt))
            if interrupt.id in self.answered:
                return self.answered.pop(interrupt.id)
            if self.cancelled or self._ending:
                return CANCELLED
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._asks[interrupt.id] = future
        withdrawn = False
        try:
            await self._whole.change(self._ask(interrupt, future))
            with self._clock.paused():
                return await future
        except asyncio.CancelledError:
            withdrawn = not (self.detached or self.ended)
            raise
        finally:
            if withdrawn:  # its name stays taken until that is written: it is no answer for who asks under it again
                self.keep(asyncio.ensure_future(self._withdrawn(interrupt.id)))
            else:
                del self._asks[interrupt.id]

    def _named(self, interrupt: Interrupt) -> Interrupt:
        """The question under a name of its own: its agent's, with a count where that is another's, whose answer is
        awaited or was given.
        """
        item, name, count = self.opener.state.item, interrupt.id, 1
        while name in self._asks or item("interrupt", name) is Item.CLOSED:
            count += 1
            following = f"{interrupt.id}#{count}"
            if name in self.answered and item("interrupt", following) is Item.ABSENT:
                break  # the newest of before a restart: who asks it again has had no answer
            name = following
        return replace(interrupt, id=name)

    async def _ask(self, interrupt: Interrupt, answer: asyncio.Future[Answer]) -> None:
        async with self._record:
            asked = self.opener.state.item("interrupt", interrupt.id) is Item.OPEN
            if asked or answer.done() or self.cancelled or self._ending:  # the two of which see to it that it is done
                return
            if self.span is not None:
                self.span.record_interrupt(interrupt)
            interrupts = (*self.run.interrupts, interrupt)
            run = replace(self.run, status=RunStatus.INTERRUPTED, interrupts=interrupts, updated_at=time.time())
            await self._write((e.Interrupted(interrupt=interrupt),), run)

    async def answer(self, answer: Answer, interrupt_id: str | None) -> None:
        """Commit an answer to an open interrupt and hand it to the adapter. Raises Conflict."""
        await self._whole.change(self._answer(answer, interrupt_id))

    async def _answer(self, answer: Answer, interrupt_id: str | None) -> None:
        async with self._record:
            interrupts = self.run.interrupts
            chosen = next((i for i in interrupts if interrupt_id in (None, i.id)), None)
            if chosen is None or self.cancelled:
                raise Conflict("the run is not waiting for an answer")
            left = tuple(i for i in interrupts if i.id != chosen.id)
            status = RunStatus.INTERRUPTED if left else RunStatus.RUNNING
            run = replace(self.run, status=status, interrupts=left, updated_at=time.time())
            await self._write((e.Resumed(interrupt=chosen.id, answer=answer),), run)
        if self.span is not None:
            self.span.record_answer(chosen.id, answer.outcome)
        future = self._asks.get(chosen.id)
        if future is None:  # a re-attached adapter has not asked again yet
            self.answered[chosen.id] = answer
        elif not future.done():
            future.set_result(answer)

    async def _withdrawn(self, interrupt_id: str) -> None:
        """The agent does not wait for this answer any more."""
        try:
            with contextlib.suppress(InterlinguaError):
                await self.answer(CANCELLED, interrupt_id)
        finally:
            del self._asks[interrupt_id]

    def _answer_all(self) -> None:
        """Whoever waits for an answer is told that none will come."""
        for future in self._asks.values():
            if not future.done():
                future.set_result(CANCELLED)
