"""Postures, policies and operators without files, for the tests of decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.governance.front_matter import MarkdownPage
from gateway.governance.manifests import Operator, OperatorMemory, Policy, ToolGrant
from gateway.governance.policy import Decision, Kind, PolicyRules, Signatory
from gateway.governance.posture import Approver, Governance, Level, RegisteredPolicy
from gateway.yaml_document import Document

PAGE = MarkdownPage(Path("/w/x.md"), {}, "", Document("x.md"))
RANK = {kind: rank for rank, kind in enumerate(Kind)}


def policy(slug: str, decision: str = "allow", **keys: Any) -> Policy:
    base: dict[str, Any] = {"action": "tool.call", "subject": None, "risk_min": 0, "autonomy": 4}
    base |= {"signers": (), "quorum": 1, "budget": None}
    return Policy(page=PAGE, slug=slug, decision=decision, **{**base, **keys})


def bound(one: Policy, **keys: Any) -> RegisteredPolicy:
    return RegisteredPolicy(id=one.slug, policy=one, **keys)


def level(
    *policies: RegisteredPolicy,
    autonomy: int | None = None,
    default: str | None = None,
    approvers: tuple[Approver, ...] = (),
    escalation: tuple[str, str] | None = None,
) -> Level:
    said: dict[str, Any] = {"level": autonomy, "defaultApproval": default}
    own = {key: value for key, value in said.items() if value is not None}
    if escalation is not None:
        own["approvalEscalation"] = {"from": escalation[0], "to": escalation[1]}
    effective = {"autonomy": own, "escalateTo": "ws://operators/chief"}
    return Level(effective=effective, policies=policies, approvers=approvers)


def posture(*levels: Level) -> Governance:
    return Governance(origin={}, chain=(PAGE,) * len(levels), levels=levels, cautions=())


def operator(autonomy: str = "autonomous", *tools: ToolGrant) -> Operator:
    memory = OperatorMemory(kind="none", share_with=(), uri=None)
    return Operator(
        page=PAGE, id="coder", tools=tools, skills=(), memory=memory, policies=(), audit_log=None, autonomy=autonomy
    )


def decide(*levels: Level, risk: int = 1, subject: str = "write", of: Operator | None = None, **keys: Any) -> Decision:
    return PolicyRules(posture(*levels) if levels else None, of).decide("tool.call", subject, risk=risk, at=0.0, **keys)


ANN, BOB = Signatory(id="ann", roles=frozenset({"cfo"})), Signatory(id="bob", roles=frozenset({"security"}))
