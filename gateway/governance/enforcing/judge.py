"""Decides the tool calls of a run by the rules, records the decisions, and asks approvers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from gateway.contract import InterceptedRun
from gateway.contract.governing import Instruction, risk_of
from gateway.core import events as e
from gateway.core.errors import Denied, InterlinguaError, Unavailable
from gateway.core.types import Answer, Failure, Interrupt, Json, Outcome
from gateway.governance.audit.aip44 import State
from gateway.governance.enforcing import calls
from gateway.governance.enforcing.calls import AskedApproval, CallPhase, GovernedCall
from gateway.governance.enforcing.restoring import UNKNOWN
from gateway.governance.enforcing.session import ANONYMOUS, AuditedSession
from gateway.governance.matching import TURN
from gateway.governance.policy import Decision, Kind, PolicyRules, strictest

log = logging.getLogger(__name__)

DECLINED: Final = Answer(outcome=Outcome.DECLINED)
REFUSED: Final = "tool_refused"
"""The loss that counts calls that are not shown."""
ACT: Final = "act-"
"""The prefix of the ids of acts."""
MOST_ALONE: Final = 64
"""Calls of one tool to remember until they are told the other way, too."""


class Twins:
    """Calls of MCP servers' tools that an agent has told in one of two ways: by events, or by acts."""

    def __init__(self) -> None:
        self._alone: dict[tuple[str, str], deque[GovernedCall]] = {}

    def find(self, call: GovernedCall) -> GovernedCall | None:
        """Find the same call told the other way, and pair both: for an act one told by events, and vice versa.

        None if it is not known or has a twin already. This one can then be found later.
        """
        if call.server is None or call.twin is not None:
            return None
        among = self._alone.setdefault((call.server, call.tool), deque(maxlen=MOST_ALONE))
        for other in among:
            alike = other.act is not call.act and other.like(call) and (call.act or other.risk >= call.risk)
            if alike and other.phase not in (CallPhase.REFUSED, CallPhase.ENDED):
                call.pair(other)
                among.remove(other)
                return other
        if call not in among:
            among.append(call)
        return None


