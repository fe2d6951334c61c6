"""Decides what may be done: `PolicyRules(governance, operator).decide(...)`.

Every policy that matches has a say, at every level of the chain of `extends`, and the strictest wins:
deny > escalate > require-approval > allow. So neither the order of policies nor the depth of a view matters, and no
view ever allows what the posture that it extends does not.

What no policy matches goes by the default approval; where there is none, by autonomy. The ceiling of autonomy and the
operator's own class then bound what is allowed. docs/governance.md has the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.governance.budgets import Budgets, merged
from gateway.governance.manifests import Operator, Policy, Signer, ToolGrant
from gateway.governance.matching import (
    MUTATES,
    RISKS,
    TOOL_CALL,
    TURN,
    action_matches,
    is_of_actions,
    specificity,
    subject_matches,
)
from gateway.governance.posture import Governance, Level, RegisteredPolicy, named
from gateway.store import Allowance

CEILING: Final = {0: 0, 1: 0, 2: 2, 3: 3}
"""By the level of a posture: the highest risk that may be allowed without approval, whatever a policy says."""
UNMATCHED: Final = {0: 0, 1: 0, 2: 0, 3: 3}
"""By autonomy: the highest risk that is allowed without a matching policy or a default approval."""
CLASSES: Final = {"autonomous": 3, "supervised": 2, "gated": 0}
"""An operator's class on the ladder of autonomy, where no posture gives a level."""
LADDER: Final = 2
"""Autonomy where nothing says: the default of AIP-7's policies."""


class Kind(enum.StrEnum):
    """The kinds of decisions, the mildest first."""

    ALLOW = "allow"
    ASK = "require-approval"
    ESCALATE = "escalate"
    DENY = "deny"


RANK: Final = {kind: rank for rank, kind in enumerate(Kind)}


class Signatory(msgspec.Struct, frozen=True, kw_only=True):
    """Someone who has approved: an id, and the roles that whoever authenticated them vouches for."""

    id: str
    roles: frozenset[str] = frozenset()


