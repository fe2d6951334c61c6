"""Ends of runs that the store does not take: told at once as failures, and written as they were told when it does.

Until then the run stays in memory, as it has ended: who asks for it hears so, and its thread is not taken for busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.core.errors import InterlinguaError, Unavailable
from gateway.runs import ending
from gateway.store import Delivery, LogEntry, RunChange, Unsynced

if TYPE_CHECKING:
    from gateway.runs.live import LiveRun

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5


@dataclass(frozen=True)
class Unwritten:
    """The last events of a run, as watchers were told them, and the call that its webhook is owed."""

    events: tuple[LogEntry, ...]
    delivery: Delivery | None


async def failed(live: LiveRun, error: Exception) -> None:
    """The end of a run could not be committed: it has failed, and its watchers hear so.

    Where that is no fault of the store's the failure is committed first.
    """
    failure = ending.of_error(error, f"run {live.run.id}: storing its end")
    await live.log.settled()
    before = replace(live.run, updated_at=time.time())
    live.run, last = ending.concluded(before, failure, live.log.output)
    events = live.opener.feed(last)
    entries = live.log.number(events)
    live.unwritten = Unwritten(entries, ending.delivery(live.run, before))
    if not isinstance(error, Unavailable):
        with contextlib.suppress(Unavailable):
            await _write(live)
    live.log.created(events, entries)


async def _write(live: LiveRun) -> None:
    """Write the end as it was told. Raises Unavailable as long as the store does not take it."""
    owed = live.unwritten
    if owed is None:
        return
    try:
        change = RunChange(
            run=live.run, events=owed.events, reserved=owed.events[-1].number, delivery=owed.delivery, release=True
        )
        await live.store.commit(live.run.id, change)
    except Unsynced as error:
        log.error("run %s: a power cut may undo its end: %s", live.run.id, error.detail)
    except Unavailable:
        raise
    except Exception as error:  # it was deleted, or is another process's by now; else there is no use in more tries
        unexpected = not isinstance(error, InterlinguaError)
        log.warning("run %s: its end is not stored: %s", live.run.id, error, exc_info=unexpected)
        owed = Unwritten((), None)
    live.unwritten = None
    live.told(owed.delivery)


class Owed:
    """One per engine: the runs whose end is to be written still. `runs` are those in memory, by id."""

    def __init__(self, runs: dict[str, LiveRun]) -> None:
        self._runs = runs
        self._lives: dict[str, LiveRun] = {}
        self._paying = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, live: LiveRun) -> None:
        """Its end has been told and is not written. It is tried again and again from now on."""
        self._lives[live.run.id] = live
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._try(), name="ends that are not written")

    async def pay(self, thread: str | None = None) -> None:
        """Write what is owed to a thread, or to all. Raises Unavailable if that cannot be done."""
        if not self._lives:
            return
        async with self._paying:
            for live in [live for live in self._lives.values() if thread in (None, live.run.thread)]:
                await _write(live)
                del self._lives[live.run.id]
                self._runs.pop(live.run.id, None)

    async def aclose(self) -> None:
        """Try once more, and let go: the next start ends what is left."""
        if self._task is not None:
            self._task.cancel()
        with contextlib.suppress(Unavailable):
            await self.pay()

    async def _try(self) -> None:
        while self._lives:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self.pay()
            except Unavailable as error:
                log.debug("%d ends of runs wait for the store: %s", len(self._lives), error)
