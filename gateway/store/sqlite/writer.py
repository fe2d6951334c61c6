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

A run of which only the client that waits for its end can know, `BegunRuns`, is written to a file first: by one system
call, without a transaction. Most are over within milliseconds: its row is written with its end then, or once it has
waited a moment for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from gateway.core.errors import Unavailable
from gateway.store.records import decode_run
from gateway.store.sqlite.disk_thread import CannotBegin, DiskThread, NotWhole, unavailable
from gateway.store.write_queue import SMALL_BYTES, Creation, Piece, WriteBehind, WriteJob, WriteQueue

SOON_SECONDS = 0.02
"""How long a `soon` job may wait for its sync, unless another commit causes one."""
LONGEST_BATCH = 4096
"""Pieces in one transaction: limits how long a batch delays the next one."""
SMALL_BATCH = 256
"""The most pieces that the event loop writes itself."""
CHECKPOINT_PAGES = 2000
"""About how many pages are written to the WAL before a checkpoint moves them to the file."""
PAGE_BYTES = 4096
PAGES_A_BATCH, PAGES_A_PIECE = 4, 1
"""About how many pages a batch writes, and each piece of it, in addition to its own bytes: new rows share pages."""
PLACES = 256
PLACE_BYTES = 4096
"""The most runs that have no row yet, and the most bytes of one."""

_TAKEN = PLACES * PLACE_BYTES
"""Where in the file a byte that is not 0 says that another process has taken its runs."""

_HEAD = struct.Struct("<III")

