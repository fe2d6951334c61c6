"""Records one session in the audit log: its operator's transitions and tool calls, in AIP-44's form."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.contract.governing import Instruction
from gateway.core.types import Json, JsonObject, Run
from gateway.governance.audit import AppliedPolicy, AuditEvent, aip44
from gateway.governance.audit.aip44 import AUTO, State
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.restoring import UnfinishedSession
from gateway.governance.policy import Decision
from gateway.governance.skills import Skill
from gateway.store import Allowance

if TYPE_CHECKING:
    from gateway.governance.enforcing.calls import GovernedCall

ANONYMOUS = "anonymous"
"""The approver's id, if no one was authenticated."""
BUDGETS: Final = "budgets"
"""The key in the record of a call (`metadata.aip44.audit`) with the slugs of the policies that counted it."""

SKILLS: Final = "skills"
"""The loss that counts skills of which an agent could not be told."""


class AuditedSession:
    """`name`: see `session_of`. Every method raises Unavailable if it is not on disk."""

    def __init__(self, journal: Journal, operator: str, name: str) -> None:
        self.name = name
        self._journal = journal
        self._who: dict[str, Any] = {"operator": operator, "session": name}

    def now(self) -> float:
        """The time for the rules, in seconds since the epoch."""
        return self._journal.now()

    # --- transitions ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> State | None:
        return self._journal.state(self.name)

    @property
    def left(self) -> UnfinishedSession:
        """The session as an earlier process left it, according to the log."""
        return self._journal.left(self.name)

    def goes_on(self, state: State, calls: Collection[str]) -> None:
        """Go on with a run of before a restart and these calls. `state` is used if the log has none."""
        self._journal.goes_on(self.name, calls)
        if self.state is None:
            self._journal.moved(self.name, state)

    async def moved(self, after: State, why: JsonObject) -> None:
        """Record a transition of the operator, unless it is in that state already."""
        before = self.state
        if before == after:
            return
        await self._write(aip44.transition(**self._who, before=before, after=after, why=why))
        self._journal.moved(self.name, after)

    async def begins(self, who: JsonObject) -> bool:
        """Record the start of a run: the operator is invoked, if it was not, and runs. False if it is busy with
        another.

        `who` started it (see `by`).
        """
        if self.state in ("running", "suspended", "resumed"):
            return False
        if self.state is None:
            await self.moved("invoked", who)
        await self.moved("running", who)
        return True

    async def closed(self) -> None:
        await self._write(aip44.closed(**self._who))
        self._journal.moved(self.name, None)

    def forget(self) -> None:
        """Forget the session's state, since nothing more happens in it."""
        self._journal.moved(self.name, None)

    # --- skills --------------------------------------------------------------------------------------------------

    def told_of(self, skills: Sequence[Skill]) -> bool:
        """Whether its agent was told these skills in their current form."""
        return self._journal.told.get(self.name) == _digest(skills)

    async def tells(self, skills: Sequence[Skill]) -> None:
        """Record that its agent is going to be told these skills."""
        await self._write(
            *(
                aip44.skill(
                    **self._who, skill=one.id, version=one.version, sha256=one.sha256, size=len(one.body.encode())
                )
                for one in skills
            )
        )

    def told(self, skills: Sequence[Skill]) -> None:
        """Note that the agent was told these skills and has answered."""
        self._journal.told[self.name] = _digest(skills)

    # --- tool calls ----------------------------------------------------------------------------------------------

    async def spend(self, allowances: Sequence[Allowance]) -> bool:
        """Spend these parts of budgets, all or none. Returns whether they are spent."""
        return await self._journal.spend(allowances)

    async def called(self, call: GovernedCall, approval: str | None = AUTO) -> None:
        """Record a call. Without `approval` it waits for one."""
        await self._write(self._call(call, approval))

    async def waits(self, call: GovernedCall, approvers: list[str]) -> None:
        """Record a call and the question about it."""
        decision = call.decision
        asked = aip44.approval_asked(**self._of(call), policy=_policy(decision), of=approvers, why=decision.why)
        if call.turn:
            await self._write(asked)
        else:
            await self._write(self._call(call, None), asked)

    async def answered(self, call: GovernedCall, by: str, role: str, *, approved: bool, enough: bool) -> None:
        """Record an answer. `enough`: no more approvals are needed."""
        given = aip44.approval_given(
            **self._of(call),
            by=by or ANONYMOUS,
            role=role,
            approved=approved,
            policy=_policy(call.decision),
            enough=enough,
        )
        await self._write(given)

    async def refused(self, call: GovernedCall, why: str) -> None:
        await self._write(self._call(call, None, refused=why))

    async def ended(self, call: GovernedCall, result: Json, error: Json) -> None:
        await self._write(aip44.tool_result(**self._of(call), result=result, error=error, approval=call.approval))

    async def _write(self, *events: AuditEvent) -> None:
        await self._journal.write(self.name, *events)

    def _of(self, call: GovernedCall) -> JsonObject:
        """What every entry about a call has."""
        return {**self._who, "tool": call.tool, "call": call.id}

    def _call(self, call: GovernedCall, approval: str | None, *, refused: str | None = None) -> AuditEvent:
        """`refused`: why it is."""
        decision = call.decision
        more: JsonObject = {"server": call.server, "risk": call.risk, "notes": list(decision.notes) or None}
        if decision.counted and not call.recorded and refused is None:
            more[BUDGETS] = list(decision.counted)
        return aip44.tool_call(
            **self._of(call),
            arguments=call.arguments,
            approval=approval,
            policy=_policy(decision),
            refused=refused is not None,
            why=decision.why if refused is None else refused,
            **more,
        )


def _digest(skills: Sequence[Skill]) -> tuple[str, ...]:
    return tuple(one.sha256 for one in skills)


def instructions(skills: Sequence[Skill]) -> tuple[Instruction, ...]:
    """Return the skills that have instructions, as outbound adapters see them."""
    return tuple(Instruction(skill.id, skill.ref, skill.body) for skill in skills if skill.body)


def session_of(run: Run) -> str:
    """The name of the session that a run belongs to: its thread's, or its own where it has none."""
    return run.thread or run.id


def by(principal: str | None, protocol: str) -> JsonObject:
    """Return the client that starts an operator, for `output`: its protocol and principal."""
    found = {"protocol": protocol, "principal": principal}
    return {key: value for key, value in found.items() if value}


def _policy(decision: Decision) -> AppliedPolicy | None:
    return AppliedPolicy(decision.policy, decision.kind.value) if decision.policy is not None else None
