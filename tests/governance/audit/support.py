"""Logs to try things on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from gateway.governance.audit import Actor, AuditEntry, AuditEvent, AuditSubject, EntrySigner
from gateway.governance.audit.appender import Appender, Piece
from gateway.governance.audit.files import LogFiles, log_path
from gateway.governance.audit.redact import snapshot


def event(number: int = 0, **more: Any) -> AuditEvent:
    base = AuditEvent(
        actor=Actor("operator:atlas", "operator"),
        action="tool.call",
        subject=AuditSubject("tool", "mail"),
        input={"n": number, "text": "é\n"},
    )
    made: AuditEvent = msgspec.structs.replace(base, **more)
    return made


def files_of(folder: Path) -> list[Path]:
    """The files of the log in a folder, in order."""
    return LogFiles(log_path(folder, 1)).files()


def appender(
    folder: Path, *, rotate_bytes: int = 1 << 20, signer: EntrySigner | None = None, algorithm: str = "sha256"
) -> Appender:
    return Appender(LogFiles(log_path(folder, 1)), rotate_bytes=rotate_bytes, signer=signer, algorithm=algorithm)


def piece(number: int = 0, *, at: float | None = None, **more: Any) -> Piece:
    return Piece(snapshot(event(number, **more)), time.time() if at is None else at)


def write_log(
    folder: Path, count: int, *, rotate_bytes: int = 1 << 20, signer: EntrySigner | None = None, **more: Any
) -> list[AuditEntry]:
    """A log of `count` entries, written one by one."""
    log = appender(folder, rotate_bytes=rotate_bytes, signer=signer)
    log.open(None, time.time())
    out = [entry for number in range(count) for entry in log.write([piece(number, **more)])]
    log.close()
    assert all(isinstance(entry, AuditEntry) for entry in out)
    return [entry for entry in out if isinstance(entry, AuditEntry)]
