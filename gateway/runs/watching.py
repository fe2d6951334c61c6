"""Reading the log of a run in progress.

A watcher is a cursor: it costs its position and the batch in its hands, and never slows the run. What fell out of
memory before it came by is read from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Protocol

from gateway.contract import Batch, Take
from gateway.core import events as e
from gateway.core.types import Run
from gateway.runs.log import RunLog, let_go_of
from gateway.store import LogEntry, Store
from gateway.transport.deadline import CLOCK_SLACK

READ_BYTES = 256 * 1024


def decoded(entries: Iterable[LogEntry]) -> tuple[tuple[int, e.Event], ...]:
    """Stored entries as watchers get them."""
    return tuple([(entry.number, e.decode(entry.data)) for entry in entries])


class HasRun(Protocol):
    """Whoever knows the run as it is now."""

    run: Run


class LogWatch:
    """A cursor into a `RunLog` (see `gateway.contract.Watch`)."""

    def __init__(self, log: RunLog, store: Store, source: HasRun, after: int, *, deltas: bool) -> None:
        self._log = log
        self._store = store
        self._source = source
        self.after = after
        self._deltas = deltas
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] | None = None
        self._take: Take | None = None
        self._due = self._fires = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._source.run

    @property
    def newest(self) -> int:
        return self._log.newest

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Counts as a reader that the route may ask to wait for."""
        self._log.readers.add(self)
        try:
            yield
        finally:
            self._log.readers.discard(self)
            if self._log.moved is not None:
                self._log.moved.set()
            if self._timer is not None:
                self._timer.cancel()

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        log = self._log
        if log.moved is not None:
            log.moved.set()
        while self.after >= log.last:
            if log.ended:
                return None
            if log.left:
                raise let_go_of(log.run_id)
            news = self._news = self._loop.create_future()
            self._due = math.inf if timeout is None else self._loop.time() + timeout
            if self._due < self._fires:
                self._look_at(self._due)
            self._take = take
            log.waiting.add(self)
            try:
                await news
            finally:
                log.waiting.discard(self)
        events = log.newer(self.after)
        if events is not None:
            self.after = log.last
            return Batch(events=events, last=log.last, snapshot=log.output)
        return await self._read()

    def tell(self) -> None:
        """Something was said, or the log has ended, while this waits: a call where it is taken, a wake-up where not."""
        log, news, take = self._log, self._news, self._take
        if news is None or news.done():
            return
        if take is not None and self.after < log.last and (events := log.newer(self.after)) is not None:
            try:
                if take(Batch(events=events, last=log.last, snapshot=log.output)):
                    self.after = log.last
                    return
            except Exception as error:  # a reader's trouble is not the run's
                news.set_exception(error)
                return
        news.set_result(None)

    def _look_at(self, due: float) -> None:
        """One timer looks now and then whether the wait has become too long, instead of one that is set every time."""
        if self._timer is not None:
            self._timer.cancel()
        self._fires = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._fires, news = math.inf, self._news
        if news is None or news.done() or self._due == math.inf:
            return
        if self._loop.time() < self._due - CLOCK_SLACK:
            self._look_at(self._due)
        else:
            news.set_exception(TimeoutError())

    async def _read(self) -> Batch:
        """A batch from the store: what fell out of memory before this watcher came by."""
        log, after = self._log, self.after
        until = log.tail_first
        entries = await self._store.events(log.run_id, after, max_bytes=READ_BYTES, deltas=self._deltas)
        entries = [entry for entry in entries if entry.number < until]
        events = decoded(entries)
        # where there are none, all up to the tail are deltas: the snapshot stands for them
        self.after = entries[-1].number if entries else until - 1
        skipped = not self._deltas and (self.after - after) > len(events)
        at_head = self.after == log.last
        return Batch(events=events, last=self.after, snapshot=log.output if at_head else None, skipped=skipped)
