"""Group commit: what is to be written is gathered, written in one transaction, and synced while the next is gathered.

event loop --submit--> queue --next turn of the loop--> one transaction, written --> who need not wait is told
                                                        thread: fdatasync        --> who waits for the disk is told

A small transaction takes less time than handing it to another thread and back, so the event loop writes it itself; it
never waits for the disk, for another process, or for work that is long. All of that is lent to the one thread there is
(disk_thread.py), and the loop goes on when it comes back.

In WAL a transaction is written when it commits, and is there after the process is killed; a sync of the WAL makes it
and all before it outlast a power cut. Where there is no WAL (a file system without shared memory) the thread writes
everything and SQLite itself syncs.

What nobody waits for is held back for a moment (write_behind.py). It goes before any later work on its run, and
before work that may look at any run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from gateway.store import Entry
from gateway.store.sqlite.batch import Batches
from gateway.store.sqlite.disk_thread import DiskThread
from gateway.store.sqlite.faults import CannotBegin, NotWhole, closed, unavailable
from gateway.store.sqlite.job import Answer, Job, Piece, Work, answer
from gateway.store.sqlite.write_behind import HeldWrites, WriteBehind

T = TypeVar("T")

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
    """Every method is called on the event loop. `disk` is this one's alone."""

    def __init__(self, disk: DiskThread) -> None:
        self._disk = disk
        self._disk.free, self._disk.died = self._turn, self._died
        self._queue: deque[Piece] = deque()
        self._held = HeldWrites(self._ripe)
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
        batches = self._disk.batches
        held = self._held if run is None else run in self._held
        return not (held or self._queue or self._lent is not None or (batches is not None and batches.kept))

    @property
    def backlog(self) -> int:
        """Bytes appended and not written."""
        return self._put - (self._disk.batches.written if self._disk.batches is not None else 0)

    async def start(self) -> None:
        """Connect. Raises what `connect` or the first `beat` raises."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._gone = self._loop.create_future()
        self._disk.start(ready, self._gone)
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
        joins: bool = False,
        own: bool = False,
        long: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Run `work` in the next transaction, after everything appended; the future has its result.

        own: it has to do with no run but `run`, or one that is new: then only what was appended for that goes before.

        durable: when it is on the disk; with `soon` when it is written, and it is on the disk within SOON_SECONDS.
        joins: see `Work`. long, size: see `Job`.

        `work` raises errors of the tree before it writes anything, or after: what it wrote is undone. Cancelling the
        future does not undo the work.
        """
        if not self.usable:
            raise closed()
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        durable, soon = durable and not soon, durable and soon
        if not own:
            self._queue += self._held.take_all()
        elif run is not None and (held := self._held.take(run)) is not None:
            self._queue.append(held)
        self._queue.append(Job(work, run, future, durable=durable, soon=soon, joins=joins, long=long, size=size))
        self._plan()
        return future

    def behind(self, work: Work[None]) -> None:
        """Run `work` soon, in order; nobody waits."""
        if not self.usable:
            raise closed()
        self._queue.append(Job(work, None, None))
        self._plan()

    def append(self, run: str, entries: Sequence[Entry]) -> None:
        """Write entries of a run's log behind."""
        if not self.usable:
            raise closed()
        self._put += self._held.append(run, entries)

    def save(self, run: str, record: Work[None]) -> None:
        """Run `record`, which writes the record of `run`, behind; or not, where a later one is written at once."""
        if not self.usable:
            raise closed()
        self._held.save(run, record)

    # --- a turn of the event loop

    def _plan(self) -> None:
        assert self._loop is not None
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._turn)

    def _ripe(self, held: list[WriteBehind]) -> None:
        self._queue += held
        self._plan()

    def _again(self) -> None:
        """What could not be written is tried again."""
        self._alarm = None
        self._turn()
        self._look_after()

    def _turn(self) -> None:
        """Write what waits, or have it written."""
        self._planned = False
        if self._lent is not None or self._stopping or (batches := self._disk.batches) is None:
            return  # what was lent calls again; the thread writes the rest at the end
        self._disk.wanted = True
        if not self._disk.lock.acquire(blocking=False):
            return  # the thread calls when it is done
        self._disk.wanted = False
        try:
            if batch := self._take(batches):
                self._write(batches, batch)
        finally:
            self._disk.lock.release()
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
        long = not self._disk.shared
        for piece in batch:
            if isinstance(piece, Job):
                jobs += 1
                size += piece.size
                long = long or piece.long
            else:
                size += piece.size
        self._pages += PAGES + PAGES_A_JOB * jobs + size // PAGE_BYTES
        if not long and jobs <= SMALL_BATCH and size <= SMALL_BYTES:
            try:
                self._tell(batches.write(batch, waits=False))
                return
            except (CannotBegin, NotWhole):
                pass  # another process writes, or may before all is done: the thread can wait for it
        self._lent = batch
        self._disk.do(lambda: self._write_there(batch))

    def _tell(self, answers: list[Answer]) -> None:
        """A transaction is written: tell who does not wait for the disk, and have it synced for who does."""
        if self._disk.wal is None:
            answer(answers)
        else:
            told: list[Answer] = []
            owed = False
            for one in answers:
                job, _, error = one
                if error is None and job.durable:
                    self._unsynced.append(one)
                else:
                    told.append(one)
                    owed = owed or (job.soon and error is None)
            answer(told)
            if owed:
                self._sync_soon()
            if self._unsynced and self._syncing is None:
                self._sync()
        self._look_after()

    def _look_after(self) -> None:
        """What is to be done now and then, after a transaction."""
        batches = self._disk.batches
        assert self._loop is not None and batches is not None
        if self._stopping:
            return  # the thread sees to the rest
        if batches.kept and self._alarm is None:
            wait = max(0.0, batches.retry_at - time.monotonic())
            self._alarm = self._loop.call_later(wait + 0.001, self._again)
        if self._pages > CHECKPOINT_PAGES and self._disk.shared:
            self._pages = 0
            self._disk.do(self._disk.checkpoint)

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
        self._disk.do(lambda: self._disk.post(self._synced, self._disk.on_disk(answers)))

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
        if self._queue:
            self._plan()

    def _stop(self) -> None:
        self.usable = False
        self._queue += self._held.take_all()
        self._stopping = True
        for alarm in (self._alarm, self._sync_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._unsynced:
            self._sync()
        self._disk.finish(self._write_rest)

    def _died(self, error: BaseException) -> None:
        """The thread has: nothing will be written any more."""
        self.usable = False
        waiting = [piece for piece in (*(self._lent or ()), *self._queue) if type(piece) is Job]
        waiting += [job for job, _, _ in (*(self._syncing or ()), *self._unsynced)]
        answer([(job, None, unavailable(error)) for job in waiting])

    # --- in the thread

    def _write_there(self, batch: list[Piece]) -> None:
        answers: Sequence[Answer] = self._disk.holding(lambda batches: batches.write(batch, waits=True))
        if any(job.durable or job.soon for job, _, error in answers if error is None):
            answers = self._disk.on_disk(answers)
        self._disk.post(self._returned, answers)

    def _write_rest(self) -> None:
        """Nothing more comes."""

        def rest(batches: Batches) -> list[Answer]:
            answers: list[Answer] = []
            while batch := self._take(batches):
                answers += batches.write(batch, waits=True)
                if batches.kept and not self._queue:
                    break
            return answers

        self._disk.post(answer, self._disk.on_disk(self._disk.holding(rest)))
