"""Every event of one governed run passes here, in order. Tool calls are decided, audited and asked about on the way.

    outbound half --take--> [straight through, as long as nothing waits]  --> the run's log
                       └--> queue --> worker: one event after the other --┘

What stands behind a call that is being audited or waits for approval, waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from gateway.contract.governing import OF_CALL, risk_of
from gateway.core import events as e
from gateway.core.errors import Denied, IllegalEvent, InterlinguaError, Unavailable
from gateway.core.types import JsonObject
from gateway.governance.audit.aip44 import State
from gateway.governance.enforcing.approval import why_not
from gateway.governance.enforcing.calls import WAITING, Call, Phase
from gateway.governance.enforcing.host import REFUSED, Host
from gateway.governance.enforcing.judge import Judge
from gateway.governance.enforcing.reopened import UNKNOWN
from gateway.governance.enforcing.session import Session
from gateway.governance.policy import Kind, Rules

log = logging.getLogger(__name__)

MOST_HELD: Final = 10_000
"""Events that may stand behind a call that a person is asked about, before the agent is slowed down."""
RESULTS: Final = ("status", "rawOutput", "content")
"""What else it may have of the call's results."""
CALL_ID: Final = "toolCallId"
"""Where something that is no event of core's says which call it is about."""
_SPEAKS: Final = frozenset({e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded, e.Custom})


