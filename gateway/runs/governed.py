"""A run in progress whose route a manifest governs: all that its agent says passes a gate, all that it does is audited.

Ungoverned runs know nothing of this file. A transition is audited before it is committed; what cannot be audited does
not happen, and the run fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

from gateway.contract import Outbound, Prefacing, RunContext
from gateway.core import events as e
from gateway.core import projection
from gateway.core.delta import ABSENT
from gateway.core.errors import InterlinguaError
from gateway.core.memory import Recalled
from gateway.core.state import Item
from gateway.core.types import Agent, Answer, Failure, Interrupt, Json, JsonObject, Run, RunStatus
from gateway.governance.audit.aip44 import State
from gateway.governance.enforcing import RouteGovernor, RunGate
from gateway.governance.enforcing.approval import AskedApproval, own
from gateway.governance.enforcing.session import SKILLS, by, instructions, instructions_text
from gateway.governance.skills import Skill
from gateway.runs import ending
from gateway.runs.live import LiveRun

log = logging.getLogger(__name__)

MOVES: Final[dict[tuple[RunStatus, RunStatus], State]] = {
    (RunStatus.RUNNING, RunStatus.INTERRUPTED): "suspended",
    (RunStatus.INTERRUPTED, RunStatus.RUNNING): "resumed",
}
"""What a change of a run's status is to its operator, start and end left out."""


class GovernedRun(LiveRun):
    """See `LiveRun`, and `gateway.governance.enforcing.Host` for what the gate calls."""

    def __init__(self, *, rules: RouteGovernor, **made: Any) -> None:
        """`made`: the arguments of `LiveRun`."""
        super().__init__(governor=rules, audit=self._audit, **made)
        self.rules = rules
        self.gate: RunGate = self.rules.gate(self.run, self)
        self.governed = self.gate.judge
        self.audited = self
        self._prefaces = isinstance(self.outbound, Prefacing)
        self.outbound = _Gated(self.outbound, self)
        self._denied: Failure | None = None
        self._began = self._moved = False
        self._tells: Sequence[Skill] = ()
        self._answers = asyncio.Lock()

    # --- what outbound adapters call ---------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        return self._denied is not None or super().cancelled

    def emit(self, *events: e.Event) -> None:
        """See `RunContext.emit`. What stands behind a call that waits is judged later."""
        if self.ended:
            self.lost("late_event", len(events))
        else:
            self.gate.take(events)

    async def ask(self, interrupt: Interrupt) -> Answer:
        """See `RunContext.ask`. No agent's question passes for one of the gate's."""
        return await super().ask(own(interrupt))

    async def drain(self) -> None:
        """See `RunContext.drain`. Who waits for a person may go on talking, for a while."""
        await self.gate.caught_up()
        await super().drain()

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        """See `RunContext.recall`. In the first turn of a session the agent is told of its operator's skills: by the
        outbound half, if it does that, else in the text of the input. Raises Unavailable if that cannot be audited.
        """
        recalled = await super().recall(fresh=fresh, knows=knows)
        skills, session = self.rules.skills, self.gate.session
        told = instructions(skills)
        if not told or session.told_of(skills):
            return recalled
        if self._prefaces:
            await self.tell_again()
            return recalled
        text = instructions_text(told)
        given = projection.preceded(recalled.input, self.agent.text_input, text)
        if given is ABSENT:
            self.lost(SKILLS, len(told))
            return recalled
        if not self._tells:
            await session.tells(skills)
            self._tells = skills
        before = f"{text}\n\n{recalled.before}" if recalled.before else text
        return Recalled(input=given, before=before)

    @property
    def flowing(self) -> bool:
        """See `RunContext.flowing`. What waits at the gate is asked for each time."""
        return False

    # --- what the gate calls -----------------------------------------------------------------------------------

    def show(self, events: Sequence[e.Event]) -> None:
        super().emit(*events)

    async def put(self, interrupt: Interrupt, asked: AskedApproval) -> Answer:
        call = asked.call
        if self.span is None:  # the run is not driven yet
            return await super().ask(interrupt)
        with self.span.approval(call.tool, call.id, call.decision.policy) as span:
            answer = await super().ask(interrupt)
            span.decided(answer.outcome, approved=self.gate.judge.granted(interrupt, asked, answer))
            return answer

    async def tell_again(self) -> None:
        skills = self.rules.skills
        if not self._tells and (told := instructions(skills)):
            await self.gate.session.tells(skills)
            self.gate.judge.tell_first(told)
            self._tells = skills

    def was_asked(self, name: str) -> bool:
        return self.opener.state.item("interrupt", name) is not Item.ABSENT

    def interrupt(self, failure: Failure) -> None:
        """See `Host.interrupt`. The end is committed when the agent has stopped, or its grace is over."""
        if self.cancelled or self._ending:
            return
        self._denied = failure
        self.questions.cancel_all()
        self._tell_agent()
        asyncio.get_running_loop().call_later(self._house_rules.cancel_grace, self._grace_over)

    # --- what the engine calls ---------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """See `LiveRun.held`: a turn that waits for somebody's word has not been sent."""
        return super().held or self.gate.judge.gated

    async def ready(self) -> Json:
        """See `LiveRun.ready`: a person allows the turn with its whole input. Raises Denied, Unavailable."""
        given = await super().ready()
        await self.gate.judge.turn()
        return given

    async def starts(self) -> None:
        request = self.run.request
        self._moved = await self.gate.session.begins(by(request.principal, request.protocol))
        self._began = True

    async def started_not(self) -> None:
        self._began = False
        if self._moved:
            await self.gate.session.moved("interrupted", {"error": "the run was not started"})

    async def start(self) -> None:
        await self.starts()
        await super().start()

    def replayed(self, events: Sequence[tuple[int, e.Event]]) -> None:
        for _, event in events:
            self.gate.judge.replay(event)
        if self.run.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
            self.gate.judge.goes_on("suspended" if self.run.status is RunStatus.INTERRUPTED else "running")
            self._began = True

    def detach(self) -> None:
        self.gate.close()
        super().detach()

    # --- inside ------------------------------------------------------------------------------------------------

    async def _answer(self, answer: Answer, interrupt_id: str | None) -> None:
        """Somebody who may not approve leaves the question open, and so does who is not enough alone."""
        async with self._answers:
            asked = next((i for i in self.run.interrupts if interrupt_id in (None, i.id)), None)
            if asked is None or self.cancelled or await self.gate.judge.answering(asked, answer):
                await super()._answer(answer, interrupt_id if asked is None else asked.id)

    async def _audit(self, events: Sequence[e.Event], run: Run) -> None:
        after = MOVES.get((self.run.status, run.status))
        if after is not None and run.cancel_reason is None:
            await self.gate.session.moved(after, _about(events))

    async def _commit_end(self, end: e.Event) -> None:
        if self._denied is not None:
            end = e.RunFailed(failure=self._denied)
        try:
            await self.gate.over()
            if self._began:
                await self.gate.session.moved(*_last(end))
        except InterlinguaError as error:
            log.error("run %s: its end is not audited: %s %s", self.run.id, error, error.detail)
            if isinstance(end, e.RunFinished):
                end = e.RunFailed(failure=ending.failure(error))
        try:
            await super()._commit_end(end)
            if self._tells and self.run.status is RunStatus.SUCCESS:
                self.gate.session.told(self._tells)
        except InterlinguaError as error:
            if self._began and isinstance(end, e.RunFinished):
                with contextlib.suppress(InterlinguaError):
                    await self.gate.session.moved(*_last(e.RunFailed(failure=ending.failure(error))))
            raise
        finally:
            if self.run.thread is None:
                self.gate.session.forget()


