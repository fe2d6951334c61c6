"""One tool call of a governed run: its facts, the rules' decision, and its phase; the question about it, and the people
whose answers count. No IO; only a call changes itself.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gateway.access.patterns import fits
from gateway.contract.governing import APPROVAL, APPROVALS, APPROVE, DECISION
from gateway.core import events as e
from gateway.core.errors import Denied
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome, RunRequest
from gateway.governance.audit.aip44 import AUTO
from gateway.governance.matching import TURN
from gateway.governance.policy import Decision, Kind, Signatory

UNDECIDED: Final = Decision(kind=Kind.DENY, policy=None, why="it was not decided")
WAITING: Final = (None, "pending")
"""The statuses of a call that has not begun."""


NOBODY: Final = "nobody may approve it"


class CallPhase(enum.Enum):
    """Where a call is. `MOVES` has the legal transitions."""

    NEW = "not decided"
    ANNOUNCED = "needs approval, and its agent may still ask for it"
    ASKING = "a question about it is open"
    ALLOWED = "shown"
    REFUSED = "never shown"
    ENDED = "over"


MOVES: Final[Mapping[CallPhase, frozenset[CallPhase]]] = {
    CallPhase.NEW: frozenset(
        {CallPhase.ANNOUNCED, CallPhase.ASKING, CallPhase.ALLOWED, CallPhase.REFUSED, CallPhase.ENDED}
    ),
    CallPhase.ANNOUNCED: frozenset({CallPhase.NEW, CallPhase.ASKING, CallPhase.REFUSED}),
    CallPhase.ASKING: frozenset({CallPhase.ANNOUNCED, CallPhase.ALLOWED, CallPhase.REFUSED}),
    CallPhase.ALLOWED: frozenset({CallPhase.NEW, CallPhase.ENDED}),
    CallPhase.REFUSED: frozenset(),
    CallPhase.ENDED: frozenset(),
}
"""Where a call may go from each phase. Back to NEW goes one that has changed since it was decided."""


@dataclass(eq=False)
class GovernedCall:
    """A tool call, from its first mention to its end. Others read its fields and change it by its methods only."""

    id: str
    tool: str = ""
    server: str | None = None
    risk: int = 0
    arguments: Json = None
    phase: CallPhase = CallPhase.NEW
    decision: Decision = UNDECIDED
    rules: object = None
    """The rules that made the decision."""
    approval: str = AUTO
    """The approver's id."""
    signed: set[Signatory] = field(default_factory=set)
    turn: bool = False
    """Whether it is the operator's next turn, which waits for approval as a tool call does."""
    named: bool = False
    """Whether the adapter has named the tool; `rated` says the same of the risk."""
    rated: bool = False
    pending: bool = False
    """Whether its agent has announced it and not begun it."""
    over: bool = False
    """Whether its agent has ended it without having begun."""
    judged: bool = False
    """Whether the rules were asked, even if their decision is not recorded yet."""
    recorded: bool = False
    """Whether the log has the decision."""
    stale: bool = False
    """Whether it has another tool than was decided about, a higher risk, or other arguments than a person approved."""
    another: bool = False
    """Whether it is stale for more than its risk, so that earlier approvals do not count."""
    earlier: frozenset[tuple[str, str | None]] = frozenset()
    """The tools and servers that it was said to have before a decision."""
    grown: bool = False
    """Whether its arguments differ from those in the log."""
    content: Json = None
    """Its result so far."""
    old: bool = False
    """Whether it was shown before a restart, and has not ended."""
    act: bool = False
    """Whether the gateway carries it out for the agent, without an event."""
    twin: GovernedCall | None = None
    """The same call as the agent told it the other way: of an act, the one that events tell, and vice versa."""

    def __post_init__(self) -> None:
        self.deciding = asyncio.Lock()
        self._moved: asyncio.Event | None = None

    @property
    def allowed(self) -> bool:
        """Whether it may be shown."""
        return self.phase in (CallPhase.ALLOWED, CallPhase.ENDED)

    # --- transitions ---------------------------------------------------------------------------------------------

    def to(self, phase: CallPhase) -> None:
        """Go to another phase, and wake all that wait for a change. Raises RuntimeError for an illegal transition.

        Nothing is woken for NEW, since a decision follows at once.
        """
        if phase not in MOVES[self.phase]:
            raise RuntimeError(f"call {self.id} cannot go from {self.phase.name} to {phase.name}")
        self.phase = phase
        if phase is not CallPhase.NEW:
            self.moved()

    def take_up(self) -> bool:
        """Begin a decision if one is due: the call is new, or has changed since it was decided."""
        if self.phase in (CallPhase.ALLOWED, CallPhase.ANNOUNCED) and self.stale:
            self.to(CallPhase.NEW)
        if self.phase is not CallPhase.NEW:
            return False
        if self.another:
            self.signed = set()
        self.stale = self.another = self.grown = self.recorded = False
        self.judged = True
        return True

    def decided(self, decision: Decision) -> None:
        """Take the decision about its twin."""
        self.decision = decision

    def ruled(self, decision: Decision, rules: object) -> None:
        """Take the decision that these rules made about every tool that it was said to have."""
        self.decision, self.rules, self.earlier = decision, rules, frozenset()

    def allow(self, approval: str = AUTO) -> None:
        """It may be shown, and the log says so."""
        self.recorded, self.approval = True, approval
        self.to(CallPhase.ALLOWED)

    def as_before(self) -> None:
        """It was shown before a restart."""
        self.logged()
        self.old = True
        self.allow()

    def approved(self, approval: str) -> None:
        """Note the approver of before a restart."""
        self.approval = approval

    def follow(self, twin: GovernedCall) -> None:
        """Take the decision about the same call."""
        self.decision, self.approval = twin.decision, twin.approval
        self.to(twin.phase)

    def ended(self) -> None:
        self.content = self.arguments = None

    # --- facts -----------------------------------------------------------------------------------------------------

    def announce(self, pending: bool = True) -> None:
        """Note whether its agent may still ask for permission, unless it was decided."""
        if self.phase is CallPhase.NEW:
            self.pending = pending

    def begun(self) -> None:
        """Its agent has begun it, and asks for no permission any more."""
        self.pending = False
        self.moved()

    def stopped(self, *, unbegun: bool) -> None:
        """Its agent has told its end. `unbegun`: if it was only announced, it never began."""
        self.over = self.pending = self.pending and unbegun
        self.moved()

    def abandoned(self) -> None:
        """The run ends, so a call that was only announced never begins."""
        self.over = self.over or self.pending
        self.moved()

    def logged(self) -> None:
        """The log has, or is about to get, its arguments as they are now."""
        self.grown = False

    def gave(self, content: Json) -> None:
        """Note a part of its result, if there is one."""
        if content is not None:
            self.content = content

    def pair(self, other: GovernedCall) -> None:
        """Both are the same call."""
        self.twin = other
        if other.twin is not self:
            other.pair(self)

    def describe(self, tool: str | None, server: str | None, risk: int | None, arguments: Json) -> None:
        """Note what is said of it. A decision stands unless the tool changes or the risk rises."""
        before = (self.tool, self.server, self.risk)
        if tool is not None:
            self.tool, self.named = tool, True
        if server is not None:
            self.server = server
        if risk is not None:
            self.risk = max(self.risk, risk) if self.rated or self.judged else risk
            self.rated = True
        if arguments is not None and arguments != self.arguments:
            self.arguments = arguments
            self.grown = True
            self.twin = None
            if self.phase is CallPhase.ASKING or (self.phase is CallPhase.ALLOWED and self.approval != AUTO):
                self.stale = self.another = True
        if not self.judged and before[0] and (self.tool, self.server) != before[:2]:
            self.earlier |= {before[:2]}
        if self.judged and (self.tool, self.server, self.risk) != before:
            self.stale = True
            self.another = self.another or (self.tool, self.server) != before[:2]

    def started(self, event: e.ToolCallStarted, risk: int) -> None:
        """Note its first event. What the adapter has said of it counts for more."""
        self.describe(
            None if self.named else event.name, None, None if self.rated else risk, _either(event.input, self.arguments)
        )

    def like(self, other: GovernedCall) -> bool:
        """Whether both have the same tool and the same arguments."""
        known = (self.tool, self.server, self.arguments)
        return known == (other.tool, other.server, other.arguments)

    def same(self, other: GovernedCall) -> bool:
        """Whether an approval of this call is one of the other."""
        return self.like(other) and self.risk >= other.risk

    def moved(self) -> None:
        """Wake all that wait for a change."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def change(self) -> None:
        """Wait until something about it changes. Several tasks may wait."""
        if self._moved is None:
            self._moved = asyncio.Event()
        await self._moved.wait()


def _either(first: Json, second: Json) -> Json:
    return second if first is None else first


def approves(answer: Answer) -> bool:
    """Whether the answer to one of our questions is yes."""
    return isinstance(answer.value, dict) and answer.value.get(DECISION) == APPROVE


@dataclass(frozen=True)
class AskedApproval:
    """A call that a question is about. `grants`: whether an answer is a yes."""

    call: GovernedCall
    grants: Callable[[Answer], bool] = approves

    def yes(self, answer: Answer) -> bool:
        """Whether the answer approves. Only an explicit yes does."""
        return answer.outcome is Outcome.ANSWERED and self.grants(answer)


def within(request: RunRequest, tool: str) -> bool:
    """Whether the run's client may have the tool called at all."""
    return request.tools is None or fits(tool, request.tools)


