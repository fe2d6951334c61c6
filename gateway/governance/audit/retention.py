"""Removes old files of a log in such a way that the rest can still be verified: when it is opened, then every hour.

Whole files go, the oldest first, and the log says so before: the entry names each file with its last entry. So a log
that does not begin with entry 0 is right if one of its own entries vouches for the one before its first.

By a clock that was set far ahead everything is old. So nothing goes by a clock that the log has not known for a while:
one by which none of its entries is of the time between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.errors import InterlinguaError
from gateway.governance.audit import files
from gateway.governance.audit.chain import REMOVED, ChainCheck
from gateway.governance.audit.event import GATEWAY, LONGEST, AuditEntry, AuditEvent, AuditSubject, LogHead
from gateway.governance.audit.files import LogFiles

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


EVERY_SECONDS = 3600.0

logger = logging.getLogger(__name__)


class Upkeep:
    """One per open log. `append` records an event, `newest` is the time of the newest entry, `kept` returns when that
    entry is known outside of the log (else a crash would leave a log that lacks the entry that is known).
    """

    def __init__(
        self,
        place: LogFiles,
        append: Callable[[AuditEvent], Awaitable[AuditEntry]],
        newest: Callable[[], float],
        kept: Callable[[int], Awaitable[None]],
    ) -> None:
        self._place = place
        self._append = append
        self._newest = newest
        self._kept = kept
        self._task: asyncio.Task[None] | None = None
        self._days: int | None = None

    def keep(self, days: int | None) -> None:
        """Remove from now on what is older; None: remove nothing."""
        if days == self._days:
            return
        self._days = days
        self.stop()
        if days is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(days))

    def stop(self) -> None:
        """Nothing goes any more. What is under way comes to no harm."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def tidy(self, days: int, now: float) -> None:
        """Remove what is older at `now` (seconds since the epoch), if the log knows that clock.

        Raises as `append`, and OSError.
        """
        before = now - days * DAY
        if 0 < self._newest() < before:
            await self._append(idle(days))  # which begins a new file: what was written is in a full one then
        while aged := await asyncio.to_thread(expired, self._place, before):
            if not await asyncio.to_thread(known, self._place, days, now):
                logger.warning(
                    "%s: entries up to %d are older than %d days by a clock by which the log has no entry of the time "
                    "since: they are kept until it has gone on for a day. If it is wrong, set it right",
                    self._place.active, aged[-1].last.seq, days,
                )  # fmt: skip
                return
            entry = await self._append(note(aged, days))
            await self._kept(entry.seq)
            await asyncio.to_thread(remove, self._place, aged)
            logger.info("%s: entries up to %d were removed", self._place.active, aged[-1].last.seq)

    async def _run(self, days: int) -> None:
        while True:
            try:
                await self.tidy(days, time.time())
            except (InterlinguaError, OSError) as error:
                logger.warning("%s: what is older than %d days was not removed: %s", self._place.active, days, error)
            await asyncio.sleep(EVERY_SECONDS)
