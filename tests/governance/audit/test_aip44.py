"""The entries that AIP-44 asks for, as they are in a log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.governance.audit import AuditEvent, AuditLog, aip44
from gateway.governance.audit.event import AppliedPolicy
from gateway.governance.audit.files import log_path
from tests.support.aio import run

WHO: dict[str, Any] = {"operator": "o", "session": "s"}
OF: dict[str, Any] = {**WHO, "tool": "t", "call": "c"}
RULE = AppliedPolicy("sends", "require-approval")
RULED = {"ref": "sends", "decision": "require-approval"}
OPERATOR = {"id": "o", "role": "operator"}
GATEWAY = {"id": "host:interlingua", "role": "system"}


def line(actor: Any, action: str, subject: tuple[str, str], record: dict[str, Any], **more: Any) -> dict[str, Any]:
    kind, ref = subject
    audit = {"operator": "o", "session": "s", **record}
    return {
        "actor": actor,
        "action": action,
        "subject": {"kind": kind, "ref": ref},
        "metadata": {"aip44": {"audit": audit}},
        **more,
    }


TOOL = ("tool", "t")
SESSION = ("session", "s")
CALL = {"audit-event-kind": "tool-call", "tool": "t", "call": "c"}
APPROVAL = {"audit-event-kind": "approval", "tool": "t", "call": "c"}
MOVED = {"audit-event-kind": "transition"}


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (
            lambda: aip44.tool_call(**OF, arguments={"a": 1}),
            line(OPERATOR, "tool.call", TOOL, {**CALL, "approval": "auto"}, input={"a": 1}),
        ),
        (
            lambda: aip44.tool_call(**OF, arguments=[1], approval=None, policy=RULE, why="rules", budgets=["x"]),
            line(
                OPERATOR, "tool.call", TOOL, {**CALL, "why": "rules", "budgets": ["x"]},
                input={"value": [1]}, policy=RULED,
            ),
        ),
        (
            lambda: aip44.tool_call(**OF, arguments={}, approval="ann", refused=True),
            line(OPERATOR, "tool.refused", TOOL, {**CALL, "approval": "ann"}, input={}),
        ),
        (
            lambda: aip44.tool_result(**OF),
            line(OPERATOR, "tool.result", TOOL, {**CALL, "approval": "auto"}, output={"result": None}),
        ),
        (
            lambda: aip44.tool_result(**OF, result=False, approval="ann"),
            line(OPERATOR, "tool.result", TOOL, {**CALL, "approval": "ann"}, output={"result": False}),
        ),
        (
            lambda: aip44.tool_result(**OF, result=1, error="bad"),
            line(OPERATOR, "tool.result", TOOL, {**CALL, "approval": "auto"}, output={"error": "bad"}),
        ),
        (
            lambda: aip44.approval_asked(**OF, policy=RULE, of=["editor"]),
            line(GATEWAY, "approval.requested", TOOL, APPROVAL, input={"approvers": ["editor"]}, policy=RULED),
        ),
        (
            lambda: aip44.approval_asked(**OF, policy=None, of=[], why="risk"),
            line(GATEWAY, "approval.requested", TOOL, {**APPROVAL, "why": "risk"}, input={"approvers": []}),
        ),
        (
            lambda: aip44.approval_given(**OF, by="ann", approved=True, policy=RULE, role="editor"),
            line(
                {"id": "ann", "role": "editor"}, "approval.granted", TOOL, {**APPROVAL, "approval": "ann"},
                policy=RULED,
            ),
        ),
        (
            lambda: aip44.approval_given(**OF, by="ann", approved=True, policy=None, enough=False),
            line({"id": "ann"}, "approval.granted", TOOL, {**APPROVAL, "approval": "ann", "enough": False}),
        ),
        (
            lambda: aip44.approval_given(**OF, by="", approved=False, policy=None, enough=False),
            line({"id": "unknown"}, "approval.rejected", TOOL, {**APPROVAL, "approval": ""}),
        ),
        (
            lambda: aip44.transition(**WHO, before=None, after="invoked"),
            line(OPERATOR, "operator.invoked", SESSION, {**MOVED, "to": "invoked"}),
        ),
        (
            lambda: aip44.transition(**WHO, before="running", after="completed", why={"stop": "end"}),
            line(
                OPERATOR, "operator.completed", SESSION, {**MOVED, "from": "running", "to": "completed"},
                output={"stop": "end"},
            ),
        ),
        (lambda: aip44.closed(**WHO), line(GATEWAY, "audit.closed", SESSION, MOVED)),
        (
            lambda: aip44.skill(**WHO, skill="k", version=None, sha256="0", size=0),
            line(
                GATEWAY, "skill.activated", ("skill", "k"), {"audit-event-kind": "skill"},
                input={"skill": "k", "sha256": "0", "bytes": 0},
            ),
        ),
        (
            lambda: aip44.tool_call(**{**OF, "tool": "t" * 300}, arguments={}),
            line(OPERATOR, "tool.call", ("tool", "t" * 256), {**CALL, "tool": "t" * 300, "approval": "auto"}, input={}),
        ),
    ],
)  # fmt: skip
def test_an_entry_says_what_the_specification_asks_for(
    tmp_path: Path, made: Callable[[], AuditEvent], wanted: dict[str, Any]
) -> None:
    async def written() -> None:
        async with AuditLog(log_path(tmp_path, 1)) as log:
            await log.append(made())

    run(written())
    found = msgspec.json.decode((tmp_path / "audit-log.jsonl").read_bytes())
    found["metadata"].pop("interlingua", None)
    assert {key: found.get(key) for key in wanted} == wanted
    assert found["signatures"] == wanted.get("signatures", [])
    assert not {"input", "output", "policy"} & (found.keys() - wanted.keys())


def test_names_are_cut_where_an_entry_has_no_room_for_them() -> None:
    long = aip44.approval_given(**OF, by="a" * 300, approved=True, policy=None, role="r" * 100)
    assert (long.actor.id, long.actor.role) == ("a" * 256, "r" * 64)
