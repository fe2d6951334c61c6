"""Group commit: what is to be written is gathered, written in one transaction, and synced while the next is gathered.

event loop --submit--> queue --next turn of the loop--> one transaction, written --> who need not wait is told
                                                        thread: fdatasync        --> who waits for the disk is told

A small transaction takes less time than handing it to another thread and back, so the event loop writes it itself; it
never waits for the disk, for another process, or for work that is long. All of that is lent to the one thread there is
(hand.py), and the loop goes on when it comes back.

In WAL a transaction is written when it commits, and is there after the process is killed; a sync of the WAL makes it
and all before it outlast a power cut. Where there is no WAL (a file system without shared memory) the thread writes
everything and SQLite itself syncs.

What nobody waits for is held back some milliseconds, so that more of it shares a row and a run's end takes it along. It
goes before any later work on its run, and before work that may look at any run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.store import Entry
from gateway.store.sqlite.batch import Batches
from gateway.store.sqlite.faults import CannotBegin, NotWhole, unavailable
from gateway.store.sqlite.hand import Hand
from gateway.store.sqlite.job import Answer, Job, Piece, Work, answer

T = TypeVar("T")

HOLD_SECONDS = 0.02
SOON_SECONDS = 0.02
"""How long what was written may stay without a sync that somebody else's commit causes."""
LONGEST_BATCH = 4096
"""Pieces in one transaction: bounds how long one batch keeps the others waiting."""
SMALL_BATCH = 256
SMALL_BYTES = 256 * 1024
"""What the event loop writes itself: jobs, bytes."""
CHECKPOINT_PAGES = 2000
"""Pages, about, that are written to the WAL before they are moved to the file."""
PAGE_BYTES = 4096
PAGES, PAGES_A_JOB = 2, 3
"""What a transaction and each job writes, about, beside the bytes that are its own."""


