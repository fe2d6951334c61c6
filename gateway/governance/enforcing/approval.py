"""The question whether a tool may be called, and whose answer counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from gateway.access.patterns import fits
from gateway.contract.governing import APPROVAL, APPROVALS, APPROVE, DECISION
from gateway.core.errors import Denied
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome, RunRequest
from gateway.governance.enforcing.calls import Call
from gateway.governance.policy import TURN, Decision, Kind, Signatory

NOBODY: Final = "nobody may approve it"


def approves(answer: Answer) -> bool:
    """Whether the answer to one of our own questions is yes."""
    return isinstance(answer.value, dict) and answer.value.get(DECISION) == APPROVE


@dataclass(frozen=True)
class Asked:
    """A question about a call. `grants`: whether an answer to it is yes."""

    call: Call
    grants: Callable[[Answer], bool] = approves

    def yes(self, answer: Answer) -> bool:
        """Nothing is approval but an answer that says so."""
        return answer.outcome is Outcome.ANSWERED and self.grants(answer)


def within(request: RunRequest, tool: str) -> bool:
    """Whether whoever asked for the run may have the tool called at all."""
    return request.tools is None or fits(tool, request.tools)


def check(call: Call, by: Signatory) -> None:
    """Raise Denied for somebody whose yes does not count."""
    if call.decision.kind is not Kind.ALLOW and not counts(call.decision, by):
        who = by.id or "who is not authenticated"
        raise Denied(f"{who} may not approve {call.tool}: {whom(call.decision)}")


def signatory(answer: Answer) -> Signatory:
    """Who answered. An anonymous client has no id, and no roles: only where anybody may approve does it count."""
    by = answer.by
    return Signatory(id=by.id, roles=frozenset(by.roles)) if by is not None else Signatory(id="")


def counts(decision: Decision, by: Signatory) -> bool:
    """Whether somebody's approval is a part of any that the decision needs."""
    return any(replace(way, quorum=1).met([by]) for need in decision.needs for way in need.ways)


def approvers(decision: Decision) -> list[str]:
    """Who may approve: roles and people. Empty where anybody may."""
    return list(dict.fromkeys(signer.user or signer.role for signer in decision.signers))


def whom(decision: Decision) -> str:
    """The same in words."""
    if any(not need.ways for need in decision.needs):
        return NOBODY
    names, quorum = approvers(decision), decision.quorum
    if not names:
        return "anybody may" if quorum < 2 else f"it takes {quorum} people"
    return f"it takes {f'{quorum} of ' if quorum > 1 else ''}{', '.join(names)}"


def question(call: Call, name: str) -> Interrupt:
    """The interrupt by which the run's caller is asked. `name` is its id."""
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
    """An agent's question, so that it is none of ours whatever it looks like."""
    if recalled(interrupt) is None:
        return interrupt
    return replace(interrupt, answer_schema={**interrupt.answer_schema, "title": "The agent's own question"})


def recalled(interrupt: Interrupt) -> Call | None:
    """The call that a question of ours, asked before a restart, is about; None if it is another's question."""
    said: Json = interrupt.payload
    if interrupt.kind != APPROVAL or interrupt.answer_schema != APPROVALS.answer_schema or not isinstance(said, dict):
        return None
    return Call(
        id=str(said.get("call")),
        tool=str(said.get("tool")),
        server=said.get("server"),
        risk=said.get("risk", 0),
        arguments=said.get("arguments"),
        turn=said.get("tool") == TURN,
    )


def why_not(call: Call) -> str:
    """Why a call is not made, for whoever wanted to see the run."""
    decision = call.decision
    what = "the turn" if call.turn else f"the tool {call.tool}"
    by = f" by policy {decision.policy}" if decision.policy else ""
    if decision.kind is Kind.DENY:
        return f"{what} is refused{by}: {decision.why}"
    return f"{what} was not approved, which is asked for{by}: {decision.why}"