class Gate(Judge):
    """One per governed run."""

    def __init__(self, host: Host, rules: Callable[[], Rules], session: Session) -> None:
        super().__init__(host, rules, session)
        self.ending = False
        """The agent has said how the run ends."""
        self._failing = False
        """And that it comes to nothing."""
        self._queue: deque[e.Event] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._waiting = asyncio.Event()
        """Set when the worker begins to wait for somebody."""

    # --- what the engine calls -----------------------------------------------------------------------------------

    def take(self, events: Sequence[e.Event]) -> None:
        """What the agent said. Raises IllegalEvent for what is shown at once; of what waits, that is only counted."""
        if not events:
            return
        if self.closed or self.ending:
            self.host.lost("late_event", len(events))
            return
        at = 0
        if not self._queue:
            at = next((i for i, one in enumerate(events) if type(one) in _SPEAKS and not self._passes(one)), -1)
            if at == -1:
                self.host.show(events)
                return
            if at:
                self.host.show(events[:at])
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
        """Whether the agent may go on talking though not all is shown: a person is asked, and not too much waits."""
        if not 0 < len(self._queue) <= MOST_HELD or self.ending:
            return False
        head = self.calls.get(getattr(self._queue[0], "call", ""))
        return head is not None and head.phase in (Phase.ANNOUNCED, Phase.ASKING)

    async def caught_up(self) -> None:
        """Wait until the agent may go on talking."""
        while self._queue and not self.closed and not self.patient and self._worker is not None:
            self._waiting.clear()
            waiting = asyncio.ensure_future(self._waiting.wait())
            try:
                await asyncio.wait([self._worker, waiting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()

    async def settled(self) -> None:
        """Wait until everything that was taken is shown, or never will be."""
        while self._queue and not self.closed and self._worker is not None:
            await asyncio.wait([self._worker])

    def close(self) -> None:
        super().close()
        self._queue.clear()
        if self._worker is not None and self._worker is not asyncio.current_task():
            self._worker.cancel()

    async def over(self) -> None:
        """The run ends: whatever is open is audited as over. Raises Unavailable."""
        self.close()
        for call in list(self.calls.values()):
            if call.phase is Phase.ALLOWED:
                call.phase = Phase.ENDED
                if call.recorded:  # else the log has it as the call that events speak of
                    await self.session.ended(call, None, UNKNOWN if call.old else "the run ended")
            elif call.phase in (Phase.ANNOUNCED, Phase.ASKING) and not call.turn:
                call.phase = Phase.REFUSED
                await self.session.refused(call, "the run ended before it was approved")
        for _, call in self.before.values():
            if not call.turn and call.id not in self.calls:
                await self.session.refused(call, "the run ended before it was shown")
        self.before.clear()

    def replay(self, event: e.Event) -> None:
        if isinstance(event, e.ToolCallStarted):
            call = self.calls[event.call] = Call(id=event.call)
            call.started(event, risk_of(event.kind))
            call.phase, call.recorded, call.grown, call.old = Phase.ALLOWED, True, False, True
            self.before.pop(event.call, None)
        elif isinstance(event, e.ToolCallEnded) and event.call in self.calls:
            self.calls[event.call].phase = Phase.ENDED
        else:
            super().replay(event)

    def goes_on(self, state: State) -> None:
        """The run goes on, and everything was replayed. `state` is what it was doing then, by its own record."""
        left = self.session.left
        for name, call in self.calls.items():
            if name in left.ended:  # which nobody was shown any more
                call.phase = Phase.ENDED
            elif (begun := left.calls.get(name)) is not None and begun.approval is not None:
                call.approval = begun.approval
        going = [name for name, call in self.calls.items() if call.phase is Phase.ALLOWED]
        self.session.goes_on(state, {*going, *self.before})

    # --- the queue -----------------------------------------------------------------------------------------------

    def _passes(self, event: e.Event) -> bool:
        """Whether an event need not wait: it only goes on with a call that is shown already."""
        if isinstance(event, e.Custom):
            return _spoken_of(event) is None
        if not isinstance(event, e.ToolCallUpdated):
            return False
        call = self.calls.get(event.call)
        if call is None or call.phase is not Phase.ALLOWED or call.stale or call.grown:
            return False
        call.content = event.content if event.content is not None else call.content
        return True

    def _look_ahead(self, events: Sequence[e.Event]) -> None:
        """Whether a call whose agent may still ask for permission has begun without, or will never begin."""
        for event in events:
            call = self.calls.get(event.call) if isinstance(event, e.ToolCallUpdated | e.ToolCallEnded) else None
            if call is None:
                continue
            if isinstance(event, e.ToolCallEnded):
                call.over = call.pending and (event.failed or self.ending)
                call.pending = call.over
            elif isinstance(event, e.ToolCallUpdated) and event.status not in WAITING:
                call.pending = False
            call.moved()
        if self.ending:
            for call in self.calls.values():
                call.over = call.over or call.pending
                call.moved()

    async def _go_on(self, before: asyncio.Task[None]) -> None:
        """Instead of one that was cancelled."""
        await asyncio.wait([before])
        await self._work()

    async def _work(self) -> None:
        try:
            while self._queue and not self.closed:
                event = self._queue[0]
                shown = type(event) not in _SPEAKS or await self._judged(event)
                if self.closed:
                    return
                self._queue.popleft()
                if shown:
                    self._show(event)
        except InterlinguaError as error:
            log.info("run %s is interrupted: %s %s", self.host.run.id, error, error.detail)
            self.interrupt(error)
        except Exception:
            log.exception("run %s: its gate failed", self.host.run.id)
            self.interrupt(Unavailable("internal error"))

    def _show(self, event: e.Event) -> None:
        """The event, and what stands behind it and speaks of no call."""
        batch = [event]
        while self._queue and type(self._queue[0]) not in _SPEAKS:
            batch.append(self._queue.popleft())
        try:
            self.host.show(batch)
        except IllegalEvent as error:
            log.warning("run %s: %s", self.host.run.id, error)
            self.host.lost("illegal_event")

    async def _judged(self, event: e.Event) -> bool:
        """Whether the event may be shown, once what it is about was decided, audited and approved."""
        match event:
            case e.ToolCallStarted():
                call = self.begin(event.call)
                call.started(event, risk_of(event.kind))
                return await self._may_be_shown(call)
            case e.ToolCallUpdated():
                call = self._going_on(event.call)
                if not await self._may_be_shown(call):
                    return event.status not in WAITING and self._against_the_rules(call)
                call.content = event.content if event.content is not None else call.content
            case e.ToolCallEnded():
                call = self._going_on(event.call)
                if not await self._may_be_shown(call):
                    return not event.failed and not call.over and self._against_the_rules(call)
                await self._ended(call, event)
            case e.Custom():
                name = _spoken_of(event)
                call = self.calls.get(name, _NONE) if name is not None else _NONE
                if name is not None and not call.allowed:
                    self.host.lost(REFUSED)
                    return False
                if call.phase is Phase.ENDED and (more := _results(event)):
                    await self.session.ended(call, more, None)
        return True

    def _going_on(self, name: str) -> Call:
        """The call that an event goes on with. Of one that never started nothing is known."""
        call = self.calls.get(name) or self.begin(name)
        if call.phase is Phase.NEW and not call.named:
            call.started(e.ToolCallStarted(call=name, name=name), risk_of(None))
        return call

    async def _may_be_shown(self, call: Call) -> bool:
        """Decide what is not decided yet, wait for what is not approved yet."""
        await self.decide(call)
        while call.phase in (Phase.ANNOUNCED, Phase.ASKING):
            self._waiting.set()
            if call.phase is Phase.ASKING or (call.pending and not call.over and not self._failing):
                await call.change()
            elif call.over or self._failing:
                await self.refuse(call, "it ended before anybody had approved it")
            else:
                await self.ask(call)
                if not call.allowed:
                    return self._against_the_rules(call)
        if call.phase is Phase.ALLOWED and call.grown and not call.stale:
            call.grown = False
            await self.session.called(call, call.approval)
        if call.phase is Phase.REFUSED and call.decision.kind is Kind.DENY and not call.pending and not call.over:
            return self._against_the_rules(call)
        return call.allowed

    async def _ended(self, call: Call, event: e.ToolCallEnded) -> None:
        """Audit how it ended."""
        if call.phase is Phase.ENDED:
            return
        call.phase = Phase.ENDED
        given = event.output if event.output is not None else call.content
        failed = ("failed" if given is None else given) if event.failed else None
        await self.session.ended(call, None if event.failed else given, failed)
        call.content = call.arguments = None

    def _against_the_rules(self, call: Call) -> bool:
        """Its agent makes a call that it may not make."""
        raise Denied(why_not(call))


_NONE: Final = Call(id="")


def _results(event: e.Custom) -> JsonObject:
    """What comes of a call that has ended already."""
    said = event.data if isinstance(event.data, dict) else {}
    return {key: value for key, value in said.items() if key in RESULTS and value is not None}


def _spoken_of(event: e.Custom) -> str | None:
    """The call that something is about for which core has no event; None if it is about none."""
    said = None if event.origin is None else event.origin.get(OF_CALL)
    if isinstance(said, str):
        return said
    if not isinstance(event.data, dict) or CALL_ID not in event.data:
        return None
    return str(event.data[CALL_ID])