class Judge:
    """Decides the tool calls of one governed run. Adapters call it as a `gateway.contract.RunGovernor`.

    Every call, whether an event tells it, an agent asks permission for it or the gateway carries it out, goes through
    `decide` and `ask`. So no call is shown, made or granted without a decision in the audit log.
    """

    def __init__(
        self,
        run: InterceptedRun,
        rules: Callable[[], PolicyRules],
        session: AuditedSession,
        stop: Callable[[], None],
        tell: Callable[[], Awaitable[None]],
    ) -> None:
        """`rules` returns the current ones. `stop` is called when nothing more is decided.

        `tell` has the agent told its operator's skills, as in a first turn.
        """
        self.session = session
        self.closed = False
        self.run = run
        self._tell = tell
        self.preface: Sequence[Instruction] = ()
        """Instructions for the start of this run; see `RunGovernor.preface`."""
        self.calls: dict[str, GovernedCall] = {}
        self._now = rules
        self._stop = stop
        self._asked: dict[str, AskedApproval] = {}
        self._released: set[str] = set()
        """Ids of questions whose approvals were enough, and are recorded."""
        self._names: dict[str, bool] = {}
        """The questions that there were in the run by id, and whether they are open."""
        self._open: set[str] = set()
        """Ids of questions that this process has asked."""
        self._twins = Twins()
        self.before: dict[str, tuple[str, GovernedCall]] = {}
        """By call, the ids of questions asked before a restart about calls that had not been shown."""
        self._ended_before: frozenset[str] = frozenset()
        """Calls whose end was recorded before a restart."""

    # --- what adapters call --------------------------------------------------------------------------------------

    async def forgotten(self) -> None:
        await self._tell()

    def tell_first(self, preface: Sequence[Instruction]) -> None:
        """Set what the agent is told first in this run."""
        self.preface = preface

    def describe(
        self,
        call: str,
        *,
        tool: str | None = None,
        server: str | None = None,
        risk: int | None = None,
        arguments: Json = None,
        pending: bool = False,
    ) -> None:
        found = self.begin(call)
        found.announce(pending)
        found.describe(tool, server, risk, arguments)

    async def permission(
        self,
        call: str,
        tool: str,
        arguments: Json,
        *,
        risk: int,
        server: str | None = None,
        question: Interrupt,
        grants: Callable[[Answer], bool],
    ) -> Answer | None:
        if self.closed:
            return DECLINED
        found = self.begin(call)
        found.announce()
        found.describe(tool, server, risk, arguments)
        with self._audited():
            await self.decide(found)
            while found.phase is CallPhase.ASKING and not self.closed:  # by ourselves, since it seemed to have begun
                await found.change()
            if found.phase is CallPhase.ALLOWED:
                return None
            if found.phase is not CallPhase.ANNOUNCED or self.closed:
                return DECLINED
            answer = await self.ask(found, question, grants)
            return DECLINED if found.stale or (grants(answer) and not found.allowed) else answer

    async def act(self, tool: str, arguments: Json, *, risk: int, server: str | None = None) -> str:
        if self.closed:
            raise Denied("the run is over")
        name = f"{ACT}{secrets.token_hex(6)}"
        call = GovernedCall(id=name, tool=tool, server=server, risk=risk, arguments=arguments, act=True)
        told = self._twins.find(call)
        self.calls[name] = call
        with self._audited():
            if told is None:
                try:
                    await self._settle(call)
                finally:
                    await self._settled_twin(call)
            else:
                told.describe(None, None, risk, None)
                told.begun()
                await self._settle(told)
                call.follow(told)
        if call.phase is not CallPhase.ALLOWED:
            del self.calls[name]
            raise Denied(calls.why_not(call))
        return name

    async def _settle(self, call: GovernedCall) -> None:
        """Decide a call, and wait for approvals that others have asked for. Raises Denied when the run is over."""
        await self.decide(call)
        while call.phase in (CallPhase.NEW, CallPhase.ANNOUNCED, CallPhase.ASKING):
            if self.closed:
                raise Denied("the run is over")
            if call.phase is CallPhase.ASKING:
                await call.change()
            else:
                await self.ask(call)
            await self.decide(call)

    async def acted(self, call: str, *, result: Json = None, error: Json = None) -> None:
        found = self.calls.pop(call, None)
        if found is not None and found.phase is CallPhase.ALLOWED:
            with self._audited():
                known = found if found.recorded or found.twin is None else found.twin
                await self.session.ended(known, result, error)

    # --- what the engine calls -----------------------------------------------------------------------------------

    @property
    def gated(self) -> bool:
        """Whether the operator's turn needs approval."""
        return self._rules.turn().kind is not Kind.ALLOW

    async def turn(self) -> None:
        """Decide, before the run is sent, whether the operator may take a turn. Raises Denied, Unavailable."""
        if not self.gated:
            return
        call = self.calls[TURN] = GovernedCall(id=TURN, tool=TURN, turn=True)
        await self.decide(call)
        if call.phase is CallPhase.ANNOUNCED:
            await self.ask(call)
        del self.calls[TURN]
        if call.phase is not CallPhase.ALLOWED:
            raise Denied(calls.why_not(call))

    async def answering(self, interrupt: Interrupt, answer: Answer) -> bool:
        """Decide, before an answer is taken, whether it ends the question. False: it counts, and more are needed.

        Called for one answer at a time. Raises Denied for a person who may not approve, and Unavailable; the question
        then stays open.
        """
        asked = self._asked.get(interrupt.id) or await self._recalled(interrupt)
        if asked is None:
            return True
        call, by = asked.call, calls.signatory(answer)
        role = min(by.roles, default="")
        if not asked.yes(answer):
            if answer.outcome is not Outcome.CANCELLED:
                await self.session.answered(call, by.id, role, approved=False, enough=False)
            return True
        if call.rules is not self._rules:  # others than asked for the approval
            await self._judge(call)
        if call.decision.kind is Kind.DENY:
            return True  # and it is not released
        calls.check(call, by)
        enough = call.decision.released({*call.signed, by})
        await self.session.answered(call, by.id, role, approved=True, enough=enough)
        call.signed.add(by)
        if enough:
            self._released.add(interrupt.id)
        return enough

    def noted(self, events: Sequence[e.Event]) -> None:
        """Note which questions are open."""
        for event in events:
            if isinstance(event, e.Interrupted):
                self._names[event.interrupt.id] = True
            elif isinstance(event, e.Resumed):
                self._names[event.interrupt] = False

    def replay(self, event: e.Event) -> None:
        """Take in an event of before a restart, in order: it was decided, recorded and shown then."""
        self.noted((event,))
        if isinstance(event, e.ToolCallStarted):
            shown = self.calls[event.call] = GovernedCall(id=event.call)
            shown.started(event, risk_of(event.kind))
            shown.as_before()
            self.before.pop(event.call, None)
        elif isinstance(event, e.ToolCallEnded):
            if (shown_before := self.calls.get(event.call)) is not None:
                shown_before.to(CallPhase.ENDED)
        elif isinstance(event, e.Interrupted):
            call = calls.recalled(event.interrupt)
            if call is not None:
                self.before[call.id] = (event.interrupt.id, call)
        elif isinstance(event, e.Resumed):
            about = next((name for name, (asked, _) in self.before.items() if asked == event.interrupt), None)
            if about is None or event.answer.outcome is Outcome.DECLINED:
                return
            if event.answer.outcome is Outcome.ANSWERED and not about.startswith(ACT):
                self._released.add(event.interrupt)
            else:  # nobody waits for it any more: of an act that was approved the outcome is unknown
                del self.before[about]

    def goes_on(self, state: State) -> None:
        """Go on with a run of before a restart, once all of it was replayed. `state` is from the run's own record."""
        left = self.session.left
        for name, call in self.calls.items():
            if call.phase is not CallPhase.ENDED and name in left.ended:  # the end was recorded and not shown
                call.to(CallPhase.ENDED)
            elif (begun := left.calls.get(name)) is not None and begun.approval is not None:
                call.approved(begun.approval)
        self._ended_before = frozenset(left.ended)
        going = [name for name, call in self.calls.items() if call.phase is CallPhase.ALLOWED]
        self.session.goes_on(state, {*going, *self.before})

    # --- deciding ------------------------------------------------------------------------------------------------

    def begin(self, name: str) -> GovernedCall:
        """Return the call with this id, or a new one if there is none or it has ended."""
        call = self.calls.get(name)
        if call is None or call.phase is CallPhase.ENDED:
            call = self.calls[name] = GovernedCall(id=name)
        return call

    async def decide(self, call: GovernedCall) -> None:
        """Decide a call unless it is decided. An allowed one is recorded as called, a denied one as refused."""
        async with call.deciding:
            while call.take_up():
                if not call.act and (act := self._twins.find(call)) is not None:
                    call.to(CallPhase.ASKING)
                    if act.phase is CallPhase.ALLOWED:
                        await self._settled_twin(act)
                    return
                await self._judge(call)
                if self.closed:
                    return
                if not call.stale:  # else it has changed while it was counted
                    await self._decided(call)
                    return

    async def _decided(self, call: GovernedCall) -> None:
        match call.decision.kind:
            case Kind.ALLOW:
                await self.session.called(call)
                call.allow()
            case Kind.DENY:
                await self.refuse(call, call.decision.why)
            case _ if call.signed and call.decision.released(call.signed):
                await self.session.called(call, call.approval)
                call.allow(call.approval)
            case _:
                call.to(CallPhase.ANNOUNCED)

    async def refuse(self, call: GovernedCall, why: str) -> None:
        """Refuse a call: it is never shown."""
        call.to(CallPhase.REFUSED)
        self.run.lost(REFUSED)
        if not call.turn:
            await self.session.refused(call, why)

    async def ask(
        self,
        call: GovernedCall,
        question: Interrupt | None = None,
        grants: Callable[[Answer], bool] = calls.approves,
    ) -> Answer:
        """Have the call approved, by the agent's question or one of ours. It is then ALLOWED or REFUSED."""
        asked, _ = self.before.get(call.id, ("", None))
        if question is None:
            question = calls.question(call, self._name(call))
        else:
            question = replace(question, id=self._unused(question.id))
        call.to(CallPhase.ASKING)
        before = self._asked.get(question.id)
        if before is not None:
            call.signed.update(before.call.signed)
        self._open.add(question.id)
        try:
            call.logged()
            if question.id != asked:  # else it was recorded before a restart
                await self.session.waits(call, calls.approvers(call.decision))
            about = self._asked[question.id] = AskedApproval(call, grants)
            with self.run.approval(call.tool, call.id, call.decision.policy) as note:
                answer = await self.run.ask(question)
                note.decided(answer.outcome, approved=self.granted(question, about, answer))
        except asyncio.CancelledError:
            if call.phase is CallPhase.ASKING:  # the agent does not wait for the answer any more, and may ask again
                call.to(CallPhase.ANNOUNCED)
            raise
        finally:
            self._asked.pop(question.id, None)
        if self.closed:
            return answer  # `over` records the call
        if self.granted(question, about, answer):
            call.allow(calls.signatory(answer).id or ANONYMOUS)
        else:
            why = "nobody approved it" if answer.outcome is Outcome.CANCELLED else "it was rejected"
            await self.refuse(call, call.decision.why if call.decision.kind is Kind.DENY else why)
        return answer

    def granted(self, question: Interrupt, asked: AskedApproval, answer: Answer) -> bool:
        """Whether the answer is a yes, and its approvals are enough."""
        return asked.yes(answer) and question.id in self._released

    def interrupt(self, error: InterlinguaError) -> None:
        """End the run with an error. Nothing more of it is shown."""
        self.close()
        self.run.abort(Failure.of(error))

    def close(self) -> None:
        """Decide nothing any more: the run ends, or this process lets go of it."""
        self.closed = True
        for call in self.calls.values():
            call.moved()
        self._stop()

    async def over(self) -> None:
        """Record every open call as over, since the run ends. Raises Unavailable."""
        self.close()
        for call in list(self.calls.values()):
            if call.phase is CallPhase.ALLOWED:
                call.to(CallPhase.ENDED)
                if call.recorded:  # else the log has it under its twin
                    await self.session.ended(call, None, UNKNOWN if call.old else "the run ended")
            elif call.phase in (CallPhase.ANNOUNCED, CallPhase.ASKING) and not call.turn:
                await self.session.refused(call, "the run ended before it was approved")
        for _, call in self.before.values():
            if not call.turn and call.id not in self.calls and call.id not in self._ended_before:
                await self.session.refused(call, "the run ended before it was shown")
        self.before.clear()

    # --- inside --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _audited(self) -> Iterator[None]:
        """End the run if something cannot be recorded."""
        try:
            yield
        except InterlinguaError as error:
            if not isinstance(error, Denied):
                log.warning("run %s is interrupted: %s %s", self.run.run.id, error, error.detail)
                self.interrupt(error)
            raise

    async def _settled_twin(self, act: GovernedCall) -> None:
        """Decide the call that is the same as an act as the act was decided."""
        call = act.twin
        if call is None or call.phase is not CallPhase.ASKING:
            return
        if act.phase is CallPhase.ALLOWED:
            call.decided(replace(act.decision, counted=()))
            await self.session.called(call, act.approval)
            call.allow(act.approval)
        elif act.phase is CallPhase.REFUSED and not self.closed:
            call.decided(act.decision)
            await self.refuse(call, "it was refused as it was to be made")
        else:
            call.to(CallPhase.ANNOUNCED)

    @property
    def _rules(self) -> PolicyRules:
        return self._now()

    async def _judge(self, call: GovernedCall) -> None:
        """Have the current rules decide about a call, until what it uses of budgets is spent, if it is allowed.

        Where the store cannot say whether it is, nobody knows what is left, and the policies ask.
        """
        countable = True
        while True:
            rules = self._rules
            decision = rules.turn() if call.turn else self._decision(rules, call, countable)
            try:
                if not decision.allowances or await self.session.spend(decision.allowances):
                    break
            except Unavailable as error:
                log.warning("run %s: what is left of a budget is not known: %s", self.run.run.id, error.detail or error)
                countable = False
        call.ruled(decision, rules)

    def _decision(self, rules: PolicyRules, call: GovernedCall, countable: bool) -> Decision:
        said = [(call.tool, call.server), *(call.earlier - {(call.tool, call.server)})]
        for tool, _ in said:
            if not calls.within(self.run.run.request, tool):
                return Decision(kind=Kind.DENY, policy=None, why=f"whoever asked for the run has no tool {tool}")
        how: dict[str, Any] = {"risk": call.risk, "at": self.session.now(), "countable": countable}
        return strictest([rules.call(tool, server=server, **how) for tool, server in said])

    async def _recalled(self, interrupt: Interrupt) -> AskedApproval | None:
        """Recall a question of before a restart whose call was not told again. The current rules decide it."""
        call = calls.recalled(interrupt)
        if call is None:
            return None
        await self._judge(call)
        asked = self._asked[interrupt.id] = AskedApproval(call)
        return asked

    def _name(self, call: GovernedCall) -> str:
        """Name a question: the name of before a restart, if it was asked then."""
        name, before = self.before.pop(call.id, ("", None))
        if before is not None and before.same(call):
            return name
        return _first(f"approval-{call.id}", self._names.__contains__)

    def _unused(self, name: str) -> str:
        """Name a question of the agent's: an answer to an earlier one of that name is none to this one."""
        return _first(name, lambda taken: taken in self._open or not self._names.get(taken, True))


def _first(name: str, taken: Callable[[str], bool]) -> str:
    """Return the name, with a count if it is taken."""
    found, count = name, 1
    while taken(found):
        count += 1
        found = f"{name}#{count}"
    return found
