"""One run in progress: the `RunContext` that an outbound adapter sees, from its dispatch to its end.

LiveRun     what the adapter says, and how the run is driven, cancelled and ended
  Asking    what its agent asks                              asking.py
    RunRecord  its record and its log, changed together      run_record.py
      RunFiles, Beside   its files, its conversation         run_files.py, beside.py
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway import tracing
from gateway.agents.directory import Entry
from gateway.config import Route
from gateway.contract import Outbound, RunGovernor
from gateway.contract.filling import Filled
from gateway.core import delta, files
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Unsupported
from gateway.core.memory import Recalled
from gateway.core.types import Checkpoint, Json, RunStatus, ThreadUpdate
from gateway.runs import ending
from gateway.runs.asking import CANCELLED, Asking
from gateway.runs.clock import Clock
from gateway.runs.completing import NotGiven, completed
from gateway.runs.memory import Conversation
from gateway.runs.states import States
from gateway.runs.unwritten import Unwritten, failed

log = logging.getLogger(__name__)

BACKLOG_BYTES = 8 * 1024 * 1024
CANCEL_CALL_SECONDS = 5.0


@dataclass(kw_only=True)
class LiveRun(Asking):
    """See `gateway.contract.RunContext` for the methods that outbound adapters call."""

    entry: Entry
    """Its agent as it was when the run was made: it keeps the target that it started with."""
    states: States
    outbound: Outbound = field(init=False)
    traceparent: str | None = field(default=None, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)
    """Its own, in which `Outbound.run` is called. See `_interrupt` for who cancels it."""
    governed: RunGovernor | None = field(default=None, init=False)
    unwritten: Unwritten | None = field(default=None, init=False)
    usage: e.UsageReported | None = field(default=None, init=False)
    incomplete: bool = field(default=False, init=False)
    """Something of its input is missing, as far as is known: it is asked for before the run is sent."""
    filled: Filled | None = field(default=None, init=False)
    """Its input as far as it was known when the run was made, where it was made here."""
    _terminal: e.Event | None = field(default=None, init=False)
    _calling: bool = field(default=False, init=False)
    """The outbound adapter is at work."""

    def __post_init__(self) -> None:
        self.outbound = self.entry.outbound
        self._route: Route = self.entry.route
        self._losses.update(self.run.losses)
        self.recalled = self.run.dispatched
        self._clock = Clock(self._route.timeout)

    # --- what outbound adapters call ---------------------------------------------------------------------------

    def emit(self, *events: e.Event) -> None:
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
            elif isinstance(event, e.TOOL_CALL_ENDS) and self.span is not None:
                self.span.record_tool(event)
        if events:
            legal: list[e.Event] = []
            try:
                self.opener.feed(events, legal)
            finally:  # what came before an illegal event has happened: what follows builds on it
                self.log.append(legal)

    async def drain(self) -> None:
        if self._terminal is not None:
            await self._whole.change(self.finish(self._terminal))
            return
        if self.log.holding:
            await self.log.settled()
        if self.log.wrong is not None:
            raise self.log.wrong
        if self.store.backlog > BACKLOG_BYTES:
            await self.store.flush()
        if self._route.backpressure:
            await self.log.readers_near()

    @property
    def flowing(self) -> bool:
        waits = self._terminal is not None or self.log.holding or self._route.backpressure
        return not waits and self.store.backlog <= BACKLOG_BYTES

    async def thread_state(self) -> Checkpoint | None:
        return None if self.thread is None else await self.states.for_run(self.thread, self.agent)

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        self.recalled = True
        request, thread = self.run.request, self.thread
        told = Recalled(input=request.input)
        if thread is not None and thread.begun and not knows:
            conversation = Conversation(self.store, thread, self.agent, self.entry, self.lost)
            told = await conversation.recalled(request.input, fresh=fresh)
        ids = files.referred(told.input, request.files)
        return replace(told, input=files.fill(told.input, await self.contents(ids))) if ids else told

    def note(self, update: ThreadUpdate) -> None:
        in_turn = self._terminal is None and not self.ended
        if in_turn:
            self.emit(e.Custom(name=update.protocol, data=update.data))
        if self.thread is not None and not (in_turn and update.kept):
            self.threads.note(self.thread.id, replace(update, after=self.run.id), tell=not in_turn)

    # --- what the engine calls ---------------------------------------------------------------------------------

    async def drive(self, *, attach: bool = False) -> None:
        """Let the outbound adapter run, and commit the end whatever happens."""
        with tracing.run_span(self.run, self.agent, resumed=attach) as self.span:
            for what, count in self._early:
                self.span.record_loss(what, count)
            target, request = self._route.target, self.run.request
            if not attach and target.protocol != request.protocol:
                for what in request.native:
                    self.lost(what)
            with tracing.call_span(target.protocol, target) as call:
                self.traceparent = call.traceparent
                end: e.Event | None = None
                self._calling = True
                try:
                    with self._clock:
                        if not self.run.dispatched:
                            await self._whole.change(self._sent(await self.ready()))
                        await (self.outbound.attach(self) if attach else self.outbound.run(self))
                except (Exception, asyncio.CancelledError) as error:
                    if self.detached and not self._ending and isinstance(error, asyncio.CancelledError):
                        raise
                    end = self._end_of(error)
                finally:
                    self._calling = False
            await self.finish(self._terminal or end or ending.without_result())

    def _end_of(self, error: Exception | asyncio.CancelledError) -> e.Event:
        """How a run ends whose adapter raised this before the agent's last word."""
        if isinstance(error, asyncio.CancelledError):
            return e.RunCancelled(reason=self.run.cancel_reason or "cancelled")
        if isinstance(error, NotGiven):
            return e.RunCancelled(reason=self.run.cancel_reason or str(error))
        if isinstance(error, TimeoutError):
            if self._clock.expired:
                self._tell_agent()
            return ending.timed_out(self._route.timeout if self._clock.expired else None)
        return ending.of_error(error, f"run {self.run.id} of {self.agent.name}")

    @property
    def held(self) -> bool:
        """Whether it is not yet to be sent when it starts. Then `drive` commits the mark once it is `ready`."""
        return self.incomplete

    async def ready(self) -> Json:
        """Wait until a run that is held may be sent; its input. Raises NotGiven, and what else then ends the run."""
        return await completed(self, self.filled) if self.incomplete else self.run.request.input

    async def _sent(self, given: Json) -> None:
        async with self._record:
            request = replace(self.run.request, input=given)
            await self._write((), replace(self.run, request=request, dispatched=True, updated_at=time.time()))

    async def starts(self) -> None:
        """What is to be done before a governed run is created as one that runs."""

    async def started_not(self) -> None:
        """What is to be done where it then was not."""

    def replayed(self, events: Sequence[tuple[int, e.Event]]) -> None:
        """What is to be known of its log, of a run that was taken up again."""

    async def start(self) -> None:
        """Commit the start, and the dispatch mark, of a run that was created earlier (queued or scheduled)."""
        await self._whole.change(self._start())

    async def _start(self) -> None:
        async with self._record:
            if self.thread is not None:  # runs before it may have changed it
                self.thread = await self.store.thread(self.thread.id)
            run = replace(self.run, status=RunStatus.RUNNING, dispatched=not self.held, updated_at=time.time())
            await self._write((e.RunStarted(),), run)

    async def finish(self, end: e.Event) -> None:
        """Commit the end, once; tell everyone. The last step of the run's own task, which is carried out whole."""
        if self._ending:
            return await self.over()
        self._ending = True
        self._terminal = end
        async with self._record:
            if self.run.cancel_reason is not None and not isinstance(end, e.RunCancelled):
                end = e.RunCancelled(reason=self.run.cancel_reason)
            try:
                await self._commit_end(delta.sound(end))
            except Exception as error:  # whatever it is, the run has ended
                await failed(self, error)
        self.ended = True
        self._answer_all()
        if self.span is not None:
            self.span.finish(self.run.status, usage=self.usage, tokens=self.log.last, failure=self.run.failure)
        self.log.close()
        self._whole.tell()
        self.hooks.ended(self)

    async def cancel(self, reason: str) -> None:
        """Store the wish, answer what is open as cancelled, tell the agent, and set the grace running."""
        await self._whole.change(self._cancel(reason))

    async def _cancel(self, reason: str) -> None:
        async with self._record:
            if self.ended or self.cancelled:
                return
            closed = tuple(e.Resumed(interrupt=i.id, answer=CANCELLED) for i in self.run.interrupts)
            status = RunStatus.RUNNING if self.run.interrupts else self.run.status
            run = replace(self.run, cancel_reason=reason, interrupts=(), status=status, updated_at=time.time())
            await self._write(closed, run)
        self._answer_all()
        if not self.run.dispatched or self.task is None:
            self._interrupt()
            return
        self._tell_agent()
        asyncio.get_running_loop().call_later(self.house_rules.cancel_grace, self._grace_over)

    def detach(self) -> None:
        """Let go of the run without ending it: the gateway stops, and will find it again. Who waits for it is told."""
        self.detached = True
        self._interrupt()
        if self._let_go:
            self._whole.tell()
            self.log.leave()

    def _interrupt(self) -> None:
        """Cancel the run's own task, unless it is at its last step. Nobody else cancels it, but for its clock."""
        if self.task is not None and (self._calling or not self._ending):
            self.task.cancel()

    # --- inside ------------------------------------------------------------------------------------------------

    def _tell_agent(self) -> None:
        self.hooks.calling(asyncio.ensure_future(self.call_cancel()))

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
        if not self._ending:
            self.lost("upstream_may_still_run")
            self._interrupt()