logger = logging.getLogger(__name__)
_size: Callable[[Piece], int] = attrgetter("size")


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
        self._unsynced: list[WriteJob] = []
        self._syncing: list[WriteJob] | None = None
        self._owed = False  # a `soon` job was answered and is to be synced
        self._sync_alarm: asyncio.TimerHandle | None = None
        self._pages = 0
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: asyncio.Future[None] | None = None

    def settled(self, run: str | None) -> bool:
        """Whether all that was to be written (of `run`, if given) is. May return False although it is."""
        return not self.queue.holds(run, self._disk.kept if self._lent is None else self._lent)

    @property
    def quick(self) -> bool:
        """Whether a new run may be written behind: the event loop writes, the store takes what it is given, and runs
        are over before they are due.
        """
        return self._disk.shared and not self._disk.trouble and self.queue.quick

    @property
    def trouble(self) -> str:
        """See `gateway.store.Store.trouble`."""
        return self._disk.trouble if self.queue.usable else str(self.queue.closed())

    @property
    def backlog(self) -> int:
        """Bytes appended but not yet written."""
        return self.queue.put - self._disk.written

    @property
    def owes(self) -> bool:
        """Whether anything is written that is to be synced and is not."""
        return self._owed or self._syncing is not None or bool(self._unsynced)

    def synced(self) -> asyncio.Future[None]:
        """Wait until all that is written, by whichever process, is on the disk. The future may raise Unsynced."""
        if not self.queue.usable or self._loop is None:
            raise self.queue.closed()
        future: asyncio.Future[None] = self._loop.create_future()
        if self._disk.wal is None:
            future.set_result(None)
            return future
        self._unsynced.append(WriteJob(None, future=future, durable=True))
        if self._syncing is None:
            self._sync()
        return future

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
        if self._lent is not None or self._stopping or not self._disk.try_lock():
            return  # `_returned` goes on; the thread writes the rest at the end, or calls this when it is done
        try:
            if batch := self._take():
                self._write(batch)
        finally:
            self._disk.lock.release()
        if len(batch) >= LONGEST_BATCH and self._lent is None:  # there may be more
            self._plan()

    def _take(self) -> list[Piece]:
        disk, queue = self._disk, self.queue
        if disk.kept and (queue or self._stopping or time.monotonic() >= disk.retry_at):
            return disk.kept + queue.take(LONGEST_BATCH)
        return queue.take(LONGEST_BATCH)

    def _write(self, batch: list[Piece]) -> None:
        size = sum(map(_size, batch))
        self._pages += PAGES_A_BATCH + PAGES_A_PIECE * len(batch) + size // PAGE_BYTES
        if self._disk.shared and size <= SMALL_BYTES and len(batch) <= SMALL_BATCH:
            try:
                self._disk.write(batch, waits=False)
            except (CannotBegin, NotWhole):
                pass  # another process writes now, or may do so halfway: the thread can wait for it
            else:
                return self._tell(batch)
        self._lent = batch
        self._disk.do(lambda: self._write_there(batch))

    def _tell(self, batch: list[Piece]) -> None:
        """Answer the jobs of a written transaction. Those that are durable are answered after a sync, which follows for
        others that are `soon`, and for runs that have begun.
        """
        unsynced, syncs = self._unsynced, self._disk.wal is not None
        for piece in batch:
            if isinstance(piece, WriteBehind):
                if piece.creation is not None and syncs:
                    self._owe()
            elif piece.durable and syncs and piece.error is None:
                unsynced.append(piece)
                if piece.written is not None and piece.future is not None and not piece.future.done():
                    piece.written(piece.result)
            else:
                if piece.soon and syncs and piece.error is None:
                    self._owe()
                piece.answer()
        if unsynced and self._syncing is None:
            self._sync()
        if self._pages > CHECKPOINT_PAGES or self._disk.kept:
            self._look_after()

    def _owe(self) -> None:
        """See to it that a sync follows."""
        self._owed = True
        if self._sync_alarm is None:
            assert self._loop is not None
            self._sync_alarm = self._loop.call_later(SOON_SECONDS, self._sync_due)

    def _look_after(self) -> None:
        """After a transaction: plan another try of what could not be written, and checkpoint if the WAL is large."""
        assert self._loop is not None
        if self._stopping:
            return  # the thread writes the rest
        if self._disk.kept and self._alarm is None:
            wait = max(0.0, self._disk.retry_at - time.monotonic())
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
        jobs, self._unsynced = self._unsynced, []
        self._syncing = jobs if self._syncing is None else self._syncing + jobs
        self._owed = False
        self._disk.do(lambda: self._sync_there(jobs))

    def _synced(self, jobs: Sequence[WriteJob]) -> None:
        self._syncing = None
        if self._unsynced or (self._owed and self._sync_alarm is None):
            self._sync()
        for job in jobs:
            job.answer()

    def _returned(self, jobs: Sequence[WriteJob]) -> None:
        """The thread has written the batch lent to it, and synced it if a job wanted that."""
        self._lent = None
        for job in jobs:
            job.answer()
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
        self.queue.close(str(error) if isinstance(error, Unavailable) else None)
        self._stopping = True
        left = self.queue.take(len(self.queue))
        for job in (*_jobs(self._lent or ()), *_jobs(left), *(self._syncing or ()), *self._unsynced):
            job.ends(None, unavailable(error))
            job.answer()

    # --- in the thread

    def _sync_there(self, jobs: Sequence[WriteJob]) -> None:
        self._disk.on_disk(jobs)
        self._disk.post(self._synced, jobs)

    def _write_there(self, batch: list[Piece]) -> None:
        with self._disk.held():
            self._disk.write(batch, waits=True)
        jobs = _jobs(batch)
        begun = any(isinstance(piece, WriteBehind) and piece.creation is not None for piece in batch)
        if begun or any((job.durable or job.soon) and job.error is None for job in jobs):
            self._disk.on_disk(jobs)
        self._disk.post(self._returned, jobs)

    def _write_rest(self) -> None:
        """Write all that is left; no more is submitted."""
        jobs: list[WriteJob] = []
        with self._disk.held():
            while batch := self._take():
                self._disk.write(batch, waits=True)
                jobs += _jobs(batch)
                if self._disk.kept and not self.queue:
                    break
        self._disk.on_disk(jobs)
        self._disk.post(self._returned, jobs)


def _jobs(batch: Iterable[Piece]) -> list[WriteJob]:
    return [piece for piece in batch if isinstance(piece, WriteJob)]