def check(call: GovernedCall, by: Signatory) -> None:
    """Raise Denied for a person whose approval does not count."""
    if call.decision.kind is not Kind.ALLOW and not counts(call.decision, by):
        who = by.id or "who is not authenticated"
        raise Denied(f"{who} may not approve {call.tool}: {whom(call.decision)}")


def signatory(answer: Answer) -> Signatory:
    """Return who answered. An anonymous client has no id and no roles, so it counts only where anybody may approve."""
    by = answer.by
    return Signatory(id=by.id, roles=frozenset(by.roles)) if by is not None else Signatory(id="")


def counts(decision: Decision, by: Signatory) -> bool:
    """Whether a person's approval counts towards one that the decision needs."""
    return any(replace(way, quorum=1).met([by]) for need in decision.needs for way in need.ways)


def approvers(decision: Decision) -> list[str]:
    """List the roles and people that may approve. Empty if anybody may."""
    return list(dict.fromkeys(signer.user or signer.role for signer in decision.signers))


def whom(decision: Decision) -> str:
    """Say in words who may approve."""
    if any(not need.ways for need in decision.needs):
        return NOBODY
    names, quorum = approvers(decision), decision.quorum
    if not names:
        return "anybody may" if quorum < 2 else f"it takes {quorum} people"
    return f"it takes {f'{quorum} of ' if quorum > 1 else ''}{', '.join(names)}"


