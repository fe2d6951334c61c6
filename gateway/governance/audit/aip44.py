"""The events that AIP-44 asks for, as AIP-7 entries: tool calls, and an operator's transitions.

AIP-44's record goes into `metadata.aip44.audit` (`audit-event-kind`, `operator`, `session`, `tool`, `approval`), its
`arguments` into `input`, its `result` or error into `output`. A log is append-only and the call is recorded before it
is shown, so that one call is two entries: `tool.call`, and `tool.result` when it has ended.
"""

from __future__ import annotations

from typing import Any, Literal

from gateway.core.types import JsonObject
from gateway.governance.audit.event import GATEWAY, Actor, AppliedPolicy, AuditEvent, AuditSubject

AUTO = "auto"
"""The approval of a call that nobody was asked about."""

State = Literal["invoked", "running", "suspended", "resumed", "completed", "interrupted"]


def tool_call(
    *,
    operator: str,
    session: str,
    tool: str,
    call: str,
    arguments: Any,
    approval: str | None = AUTO,
    policy: AppliedPolicy | None = None,
    refused: bool = False,
    why: str = "",
    **more: Any,
) -> AuditEvent:
    """A call that an agent wants. `approval` is who approved it, AUTO, or None as long as nobody has; `call` is the
    call's id in the session.

    Arguments that are no JSON object become `{"value": ...}`. `refused`: it was not authorised and is never shown.
    `why` says what decided; `more` is of the record as well.
    """
    return AuditEvent(
        actor=_actor(operator),
        action="tool.refused" if refused else "tool.call",
        subject=_subject("tool", tool),
        input=arguments if isinstance(arguments, dict) else {"value": arguments},
        policy=policy,
        metadata=_metadata(
            "tool-call", operator, session, tool=tool, call=call, approval=approval, why=why or None, **more
        ),
    )


def tool_result(
    *, operator: str, session: str, tool: str, call: str, result: Any = None, error: Any = None, approval: str = AUTO
) -> AuditEvent:
    """The end of a call: `output` is `{"result": ...}`, or `{"error": ...}` if `error` is given."""
    return AuditEvent(
        actor=_actor(operator),
        action="tool.result",
        subject=_subject("tool", tool),
        output={"result": result} if error is None else {"error": error},
        metadata=_metadata("tool-call", operator, session, tool=tool, call=call, approval=approval),
    )


def approval_asked(
    *, operator: str, session: str, tool: str, call: str, policy: AppliedPolicy | None, of: list[str], why: str = ""
) -> AuditEvent:
    """A call waits for somebody. `of` is who may approve it."""
    return AuditEvent(
        actor=GATEWAY,
        action="approval.requested",
        subject=_subject("tool", tool),
        input={"approvers": of},
        policy=policy,
        metadata=_metadata("approval", operator, session, tool=tool, call=call, why=why or None),
    )


def approval_given(
    *,
    by: str,
    operator: str,
    session: str,
    tool: str,
    call: str,
    approved: bool,
    policy: AppliedPolicy | None,
    role: str = "",
    enough: bool = True,
) -> AuditEvent:
    """An answer to a question. An approval that is not `enough` needs others as well."""
    missing = False if approved and not enough else None
    return AuditEvent(
        actor=_actor(by, role),
        action="approval.granted" if approved else "approval.rejected",
        subject=_subject("tool", tool),
        policy=policy,
        metadata=_metadata("approval", operator, session, tool=tool, call=call, approval=by, enough=missing),
    )


def transition(
    *, operator: str, session: str, before: State | None, after: State, why: JsonObject | None = None
) -> AuditEvent:
    """An operator's state changed. `why` says what else there is to say, e.g. the stop reason or the error."""
    return AuditEvent(
        actor=_actor(operator),
        action=f"operator.{after}",
        subject=_subject("session", session),
        output=why,
        metadata=_metadata("transition", operator, session, **{"from": before, "to": after}),
    )


def closed(*, operator: str, session: str) -> AuditEvent:
    return AuditEvent(
        actor=GATEWAY,
        action="audit.closed",
        subject=_subject("session", session),
        metadata=_metadata("transition", operator, session),
    )


def skill(*, operator: str, session: str, skill: str, version: str | None, sha256: str, size: int) -> AuditEvent:
    """The agent of a session is given the instructions of a skill: `sha256` and `size` (bytes) are theirs."""
    given: JsonObject = {"skill": skill, "version": version, "sha256": sha256, "bytes": size}
    return AuditEvent(
        actor=GATEWAY,
        action="skill.activated",
        subject=_subject("skill", skill),
        input={key: value for key, value in given.items() if value is not None},
        metadata=_metadata("skill", operator, session),
    )


def _actor(name: str, role: str = "operator") -> Actor:
    return Actor((name or "unknown")[:256], role[:64]) if role else Actor((name or "unknown")[:256])


def _subject(kind: str, ref: str) -> AuditSubject:
    return AuditSubject(kind, ref[:256])  # AIP-7's longest; the whole is in the metadata


def _metadata(kind: str, operator: str, session: str, **more: Any) -> JsonObject:
    record = {"audit-event-kind": kind, "operator": operator, "session": session, **more}
    return {"aip44": {"audit": {key: value for key, value in record.items() if value is not None}}}
