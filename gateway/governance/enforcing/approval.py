"""The question about a tool call, and the people whose answers count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from gateway.access.patterns import fits
from gateway.contract.governing import APPROVAL, APPROVALS, APPROVE, DECISION
from gateway.core.errors import Denied
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome, RunRequest
from gateway.governance.enforcing.calls import GovernedCall
from gateway.governance.matching import TURN
from gateway.governance.policy import Decision, Kind, Signatory

NOBODY: Final = "nobody may approve it"


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