class ApprovalWay(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """So many of these. No signers: anyone who is asked."""

    signers: tuple[Signer, ...] = ()
    quorum: int = 1

    def met(self, by: Iterable[Signatory]) -> bool:
        """Whether enough different people of them have approved."""
        fitting = {one.id for one in by if not self.signers or any(_is(one, signer) for signer in self.signers)}
        return len(fitting) >= self.quorum


class Need(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An approval that an action needs: one of the ways is enough, and there may be none."""

    policy: str
    ways: tuple[ApprovalWay, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `policy` is the slug of the narrowest policy that says so, None if none does; `why` is for people."""

    kind: Kind
    policy: str | None
    why: str
    needs: tuple[Need, ...] = ()
    """All of them, before an action that is not simply allowed may go on. Empty for allow and deny."""
    notes: tuple[str, ...] = ()
    """Policies that are only told (severity warn and info) and would have said no."""
    counted: tuple[str, ...] = ()
    """Slugs of the policies whose budgets this uses up a part of."""
    allowances: tuple[Allowance, ...] = ()
    """Those parts. An `allow` is one only once they are spent."""

    @property
    def signers(self) -> tuple[Signer, ...]:
        """All who may approve a part of it."""
        found = [signer for need in self.needs for way in need.ways for signer in way.signers]
        return tuple(dict.fromkeys(found))

    @property
    def quorum(self) -> int:
        """The least number of people that it takes."""
        return max((min((way.quorum for way in need.ways), default=1) for need in self.needs), default=0)

    def released(self, by: Iterable[Signatory]) -> bool:
        """Whether the action may go on now that these have approved (who rejects, ends it: that is the caller's)."""
        approved = [*by]
        if self.kind in (Kind.ALLOW, Kind.DENY):
            return self.kind is Kind.ALLOW
        return bool(self.needs) and all(any(way.met(approved) for way in need.ways) for need in self.needs)


def strictest(decisions: Sequence[Decision]) -> Decision:
    """Return the strictest, the first of several. An `allow` uses, once, what any of them uses."""
    found = max(decisions, key=lambda one: RANK[one.kind])
    if found.kind is not Kind.ALLOW:
        return found
    counted = tuple(dict.fromkeys(slug for one in decisions for slug in one.counted))
    return replace(found, counted=counted, allowances=merged(part for one in decisions for part in one.allowances))


class _Act(msgspec.Struct, frozen=True, kw_only=True):
    """The action that `decide` is about."""

    action: str
    subject: str
    risk: int
    at: float
    countable: bool


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one policy, or one default, at one level."""

    kind: Kind
    why: str
    policy: Policy | None = None
    need: Need | None = None


class PolicyRules:
    """The rights of one operator, or of any agent without one, under one posture.

    Either may be None. `budgets` says what is used up; whoever acts on a decision spends its `allowances`.
    """

    def __init__(
        self, governance: Governance | None, operator: Operator | None = None, *, budgets: Budgets | None = None
    ) -> None:
        self.governance = governance
        self.operator = operator
        self._levels = governance.levels if governance is not None else ()
        self._budgets = budgets or Budgets()

    # --- tools --------------------------------------------------------------------------------------------------

    def grant(self, tool: str, server: str | None) -> ToolGrant | None:
        """Return the grant for a tool, of an MCP server or not; None: no grant. Without an operator all are granted."""
        if self.operator is None:
            return ToolGrant(tool=tool, server=server)
        for grant in self.operator.tools:
            if grant.server is not None:
                if grant.server == server and (grant.allow is None or tool in grant.allow):
                    return grant
            elif server is None and grant.tool == tool:
                return grant
        return None

    def call(self, tool: str, *, server: str | None = None, risk: int, at: float, countable: bool = True) -> Decision:
        """Whether a tool may be called: as `decide`, and denied where the operator has no grant for it."""
        if self.grant(tool, server) is None:
            assert self.operator is not None
            of = f" of the MCP server {server}" if server else ""
            return Decision(kind=Kind.DENY, policy=None, why=f"{self.operator.id} has no tool {tool}{of}")
        return self.decide(TOOL_CALL, tool, risk=risk, at=at, countable=countable)

    def turn(self) -> Decision:
        """Whether a turn may begin: a gated operator needs an approval for each."""
        if self.operator is None or self.operator.autonomy != "gated":
            return Decision(kind=Kind.ALLOW, policy=None, why="turns need no approval")
        why = f"{self.operator.id} is gated"
        asked = [self._ask(level, TURN, 0, why) for level in self._levels or (None,)]
        kind = max((verdict.kind for verdict in asked), key=RANK.__getitem__)
        needs = {verdict.need for verdict in asked if verdict.need is not None}
        return Decision(kind=kind, policy=None, why=why, needs=tuple(sorted(needs)))

    # --- actions ------------------------------------------------------------------------------------------------

    def decide(self, action: str, subject: str, *, risk: int, at: float, countable: bool = True) -> Decision:
        """Decide about an action, now.

        `action` is a class with dots (`tool.call`), `subject` what it acts on (an id, or a path of the workspace),
        `risk` as in RISKS, `at` seconds since the epoch, `countable` whether anyone can count it. Raises ValueError for
        a risk that there is none of.
        """
        if risk not in RISKS:
            raise ValueError(f"risk is 0 to 3, not {risk}")
        act = _Act(action=action, subject=subject, risk=risk, at=at, countable=countable)
        notes: list[str] = []
        verdicts: list[_Verdict] = []
        for level in self._levels:
            verdicts += self._level(level, act, notes)
        if not self._levels:
            verdicts.append(self._unmatched(None, action, risk))
        verdicts += self._own(action, risk)
        kind = max(verdicts, key=lambda verdict: RANK[verdict.kind]).kind
        speaking = [v.policy for v in verdicts if v.policy is not None]
        counted = [policy for policy in speaking if kind is Kind.ALLOW and policy.budget is not None]
        said = [verdict for verdict in verdicts if verdict.kind is kind]
        first = max(said, key=lambda v: (v.policy is not None, _narrow(v.policy), v.policy.slug if v.policy else ""))
        needs = () if kind in (Kind.ALLOW, Kind.DENY) else {v.need for v in verdicts if v.need is not None}
        return Decision(
            kind=kind,
            policy=first.policy.slug if first.policy else None,
            why=first.why,
            needs=tuple(sorted(needs)),
            notes=tuple(sorted(set(notes))),
            counted=tuple(dict.fromkeys(policy.slug for policy in counted)),
            allowances=self._budgets.allowances(counted, at),
        )

    def _level(self, level: Level, act: _Act, notes: list[str]) -> list[_Verdict]:
        """Return the verdicts of one level, at least one."""
        found: list[_Verdict] = []
        for bound in level.policies:
            if not _speaks(bound, act):
                continue
            verdict = self._policy(level, bound.policy, act)
            if bound.severity == "error" or verdict.kind is Kind.ALLOW:
                found.append(verdict)
            else:
                notes.append(f"{bound.severity}: {verdict.why}")
        if not found:
            found.append(self._default(level, act))
        ceiling = level.autonomy
        if ceiling is not None and act.risk > CEILING[ceiling]:
            why = f"autonomy {ceiling} has a person approve risk {act.risk}"
            found.append(self._ask(level, act.action, act.risk, why))
        return found

    def _policy(self, level: Level, policy: Policy, act: _Act) -> _Verdict:
        """One policy's verdict, after its own bounds of autonomy and budget."""
        kind, why = Kind(policy.decision), f"{policy.slug} says {policy.decision}"
        if kind is not Kind.DENY and (autonomy := self._autonomy(level)) > policy.autonomy:
            kind, why = Kind.ESCALATE, f"{policy.slug} escalates above autonomy {policy.autonomy}: it is {autonomy}"
        if kind is Kind.ALLOW and (spent := self._why_not(policy, act)):
            kind, why = Kind.ASK, f"{policy.slug} asks: {spent}"
        need = None
        if kind in (Kind.ASK, Kind.ESCALATE):
            signed = (
                (ApprovalWay(signers=tuple(sorted(policy.signers)), quorum=policy.quorum),) if policy.signers else ()
            )
            ways = signed or (self._above(level, act.action, act.risk) if kind is Kind.ESCALATE else _ANYBODY.ways)
            need = Need(policy=policy.slug, ways=ways)
        return _Verdict(kind=kind, why=why, policy=policy, need=need)

    def _why_not(self, policy: Policy, act: _Act) -> str:
        if policy.budget is not None and not act.countable:
            return "it has a budget, and nobody knows what is left of it"
        return self._budgets.why_not(policy, act.at)

    def _default(self, level: Level, act: _Act) -> _Verdict:
        """Return the verdict about an action that no policy matches."""
        default = level.default_approval
        if default is None:
            return self._unmatched(level, act.action, act.risk)
        if default.startswith("policy:"):
            bound = named(level.policies, default.removeprefix("policy:"))
            assert bound is not None, "load_workspace refuses a default that is not registered"
            return self._policy(level, bound.policy, act)
        if default == "auto" or (default == "on-mutate" and act.risk < MUTATES):
            return _Verdict(kind=Kind.ALLOW, why=f"no policy matches, and the default approval is {default}")
        return self._ask(level, act.action, act.risk, f"no policy matches, and the default approval is {default}")

    def _unmatched(self, level: Level | None, action: str, risk: int) -> _Verdict:
        autonomy = self._autonomy(level)
        why = f"no policy matches, and autonomy is {autonomy}"
        if risk <= UNMATCHED[autonomy]:
            return _Verdict(kind=Kind.ALLOW, why=why)
        return self._ask(level, action, risk, why)

    def _own(self, action: str, risk: int) -> list[_Verdict]:
        """The operator's class: what is supervised or gated asks before it changes anything."""
        if self.operator is None or self.operator.autonomy == "autonomous" or risk < MUTATES:
            return []
        why = f"{self.operator.id} is {self.operator.autonomy}"
        return [self._ask(level, action, risk, why) for level in self._levels or (None,)]

    # --- who is asked -------------------------------------------------------------------------------------------

    def _ask(self, level: Level | None, action: str, risk: int, why: str) -> _Verdict:
        """Approval by the posture's approvers of that class; escalated where there are none, if it says to whom."""
        need = _ANYBODY if level is None else self._default_need(level, action, risk)
        if need.ways or level is None:
            return _Verdict(kind=Kind.ASK, why=why, need=need)
        need = Need(policy="", ways=self._above(level, action, risk))
        return _Verdict(kind=Kind.ESCALATE, why=f"{why}, and no approver may approve {action}", need=need)

    def _default_need(self, level: Level, action: str, risk: int) -> Need:
        if not level.approvers:
            return _ANYBODY if _escalation(level, action, risk) is None else Need(policy="", ways=())
        ways = [
            ApprovalWay(signers=(Signer(role=approver.role or approver.id),), quorum=approver.quorum)
            for approver in level.approvers
            if any(action_matches(name, action, risk) for name in approver.may)
        ]
        return Need(policy="", ways=tuple(sorted(ways)))

    def _above(self, level: Level, action: str, risk: int) -> tuple[ApprovalWay, ...]:
        """Return who decides escalated actions; none if the posture does not say."""
        ways = [ApprovalWay(signers=(Signer(role=level.escalate_to),))] if level.escalate_to else []
        if (to := _escalation(level, action, risk)) is not None:
            there = [one for one in level.approvers if one.may]
            meant = [one for one in there if to in (one.id, one.role)] or [one for one in there if to in one.may]
            ways += [ApprovalWay(signers=(Signer(role=one.role or one.id),), quorum=one.quorum) for one in meant]
            ways += [] if meant else [ApprovalWay(signers=(Signer(role=to),))]
        return tuple(sorted(set(ways)))

    def _autonomy(self, level: Level | None) -> int:
        if level is not None and level.autonomy is not None:
            return level.autonomy
        return LADDER if self.operator is None else CLASSES[self.operator.autonomy]


_ANYBODY: Final = Need(policy="", ways=(ApprovalWay(),))


def _escalation(level: Level, action: str, risk: int) -> str | None:
    """To whom an approval of such an action goes that no approver can give. A `from` that is a class of actions is for
    those; any other (AIP-7's example has `operator`) is for all.
    """
    if level.escalation is None:
        return None
    which, to = level.escalation
    return to if not is_of_actions(which) or action_matches(which, action, risk) else None


def _speaks(bound: RegisteredPolicy, act: _Act) -> bool:
    policy = bound.policy
    return (
        act.risk >= policy.risk_min
        and action_matches(bound.applies_to, act.action, act.risk)
        and action_matches(policy.action, act.action, act.risk)
        and subject_matches(policy.subject, act.subject)
    )


def _narrow(policy: Policy | None) -> tuple[int, int]:
    return (0, 0) if policy is None else specificity(policy.subject, policy.risk_min)


def _is(one: Signatory, signer: Signer) -> bool:
    """Whether that is who the policy means: a user by id; a role that they have, or that is their very id."""
    if signer.user and signer.user != one.id:
        return False
    return not signer.role or signer.role in one.roles or signer.role == one.id
