"""Group commit: gathers writes into one transaction, and syncs it while the next one is gathered.

event loop --submit--> queue --next turn of the loop--> one transaction, written --> answers jobs that are not durable
                                                        thread: fdatasync        --> answers durable jobs

The event loop writes a small transaction itself, since that takes less time than handing it to a thread and back. It
never waits for the disk, for another process or for long work: those go to the disk thread (disk_thread.py), and the
loop continues with the queue when the thread is done.

In WAL mode a committed transaction survives the end of the process; a sync of the WAL makes it and all before it
survive a power cut. Without a WAL (a file system without shared memory) the thread writes everything, and SQLite syncs.

Appends and saves are held back for a moment (write_queue.py). They are written before any later work on their run, and
before work that may read any run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gateway.store.sqlite.batch import Batches
from gateway.store.sqlite.disk_thread import DiskThread
from gateway.store.sqlite.faults import CannotBegin, NotWhole, unavailable
from gateway.store.write_queue import Answer, Piece, WriteJob, WriteQueue, answer

SOON_SECONDS = 0.02
"""How long a `soon` job may wait for its sync, unless another commit causes one."""
LONGEST_BATCH = 4096
"""Pieces in one transaction: limits how long a batch delays the next one."""
SMALL_BATCH = 256
SMALL_BYTES = 256 * 1024
"""The most that the event loop writes itself: jobs, bytes."""
CHECKPOINT_PAGES = 2000
"""About how many pages are written to the WAL before a checkpoint moves them to the file."""
PAGE_BYTES = 4096
PAGES, PAGES_A_JOB = 2, 3
"""About how many pages a transaction and each job write in addition to their own bytes."""


class Writer:
    """Writes what its queue gathers. Every method is called on the event loop. `disk` serves no other writer.

    The work of a job is called with a cursor. If the job `joins`, also with the run's held writes (or None).
    """

    def __init__(self, disk: DiskThread) -> None:
        self.queue = WriteQueue(self._plan)
        self._disk = disk
        self._planned = False
        self._lent: list[Piece] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._unsynced: list[Answer] = []
        self._syncing: list[Answer] | None = None
        self._owed = False  # a `soon` job was answered and is to be synced
        self._sync_alarm: asyncio.TimerHandle | None = None
        self._pages = 0
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: asyncio.Future[None] | None = None

    def settled(self, run: str | None) -> bool:
        """Whether everything appended (for `run`, if given) is written. May return False although it is."""
        batches = self._disk.batches
        return not (self.queue.holds(run) or self._lent is not None or (batches is not None and batches.kept))

    @property
    def backlog(self) -> int:
        """Bytes appended but not yet written."""
        return self.queue.put - (self._disk.batches.written if self._disk.batches is not None else 0)

    async def start(self) -> None:
        """Connect. Raises what `connect` or the first `beat` raises."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._gone = self._loop.create_future()
        self._disk.start(ready, self._gone, free=self._turn, died=self._died)
        try:
            await asyncio.shield(ready)
        except BaseException:
            self._stop()
            raise
        self.queue.open()

    async def stop(self) -> None:
        """Write everything that waits, drop the lease, disconnect. Raises Unavailable if that was not possible."""
        self._stop()
        if self._gone is not None:
            await asyncio.shield(self._gone)

    # --- a turn of the event loop

    def _plan(self) -> None:
        assert self._loop is not None
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._turn)

    def _again(self) -> None:
        """Try again what could not be written."""
        self._alarm = None
        self._turn()
        self._look_after()

    def _turn(self) -> None:
        """Write what waits, or lend it to the thread."""
        self._planned = False
        if self._lent is not None or self._stopping or (batches := self._disk.batches) is None:
            return  # `_returned` goes on; the thread writes the rest at the end
        if not batches.try_lock():
            return  # the thread calls `_turn` when it releases the lock
        try:
            batch = self._take(batches) if batches.kept else self.queue.take(LONGEST_BATCH)
            if batch:
                self._write(batches, batch)
        finally:
            batches.lock.release()
        if len(batch) >= LONGEST_BATCH and self._lent is None:  # there may be more
            self._plan()

    def _take(self, batches: Batches) -> list[Piece]:
        batch: list[Piece] = []
        if batches.kept and (self.queue or self._stopping or time.monotonic() >= batches.retry_at):
            batch = batches.take_kept()
        return batch + self.queue.take(LONGEST_BATCH)

    def _write(self, batches: Batches, batch: list[Piece]) -> None:
        size = jobs = 0
        long = not self._disk.shared
        for piece in batch:
            if isinstance(piece, WriteJob):
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
                pass  # another process writes now, or may do so halfway: the thread can wait for it
        self._lent = batch
        self._disk.do(lambda: self._write_there(batch))

    def _tell(self, answers: list[Answer]) -> None:
        """Answer the jobs of a written transaction. Those that are durable are answered after a sync."""
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
                self._owed = True
                if self._sync_alarm is None:
                    assert self._loop is not None
                    self._sync_alarm = self._loop.call_later(SOON_SECONDS, self._sync_due)
            if self._unsynced and self._syncing is None:
                self._sync()
        if self._pages > CHECKPOINT_PAGES or (self._disk.batches is not None and self._disk.batches.kept):
            self._look_after()

    def _look_after(self) -> None:
        """After a transaction: plan another try of what could not be written, and checkpoint if the WAL is large."""
        batches = self._disk.batches
        assert self._loop is not None and batches is not None
        if self._stopping:
            return  # the thread writes the rest
        if batches.kept and self._alarm is None:
            wait = max(0.0, batches.retry_at - time.monotonic())
            self._alarm = self._loop.call_later(wait + 0.001, self._again)
        if self._pages > CHECKPOINT_PAGES and self._disk.shared:
            self._pages = 0
            self._disk.do(self._disk.checkpoint)

    def _sync_due(self) -> None:
        self._sync_alarm = None
        if self._owed and self._syncing is None:
            self._sync()

    def _sync(self) -> None:
        """Have the thread sync everything written so far."""
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
        """The thread has written the batch lent to it, and synced it if a job wanted that."""
        self._lent = None
        answer(answers)
        self._look_after()
        if self.queue:
            self._plan()

    def _stop(self) -> None:
        self.queue.close()
        self._stopping = True
        for alarm in (self._alarm, self._sync_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._unsynced:
            self._sync()
        self._disk.finish(self._write_rest)

    def _died(self, error: BaseException) -> None:
        """The thread died, so nothing can be written: fail every job that waits, and try nothing again."""
        self.queue.close()
        self._stopping = True
        left = self.queue.take(len(self.queue))
        waiting = [piece for piece in (*(self._lent or ()), *left) if type(piece) is WriteJob]
        waiting += [job for job, _, _ in (*(self._syncing or ()), *self._unsynced)]
        answer([(job, None, unavailable(error)) for job in waiting])

    # --- in the thread

    def _write_there(self, batch: list[Piece]) -> None:
        answers: Sequence[Answer] = self._disk.holding(lambda batches: batches.write(batch, waits=True))
        if any(job.durable or job.soon for job, _, error in answers if error is None):
            answers = self._disk.on_disk(answers)
        self._disk.post(self._returned, answers)

    def _write_rest(self) -> None:
        """Write all that is left; no more is submitted."""

        def rest(batches: Batches) -> list[Answer]:
            answers: list[Answer] = []
            while batch := self._take(batches):
                answers += batches.write(batch, waits=True)
                if batches.kept and not self.queue:
                    break
            return answers

        self._disk.post(answer, self._disk.on_disk(self._disk.holding(rest)))