def question(call: GovernedCall, name: str) -> Interrupt:
    """Make the interrupt that asks the run's caller. `name` is its id."""
    decision = call.decision
    payload: JsonObject = {
        "call": call.id,
        "tool": call.tool,
        "arguments": call.arguments,
        "risk": call.risk,
        "approvers": approvers(decision),
        "why": decision.why,
    }
    if call.server is not None:
        payload["server"] = call.server
    if decision.policy is not None:
        payload["policy"] = decision.policy
    what = "May the agent take its turn?" if call.turn else f"May the tool {call.tool} be called?"
    return Interrupt(
        id=name,
        kind=APPROVAL,
        payload=payload,
        message=f"{what} {decision.why}; {whom(decision)}.",
        answer_schema=APPROVALS.answer_schema,
    )


def own(interrupt: Interrupt) -> Interrupt:
    """Change an agent's question that looks like one of ours, so that it is not taken for one."""
    if recalled(interrupt) is None:
        return interrupt
    return replace(interrupt, answer_schema={**interrupt.answer_schema, "title": "The agent's own question"})


def recalled(interrupt: Interrupt) -> GovernedCall | None:
    """Return the call of a question that we asked before a restart; None for any other question."""
    said: Json = interrupt.payload
    if interrupt.kind != APPROVAL or interrupt.answer_schema != APPROVALS.answer_schema or not isinstance(said, dict):
        return None
    return GovernedCall(
        id=str(said.get("call")),
        tool=str(said.get("tool")),
        server=said.get("server"),
        risk=said.get("risk", 0),
        arguments=said.get("arguments"),
        turn=said.get("tool") == TURN,
    )


def why_not(call: GovernedCall) -> str:
    """Say why a call is not made, for the run's client."""
    decision = call.decision
    what = "the turn" if call.turn else f"the tool {call.tool}"
    by = f" by policy {decision.policy}" if decision.policy else ""
    if decision.kind is Kind.DENY:
        return f"{what} is refused{by}: {decision.why}"
    return f"{what} was not approved, which is asked for{by}: {decision.why}"
