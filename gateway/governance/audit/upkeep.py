"""Removes what is too old from a log that is being written: at once, and then every hour."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from gateway.core.errors import InterlinguaError
from gateway.governance.audit import retention
from gateway.governance.audit.event import AuditEntry, AuditEvent
from gateway.governance.audit.files import LogFiles

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
        before = now - days * retention.DAY
        if 0 < self._newest() < before:
            await self._append(retention.idle(days))  # which begins a new file: what was written is in a full one then
        while aged := await asyncio.to_thread(retention.expired, self._place, before):
            if not await asyncio.to_thread(retention.known, self._place, days, now):
                logger.warning(
                    "%s: entries up to %d are older than %d days by a clock by which the log has no entry of the time "
                    "since: they are kept until it has gone on for a day. If it is wrong, set it right",
                    self._place.active, aged[-1].last.seq, days,
                )  # fmt: skip
                return
            entry = await self._append(retention.note(aged, days))
            await self._kept(entry.seq)
            await asyncio.to_thread(retention.remove, self._place, aged)
            logger.info("%s: entries up to %d were removed", self._place.active, aged[-1].last.seq)

    async def _run(self, days: int) -> None:
        while True:
            try:
                await self.tidy(days, time.time())
            except (InterlinguaError, OSError) as error:
                logger.warning("%s: what is older than %d days was not removed: %s", self._place.active, days, error)
            await asyncio.sleep(EVERY_SECONDS)
