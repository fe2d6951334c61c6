"""What becomes of the tool calls of one run: decided by the rules, audited, put to whoever may approve.

Whoever makes a call known (an event, a permission that the agent asks for, an act that no event speaks of) comes
through `decide` and `ask`, so that no call is shown, done or granted that was not decided and audited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from gateway.contract.governing import Instruction
from gateway.core import events as e
from gateway.core.errors import Denied, InterlinguaError
from gateway.core.types import Answer, Failure, Interrupt, Json, Outcome
from gateway.governance.audit.aip44 import AUTO
from gateway.governance.enforcing import approval
from gateway.governance.enforcing.approval import Asked
from gateway.governance.enforcing.calls import Call, Phase
from gateway.governance.enforcing.host import REFUSED, Host
from gateway.governance.enforcing.session import ANONYMOUS, Session
from gateway.governance.enforcing.twins import Twins
from gateway.governance.policy import RANK, TURN, Decision, Kind, Rules

log = logging.getLogger(__name__)

DECLINED: Final = Answer(outcome=Outcome.DECLINED)


class Judge:
    """One per governed run. What adapters call is in `gateway.contract.RunGovernor`."""

    def __init__(self, host: Host, rules: Callable[[], Rules], session: Session) -> None:
        """`rules`: those of now."""
        self.session = session
        self.closed = False
        self.host = host
        self.preface: Sequence[Instruction] = ()
        """See `RunGovernor.preface`."""
        self.calls: dict[str, Call] = {}
        self._now = rules
        self._asked: dict[str, Asked] = {}
        self._released: set[str] = set()
        """Questions whose approval was enough, and was audited."""
        self._twins = Twins()
        self.before: dict[str, tuple[str, Call]] = {}
        """Questions that were asked before a restart about calls that were not shown then: their ids, by call."""

    # --- what adapters call --------------------------------------------------------------------------------------

    async def forgotten(self) -> None:
        await self.host.tell_again()

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
        if found.phase is Phase.NEW:
            found.pending = pending
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
        if found.phase is Phase.NEW:
            found.pending = True
        found.describe(tool, server, risk, arguments)
        with self._audited():
            await self.decide(found)
            while found.phase is Phase.ASKING:  # by ourselves, since it seemed to have begun
                await found.change()
            if found.phase is Phase.ALLOWED:
                return None
            if found.phase is not Phase.ANNOUNCED or self.closed:
                return DECLINED
            answer = await self.ask(found, question, grants)
            return DECLINED if found.stale or (grants(answer) and not found.allowed) else answer

    async def act(self, tool: str, arguments: Json, *, risk: int, server: str | None = None) -> str:
        if self.closed:
            raise Denied("the run is over")
        name = f"act-{secrets.token_hex(6)}"
        call = Call(id=name, tool=tool, server=server, risk=risk, arguments=arguments, act=True)
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
                told.pending = False
                told.moved()
                await self._settle(told)
                call.decision, call.approval, call.phase = told.decision, told.approval, told.phase
        if call.phase is not Phase.ALLOWED:
            self.calls.pop(name, None)
            raise Denied(approval.why_not(call))
        return name

    async def _settle(self, call: Call) -> None:
        """Whether it may be made, by the rules or by somebody's word, whoever else waits for the same."""
        await self.decide(call)
        while call.phase in (Phase.ANNOUNCED, Phase.ASKING):
            if self.closed:
                raise Denied("the run is over")
            if call.phase is Phase.ASKING:
                await call.change()
            else:
                await self.ask(call)
            await self.decide(call)

    async def acted(self, call: str, *, result: Json = None, error: Json = None) -> None:
        found = self.calls.pop(call, None)
        if found is not None and found.phase is Phase.ALLOWED:
            with self._audited():
                known = found if found.recorded or found.twin is None else found.twin
                await self.session.ended(known, result, error)

    # --- what the engine calls -----------------------------------------------------------------------------------

    @property
    def gated(self) -> bool:
        """Whether the operator's turn needs somebody's word."""
        return self._rules.turn().kind is not Kind.ALLOW

    async def turn(self) -> None:
        """Before the run is sent: whether the operator may take a turn. Raises Denied, Unavailable."""
        if not self.gated:
            return
        call = self.calls[TURN] = Call(id=TURN, tool=TURN, turn=True)
        await self.decide(call)
        if call.phase is Phase.ANNOUNCED:
            await self.ask(call)
        self.calls.pop(TURN, None)
        if call.phase is not Phase.ALLOWED:
            raise Denied(approval.why_not(call))

    async def answering(self, interrupt: Interrupt, answer: Answer) -> bool:
        """Before an answer is taken: whether it ends the question. False: it counts, and others are needed as well.

        One call at a time. Raises Denied for somebody who may not approve, and Unavailable: the question stays open.
        """
        asked = self._asked.get(interrupt.id) or self._recalled(interrupt)
        if asked is None:
            return True
        call, by = asked.call, approval.signatory(answer)
        role = min(by.roles, default="")
        if not asked.yes(answer):
            if answer.outcome is not Outcome.CANCELLED:
                await self.session.answered(call, by.id, role, approved=False)
            return True
        if call.rules is not self._rules:  # others than asked for the approval
            call.decision = self._rules_say(call)
        if call.decision.kind is Kind.DENY:
            return True  # and it is not released
        approval.check(call, by)
        enough = call.decision.released({*call.signed, by})
        await self.session.answered(call, by.id, role, approved=True, enough=enough)
        call.signed.add(by)
        if enough:
            self._released.add(interrupt.id)
        return enough

    def replay(self, event: e.Event) -> None:
        """What happened before a restart, in order: it was decided, audited and let through then."""
        if isinstance(event, e.Interrupted):
            call = approval.recalled(event.interrupt)
            if call is not None:
                self.before[call.id] = (event.interrupt.id, call)
        elif isinstance(event, e.Resumed):
            about = next((name for name, (asked, _) in self.before.items() if asked == event.interrupt), None)
            if about is not None and event.answer.outcome is Outcome.ANSWERED:
                self._released.add(event.interrupt)
            elif about is not None and event.answer.outcome is Outcome.CANCELLED:
                del self.before[about]

    # --- deciding ------------------------------------------------------------------------------------------------

    def begin(self, name: str) -> Call:
        """The call of that name, as far as it has come; another one if that is over."""
        call = self.calls.get(name)
        if call is None or call.phase is Phase.ENDED:
            call = self.calls[name] = Call(id=name)
        return call

    async def decide(self, call: Call) -> None:
        """Ask the rules, unless they were. What they allow is audited as called, what they deny as refused."""
        async with call.deciding:
            if call.phase in (Phase.ALLOWED, Phase.ANNOUNCED) and call.stale:
                call.phase = Phase.NEW
            if call.phase is not Phase.NEW:
                return
            if call.another:
                call.signed = set()
            call.stale = call.another = call.grown = call.recorded = False
            call.judged = True
            if not call.act and (act := self._twins.find(call)) is not None:
                call.phase = Phase.ASKING
                if act.phase is Phase.ALLOWED:
                    await self._settled_twin(act)
                return
            call.decision = self._rules_say(call)
            match call.decision.kind:
                case Kind.ALLOW:
                    await self.session.called(call)
                    call.recorded, call.approval, call.phase = True, AUTO, Phase.ALLOWED
                    call.moved()
                case Kind.DENY:
                    await self.refuse(call, call.decision.why)
                case _ if call.signed and call.decision.released(call.signed):
                    await self.session.called(call, call.approval)
                    call.recorded, call.phase = True, Phase.ALLOWED
                    call.moved()
                case _:
                    call.phase = Phase.ANNOUNCED

    async def refuse(self, call: Call, why: str) -> None:
        """It is never shown."""
        call.phase = Phase.REFUSED
        call.moved()
        self.host.lost(REFUSED)
        if not call.turn:
            await self.session.refused(call, why)

    async def ask(
        self, call: Call, question: Interrupt | None = None, grants: Callable[[Answer], bool] = approval.approves
    ) -> Answer:
        """Have the call approved, by a question of ours unless there is one. It is ALLOWED or REFUSED then."""
        asked, _ = self.before.get(call.id, ("", None))
        question = question or approval.question(call, self._name(call))
        call.phase = Phase.ASKING
        before = self._asked.get(question.id)
        if before is not None:
            call.signed |= before.call.signed
        try:
            call.grown = False
            if question.id != asked:  # else it was recorded before a restart
                await self.session.waits(call, approval.approvers(call.decision))
            about = self._asked[question.id] = Asked(call, grants)
            answer = await self.host.put(question, about)
        except asyncio.CancelledError:
            call.phase = Phase.ANNOUNCED  # the agent does not wait for the answer any more, and may ask again
            call.moved()
            raise
        except BaseException:
            call.phase = Phase.REFUSED
            call.moved()
            raise
        finally:
            self._asked.pop(question.id, None)
        if self.granted(question, about, answer):
            call.approval = approval.signatory(answer).id or ANONYMOUS
            call.recorded, call.phase = True, Phase.ALLOWED
            call.moved()
        elif self.closed:
            call.phase = Phase.REFUSED
            call.moved()
        else:
            why = "nobody approved it" if answer.outcome is Outcome.CANCELLED else "it was rejected"
            await self.refuse(call, call.decision.why if call.decision.kind is Kind.DENY else why)
        return answer

    def granted(self, question: Interrupt, asked: Asked, answer: Answer) -> bool:
        """Whether the answer is a yes that counts."""
        return asked.yes(answer) and question.id in self._released

    def interrupt(self, error: InterlinguaError) -> None:
        """The run cannot go on: nothing else of it is shown."""
        self.close()
        self.host.interrupt(Failure(code=error.code, message=str(error), retryable=error.retryable))

    def close(self) -> None:
        """Nothing is decided any more: the run is ending, or this process lets go of it."""
        self.closed = True

    # --- inside --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _audited(self) -> Iterator[None]:
        """What cannot be audited ends the run."""
        try:
            yield
        except InterlinguaError as error:
            if not isinstance(error, Denied):
                log.warning("run %s is interrupted: %s %s", self.host.run.id, error, error.detail)
                self.interrupt(error)
            raise

    async def _settled_twin(self, act: Call) -> None:
        """What became of an act has become of the call that its agent told meanwhile, or tells now."""
        call = act.twin
        if call is None or call.phase is not Phase.ASKING:
            return
        if act.phase is Phase.ALLOWED:
            call.decision, call.approval = replace(act.decision, counted=()), act.approval
            await self.session.called(call, call.approval)
            call.recorded, call.phase = True, Phase.ALLOWED
        elif act.phase is Phase.REFUSED and not self.closed:
            call.decision = act.decision
            await self.refuse(call, "it was refused as it was to be made")
        else:
            call.phase = Phase.ANNOUNCED
        call.moved()

    @property
    def _rules(self) -> Rules:
        return self._now()

    def _rules_say(self, call: Call) -> Decision:
        call.rules = self._rules
        if call.turn:
            return self._rules.turn()
        said = [(call.tool, call.server), *(call.earlier - {(call.tool, call.server)})]
        call.earlier = frozenset()
        for tool, _ in said:
            if not approval.within(self.host.run.request, tool):
                return Decision(kind=Kind.DENY, policy=None, why=f"whoever asked for the run has no tool {tool}")
        decisions = [
            self._rules.call(tool, server=server, risk=call.risk, at=self.session.now()) for tool, server in said
        ]
        return max(decisions, key=lambda one: RANK[one.kind])

    def _recalled(self, interrupt: Interrupt) -> Asked | None:
        """A question of before a restart, whose call the agent has not told again: judged by the rules of now."""
        call = approval.recalled(interrupt)
        if call is None:
            return None
        call.decision = self._rules_say(call)
        asked = self._asked[interrupt.id] = Asked(call)
        return asked

    def _name(self, call: Call) -> str:
        """An id for a question; that which it had before a restart, if it was asked then."""
        name, before = self.before.pop(call.id, ("", None))
        if before is not None and before.same(call):
            return name
        name, count = f"approval-{call.id}", 1
        while self.host.was_asked(name):
            count += 1
            name = f"approval-{call.id}#{count}"
        return name