class _Gated:
    """The target's outbound half: a run is over when all that was said has passed the gate."""

    def __init__(self, outbound: Outbound, run: GovernedRun) -> None:
        self._outbound = outbound
        self._run = run

    async def describe(self) -> Agent:
        return await self._outbound.describe()

    async def run(self, context: RunContext) -> None:
        await self._outbound.run(context)
        await self._run.gate.settled()

    async def attach(self, context: RunContext) -> None:
        await self._outbound.attach(context)
        await self._run.gate.settled()

    async def cancel(self, context: RunContext) -> None:
        await self._outbound.cancel(context)

    async def aclose(self) -> None:
        await self._outbound.aclose()


def _about(events: Sequence[e.Event]) -> JsonObject | None:
    """Which question suspends, or whose answer resumes."""
    for event in events:
        if isinstance(event, e.Interrupted):
            return {"interrupt": event.interrupt.id, "kind": event.interrupt.kind}
        if isinstance(event, e.Resumed):
            return {"interrupt": event.interrupt, "outcome": event.answer.outcome.value}
    return None


def _last(end: e.Event) -> tuple[State, JsonObject]:
    """What the end of a run is to its operator."""
    match end:
        case e.RunFinished():
            return "completed", {"stopReason": end.stop_reason.value}
        case e.RunFailed():
            return "interrupted", {"error": {"code": end.failure.code, "message": end.failure.message}}
        case e.RunCancelled():
            return "interrupted", {"cancelled": end.reason}
    raise AssertionError(f"{end} ends no run")
