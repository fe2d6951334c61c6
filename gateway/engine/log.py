"""One run's numbered event log, and the watchers that read it.

The newest events are kept as objects up to a number of bytes; older ones are in the store. A watcher is a cursor: it
costs its position and the batch in its hands, and never slows the run. Transitions become visible when they are
committed; tokens at once. While a commit is under way, later events wait behind it, so that numbers stay in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from gateway.adapter import Batch, Take
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.output import Output
from gateway.core.types import Run
from gateway.store import Change, Entry, Store, Unsynced
from gateway.transport.deadline import CLOCK_SLACK

log = logging.getLogger(__name__)

TAIL_BYTES = 256 * 1024
READ_BYTES = 256 * 1024
RESERVE = 4096


class RunLog:
    """The log of one live run. Only the engine appends."""

    def __init__(self, run_id: str, store: Store, output: Output, *, reserved: int, last: int = 0) -> None:
        """`reserved` numbers may be used without asking; `last` was the newest number used."""
        self.run_id = run_id
        self.output = output
        self.last = last
        self.ended = False
        self.bytes = 0
        """Of all events since this process has it, encoded."""
        self._store = store
        self._reserved = reserved
        self._tail: list[tuple[int, e.Event]] = []
        self._sizes: list[int] = []  # of the tail's events, encoded
        self._tail_bytes = 0
        self._held: list[e.Event] | None = None
        self._lock = asyncio.Lock()
        self.waiting: set[LogWatch] = set()
        """Told of the next append, or of the end."""
        self._extending: asyncio.Future[None] | None = None
        self.readers: set[LogWatch] = set()
        self.moved: asyncio.Event | None = None
        """Set when a reader has come along; None until somebody waits for that."""

    # writing

    def append(self, events: Sequence[e.Event]) -> None:
        """Number events, show them, and write them behind. Raises what an event cannot be folded for; all others
        are written then.
        """
        if self._held is not None:
            self._held.extend(events)
            return
        if not events:
            return
        wrong: InterlinguaError | None = None
        good: list[e.Event] = []
        folded = events if len(events) == 1 else _fewer(events)
        for event in folded:
            try:
                self.output.apply(event)  # first, since it may raise: what cannot be folded is not written either
            except InterlinguaError as error:
                wrong = wrong or error
                if type(event) is e.PartStarted:  # others of the burst build on it
                    good.append(replace(event, value=None))
            else:
                good.append(event)
        if wrong is not None:
            self._write(good)
            raise wrong
        self._write(events)

    def _write(self, events: Sequence[e.Event]) -> None:
        entries = self._number(events)
        self._store.append(self.run_id, entries)
        self._publish(events, entries)
        if self.last > self._reserved - RESERVE // 2:
            self._held = []
            self._extending = asyncio.ensure_future(self._extend())

    async def commit(self, events: Sequence[e.Event], change: Change) -> None:
        """Write a transition and its events; show them once they are durable."""
        async with self._lock:
            held, self._held = self._held, []
            gate = held is None
            events = [*(held or ()), *events]  # what was held came first
            reserved = self._reserved
            try:
                entries = self._number(events)
                if entries and entries[-1].number > reserved - RESERVE // 2:
                    reserved = entries[-1].number + RESERVE
                    change = replace(change, reserved=reserved)
                try:
                    await self._store.commit(self.run_id, replace(change, events=entries))
                except Unsynced as error:  # it has happened, and others may have read it: what follows builds on it
                    log.error("run %s goes on after what a power cut may undo: %s", self.run_id, error.detail)
                self._reserved = reserved
                self.created(events, entries)
            except BaseException:
                self._held[:0] = held or ()
                raise
            finally:
                if gate:
                    self._release()

    @property
    def holding(self) -> bool:
        """Whether events are held back by a commit under way."""
        return self._held is not None

    async def settled(self) -> None:
        """Wait until nothing is held back by a commit under way."""
        while self._held is not None:
            if self._extending is not None and not self._extending.done():
                await asyncio.shield(self._extending)
            else:
                async with self._lock:
                    pass

    async def reserve(self) -> None:
        """Reserve the next range of numbers before the first of them is used."""
        self._reserved = self.last + RESERVE
        await self._store.commit(self.run_id, Change(reserved=self._reserved))

    async def readers_near(self) -> None:
        """Wait until every watcher has come within the events kept in memory."""
        while any(reader.after + 1 < self.tail_first for reader in self.readers):
            if self.moved is None:
                self.moved = asyncio.Event()
            self.moved.clear()
            await self.moved.wait()

    def first(self, events: Sequence[e.Event]) -> tuple[Entry, ...]:
        """Number the events that are written with the run's creation; show them afterwards with `created`."""
        return self._number(events)

    def created(self, events: Sequence[e.Event], entries: Sequence[Entry]) -> None:
        """Fold and show what `first` numbered, after the commit."""
        for event in events:
            self.output.apply(event)
        self._publish(events, entries)

    def close(self) -> None:
        """No more events will come: wake every watcher."""
        self.ended = True
        self._wake()

    async def _extend(self) -> None:
        async with self._lock:
            try:
                reserved = self.last + max(RESERVE, self.last)
                await self._store.commit(self.run_id, Change(reserved=reserved))
                self._reserved = reserved
            except InterlinguaError as error:  # the run's next transition meets the same and ends it
                log.error("run %s: reserving event numbers failed: %s", self.run_id, error)
            finally:
                self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self.append(held)

    def _number(self, events: Sequence[e.Event]) -> tuple[Entry, ...]:
        first = self.last + 1
        encode = e.encode
        return tuple(
            [Entry(number, encode(event), type(event) is e.PartDelta) for number, event in enumerate(events, first)]
        )

    def _publish(self, events: Sequence[e.Event], entries: Sequence[Entry]) -> None:
        if entries:
            self._tail += enumerate(events, entries[0].number)
            self.last = entries[-1].number
            sizes = [len(entry.data) for entry in entries]
            self._sizes += sizes
            self.bytes += (added := sum(sizes))
            self._tail_bytes += added
        if self._tail_bytes > 2 * TAIL_BYTES:
            self._trim()
        self._wake()

    def _trim(self) -> None:
        drop = 0
        while self._tail_bytes > TAIL_BYTES and drop < len(self._tail) - 1:
            self._tail_bytes -= self._sizes[drop]
            drop += 1
        del self._tail[:drop], self._sizes[:drop]

    def _wake(self) -> None:
        for watch in tuple(self.waiting):
            watch.tell()

    # reading

    def newer(self, after: int) -> tuple[tuple[int, e.Event], ...] | None:
        """Events above `after` if the tail has them all, else None."""
        if not self._tail or self._tail[0][0] > after + 1:
            return None
        return tuple(self._tail[after + 1 - self._tail[0][0] :])

    @property
    def tail_first(self) -> int:
        """Number of the oldest event still in memory; above `last` if there is none."""
        return self._tail[0][0] if self._tail else self.last + 1


