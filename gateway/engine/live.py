"""One run in progress: the `RunContext` that an outbound adapter sees, and the only writer of the run's record."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway import tracing
from gateway.adapter import Outbound, RunGovernor, TargetOptions
from gateway.core import events as e
from gateway.core.errors import Conflict, InterlinguaError, Unsupported
from gateway.core.state import Item
from gateway.core.stream import Opener
from gateway.core.types import (
    Answer,
    Interrupt,
    JsonObject,
    Outcome,
    Run,
    RunStatus,
    ThreadUpdate,
)
from gateway.engine import ending
from gateway.engine.beside import Beside
from gateway.engine.clock import Clock
from gateway.engine.filing import Filing
from gateway.engine.log import RunLog
from gateway.engine.rules import Hooks
from gateway.engine.unwritten import Unwritten, failed
from gateway.engine.whole import Whole
from gateway.store import Change, Delivery

log = logging.getLogger(__name__)

BACKLOG_BYTES = 8 * 1024 * 1024
CANCEL_CALL_SECONDS = 5.0


@dataclass(kw_only=True)
class LiveRun(Filing, Beside):
    """See `gateway.adapter.RunContext` for the methods that outbound adapters call."""

    outbound: Outbound
    log: RunLog
    hooks: Hooks
    target: TargetOptions | None = None
    traceparent: str | None = None
    opener: Opener = field(default_factory=Opener)
    answered: dict[str, Answer] = field(default_factory=dict)
    """Answers committed before a restart, by interrupt id: given again to whoever asks again."""

    def __post_init__(self) -> None:
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self.span: tracing.RunSpan | None = None
        self.artifacts = []
        self.unwritten: Unwritten | None = None
        self.usage: e.UsageReported | None = None
        self._terminal: e.Event | None = None
        self._losses = dict(self.run.losses)
        self._record = asyncio.Lock()
        self._asks: dict[str, asyncio.Future[Answer]] = {}
        self._clock = Clock(self.settings.timeout)
        self._whole = Whole()
        self.keep = self._whole.keep
        self.detached = False
        self._ending = False
        self.governed: RunGovernor | None = None

    # --- what outbound adapters call ---------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """True once a cancel was asked for."""
        return self.run.cancel_reason is not None

    def emit(self, *events: e.Event) -> None:
        """See `RunContext.emit`."""
        if self._terminal is not None or self.ended:
            self.lost("late_event", len(events))
            return
        for at, event in enumerate(events):
            if type(event) is e.PartDelta:
                continue
            if isinstance(event, e.TERMINAL):
                self._terminal = event
                if len(events) > at + 1:
                    self.lost("late_event", len(events) - at - 1)
                events = events[:at]
                break
            if isinstance(event, e.UsageReported):
                self.usage = event
        if events:
            legal: list[e.Event] = []
            try:
                self.opener.feed(events, legal)
            finally:  # what came before an illegal event has happened: what follows builds on it
                self.log.append(legal)

    async def drain(self) -> None:
        """See `RunContext.drain`. Also ends the run if its terminal event was emitted."""
        if self._terminal is not None:
            await self.finish(self._terminal)
            return
        if self.log.holding:
            await self.log.settled()
        if self.store.backlog > BACKLOG_BYTES:
            await self.store.flush()
        if self.settings.backpressure:
            await self.log.readers_near()

    @property
    def flowing(self) -> bool:
        """See `RunContext.flowing`."""
        waits = self._terminal is not None or self.log.holding or self.settings.backpressure
        return not waits and self.store.backlog <= BACKLOG_BYTES

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None) -> None:
        """See `RunContext.set_upstream`."""
        async with self._record:
            self.run = replace(self.run, upstream=upstream)
            self.store.save(self.run)
        if thread is not None:
            await self.set_thread(thread)

    def note(self, update: ThreadUpdate) -> None:
        """See `ThreadContext.note`."""
        in_turn = self._terminal is None and not self.ended
        if in_turn:
            self.emit(e.Custom(name=update.protocol, data=update.data))
        if self.thread is not None and not (in_turn and update.kept):
            self.threads.note(self.thread.id, replace(update, after=self.run.id), tell=not in_turn)

    async def ask(self, interrupt: Interrupt) -> Answer:
        """See `RunContext.ask`."""
        if interrupt.id in self.answered:
            return self.answered.pop(interrupt.id)
        if self.cancelled or self.ended:
            return Answer(outcome=Outcome.CANCELLED)
        future = self._asks.get(interrupt.id)
        if future is None:
            future = self._asks[interrupt.id] = asyncio.get_running_loop().create_future()
        try:
            if self.opener.state.item("interrupt", interrupt.id) is Item.ABSENT:
                if self.span is not None:
                    self.span.record_interrupt(interrupt)
                await self._transition(
                    e.Interrupted(interrupt=interrupt),
                    lambda run: replace(run, status=RunStatus.INTERRUPTED, interrupts=(*run.interrupts, interrupt)),
                )
            with self._clock.paused():
                return await future
        except asyncio.CancelledError:
            if not (self.detached or self.ended):
                self.keep(asyncio.ensure_future(self._withdrawn(interrupt.id)))
            raise
        finally:
            self._asks.pop(interrupt.id, None)

    def lost(self, what: str, count: int = 1) -> None:
        """See `RunContext.lost`."""
        self._losses[what] = self._losses.get(what, 0) + count
        if self.span is not None:
            self.span.record_loss(what, count)

    # --- what the engine calls ---------------------------------------------------------------------------------

    async def drive(self, *, attach: bool = False) -> None:
        """Let the outbound adapter run, and commit the end whatever happens."""
        with tracing.run_span(self.run, self.agent, resumed=attach) as self.span:
            if not attach and self.target is not None and self.target.protocol != self.run.request.protocol:
                for what in self.run.request.native:
                    self.lost(what)
            with tracing.call_span(self.target.protocol if self.target else "", self.target) as call:
                self.traceparent = call.traceparent()
                end = await self._call(attach)
            await self.finish(end)

    async def _call(self, attach: bool) -> e.Event:
        """The outbound adapter's whole work; returns how the run ends. Raises only when the run is let go of."""
        try:
            with self._clock:
                await (self.outbound.attach(self) if attach else self.outbound.run(self))
            return self._terminal or ending.without_result()
        except asyncio.CancelledError:
            if self.detached:
                raise
            return e.RunCancelled(reason=self.run.cancel_reason or "cancelled")
        except TimeoutError:
            if self._clock.expired:
                self._tell_agent()
            return ending.timed_out(self.settings.timeout if self._clock.expired else None)
        except Exception as error:
            return ending.of_error(error, f"run {self.run.id} of {self.agent.name}")

    @property
    def held(self) -> bool:
        """Whether it is not yet to be sent when it starts. Then whoever sends it commits the mark before."""
        return False

    async def starts(self) -> None:
        """What is to be done before a governed run is created as one that runs."""

    async def started_not(self) -> None:
        """What is to be done where it then was not."""

    def replayed(self, events: Sequence[tuple[int, e.Event]]) -> None:
        """What is to be known of its log, of a run that was taken up again."""

    async def start(self) -> None:
        """Commit the start, and the dispatch mark, of a run that was created earlier (queued or scheduled)."""
        sent = not self.held
        await self._transition(e.RunStarted(), lambda run: replace(run, status=RunStatus.RUNNING, dispatched=sent))

    async def finish(self, end: e.Event) -> None:
        """Commit the end, once; tell everyone."""
        if self.ended or self._ending:
            return
        self._ending = True
        self._terminal = end
        await self._whole.change(self._finish(end))

    async def _finish(self, end: e.Event) -> None:
        if self.run.cancel_reason is not None and not isinstance(end, e.RunCancelled):
            end = e.RunCancelled(reason=self.run.cancel_reason)
        try:
            await self._commit_end(end)
        except Exception as error:  # whatever it is, the run has ended
            await failed(self, error)
        self.ended = True
        for future in self._asks.values():
            if not future.done():
                future.set_result(Answer(outcome=Outcome.CANCELLED))
        if self.span is not None:
            self.span.finish(self.run.status, usage=self.usage, tokens=self.log.last, failure=self.run.failure)
        self.log.close()
        self._whole.tell()
        self.hooks.ended(self)

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

    async def cancel(self, reason: str) -> None:
        """Store the wish, answer what is open as cancelled, tell the agent, and set the grace running."""
        await self._whole.change(self._cancel(reason))

    async def _cancel(self, reason: str) -> None:
        async with self._record:
            if self.ended or self.cancelled:
                return
            closed = tuple(
                e.Resumed(interrupt=i.id, answer=Answer(outcome=Outcome.CANCELLED)) for i in self.run.interrupts
            )
            status = RunStatus.RUNNING if self.run.interrupts else self.run.status
            run = replace(self.run, cancel_reason=reason, interrupts=(), status=status, updated_at=time.time())
            await self._write(closed, run)
        for future in list(self._asks.values()):
            if not future.done():
                future.set_result(Answer(outcome=Outcome.CANCELLED))
        if not self.run.dispatched or self.task is None:
            if self.task is not None:
                self.task.cancel()
            return
        self._tell_agent()
        asyncio.get_running_loop().call_later(self.settings.cancel_grace, self._grace_over)

    def detach(self) -> None:
        """Let go of the run without ending it: the gateway stops, and will find it again."""
        self.detached = True
        if self.task is not None:
            self.task.cancel()

    async def stopped(self, timeout: float | None) -> bool:
        """Wait until the run has ended or asks something; False when `timeout` seconds passed first."""
        return await self._whole.until(lambda: self.run.status.stopped, timeout)

    async def over(self) -> None:
        """Wait until the run has ended, answers and all."""
        await self._whole.until(lambda: self.ended, None)

    # --- inside ------------------------------------------------------------------------------------------------

    async def _withdrawn(self, interrupt_id: str) -> None:
        """The agent does not wait for this answer any more."""
        with contextlib.suppress(InterlinguaError):
            await self.answer(Answer(outcome=Outcome.CANCELLED), interrupt_id)

    async def _transition(self, event: e.Event, change: Callable[[Run], Run]) -> None:
        await self._whole.change(self._transit(event, change))

    async def _transit(self, event: e.Event, change: Callable[[Run], Run]) -> None:
        async with self._record:
            await self._write((event,), replace(change(self.run), updated_at=time.time()))

    async def _write(self, events: tuple[e.Event, ...], run: Run) -> None:
        """Commit a new record with its events. Called with `_record` held."""
        run = replace(run, losses=dict(self._losses))
        delivery = ending.delivery(run, self.run)
        thread = None
        async with self.threads.held(run.thread):
            if run.thread is not None and run.status is not self.run.status:
                thread = self.thread = await self.threads.noted(run)
            await self._commit(events, Change(run=run, thread=thread, delivery=delivery))
        self.run = run
        self.told(delivery)

    async def _commit_end(self, end: e.Event) -> None:
        await self.log.settled()  # the document is whole only when nothing is held back
        async with self._record, self.threads.held(self.run.thread):
            run = replace(self.run, updated_at=time.time(), losses=dict(self._losses))
            run, last = ending.concluded(run, end, self.log.output)
            delivery = ending.delivery(run, self.run)
            thread, checkpoint = None, None
            if run.thread is not None:
                thread, checkpoint = await self.threads.after_run(run, self.agent, self.artifacts)
            change = Change(run=run, thread=thread, checkpoint=checkpoint, delivery=delivery, release=True)
            await self._commit(last, change)
            self.run, self.thread = run, thread
        self.told(delivery)

    async def _commit(self, events: Sequence[e.Event], change: Change) -> None:
        """All of it, or nothing: what is not committed may be tried again."""
        legal = self.opener.feed(events)
        try:
            await self.log.commit(legal, change)
        except BaseException:
            self.opener.withdraw(legal)
            raise

    def told(self, delivery: Delivery | None) -> None:
        """Wake whoever waits for what the record says now, and have its webhook called."""
        if self.run.status.stopped:
            self._whole.tell()
        if delivery is not None:
            self.hooks.owed(delivery)

    def _tell_agent(self) -> None:
        self.keep(asyncio.ensure_future(self.call_cancel()))

    async def call_cancel(self) -> None:
        """Tell the agent to stop; whatever comes of it is counted or logged, never raised."""
        try:
            async with asyncio.timeout(CANCEL_CALL_SECONDS):
                await self.outbound.cancel(self)
        except Unsupported as error:
            self.lost("cancel_unsupported")
            log.info("run %s: %s", self.run.id, error)
        except (InterlinguaError, TimeoutError) as error:
            log.warning("run %s: the agent was not told of the cancel: %s", self.run.id, error)
        except Exception:
            log.exception("run %s: telling the agent of the cancel failed", self.run.id)

    def _grace_over(self) -> None:
        if self.ended or self._ending or self.task is None:
            return
        self.lost("upstream_may_still_run")
        self.task.cancel()
