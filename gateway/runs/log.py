"""One run's numbered event log, and the cursor of who follows it (of other runs: watching.py).

The newest events are kept as objects up to a number of bytes; older ones are in the store. Transitions become visible
when they are committed; tokens at once. While a commit is under way, later events wait behind it, so that numbers stay
in order.

A watcher costs its position and the batch in its hands, and never slows the run. What fell out of memory before it came
by is read from the store.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from gateway import tracing
from gateway.contract import Batch, Take, Watch
from gateway.contract.interception import RunRecorder
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.output import Output, fewer
from gateway.core.stream import Opener
from gateway.core.types import NULL, Agent, Run
from gateway.store import LogEntry, RunChange, Store, TakenOver, Unsynced
from gateway.store.records import size_of
from gateway.transport.waiting import CLOCK_SLACK, Timer

log = logging.getLogger(__name__)

TAIL_BYTES = 128 * 1024
EVENT_BYTES = 256
"""About what an event takes in memory beside its own bytes: five times those of a word."""
RESERVE = 4096
READ_BYTES = 256 * 1024

Events: TypeAlias = tuple[tuple[int, e.Event], ...]


def decoded(entries: Iterable[LogEntry]) -> Events:
    """Stored entries as watchers get them."""
    return tuple([(entry.number, e.decode(entry.data)) for entry in entries])


class LogReader(Protocol):
    """A cursor into the log."""

    after: int

    def tell(self) -> None:
        """Events were appended, or the log has ended, while the reader waits."""


class RunLog:
    """The log of one live run. Only the engine appends."""

    ended = False
    left: InterlinguaError | None = None
    """Why the gateway has let go of the run before its end."""
    bytes = 0
    """Of all events since this process has it, encoded."""
    holding = False
    """Whether events are held back: numbers are being committed, or reserved."""
    wrong: InterlinguaError | None = None
    """The error of the first held-back event that could not be folded later."""
    moved: asyncio.Event | None = None
    """Set when a reader has come along; None until somebody waits for that."""
    _output: Output | None = None
    _older = 0  # how many of the tail were there when it was last trimmed
    _come = 0  # about the memory that what has come since then takes
    _committing = 0  # number of the newest event of the commit under way
    _released: asyncio.Event | None = None  # None until somebody waits for that
    _extending: asyncio.Future[None] | None = None

    def __init__(self, run_id: str, store: Store, agent: Agent, *, reserved: int, last: int) -> None:
        """`reserved` numbers may be used without asking; `last` was the newest number used."""
        self.run_id = run_id
        self.opener = Opener()
        """Makes what the agent says legal, before it is appended."""
        self.last = last
        self.agent = agent
        self._store = store
        self._reserved = reserved
        self._unfolded: list[e.Event] = []
        """Events of the document that is not made yet."""
        self._tail: list[e.Event] = []  # the newest, up to number `last`
        self._held: list[e.Event] = []
        self.waiting: set[LogReader] = set()
        """Told of the next append, or of the end."""
        self.readers: list[LogReader] = []

    @property
    def output(self) -> Output:
        """The document of what is shown. Made when the agent says a piece of it, or when somebody asks for it."""
        if self._output is None:
            self._output = Output(self.agent)
            for event in self._unfolded:
                self._output.apply(event)
            self._unfolded.clear()
        return self._output

    # writing

    def append(self, events: Sequence[e.Event]) -> None:
        """Number events, show them, and write them behind. Raises what an event cannot be folded for; all others
        are written then. While events are held back it raises nothing: see `wrong`.
        """
        if self.holding:
            self._held.extend(events)
            return
        if not events:
            return
        if self.last + len(events) > self._reserved:
            self._held.extend(events)
            return self._extend_soon()
        entries: list[LogEntry] = []
        try:
            entries = self.number(events)
        except UnicodeEncodeError:  # half a surrogate pair of the agent's: it is folded as it is written
            events = [delta.sound(event) for event in events]
        except RecursionError:
            pass  # the fold refuses what is nested too deep
        wrong: InterlinguaError | None = None
        kept: list[e.Event] = []
        output = self._output or self.output
        burst = fewer(events) if len(events) > 1 else events
        for at, event in enumerate(burst):
            try:
                output.apply(event)  # first, since it may raise: what cannot be folded is not written either
            except InterlinguaError as error:
                if wrong is None:
                    wrong, kept = error, [*burst[:at]]
                if type(event) is e.PartStarted:  # others of the burst build on it
                    kept.append(replace(event, value=None))
            else:
                if wrong is not None:
                    kept.append(event)
        if wrong is not None:
            events = kept
        if wrong is not None or not entries:
            entries = self.number(events)
        self._publish(events, self._store.append(self.run_id, entries))
        if self.last > self._reserved - RESERVE // 2:
            self._extend_soon()
        if wrong is not None:
            raise wrong

    async def commit(self, events: Sequence[e.Event], change: RunChange, *, soon: bool = False) -> None:
        """Write a transition and its events, made legal; show them once they are durable, or (`soon`) once they are
        written. All of it, or nothing: what is not committed may be tried again.

        One at a time: whoever changes the run's record sees to that.
        """
        if self.holding:
            await self.settled()
        events = self.opener.feed(events)
        self.holding = True
        try:
            reserved = self._reserved
            entries = self.number(events)
            self._committing = entries[-1].number if entries else 0
            if entries and entries[-1].number > reserved - RESERVE // 2:
                reserved = entries[-1].number + RESERVE
                change = replace(change, reserved=reserved)
            try:
                await self._store.commit(self.run_id, replace(change, events=entries), soon=soon)
            except Unsynced as error:  # it has happened, and others may have read it: what follows builds on it
                log.error("run %s goes on after what a power cut may undo: %s", self.run_id, error.detail)
            self._reserved = reserved
            self.created(events, entries)
        except BaseException:
            self.opener.withdraw(events)
            raise
        finally:
            self._committing = 0
            self._release()

    async def settled(self) -> None:
        """Wait until nothing is held back."""
        while self.holding:
            if self._released is None:
                self._released = asyncio.Event()
            self._released.clear()
            await self._released.wait()

    async def reserve(self) -> None:
        """Reserve the next range of numbers before the first of them is used."""
        self._reserved = self.last + RESERVE
        await self._store.commit(self.run_id, RunChange(reserved=self._reserved))

    async def readers_near(self) -> None:
        """Wait until every watcher has come within the events kept in memory."""
        while any(reader.after + 1 < self.tail_first for reader in self.readers):
            if self.moved is None:
                self.moved = asyncio.Event()
            self.moved.clear()
            await self.moved.wait()

    def number(self, events: Sequence[e.Event]) -> list[LogEntry]:
        """Events as they are to be written, under the next numbers; `created` shows them when they are."""
        number, entries = self.last, []
        for event in events:
            number += 1
            entries.append(LogEntry(number, e.encode(event), type(event) is e.PartDelta))
        return entries

    def finished(self, end: e.RunFinished) -> tuple[e.PartReplaced | None, msgspec.Raw]:
        """Take the final result: its change of what was said, and the document."""
        if self._output is None and end.output != NULL:
            self._unfolded.append(end)
            return None, end.output
        return self.output.correction(end), msgspec.Raw(self.output.finish(end))

    def created(self, events: Sequence[e.Event], entries: Sequence[LogEntry]) -> None:
        """Fold and show what was numbered, after it was committed. `finished` has taken the result."""
        if self._output is not None:
            for event in events:
                if type(event) is not e.RunFinished:
                    self._output.apply(event)
        else:
            self._unfolded.extend(events)
        self._publish(events, size_of(entries))

    def close(self) -> None:
        """No more events will come: wake every watcher."""
        self.ended = True
        for watch in tuple(self.waiting):
            watch.tell()

    def leave(self, why: InterlinguaError) -> None:
        """No more events will come here: every watcher is told so, after what there is."""
        self.left = why
        for watch in tuple(self.waiting):
            watch.tell()

    def _extend_soon(self) -> None:
        self.holding = True
        self._extending = asyncio.ensure_future(self._extend())

    async def _extend(self) -> None:
        try:
            while self.newest > self._reserved - RESERVE // 2:  # more may come meanwhile
                reserved = self.newest + max(RESERVE, self.newest)
                await self._store.commit(self.run_id, RunChange(reserved=reserved))
                self._reserved = reserved
        except InterlinguaError as error:  # the run's next transition meets the same and ends it
            log.error("run %s: reserving event numbers failed: %s", self.run_id, error)
            self._reserved = max(self._reserved, self.newest)  # what is held is written all the same
        finally:
            self._release()

    def _release(self) -> None:
        self.holding = False
        if self._released is not None:
            self._released.set()
        if self._held:
            held, self._held = self._held, []
            try:
                self.append(held)
            except InterlinguaError as error:  # whoever waited for the commit has no part in it
                self.wrong = self.wrong or error

    def _publish(self, events: Sequence[e.Event], size: int) -> None:
        if not events:
            return
        self._tail += events
        self.last += len(events)
        self.bytes += size
        self._come += size + EVENT_BYTES * len(events)
        if self._come > TAIL_BYTES:
            self._trim()
        if self.waiting:
            for watch in tuple(self.waiting):
                watch.tell()

    def _trim(self) -> None:
        """Drop what was there the last time: more than `TAIL_BYTES` have come since."""
        del self._tail[: self._older]
        self._older = len(self._tail)
        self._come = 0

    # reading

    def newer(self, after: int) -> Batch | None:
        """Events above `after` if the tail has them all, else None."""
        last, tail = self.last, self._tail
        count = last - after
        if not 0 < count <= len(tail):
            return None
        return Batch(tuple(enumerate(tail[-count:], after + 1)), last, self._output or self.output)

    @property
    def newest(self) -> int:
        """Number of the newest event, shown or not: what is held back has the next ones."""
        return max(self.last, self._committing) + len(self._held)

    @property
    def tail_first(self) -> int:
        """Number of the oldest event still in memory; above `last` if there is none."""
        return self.last + 1 - len(self._tail)


def _nobody(_: Batch) -> None:
    """Before anybody follows."""


def _dropped(waiting: Awaitable[None] | None) -> None:
    """The task that would have awaited it was cancelled."""
    if inspect.iscoroutine(waiting):
        waiting.close()


class WatchedRecord(Protocol):
    """The record of a run that is watched: see `RunRecord`."""

    run: Run

    @property
    def hidden(self) -> bool: ...

    async def show(self) -> None: ...


class LiveWatch(AbstractAsyncContextManager[Watch]):
    """A cursor into a `RunLog` (see `gateway.contract.Watch`). While it is entered it counts as a reader that the route
    may ask to wait for.
    """

    _further: Watch | None = None
    _gone_on: AbstractContextManager[Watch] | None = None
    """Both made once another process drives the run."""
    _stopped = False
    _news: asyncio.Future[Awaitable[None] | None] | None = None
    """Set while this waits: with what is to be awaited next."""
    _told = False
    _due = _fires = math.inf
    _timer: Timer | None = None
    _take: Take = staticmethod(_nobody)

    def __init__(
        self,
        log: RunLog,
        store: Store,
        record: WatchedRecord,
        after: int,
        *,
        deltas: bool,
        recorder: RunRecorder,
        elsewhere: Callable[[Run, Output, int], AbstractContextManager[Watch]],
    ) -> None:
        """elsewhere: makes the cursor that goes on after an event, should another process take the run over; it folds
        an empty document.
        """
        self._log = log
        self._store = store
        self._record = record
        self.after = after
        self._deltas = deltas
        self._recorder = recorder
        self._elsewhere = elsewhere
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Watch:
        record = self._record
        if record.hidden:
            await record.show()
        tracing.metrics.watchers.values[(record.run.request.protocol,)] += 1
        self._log.readers.append(self)
        return self._recorder.watched(record.run.id, self) if self._recorder.on else self

    async def __aexit__(self, *_: object) -> None:
        log = self._log
        log.readers.remove(self)
        self._take = _nobody  # what follows holds this: together they would stay until they are collected
        if log.moved is not None:
            log.moved.set()
        if self._timer is not None:
            self._timer.cancel()
        tracing.metrics.watchers.values[(self._record.run.request.protocol,)] -= 1
        if self._gone_on is not None:
            self._gone_on.__exit__(None, None, None)

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._record.run if self._further is None else self._further.run

    @property
    def newest(self) -> int:
        return self._log.newest if self._further is None else self._further.newest

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        log = self._log
        self._stopped = False
        self._due = math.inf if timeout is None else self._loop.time() + timeout
        self._take = take
        while not self._stopped:
            if self.after < log.last:
                waiting = self._give(batch) if (batch := log.newer(self.after)) is not None else await self._read()
            elif log.ended:
                return True
            elif isinstance(log.left, TakenOver):
                if self._further is None:
                    self._gone_on = self._elsewhere(self.run, Output(log.agent), self.after)
                    self._further = self._gone_on.__enter__()
                return await self._further.follow(take, timeout)
            elif log.left is not None:
                raise log.left
            else:
                waiting = await self._news_come()
            if waiting is not None:
                await waiting
            if log.moved is not None:
                log.moved.set()
        return False

    def stop(self) -> None:
        self._stopped = True
        if self._further is not None:
            self._further.stop()
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
        if (batch := log.newer(self.after)) is None:
            news.set_result(None)
            return
        self._news = None  # `take` may call `stop`
        try:
            waiting = self._take(batch)
            self.after = batch.last
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

    def _give(self, batch: Batch) -> Awaitable[None] | None:
        waiting = self._take(batch)
        self.after = batch.last
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
        self._timer = Timer(self._loop, due - self._loop.time(), self._look)

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
        return self._give(Batch(events=events, last=last, snapshot=snapshot, skipped=skipped))
