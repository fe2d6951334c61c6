"""Holds back the events of a governed run until the tool calls that they tell are decided, recorded and approved.

    outbound half --take--> [straight through, as long as nothing waits]  --> the run's log
                       └--> queue --> worker: one event after the other --┘

An event behind a call that is being recorded or waits for approval waits, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gateway.contract import InterceptedRun
from gateway.contract.governing import CallNews, risk_of
from gateway.core import events as e
from gateway.core.errors import Denied, IllegalEvent, InterlinguaError, Unavailable
from gateway.governance.enforcing.calls import WAITING, CallPhase, GovernedCall, why_not
from gateway.governance.enforcing.judge import REFUSED, Judge
from gateway.governance.enforcing.session import AuditedSession
from gateway.governance.policy import Kind, PolicyRules

log = logging.getLogger(__name__)

MOST_HELD: Final = 10_000
"""Events that may wait behind a call that a person is asked about, before the agent is slowed down."""
_SPEAKS: Final = frozenset({e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded, e.Custom})


class RunGate:
    """Passes the events of one governed run to its log, in order, each after the decision that it needs."""

    def __init__(
        self,
        run: InterceptedRun,
        rules: Callable[[], PolicyRules],
        session: AuditedSession,
        tell: Callable[[], Awaitable[None]],
        tool_call_of: Callable[[e.Custom], CallNews | None] | None,
    ) -> None:
        """`rules` and `tell`: see `Judge`. `tool_call_of`: see `RuleKeeping`; None: the half knows of no rules."""
        self.run = run
        self.session = session
        self.judge = Judge(run, rules, session, self._stop, tell)
        self._tool_call_of = tool_call_of or (lambda event: None)
        self.taken = 0
        """How many events the agent has said."""
        self.ending = False
        """Whether the agent has told the end of the run."""
        self._failing = False
        """Whether that end is a failure."""
        self._queue: deque[e.Event] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._waiting = asyncio.Event()
        """Set when the worker begins to wait for somebody."""

    # --- what the run calls --------------------------------------------------------------------------------------

    def take(self, events: Sequence[e.Event]) -> None:
        """Take the agent's events. Raises IllegalEvent for one shown at once; one that waits is only counted."""
        self.taken += len(events)
        if not events:
            return
        if self.judge.closed or self.ending:
            self.run.lost("late_event", len(events))
            return
        at = 0
        if not self._queue:
            at = next((i for i, one in enumerate(events) if type(one) in _SPEAKS and not self._passes(one)), -1)
            if at == -1:
                self.run.emit(*events)
                return
            if at:
                self.run.emit(*events[:at])
        waited = self.patient
        waiting = events[at:]
        self._queue.extend(waiting)
        self.ending = isinstance(waiting[-1], e.TERMINAL)
        self._failing = self.ending and not isinstance(waiting[-1], e.RunFinished)
        self._look_ahead(waiting)
        if self._failing and waited and self._worker is not None:
            self._worker.cancel()  # nobody need be asked any more
            self._worker = asyncio.ensure_future(self._go_on(self._worker))
        elif self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())

    @property
    def patient(self) -> bool:
        """Whether the agent may go on although events wait: a person is asked, and not too many wait."""
        if not 0 < len(self._queue) <= MOST_HELD or self.ending:
            return False
        head = self.judge.calls.get(getattr(self._queue[0], "call", ""))
        return head is not None and head.phase in (CallPhase.ANNOUNCED, CallPhase.ASKING)

    async def caught_up(self) -> None:
        """Wait until the agent may go on."""
        while self._queue and not self.judge.closed and not self.patient and self._worker is not None:
            self._waiting.clear()
            waiting = asyncio.ensure_future(self._waiting.wait())
            try:
                await asyncio.wait([self._worker, waiting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()

    async def settled(self) -> None:
        """Wait until every event taken is shown or dropped."""
        while self._queue and not self.judge.closed and self._worker is not None:
            await asyncio.wait([self._worker])

    def _stop(self) -> None:
        self._queue.clear()
        if self._worker is not None and self._worker is not asyncio.current_task():
            self._worker.cancel()

    # --- the queue -----------------------------------------------------------------------------------------------

    def _passes(self, event: e.Event) -> bool:
        """Whether an event need not wait, because it continues a call that is shown already."""
        if isinstance(event, e.Custom):
            return self._tool_call_of(event) is None
        if not isinstance(event, e.ToolCallUpdated):
            return False
        call = self.judge.calls.get(event.call)
        if call is None or call.phase is not CallPhase.ALLOWED or call.stale or call.grown:
            return False
        call.gave(event.content)
        return True

    def _look_ahead(self, events: Sequence[e.Event]) -> None:
        """Note calls that have begun without asking for permission, or will never begin."""
        for event in events:
            call = self.judge.calls.get(event.call) if isinstance(event, e.ToolCallUpdated | e.ToolCallEnded) else None
            if call is None:
                continue
            if isinstance(event, e.ToolCallEnded):
                call.stopped(unbegun=event.failed or (self.ending and event.output is None))
            elif isinstance(event, e.ToolCallUpdated) and event.status not in WAITING:
                call.begun()
        if self.ending:
            for call in self.judge.calls.values():
                call.abandoned()

    async def _go_on(self, before: asyncio.Task[None]) -> None:
        """Work on in place of a worker that was cancelled."""
        await asyncio.wait([before])
        await self._work()

    async def _work(self) -> None:
        try:
            while self._queue and not self.judge.closed:
                event = self._queue[0]
                shown = type(event) not in _SPEAKS or await self._judged(event)
                if self.judge.closed:
                    return
                self._queue.popleft()
                if shown:
                    self._show(event)
        except InterlinguaError as error:
            log.info("run %s is interrupted: %s %s", self.run.run.id, error, error.detail)
            self.judge.interrupt(error)
        except Exception:
            log.exception("run %s: its gate failed", self.run.run.id)
            self.judge.interrupt(Unavailable("internal error"))

    def _show(self, event: e.Event) -> None:
        """Show the event, and those behind it that are about no call."""
        batch = [event]
        while self._queue and type(self._queue[0]) not in _SPEAKS:
            batch.append(self._queue.popleft())
        try:
            self.run.emit(*batch)
        except IllegalEvent as error:
            log.warning("run %s: %s", self.run.run.id, error)
            self.run.lost("illegal_event")

    async def _judged(self, event: e.Event) -> bool:
        """Decide, record and have approved the call of an event. Returns whether the event may be shown."""
        match event:
            case e.ToolCallStarted():
                call = self.judge.begin(event.call)
                call.started(event, risk_of(event.kind))
                return await self._may_be_shown(call)
            case e.ToolCallUpdated():
                call = self._going_on(event.call)
                if not await self._may_be_shown(call):
                    return event.status not in WAITING and self._against_the_rules(call)
                call.gave(event.content)
            case e.ToolCallEnded():
                call = self._going_on(event.call)
                if not await self._may_be_shown(call):
                    return not event.failed and not call.over and self._against_the_rules(call)
                await self._ended(call, event)
            case e.Custom():
                news = self._tool_call_of(event)
                if news is None:
                    return True
                known = self.judge.calls.get(news.call)
                if known is None or not known.allowed:
                    self.run.lost(REFUSED)
                    return False
                if known.phase is CallPhase.ENDED and news.result:
                    await self.session.ended(known, news.result, None)
        return True

    def _going_on(self, name: str) -> GovernedCall:
        """Return the call that an event continues, even if it never started."""
        call = self.judge.calls.get(name) or self.judge.begin(name)
        if call.phase is CallPhase.NEW:
            call.started(e.ToolCallStarted(call=name, name=name), risk_of(None))
        return call

    async def _may_be_shown(self, call: GovernedCall) -> bool:
        """Decide a call if needed, wait for its approval, and return whether it may be shown."""
        await self.judge.decide(call)
        while call.phase in (CallPhase.ANNOUNCED, CallPhase.ASKING):
            self._waiting.set()
            if call.phase is CallPhase.ASKING or (call.pending and not call.over and not self._failing):
                await call.change()
            elif call.over or self._failing:
                await self.judge.refuse(call, "it ended before anybody had approved it")
            else:
                await self.judge.ask(call)
                if not call.allowed:
                    return self._against_the_rules(call)
        if call.phase is CallPhase.ALLOWED and call.grown and not call.stale:
            call.logged()
            await self.session.called(call, call.approval)
        if call.phase is CallPhase.REFUSED and call.decision.kind is Kind.DENY and not call.pending and not call.over:
            return self._against_the_rules(call)
        return call.allowed

    async def _ended(self, call: GovernedCall, event: e.ToolCallEnded) -> None:
        if call.phase is CallPhase.ENDED:
            return
        call.to(CallPhase.ENDED)
        given = event.output if event.output is not None else call.content
        failed = ("failed" if given is None else given) if event.failed else None
        await self.session.ended(call, None if event.failed else given, failed)
        call.ended()

    def _against_the_rules(self, call: GovernedCall) -> bool:
        """Raise Denied: the agent makes a call that it may not make."""
        raise Denied(why_not(call))
