"""A run's record and its log, which are changed together: one change at a time, all of it or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway import tracing
from gateway.core import events as e
from gateway.core.stream import Opener
from gateway.core.types import JsonObject, Run
from gateway.runs import ending
from gateway.runs.beside import Beside
from gateway.runs.log import RunLog, let_go_of
from gateway.runs.rules import Hooks
from gateway.runs.run_files import RunFiles
from gateway.runs.shielded import ShieldedChanges
from gateway.runs.threads import checkpoint_of, known_now
from gateway.store import Delivery, RunChange


@dataclass(kw_only=True)
class RunRecord(RunFiles, Beside):
    """A part of `LiveRun`: the only writer of the run's record."""

    log: RunLog
    hooks: Hooks
    opener: Opener = field(default_factory=Opener)
    ended: bool = field(default=False, init=False)
    detached: bool = field(default=False, init=False)
    """The gateway stops, and will find the run again."""
    untold: bool = field(default=False, init=False)
    """Nobody but its client, who waits for its end, can have been told that there is this run."""
    recalled: bool = field(default=False, init=False)
    """Its input was asked for, now or before a restart: it may have been sent."""
    span: tracing.RunSpan | None = field(default=None, init=False)
    _record: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held by whoever changes the record and the log, until what is changed is written."""
    _whole: ShieldedChanges = field(default_factory=ShieldedChanges, init=False)
    _ending: bool = field(default=False, init=False)
    """It ends: its end is being written, or has been."""
    _losses: dict[str, int] = field(default_factory=dict, init=False)
    _early: list[tuple[str, int]] = field(default_factory=list, init=False)
    """Losses from before the run was driven, which its span is yet to count."""

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None) -> None:
        while self._record.locked():  # what is being written was made of the record as it is
            async with self._record:
                pass
        self.run = replace(self.run, upstream=upstream)
        self.store.save(self.run)
        if thread is not None:
            await self.set_thread(thread)

    def lost(self, what: str, count: int = 1) -> None:
        self._losses[what] = self._losses.get(what, 0) + count
        if self.span is not None:
            self.span.record_loss(what, count)
        else:
            self._early.append((what, count))

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to a background task until it is done."""
        self._whole.keep(task)

    async def stopped(self, timeout: float | None) -> bool:
        """Wait until the run has ended or asks something; False when `timeout` seconds passed first.

        Raises Unavailable if the gateway lets go of the run before.
        """
        return await self._until(lambda: self.run.status.stopped, timeout)

    async def over(self) -> None:
        """Wait until the run has ended, answers and all. Raises Unavailable if the gateway lets go of it before."""
        await self._until(lambda: self.ended, None)

    def told(self, delivery: Delivery | None) -> None:
        """Wake whoever waits for what the record says now, and have its webhook called."""
        if self.run.status.stopped:
            self._whole.tell()
        if delivery is not None:
            self.hooks.owed(delivery)

    # --- inside ------------------------------------------------------------------------------------------------

    @property
    def _let_go(self) -> bool:
        return self.detached and not self._ending

    async def _until(self, true: Callable[[], bool], timeout: float | None) -> bool:
        in_time = await self._whole.until(lambda: true() or self._let_go, timeout)
        if in_time and not true():
            raise let_go_of(self.run.id)
        return in_time

    async def _write(self, events: tuple[e.Event, ...], run: Run) -> None:
        """Commit a new record with its events. Called with `_record` held."""
        run = replace(run, losses=dict(self._losses))
        delivery = ending.delivery(run, self.run)
        await self._commit(events, RunChange(run=run, delivery=delivery))
        self.run, self.untold = run, False
        self.told(delivery)

    async def _commit_end(self, end: e.Event) -> None:
        """Commit the last record with its events. Called with `_record` held."""
        if self.log.holding:  # the document is whole only when nothing is held back
            await self.log.settled()
        if self.log.wrong is not None and isinstance(end, e.RunFinished):  # who said it has not heard of it
            end = ending.of_error(self.log.wrong, f"run {self.run.id}")
        run = replace(self.run, updated_at=time.time(), losses=dict(self._losses))
        run, last = ending.concluded(run, end, self.log.output)
        delivery = ending.delivery(run, self.run)
        checkpoint = checkpoint_of(run, self.agent, self.artifacts)
        known = None if self.thread is None else known_now(self.thread, run, self.agent, checkpoint, self.recalled)
        change = RunChange(run=run, checkpoint=checkpoint, thread=known, delivery=delivery, release=True)
        soon = self.untold and delivery is None and not self.log.readers
        await self._commit(last, change, soon=soon)
        self.run = run
        if delivery is not None:
            self.hooks.owed(delivery)

    async def _commit(self, events: Sequence[e.Event], change: RunChange, *, soon: bool = False) -> None:
        """All of it, or nothing: what is not committed may be tried again."""
        legal = self.opener.feed(events)
        try:
            await self.log.commit(legal, change, soon=soon)
        except BaseException:
            self.opener.withdraw(legal)
            raise