class Writer:
    """Every method is called on the event loop. `hand` is this one's alone."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._hand.free, self._hand.died = self._turn, self._died
        self._queue: deque[Piece] = deque()
        self._held: dict[str | None, list[Piece]] = {}  # what nobody waits for, by run
        self._planned = False
        self._lent: list[Piece] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._unsynced: list[Answer] = []
        self._syncing: list[Answer] | None = None
        self._owed = False  # what was answered is to be synced
        self._sync_alarm: asyncio.TimerHandle | None = None
        self._pages = 0
        self._put = 0
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: asyncio.Future[None] | None = None
        self.usable = False
        """Between `start` and `stop`."""

    def settled(self, run: str | None = None) -> bool:
        """Whether nothing that was appended, for `run` if it is given, waits to be written. It may say no too often."""
        batches = self._hand.batches
        held = self._held if run is None else run in self._held
        return not (held or self._queue or self._lent is not None or (batches is not None and batches.kept))

    @property
    def backlog(self) -> int:
        """Bytes appended and not written."""
        return self._put - (self._hand.batches.written if self._hand.batches is not None else 0)

    async def start(self) -> None:
        """Connect. Raises what `connect` or the first `beat` raises."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._gone = self._loop.create_future()
        self._hand.start(ready, self._gone)
        try:
            await asyncio.shield(ready)
        except BaseException:
            self._stop()
            raise
        self.usable = True

    async def stop(self) -> None:
        """Write what waits, say farewell, disconnect. Raises Unavailable if something could not be written."""
        self._stop()
        if self._gone is not None:
            await asyncio.shield(self._gone)

    def submit(
        self,
        work: Work[T],
        *,
        run: str | None = None,
        durable: bool = True,
        soon: bool = False,
        record: bool = False,
        joins: bool = False,
        own: bool = False,
        long: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Run `work` in the next transaction, after everything appended; the future has its result.

        own: it has to do with no run but `run`, or one that is new: then only what was appended for that goes before.

        durable: when it is on the disk; with `soon` when it is written, and it is on the disk within SOON_SECONDS.
        record: it writes the whole record of `run`, whatever `behind` was to write of it before. joins: see `Work`.
        long, size: see `Job`.

        `work` raises errors of the tree before it writes anything, or after: what it wrote is undone. Cancelling the
        future does not undo the work.
        """
        if not self.usable:
            raise Unavailable("the store is closed")
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        durable, soon = durable and not soon, durable and soon
        if not own:
            self._let_go()
        elif run in self._held:
            self._queue += self._held.pop(run)
        self._queue.append(
            Job(work, run, future, durable=durable, soon=soon, record=record, joins=joins, long=long, size=size)
        )
        if not self._planned:
            self._plan()
        return future

    def behind(self, work: Work[None], run: str | None = None, *, record: bool = False) -> None:
        """Run `work` soon, in order; nobody waits.

        `record`: it writes the whole record of `run`, and is left out where later work of the same transaction does.
        """
        self._later(run, Job(work, run, None, record=record))

    def append(self, run: str, entries: Sequence[Entry]) -> None:
        """Write entries of a run's log soon."""
        size = 0
        for entry in entries:
            size += len(entry.data)
        self._later(run, (run, entries, size))
        self._put += size

    def _later(self, run: str | None, piece: Piece) -> None:
        """What nobody waits for is given a moment to become more, or to be taken along by what somebody waits for."""
        if not self.usable:
            raise Unavailable("the store is closed")
        assert self._loop is not None
        if run in self._held:
            self._held[run].append(piece)
        else:
            self._held[run] = [piece]
        if self._alarm is None:
            self._alarm = self._loop.call_later(HOLD_SECONDS, self._alarmed)

    def _let_go(self) -> None:
        for pieces in self._held.values():
            self._queue += pieces
        self._held.clear()

    # --- a turn of the event loop

    def _plan(self) -> None:
        assert self._loop is not None
        self._planned = True
        self._loop.call_soon(self._turn)

    def _alarmed(self) -> None:
        """One alarm is left to ring, though what it was set for may have been taken along."""
        self._alarm = None
        self._let_go()
        self._turn()
        self._look_after()

    def _turn(self) -> None:
        """Write what waits, or have it written."""
        self._planned = False
        if self._lent is not None or self._stopping or (batches := self._hand.batches) is None:
            return  # what was lent calls again; the thread writes the rest at the end
        self._hand.wanted = True
        if not self._hand.lock.acquire(blocking=False):
            return  # the thread calls when it is done
        self._hand.wanted = False
        try:
            if batch := self._take(batches):
                self._write(batches, batch)
        finally:
            self._hand.lock.release()
        if self._queue and self._lent is None:
            self._plan()

    def _take(self, batches: Batches) -> list[Piece]:
        batch: list[Piece] = []
        waiting = self._queue
        if batches.kept and (waiting or self._stopping or time.monotonic() >= batches.retry_at):
            batch, batches.kept = batches.kept, batch
        if len(waiting) <= LONGEST_BATCH:
            batch += waiting
            waiting.clear()
        else:
            batch += [waiting.popleft() for _ in range(LONGEST_BATCH)]
        return batch

    def _write(self, batches: Batches, batch: list[Piece]) -> None:
        size = jobs = 0
        long = not self._hand.shared
        for piece in batch:
            if isinstance(piece, Job):
                jobs += 1
                size += piece.size
                long = long or piece.long
            else:
                size += piece[2]
        self._pages += PAGES + PAGES_A_JOB * jobs + size // PAGE_BYTES
        if not long and jobs <= SMALL_BATCH and size <= SMALL_BYTES:
            try:
                self._tell(batches.write(batch, waits=False))
                return
            except (CannotBegin, NotWhole):
                pass  # another process writes, or may before all is done: the thread can wait for it
        self._lent = batch
        self._hand.do(lambda: self._write_there(batch))

    def _tell(self, answers: list[Answer]) -> None:
        """A transaction is written: tell who does not wait for the disk, and have it synced for who does."""
        if self._hand.wal is None:
            answer(answers)
        else:
            wait = False
            for one in answers:
                job, _, error = one
                if error is not None or not job.durable:
                    answer((one,))
                    if job.soon and error is None:
                        self._sync_soon()
                else:
                    self._unsynced.append(one)
                    wait = True
            if wait and self._syncing is None:
                self._sync()
        self._look_after()

    def _look_after(self) -> None:
        """What is to be done now and then, after a transaction."""
        batches = self._hand.batches
        assert self._loop is not None and batches is not None
        if self._stopping:
            return  # the thread sees to the rest
        if batches.kept and self._alarm is None:
            wait = max(0.0, batches.retry_at - time.monotonic())
            self._alarm = self._loop.call_later(wait + 0.001, self._alarmed)
        if self._pages > CHECKPOINT_PAGES and self._hand.shared:
            self._pages = 0
            self._hand.do(self._hand.checkpoint)

    def _sync_soon(self) -> None:
        assert self._loop is not None
        self._owed = True
        if self._sync_alarm is None:
            self._sync_alarm = self._loop.call_later(SOON_SECONDS, self._sync_due)

    def _sync_due(self) -> None:
        self._sync_alarm = None
        if self._owed and self._syncing is None:
            self._sync()

    def _sync(self) -> None:
        """Have the thread sync what is written by now."""
        answers, self._unsynced = self._unsynced, []
        self._syncing = [*(self._syncing or ()), *answers]
        self._owed = False
        self._hand.do(lambda: self._hand.post(self._synced, self._hand.on_disk(answers)))

    def _synced(self, answers: Sequence[Answer]) -> None:
        self._syncing = None
        if self._unsynced or (self._owed and self._sync_alarm is None):
            self._sync()
        answer(answers)

    def _returned(self, answers: Sequence[Answer]) -> None:
        """What was lent is written, and synced where somebody wanted that."""
        self._lent = None
        answer(answers)
        self._look_after()
        if self._queue and not self._planned:
            self._plan()

    def _stop(self) -> None:
        self.usable = False
        self._let_go()
        self._stopping = True
        for alarm in (self._alarm, self._sync_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._unsynced:
            self._sync()
        self._hand.finish(self._write_rest)

    def _died(self, error: BaseException) -> None:
        """The thread has: nothing will be written any more."""
        self.usable = False
        waiting = [piece for piece in (*(self._lent or ()), *self._queue) if type(piece) is Job]
        waiting += [job for job, _, _ in (*(self._syncing or ()), *self._unsynced)]
        answer([(job, None, unavailable(error)) for job in waiting])

    # --- in the thread

    def _write_there(self, batch: list[Piece]) -> None:
        answers: Sequence[Answer] = self._hand.holding(lambda batches: batches.write(batch, waits=True))
        if any(job.durable or job.soon for job, _, error in answers if error is None):
            answers = self._hand.on_disk(answers)
        self._hand.post(self._returned, answers)

    def _write_rest(self) -> None:
        """Nothing more comes."""

        def rest(batches: Batches) -> list[Answer]:
            answers: list[Answer] = []
            while batch := self._take(batches):
                answers += batches.write(batch, waits=True)
                if batches.kept and not self._queue:
                    break
            return answers

        self._hand.post(answer, self._hand.on_disk(self._hand.holding(rest)))
