"""Reading the log of a run: of one in progress here, of one that has ended, and of one that another process drives.

A watcher is a cursor: it costs its position and the batch in its hands, and never slows the run. What fell out of
memory before it came by is read from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import Awaitable, Iterable, Iterator
from typing import Protocol, TypeAlias

from gateway.contract import Batch, Take
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.types import Run
from gateway.runs.bells import FollowedRun
from gateway.runs.log import RunLog, let_go_of
from gateway.store import LogEntry, Store
from gateway.transport.deadline import CLOCK_SLACK

READ_BYTES = 256 * 1024

Events: TypeAlias = tuple[tuple[int, e.Event], ...]


def decoded(entries: Iterable[LogEntry]) -> Events:
    """Stored entries as watchers get them."""
    return tuple([(entry.number, e.decode(entry.data)) for entry in entries])


def _nobody(_: Batch) -> None:
    """Before anybody follows."""


def _dropped(waiting: Awaitable[None] | None) -> None:
    """The task that would have awaited it was cancelled."""
    if inspect.iscoroutine(waiting):
        waiting.close()


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
        self._take: Take = _nobody
        self._stopped = False
        self._news: asyncio.Future[Awaitable[None] | None] | None = None
        """Set while this waits: with what is to be awaited next."""
        self._told = False
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

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        log = self._log
        self._stopped = False
        self._due = math.inf if timeout is None else self._loop.time() + timeout
        self._take = take
        while not self._stopped:
            if self.after < log.last:
                waiting = self._given(events) if (events := log.newer(self.after)) is not None else await self._read()
            elif log.ended:
                return True
            elif log.left:
                raise let_go_of(log.run_id)
            else:
                waiting = await self._news_come()
            if waiting is not None:
                await waiting
            if log.moved is not None:
                log.moved.set()
        return False

    def stop(self) -> None:
        self._stopped = True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def tell(self) -> None:
        """Events were appended, or the log has ended, while this waits: they are taken once what happens now is over.

        By then the run's record says what they say, and all that was said in one turn of the loop is one batch.
        """
        if not self._told:
            self._told = True
            self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        self._told = False
        log, news = self._log, self._news
        if news is None or news.done():
            return
        if self.after >= log.last or (events := log.newer(self.after)) is None:
            news.set_result(None)
            return
        self._news = None  # `take` may call `stop`
        try:
            waiting = self._given(events)
        except Exception as error:  # it is the follower's
            if not news.done():
                news.set_exception(error)
            return
        self._news = news
        if news.done():
            _dropped(waiting)
        elif waiting is not None or self._stopped or log.ended or log.left:
            news.set_result(waiting)
        elif log.moved is not None:
            log.moved.set()

    def _given(self, events: Events) -> Awaitable[None] | None:
        """Give the newest events to who follows."""
        log = self._log
        waiting = self._take(Batch(events=events, last=log.last, snapshot=log.output))
        self.after = log.last
        return waiting

    async def _news_come(self) -> Awaitable[None] | None:
        """Wait while all that comes is taken by `_pass_on`. Returns what to await next, if anything."""
        news: asyncio.Future[Awaitable[None] | None] = self._loop.create_future()
        self._news = news
        if self._due < self._fires:
            self._look_at(self._due)
        self._log.waiting.add(self)
        try:
            return await news
        except asyncio.CancelledError:
            if news.done() and not news.cancelled() and news.exception() is None:
                _dropped(news.result())
            raise
        finally:
            self._news = None
            self._log.waiting.discard(self)

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

    async def _read(self) -> Awaitable[None] | None:
        """Take a batch from the store: what fell out of memory before this watcher came by."""
        log, after = self._log, self.after
        until = log.tail_first
        entries = await self._store.events(log.run_id, after, max_bytes=READ_BYTES, deltas=self._deltas)
        entries = [entry for entry in entries if entry.number < until]
        events = decoded(entries)
        # where there are none, all up to the tail are deltas: the snapshot stands for them
        last = entries[-1].number if entries else until - 1
        skipped = not self._deltas and (last - after) > len(events)
        snapshot = log.output if last == log.last else None
        waiting = self._take(Batch(events=events, last=last, snapshot=snapshot, skipped=skipped))
        self.after = last
        return waiting


class StoredWatch:
    """A cursor into the log of a run that has ended."""

    def __init__(self, store: Store, run: Run, output: Output, after: int, *, deltas: bool) -> None:
        """`output` is the run's final document."""
        self.run = run
        self._store = store
        self._output = output
        self.after = after
        self._deltas = deltas
        self._stopped = False

    @property
    def newest(self) -> int:
        """The cursor itself: a run that has ended says nothing new."""
        return self.after

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        """See `gateway.contract.Watch.follow`; never waits for more than the store."""
        self._stopped = False
        while not self._stopped:
            after = self.after
            entries = await self._store.events(self.run.id, after, max_bytes=READ_BYTES, deltas=self._deltas)
            if not entries:
                return True
            events = decoded(entries)
            last = entries[-1].number
            waiting = take(
                Batch(
                    events=events,
                    last=last,
                    snapshot=self._output if isinstance(events[-1][1], e.TERMINAL) else None,
                    skipped=not self._deltas and last - after > len(events),
                )
            )
            self.after = last
            if waiting is not None:
                await waiting
        return False

    def stop(self) -> None:
        self._stopped = True


class ForeignWatch:
    """A cursor into the log of a run that another process drives.

    Reads the log from its beginning, whatever the cursor, since the document has to be folded here.
    """

    def __init__(self, store: Store, followed: FollowedRun, run: Run, output: Output, after: int) -> None:
        """`output` is empty."""
        self.run = run
        self._store = store
        self._followed = followed
        self._output = output
        self._after = after
        self._read = 0
        self._stopped = False

    @property
    def newest(self) -> int:
        """The newest event that was read: this process does not know what the other one has numbered since."""
        return self._read

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        self._stopped = False
        loop = asyncio.get_running_loop()
        due = math.inf if timeout is None else loop.time() + timeout
        while not self._stopped:
            last_look, mark = self.run.status.ended, self._followed.mark
            if (batch := await self._news()) is not None:
                if (waiting := take(batch)) is not None:
                    await waiting
                continue
            if last_look:
                return True
            self.run = await self._store.run(self.run.id)
            if not self.run.status.ended and not self._stopped:
                if loop.time() >= due:
                    raise TimeoutError
                await self._followed.news(mark, due - loop.time())
        return False

    def stop(self) -> None:
        self._stopped = True
        self._followed.rung()

    async def _news(self) -> Batch | None:
        """Events written since the last read, if above the cursor."""
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
