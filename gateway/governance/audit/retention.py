"""Removes old files of a log in such a way that the rest can still be verified.

Whole files go, the oldest first, and the log says so before: the entry names each file with its last entry. So a log
that does not begin with entry 0 is right if one of its own entries vouches for the one before its first.

By a clock that was set far ahead everything is old. So nothing goes by a clock that the log has not known for a while:
one by which none of its entries is of the time between.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.governance.audit import files
from gateway.governance.audit.chain import REMOVED, ChainCheck
from gateway.governance.audit.event import GATEWAY, AuditEvent, AuditSubject, LogHead
from gateway.governance.audit.line import LONGEST

DAY = 86_400.0
SURE_DAYS = 1.0
"""How long a clock must have been right before it removes files; at most half the retention."""
MOST_FILES = 100
"""That one entry names."""


class Aged(msgspec.Struct, frozen=True):
    """A full file that is old enough, and its last entry."""

    path: Path
    last: LogHead


def expired(place: files.LogFiles, before: float) -> list[Aged]:
    """The oldest files, all of whose entries were recorded before that moment (seconds since the epoch).

    What cannot be read stays, and everything after it. Raises OSError.
    """
    found: list[Aged] = []
    for path in place.closed()[:MOST_FILES]:
        walk = ChainCheck.at(files.last_line(path, LONGEST))
        if not isinstance(walk, ChainCheck) or walk.ts is None or walk.ts.timestamp() >= before:
            break
        found.append(Aged(path, LogHead(walk.seq, walk.hash)))
    return found


def known(place: files.LogFiles, days: float, now: float) -> bool:
    """Whether the log has known the clock for a while that says `now`: some entry is neither too old by it, nor so new
    that it may be of a clock that was set wrong since. Where entries are of times to come, the clock has been set back.

    What cannot be read tells nothing. Raises OSError.
    """
    before, sure = now - days * DAY, min(SURE_DAYS, days / 2) * DAY
    for path in place.files():
        for raw in (files.first_line(path, LONGEST), files.last_line(path, LONGEST)):
            walk = ChainCheck.at(raw)
            if not isinstance(walk, ChainCheck) or walk.ts is None:
                continue
            at = walk.ts.timestamp()
            if before <= at <= now - sure or at > now + sure:
                return True
    return False


def note(aged: Sequence[Aged], days: float) -> AuditEvent:
    """Make the log's note before files are removed."""
    last = aged[-1]
    named: list[dict[str, Any]] = [{"file": one.path.name, "last": str(one.last)} for one in aged]
    return AuditEvent(
        actor=GATEWAY,
        action="audit.note",
        subject=AuditSubject("audit-log", path=last.path.name),
        output={"note": f"entries up to {last.last.seq} are older than {days:g} days: they are removed"},
        metadata={"interlingua": {REMOVED: named}},
    )


def idle(days: float) -> AuditEvent:
    """Make the note for a log without other entries for so long that all of it is old enough to go."""
    return AuditEvent(
        actor=GATEWAY,
        action="audit.note",
        subject=AuditSubject("audit-log"),
        output={"note": f"nothing was recorded for {days:g} days"},
    )


def remove(place: files.LogFiles, aged: Sequence[Aged]) -> None:
    """Delete them, and the torn ends of their time. Raises OSError; what is left then is a log all the same."""
    for path in [one.path for one in aged] + place.torn_until(aged[-1].last.seq):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    files.sync_folder(place.folder)
