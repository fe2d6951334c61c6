"""Reading the log of a run: of one in progress here, of one that has ended, and of one that another process drives.

A watcher is a cursor: it costs its position and the batch in its hands, and never slows the run. What fell out of
memory before it came by is read from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol

from gateway.contract import Batch, Take
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.output import Output
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


POLL_SECONDS = 0.2


def elsewhere(run_id: str) -> Unavailable:
    """Why something cannot be done to a run: another gateway process drives it, which cannot be told."""
    return Unavailable(f"run {run_id} belongs to another gateway process")


class StoredWatch:
    """A cursor into the log of a run that has ended."""

    def __init__(self, store: Store, run: Run, output: Output, after: int, *, deltas: bool) -> None:
        """`output` is the run's final document."""
        self.run = run
        self._store = store
        self._output = output
        self.after = after
        self._deltas = deltas

    @property
    def newest(self) -> int:
        """The cursor itself: a run that has ended says nothing new."""
        return self.after

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        """See `gateway.contract.Watch.next`; never waits for more than the store."""
        after = self.after
        entries = await self._store.events(self.run.id, after, max_bytes=READ_BYTES, deltas=self._deltas)
        if not entries:
            return None
        events = decoded(entries)
        self.after = entries[-1].number
        complete = isinstance(events[-1][1], e.TERMINAL)
        return Batch(
            events=events,
            last=self.after,
            snapshot=self._output if complete else None,
            skipped=not self._deltas and self.after - after > len(events),
        )


class ForeignWatch:
    """A cursor into the log of a run that another process drives: the store is asked for news a few times a second.

    Reads the log from its beginning, whatever the cursor, since the document has to be folded here.
    """

    def __init__(self, store: Store, run: Run, output: Output, after: int) -> None:
        """`output` is empty."""
        self.run = run
        self._store = store
        self._output = output
        self._after = after
        self._read = 0

    @property
    def newest(self) -> int:
        """The newest event that was read: this process does not know what the other one has numbered since."""
        return self._read

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        async with asyncio.timeout(timeout):
            while True:
                last_look = self.run.status.ended
                batch = await self._news()
                if batch is not None:
                    return batch
                if last_look:
                    return None
                self.run = await self._store.run(self.run.id)
                if not self.run.status.ended:
                    await asyncio.sleep(POLL_SECONDS)

    async def _news(self) -> Batch | None:
        """What was written since, if it is above the cursor."""
        while entries := await self._store.events(self.run.id, self._read, max_bytes=READ_BYTES):
            events = decoded(entries)
            for _, event in events:
                self._output.apply(event)
            self._read = entries[-1].number
            fresh = tuple((number, event) for number, event in events if number > self._after)
            if fresh:
                whole = sum(len(entry.data) for entry in entries) < READ_BYTES
                self.run = await self._store.run(self.run.id)
                return Batch(events=fresh, last=self._read, snapshot=self._output if whole else None)
        return None


async def stopped_elsewhere(look: Callable[[], Coroutine[Any, Any, Run]], timeout: float | None) -> Run | None:
    """The run of another process once it has stopped; None when `timeout` seconds passed first."""
    try:
        async with asyncio.timeout(timeout):
            while not (run := await look()).status.stopped:  # noqa: ASYNC110 - the news are in another process
                await asyncio.sleep(POLL_SECONDS)
            return run
    except TimeoutError:
        return None
