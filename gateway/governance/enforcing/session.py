"""What is recorded of one session: its operator's transitions and tool calls, in AIP-44's form."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.core.types import Json, JsonObject
from gateway.governance.audit import Event, Policy, aip44
from gateway.governance.audit.aip44 import AUTO, State
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.reopened import OpenSession
from gateway.governance.policy import Decision
from gateway.governance.skills import Skill

if TYPE_CHECKING:
    from gateway.governance.enforcing.calls import Call

ANONYMOUS = "anonymous"
"""Who answered, where nobody was authenticated."""
BUDGETS: Final = "budgets"
"""The key in the record of a call (`metadata.aip44.audit`) with the slugs of the policies that counted it."""


class Session:
    """`name` is the thread's, or the run's where it has none. Every method raises Unavailable if it is not on disk."""

    def __init__(self, journal: Journal, operator: str, name: str) -> None:
        self.name = name
        self._journal = journal
        self._who: dict[str, Any] = {"operator": operator, "session": name}

    def now(self) -> float:
        """The time that rules go by, in seconds since the epoch."""
        return self._journal.now()

    # --- transitions ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> State | None:
        """What its operator was last doing, as far as is known."""
        return self._journal.state(self.name)

    @property
    def left(self) -> OpenSession:
        """What was begun in it before a restart, as the log has it."""
        return self._journal.left(self.name)

    def goes_on(self, state: State, calls: Collection[str]) -> None:
        """A run goes on in it that was begun before a restart, with these calls. `state` where the log has none."""
        self._journal.goes_on(self.name, calls)
        if self.state is None:
            self._journal.moved(self.name, state)

    async def moved(self, after: State, why: JsonObject | None = None) -> None:
        """The operator does something else now. One that does so already is not recorded twice."""
        before = self.state
        if before == after:
            return
        await self._write(aip44.transition(**self._who, before=before, after=after, why=why))
        self._journal.moved(self.name, after)

    async def begins(self, who: JsonObject | None = None) -> bool:
        """A run starts: the operator is invoked, unless it was, and runs. False if it is busy with another.

        `who` has it run (see `by`).
        """
        if self.state in ("running", "suspended", "resumed"):
            return False
        if self.state is None:
            await self.moved("invoked", who)
        await self.moved("running", who)
        return True

    async def closed(self) -> None:
        """The session is over, and its audit with it."""
        await self._write(aip44.closed(**self._who))
        self._journal.moved(self.name, None)

    def forget(self) -> None:
        """Nothing else will happen in it."""
        self._journal.moved(self.name, None)

    # --- skills --------------------------------------------------------------------------------------------------

    def told_of(self, skills: Sequence[Skill]) -> bool:
        """Whether its agent was told of these, as they are now."""
        return self._journal.told.get(self.name) == _digest(skills)

    async def tells(self, skills: Sequence[Skill]) -> None:
        """Its agent is going to be told of these."""
        await self._write(
            *(
                aip44.skill(
                    **self._who, skill=one.id, version=one.version, sha256=one.sha256, size=len(one.body.encode())
                )
                for one in skills
            )
        )

    def told(self, skills: Sequence[Skill]) -> None:
        """It was, and has answered."""
        self._journal.told[self.name] = _digest(skills)

    # --- tool calls ----------------------------------------------------------------------------------------------

    async def called(self, call: Call, approval: str | None = AUTO) -> None:
        """The call may be shown now; without `approval` it waits for one."""
        await self._write(self._call(call, approval))

    async def waits(self, call: Call, approvers: list[str]) -> None:
        """The call is wanted, and somebody is asked."""
        decision = call.decision
        asked = aip44.approval_asked(
            **self._who, tool=call.tool, call=call.id, policy=_policy(decision), of=approvers, why=decision.why
        )
        if call.turn:
            await self._write(asked)
        else:
            await self._write(self._call(call, None), asked)

    async def answered(self, call: Call, by: str, role: str, *, approved: bool, enough: bool = True) -> None:
        """Somebody has answered. `enough`: nobody else need approve it."""
        given = aip44.approval_given(
            **self._who,
            by=by or ANONYMOUS,
            role=role,
            tool=call.tool,
            call=call.id,
            approved=approved,
            policy=_policy(call.decision),
            enough=enough,
        )
        await self._write(given)

    async def refused(self, call: Call, why: str) -> None:
        """The call is never shown."""
        event = aip44.tool_call(
            **self._who,
            tool=call.tool,
            call=call.id,
            arguments=call.arguments,
            approval=None,
            policy=_policy(call.decision),
            refused=True,
            why=why,
            server=call.server,
            risk=call.risk,
            notes=list(call.decision.notes) or None,
        )
        await self._write(event)

    async def ended(self, call: Call, result: Json, error: Json) -> None:
        """The call has ended."""
        event = aip44.tool_result(
            **self._who, tool=call.tool, call=call.id, result=result, error=error, approval=call.approval
        )
        await self._write(event)

    async def _write(self, *events: Event) -> None:
        await self._journal.write(self.name, *events)

    def _call(self, call: Call, approval: str | None) -> Event:
        decision = call.decision
        more: JsonObject = {"server": call.server, "risk": call.risk, "notes": list(decision.notes) or None}
        if decision.counted and not call.recorded:
            more[BUDGETS] = list(decision.counted)
        return aip44.tool_call(
            **self._who,
            tool=call.tool,
            call=call.id,
            arguments=call.arguments,
            approval=approval,
            policy=_policy(decision),
            why=decision.why,
            **more,
        )


def _digest(skills: Sequence[Skill]) -> tuple[str, ...]:
    return tuple(one.sha256 for one in skills)


def by(principal: str | None, protocol: str) -> JsonObject:
    """Who has an operator work, for `output`: in which protocol, and who that says it is."""
    found = {"protocol": protocol, "principal": principal}
    return {key: value for key, value in found.items() if value}


def _policy(decision: Decision) -> Policy | None:
    return Policy(decision.policy, decision.kind.value) if decision.policy is not None else None
