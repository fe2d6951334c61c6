"""The audit log: append-only JSON lines, chained by hash, number and time (AIP-7's `audit-event`).

    enforcement --Event--> AuditLog.append --> audit-log.jsonl        on disk before the event is shown
                                          └--> on_head --> the store  so that a cut log is noticed
                                          └--> Pointer --> head-pointer.json, where it is asked for
    audit-log*.jsonl --> verify --> Report                            needs only the files and the public keys

A process writes one log, and goes on with those of processes that have died; a folder may hold several (files.py).

Knows no protocol, and no store but through `on_head`. `aip44` makes the events that AIP-44 asks for. docs/audit.md has
the format, and the decisions where AIP-7 is silent.
"""

from __future__ import annotations

from gateway.governance.audit.event import (
    Actor,
    AppliedPolicy,
    AuditBroken,
    AuditEntry,
    AuditEvent,
    AuditSubject,
    LogHead,
)
from gateway.governance.audit.files import LogTaken
from gateway.governance.audit.heads import KeptHead
from gateway.governance.audit.keys import EntrySigner, Keyring
from gateway.governance.audit.log import AuditLog, Terms
from gateway.governance.audit.verify import Report, logs, verify
