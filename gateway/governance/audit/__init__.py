"""The audit log: append-only JSON lines, chained by hash, number and time (AIP-7's `audit-event`).

    enforcement --Event--> AuditLog.append --> audit-log.jsonl        on disk before anybody is shown what it is about
                                          └--> on_head --> the store  so that a log that was cut off is found
                                          └--> Pointer --> head-pointer.json, where it is asked for
    audit-log*.jsonl --> verify --> Report                            needs nothing but the files and the public keys

Knows no protocol, and no store but through `on_head`. `aip44` makes the events that AIP-44 asks for. docs/audit.md has
the format and what was decided where AIP-7 is silent.
"""

from __future__ import annotations

from gateway.governance.audit.event import Actor, AuditBroken, Entry, Event, Head, Policy, Subject
from gateway.governance.audit.heads import KeptHead
from gateway.governance.audit.keys import Keyring, Signer
from gateway.governance.audit.log import AuditLog, Terms
from gateway.governance.audit.verify import Mistake, Report, expand, verify

__all__ = [
    "Actor",
    "AuditBroken",
    "AuditLog",
    "Entry",
    "Event",
    "Head",
    "KeptHead",
    "Keyring",
    "Mistake",
    "Policy",
    "Report",
    "Signer",
    "Subject",
    "Terms",
    "expand",
    "verify",
]