class BegunRuns:
    """Runs that have begun and have no row yet, in a file beside the database: `<database>-begun-<owner>`. What is in
    it outlives this process, as what is in the WAL does: whoever claims the runs of a dead process gives them theirs.

    The file has places of a page each: two lengths and the number of reserved events, the record, the first events. A
    place whose first length is 0 is free. A run is wiped out when it has its row, before anybody is told of it: other
    processes may delete the row from then on. Behind the places is a byte that whoever takes the runs sets before it
    reads them. A process that is taken for dead and lives looks at it after each run that it has written: either the
    run is read, or this process gives it its row.

    Make one per store.
    """

    def __init__(self, path: Path | None, owner: str) -> None:
        """`path` is the database's; None: it is in memory, and every run has its row at once."""
        self._beginning = "" if path is None else f"{os.path.realpath(path)}-begun-"
        self._file = Path(self._beginning + owner)
        self._descriptor: int | None = None
        self._free: list[int] = []
        self._usable = False
        self._left: list[Path] = []

    def open(self) -> None:
        """Make the file. Where that cannot be done every run has its row at once."""
        if not self._beginning or not hasattr(os, "pwrite"):
            return
        try:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._free += range((PLACES - 1) * PLACE_BYTES, -1, -PLACE_BYTES)
            os.pwrite(self._descriptor, b"\0", _TAKEN)  # its block is there, should the disk be full when it is set
        except OSError as error:
            logger.info("every run is given its row at once: %s", error)
        else:
            self._usable = True

    @property
    def some(self) -> bool:
        """Whether there are runs that have no row yet."""
        return self._descriptor is not None and len(self._free) < PLACES

    def keep(self, run: bytearray, head: bytearray, reserved: int) -> Callable[[], None] | None:
        """Write a run down: its record, its first events as they go into its row, and the numbers reserved for more.

        Returns what is to be called when it has its row, in any thread. None if there is no place that it fits in.
        """
        size = _HEAD.size + len(run) + len(head)
        if not self._usable or not self._free or size > PLACE_BYTES:
            return None
        at = self._free.pop()
        has_row = partial(self._has_row, at, size)
        if self._put(at, _HEAD.pack(len(run), len(head), reserved) + run + head) and not self._is_taken():
            return has_row
        has_row()
        return None

    def _has_row(self, at: int, size: int) -> None:
        self._put(at, bytes(size))
        self._free.append(at)

    def _put(self, at: int, data: bytes) -> bool:
        """Write it there. False if that cannot be done: nothing is written down any more then."""
        assert self._descriptor is not None
        try:
            if os.pwrite(self._descriptor, data, at) == len(data):
                return True
            why = "there is no room"
        except OSError as error:
            why = str(error)
        if self._usable:
            logger.warning("every run is given its row at once from now on: %s", why)
        self._usable = False
        return False

    def _is_taken(self) -> bool:
        """Whether another process took this one for dead: nothing is written down any more then."""
        assert self._descriptor is not None
        with contextlib.suppress(OSError):
            if os.pread(self._descriptor, 1, _TAKEN) == b"\0":
                return False
        logger.warning("every run is given its row at once from now on: another process took this one for dead")
        self._usable = False
        return True

    def look(self) -> None:
        """Write nothing more down if the file is gone. To be called now and then, in any thread."""
        if not os.path.exists(self._file):
            self._usable = False

    def close(self) -> None:
        """Remove the file, but for a run that could not be given its row."""
        if self._descriptor is None:
            return
        if not self.some:
            with contextlib.suppress(OSError):
                self._file.unlink()
        os.close(self._descriptor)
        self._descriptor = None
        self._usable = False

    # --- what others have left

    def left(self, is_dead: Callable[[str], bool]) -> Iterable[tuple[str, Creation]]:
        """The runs in the files of dead owners, with the owner. `forget` removes those that could be read."""
        self._left = []
        if not self._beginning:
            return
        for name in glob.glob(f"{glob.escape(self._beginning)}*"):
            if not is_dead(owner := name.removeprefix(self._beginning)):
                continue
            file = Path(name)
            try:
                found = sorted(_read(file), key=lambda creation: creation.run.created_at)
            except OSError as error:  # it is another user's; or has gone: its owner closes, or its runs are claimed
                logger.warning("runs that another process has begun are not found: %s", error)
                continue
            self._left.append(file)
            for creation in found:
                yield owner, creation

    def forget(self) -> None:
        """Remove the files that `left` has read: their runs have rows, on the disk."""
        for file in self._left:
            with contextlib.suppress(OSError):
                file.unlink()
        self._left = []


def _read(file: Path) -> Iterable[Creation]:
    """The runs in the file of a process that was taken for dead, which is kept from writing more."""
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, b"\1", _TAKEN)
        data = os.pread(descriptor, _TAKEN, 0)
    finally:
        os.close(descriptor)
    for at in range(0, len(data) - _HEAD.size + 1, PLACE_BYTES):
        size, more, reserved = _HEAD.unpack_from(data, at)
        if not size:
            continue
        start = at + _HEAD.size
        record, head = bytearray(data[start : start + size]), bytearray(data[start + size : start + size + more])
        try:
            yield Creation(decode_run(record), record, head, reserved, written=lambda: None)
        except ValueError as error:  # half of it: its process was killed while it wrote it, and it was not sent
            logger.info("half a run in %s: %s", file.name, error)