def _fewer(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """Events that fold into the same document in fewer steps: a burst of one part's text is a single one."""
    first = events[0]
    if type(first) is not e.PartDelta or type(first.delta) is not str:
        return events
    part = first.part
    texts: list[str] = []
    for event in events:
        if type(event) is not e.PartDelta or event.part != part or type(event.delta) is not str:
            return events
        texts.append(event.delta)
    return [e.PartDelta(part=part, delta="".join(texts))]


def decoded(entries: Iterable[Entry]) -> tuple[tuple[int, e.Event], ...]:
    """Stored entries as watchers get them."""
    return tuple([(entry.number, e.decode(entry.data)) for entry in entries])


class HasRun(Protocol):
    """Whoever knows the run as it is now."""

    run: Run


class LogWatch:
    """A cursor into a `RunLog` (see `gateway.adapter.Watch`)."""

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
        """See `gateway.adapter.Watch.next`."""
        log = self._log
        if log.moved is not None:
            log.moved.set()
        while self.after >= log.last:
            if log.ended:
                return None
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
        if not self._deltas or not entries:
            # every entry up to the tail that is not here is a delta: the snapshot stands for it
            full = sum(len(entry.data) for entry in entries) >= READ_BYTES
            self.after = entries[-1].number if full else until - 1
        else:
            self.after = entries[-1].number
        skipped = not self._deltas and (self.after - after) > len(events)
        at_head = self.after == log.last
        return Batch(events=events, last=self.after, snapshot=log.output if at_head else None, skipped=skipped)
