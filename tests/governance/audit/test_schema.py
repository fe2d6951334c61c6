"""Every line is AIP-7's `audit-event`, and what is read as one is one by the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import gateway.governance
from gateway.governance.audit import AppliedPolicy, AuditEvent, EntrySigner, aip44
from gateway.governance.audit.event import AuditLine
from gateway.governance.audit.redact import snapshot
from tests.governance.audit.support import appender, files_of, piece, write_log
from tests.governance.audit.test_keys import KEY

FILE = Path(gateway.governance.__file__).parent / "schemas" / "GOVERNANCE.schema.json"
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator({"$ref": "#/$defs/auditEvent", "$defs": SCHEMA["$defs"]})
WHO: dict[str, Any] = {"operator": "atlas", "session": "s1", "tool": "mail", "call": "c1"}
EVENTS: list[AuditEvent] = [
    aip44.tool_call(**WHO, arguments={"to": "ada"}, policy=AppliedPolicy("mail", "allow")),
    aip44.tool_call(**WHO, arguments=[1, 0.5], approval="user:ada"),
    aip44.tool_call(**{**WHO, "tool": "t" * 300, "operator": ""}, arguments=None, refused=True),
    aip44.tool_result(**WHO, result={"ok": True}),
    aip44.tool_result(**WHO, error="no"),
    aip44.approval_asked(**WHO, policy=AppliedPolicy("mail", "require-approval"), of=["ada"]),
    aip44.approval_given(**WHO, by="user:ada", approved=True, policy=None, role="cfo"),
    aip44.approval_given(**WHO, by="user:ada", approved=False, policy=None),
    aip44.transition(operator="atlas", session="s1", before=None, after="invoked"),
    aip44.transition(operator="atlas", session="s1", before="running", after="interrupted", why={"error": "gone"}),
    aip44.closed(operator="atlas", session="s1"),
]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "blake2b-256"])
def test_every_line_that_is_written_is_an_audit_event(tmp_path: Path, algorithm: str) -> None:
    log = appender(tmp_path, signer=EntrySigner(KEY), algorithm=algorithm)
    log.open(None, 0)
    log.write([msgspec.structs.replace(piece(), raw=snapshot(event)) for event in EVENTS])
    log.close()
    lines = files_of(tmp_path)[0].read_bytes().splitlines()
    assert len(lines) == len(EVENTS)
    for line in lines:
        VALIDATOR.validate(json.loads(line))


def test_a_tool_call_is_recorded_as_aip_44_maps_it() -> None:
    call = aip44.tool_call(**WHO, arguments={"to": "ada"}, approval="user:ada")
    assert (call.action, call.input) == ("tool.call", {"to": "ada"})
    assert call.metadata["aip44"]["audit"] == {
        "audit-event-kind": "tool-call",
        "operator": "atlas",
        "session": "s1",
        "tool": "mail",
        "call": "c1",
        "approval": "user:ada",
    }


CHANGES: list[dict[str, Any]] = [
    {"seq": -1}, {"seq": "1"}, {"seq": 1.5}, {"ts": "yesterday"}, {"ts": 5}, {"actor": {}}, {"actor": None},
    {"actor": {"id": ""}}, {"actor": {"id": "a", "x": 1}}, {"actor": {"id": "a" * 257}}, {"action": "Tool"},
    {"action": "a"}, {"action": "a" * 129}, {"subject": {}}, {"subject": {"kind": "k" * 33}},
    {"subject": {"kind": "k", "x": 1}}, {"policy": {"ref": "ok", "x": 1}},
    {"subject": {"kind": "k", "ref": None}}, {"input": []}, {"input": None}, {"output": "x"}, {"policy": None},
    {"policy": {"ref": "A"}}, {"policy": {"ref": "ok", "decision": "approve"}}, {"signatures": [1]},
    {"signatures": None}, {"prevHash": "genesis"}, {"prevHash": "F" * 64}, {"hash": "GENESIS"}, {"hashAlg": "md5"},
    {"metadata": []}, {"doctype": "signature"}, {"$schema": "agentgovernance/v2"}, {"more": 1},
    {"input": {}}, {"output": {"$redacted": True}}, {"signatures": []}, {"policy": {"ref": "ok"}},
    {"hashAlg": "sha512"},
    {"subject": {"kind": "", "path": ""}}, {"actor": {"id": "é" * 256, "role": ""}}, {"prevHash": "0" * 32},
]  # fmt: skip


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("line")
    write_log(folder, 1)
    entry: dict[str, Any] = json.loads(files_of(folder)[0].read_bytes())
    return entry


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_type_that_reads_a_line_says_the_same_as_the_schema(line: dict[str, Any], change: dict[str, Any]) -> None:
    entry = {**line, **change}
    try:
        msgspec.convert(entry, AuditLine)
        read = True
    except msgspec.ValidationError:
        read = False
    formats = jsonschema.FormatChecker()
    formats.checks("date-time")(lambda text: text != "yesterday")
    assert read == VALIDATOR.evolve(format_checker=formats).is_valid(entry)
