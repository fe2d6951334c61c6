"""The connection that writes, and the thread that waits for the disk, for other processes and for long work.

The thread and the event loop share the connection; the one that uses it holds the lock. The thread keeps the lease.

If a batch cannot be written as a whole, it is tried piece by piece, so that work fails alone. Appends that fail are
kept and tried again, and nothing behind them is written before: a commit never overtakes the events before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gateway.core.errors import Conflict, InterlinguaError, Unavailable
from gateway.store import Unsynced
from gateway.store.sqlite import changes, log, schema
from gateway.store.write_queue import Piece, Trouble, WriteBehind, WriteJob

RESTART_PAGES = 4000
"""Pages in the WAL from which a checkpoint sees to it that it begins anew."""
RESTART_SECONDS = 0.05
"""How long everybody who writes waits then for who reads."""
RETRY_SECONDS = 0.5
WHY = {
    sqlite3.SQLITE_FULL: ": no space is left on its disk",
    sqlite3.SQLITE_READONLY: ": it may be read and not written",
    sqlite3.SQLITE_BUSY: ": another program holds it",
    sqlite3.SQLITE_IOERR: ": its disk fails, or takes no writes any more",
    sqlite3.SQLITE_CORRUPT: ": it is damaged",
    sqlite3.SQLITE_NOTADB: ": it is damaged",
}
"""By SQLite's primary error codes."""

logger = logging.getLogger(__name__)
sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class FileGone(Unavailable):
    """Another file, or none, is where the store's file was."""


class CannotBegin(sqlite3.OperationalError):
    """The transaction did not start (locked for too long, disk gone), so trying piece by piece would not help."""


class NotWhole(Exception):
    """The batch has to be written piece by piece."""


def is_engines(error: BaseException) -> bool:
    """True if another try may succeed (locked, full, broken disk). False if the values are at fault."""
    values = sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    return isinstance(error, sqlite3.Error) and not isinstance(error, values)


def unavailable(error: BaseException) -> InterlinguaError:
    """Map a failure to the error that the caller gets. SQLite's message goes into `detail`, which is only logged."""
    if isinstance(error, InterlinguaError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict("this id exists already", detail=str(error))
    return Unavailable(f"the store failed{why(error)}", detail=f"{type(error).__name__}: {error}")


def why(error: BaseException) -> str:
    """What a client may know of the reason, if it is one that passes or that somebody has to see to."""
    if isinstance(error, OSError):
        return WHY[sqlite3.SQLITE_FULL] if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    raised = error.__cause__ if isinstance(error, CannotBegin) else error
    return WHY.get(getattr(raised, "sqlite_errorcode", 0) & 0xFF, "")


class DiskThread:
    """Owns the connection that writes. `start`, `do`, `finish` and `try_lock` are called on the event loop, `write` by
    the holder of `lock`, everything else in the thread.

    `beat` is called in a transaction of its own every `beat_seconds`, `farewell` in the last one.
    """

    cursor: sqlite3.Cursor
    """There once `start` is done. Used with `lock` held."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        owner: str,
        *,
        beat: Callable[[sqlite3.Cursor], None],
        farewell: Callable[[sqlite3.Cursor], None],
        beat_seconds: float,
        fsync: bool,
        path: Path | None,
    ) -> None:
        """`path`: the file, None in memory."""
        self._connect = connect
        self._owner = owner
        self._beat = beat
        self._farewell = farewell
        self._beat_seconds = beat_seconds
        self._fsync = fsync
        self._path = path
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.do: Callable[[Callable[[], None]], None] = self._orders.put
        """Have the thread call this, in order."""
        self._over = False
        self.lock = threading.Lock()
        self._wanted = False
        """Whether the event loop has found the lock taken."""
        self.shared = False
        """Whether the event loop may write too: in memory and in WAL mode, where readers do not block a writer."""
        self.wal: int | None = None
        """The descriptor to sync for a transaction to survive a power cut. None: nothing to sync, or SQLite does it."""
        self._file: tuple[int, int] | None = None
        """Names the file that is open, whatever is at its path by now."""
        self.kept: list[Piece] = []
        """Pieces that could not be written: each batch has them before everything else."""
        self.retry_at = 0.0
        self.written = 0
        """Bytes of appended entries, all told."""
        self._unwritten = Trouble()
        self._unsynced = Trouble()
        """What a sync failed of: the next may succeed without having written the same pages."""
        self._unmoved = Trouble()
        """What checkpoints fail of. What is written is in the WAL, so that nothing is refused for it."""

    @property
    def trouble(self) -> str:
        """See `gateway.store.Store.trouble`."""
        return self._unwritten.why or self._unsynced.why

    # --- writing, with the lock held

    def try_lock(self) -> bool:
        """Take the connection for the event loop, which does not wait for it: who has it calls `free` afterwards."""
        if self.lock.acquire(blocking=False):
            return True
        self._wanted = True
        if not self.lock.acquire(blocking=False):
            return False
        self._wanted = False
        return True

    def write(self, batch: list[Piece], *, waits: bool) -> None:
        """Write the batch, as much of it as possible; its jobs have ended then, with an answer for each. `waits`: the
        connection is set to wait for other processes.

        Raises CannotBegin or NotWhole, with nothing written, if the batch needs a caller that may wait.
        """
        try:
            self._transact(batch)
        except Exception as error:
            alone = len(batch) == 1
            if not waits and isinstance(error, CannotBegin):
                raise
            if not waits and not alone:  # another process may write between the pieces
                raise NotWhole from error
            self.kept = []
            if alone or isinstance(error, CannotBegin):
                self._fail(batch, error)
            else:
                self._write_each(batch)
        else:
            self.kept = []

    def _write_each(self, batch: list[Piece]) -> None:
        for index, piece in enumerate(batch):
            try:
                self._transact([piece])
            except Exception as error:
                self._fail([piece], error)
                if self.kept:  # nothing may overtake it
                    return self._fail(batch[index + 1 :], error)

    def _transact(self, batch: list[Piece]) -> None:
        """Write all of it in one transaction, or raise and write nothing."""
        try:
            self._begin(batch)
            self._perform(batch)
            self.cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        for piece in batch:
            if isinstance(piece, WriteBehind):
                self._is_over(piece)

    def _begin(self, batch: Sequence[Piece] = ()) -> None:
        """Begin a transaction. Where it is not `on_disk` that syncs, SQLite does so for a durable job."""
        try:
            if not self.shared:
                durable = self._fsync and any(isinstance(one, WriteJob) and one.durable for one in batch)
                self.cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise CannotBegin(str(error)) from error

    def _roll_back(self) -> None:
        if self.cursor.connection.in_transaction:  # some errors have ended it already
            self.cursor.execute("ROLLBACK")

    def _perform(self, batch: list[Piece]) -> None:
        cursor = self.cursor
        behind: list[WriteBehind] = []
        for piece in batch:
            if isinstance(piece, WriteBehind):
                behind.append(piece)
                continue
            joined = behind.pop() if behind and piece.joins and behind[-1].run == piece.run else None
            if behind:  # the work may read it
                self._write_behind(behind)
                behind.clear()
            before = cursor.connection.total_changes
            try:
                piece.ends(piece.work(cursor, joined) if piece.joins else piece.work(cursor))
            except InterlinguaError as error:
                if piece.future is None or cursor.connection.total_changes != before:
                    raise  # half done: tried again in a transaction of its own, which is rolled back
                piece.ends(None, error)
                if joined is not None:
                    self._write_behind([joined])
        if behind:
            self._write_behind(behind)

    def _write_behind(self, runs: list[WriteBehind]) -> None:
        for one in runs:
            if one.creation is not None:
                changes.create_begun(self.cursor, self._owner, one.creation)
        log.write_all(self.cursor, self._owner, [(one.run, one.entries) for one in runs])
        for one in runs:
            if one.record is not None:
                changes.save(self.cursor, self._owner, run=one.record)

    def _fail(self, batch: list[Piece], error: Exception) -> None:
        """End jobs with the error. Keep appends if the engine failed; drop them if they can never be written."""
        again, refused = is_engines(error), None
        for piece in batch:
            if isinstance(piece, WriteJob) and piece.future is not None:
                piece.ends(None, unavailable(error))
                refused = piece
            elif again:
                self.kept.append(piece)
            else:
                logger.error("the store drops what cannot be written: %s", error, exc_info=error)
                if isinstance(piece, WriteBehind):
                    self._is_over(piece)
        if self.kept:
            self.retry_at = time.monotonic() + RETRY_SECONDS
        if again:
            self._unwritten.tell("the store cannot be written", error, str(unavailable(error)), refused)

    def _is_over(self, piece: WriteBehind) -> None:
        """It is written, or never can be."""
        self.written += piece.size
        if piece.creation is not None:
            piece.creation.written()

    # --- the thread

    def start(
        self,
        ready: asyncio.Future[None],
        gone: asyncio.Future[None],
        *,
        free: Callable[[], None],
        died: Callable[[BaseException], None],
    ) -> None:
        """Connect. `ready` gets what `connect` or the first `beat` raises; there is no thread then. `gone` is done when
        the thread has ended, with the reason if it could not write everything.

        `free` is called on the event loop after a `try_lock` that failed, `died` when the thread cannot go on.
        """
        self._free, self._died = free, died
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._main, args=(ready, gone), name="store-writer", daemon=True).start()

    def finish(self, last: Callable[[], None]) -> None:
        """Have the thread call this and end."""

        def order() -> None:
            self._over = True
            last()

        self.do(order)

    def post(self, call: Callable[..., None], *arguments: object) -> None:
        """Have the event loop call this."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            logger.debug("the event loop is gone; an answer of the store goes nowhere")

    @contextlib.contextmanager
    def held(self) -> Iterator[sqlite3.Cursor]:
        """Use the connection, and wait for other processes, which the event loop never does."""
        waits = self.shared and self._path is not None
        try:
            with self.lock:
                if waits:
                    self._wait_at_most(schema.BUSY_SECONDS)
                try:
                    yield self.cursor
                finally:
                    if waits:
                        self._wait_at_most(0)
        finally:
            if self._wanted:
                self.post(self._free)

    def on_disk(self, jobs: Sequence[WriteJob]) -> None:
        """Sync everything written. If that fails those of the jobs that are durable end with Unsynced.

        Raises FileGone.
        """
        if self.wal is None:
            return
        self._look()
        try:
            if self._unsynced.why:
                with self.held() as cursor:
                    _empty_wal(cursor)
            sync(self.wal)
        except (OSError, sqlite3.Error) as error:
            failed = Unsynced(f"the store failed{why(error)}", detail=f"{type(error).__name__}: {error}")
            self._unsynced.tell("the store cannot be synced", error, str(failed))
            for job in jobs:
                if job.durable and job.error is None:
                    job.ends(None, failed)
        else:
            self._unsynced.over()

    def checkpoint(self) -> None:
        """Move the WAL's pages to the file."""
        try:
            with self.held() as cursor:
                ((_, pages, _),) = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                if pages > RESTART_PAGES:  # other processes write while it moves pages, so that some are always left
                    self._wait_at_most(RESTART_SECONDS)
                    cursor.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                    self._wait_at_most(schema.BUSY_SECONDS)
                if self._path is not None:
                    self._alone(self._beat)  # the first write to a new WAL makes SQLite sync: not on the event loop
        except sqlite3.Error as error:
            self._unmoved.tell("the store's log cannot be moved to its file", error, str(unavailable(error)))
        else:
            self._unmoved.over()

    def _alone(self, work: Callable[[sqlite3.Cursor], None]) -> None:
        """Do the store's own work (the lease) in a transaction of its own, not synced. With the lock held."""
        self._begin()
        try:
            work(self.cursor)
            self.cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _keep_lease(self) -> None:
        """Extend the lease. Trouble is over with it if nothing that could not be written is left. With the lock held.

        What was refused is tried again and undone, since the lease may be written where nothing else is: it has pages
        of its own. Those that the work has changed and that it found there are written as they were.
        """
        self._alone(self._beat)
        if self.kept:
            return
        if (refused := self._unwritten.refused) is not None:
            self.cursor.execute("PRAGMA shrink_memory")  # forgets what was read of a file that was damaged
            self._alone(partial(self._undone, refused))
        self._unwritten.over()

    def _undone(self, job: WriteJob, cursor: sqlite3.Cursor) -> None:
        """Do the work of a job and undo it. Raises what keeps it from being done."""
        cursor.execute("SAVEPOINT refused")
        try:
            self._perform([job])
        except Exception as error:
            if is_engines(error):
                raise
        cursor.execute("ROLLBACK TO refused")

    def _wait_at_most(self, seconds: float) -> None:
        """For other processes."""
        self.cursor.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _main(self, ready: asyncio.Future[None], gone: asyncio.Future[None]) -> None:
        try:
            self.cursor = self._connect().cursor()
        except BaseException as error:
            self.post(_settle, ready, error)
            self.post(_settle, gone, None)
            return
        failure: BaseException | None = None
        try:
            try:
                self._open()
            except BaseException as error:
                self.post(_settle, ready, error)
                return
            self.post(_settle, ready, None)
            self._serve()
            if self.kept:
                failure = Unavailable("the store closed with events that could not be written")
            with self.held():
                self._alone(self._farewell)
        except sqlite3.Error as error:
            failure = failure or unavailable(error)
            self.post(self._died, error)
        except FileGone as error:
            logger.critical("%s", error.detail)
            failure = error
            self.post(self._died, error)
        except BaseException as error:
            logger.critical("the store's writer died", exc_info=True)
            failure = error
            self.post(self._died, error)
        finally:
            self._close()
            self.post(_settle, gone, failure)

    def _open(self) -> None:
        (mode,) = self.cursor.execute("PRAGMA journal_mode").fetchone()
        self.shared = mode in ("wal", "memory")
        self.cursor.execute("PRAGMA synchronous = NORMAL")
        self._alone(self._beat)
        self._file = _name_of(self._path)
        if mode == "wal":
            self.cursor.execute("PRAGMA wal_autocheckpoint = 0")  # `checkpoint` does it, never the event loop
            self.cursor.execute("PRAGMA busy_timeout = 0")
            if self._fsync:
                (_, _, file), *_ = self.cursor.execute("PRAGMA database_list")  # `path` may be a link to it
                self.wal = os.open(f"{file}-wal", os.O_RDWR)

    def _close(self) -> None:
        with self.lock:
            if self.wal is not None:
                os.close(self.wal)
            self.cursor.close()  # else its last statement keeps the file open
            self.cursor.connection.close()

    def _look(self) -> None:
        """Raises FileGone if what is written goes where nobody will find it."""
        if self._file is not None and _name_of(self._path) not in (self._file, None):
            raise FileGone(
                "the gateway's store was removed",
                detail=f"the file of the store, {self._path}, was removed or replaced while it was in use: nothing is "
                "written any more, and what was is lost when this process ends (before that /proc/"
                f"{os.getpid()}/fd has it, and its -wal). Put a file back, or have the next start make a new one",
            )

    def _serve(self) -> None:
        beat_at = time.monotonic() + self._beat_seconds
        while not self._over:
            try:
                order = self._orders.get(timeout=max(0.0, beat_at - time.monotonic()))
            except queue.Empty:
                pass
            else:
                order()
            if time.monotonic() >= beat_at and not self._over:
                self._look()
                if self._unsynced.why:
                    self.on_disk(())
                try:
                    with self.held():
                        self._keep_lease()
                except sqlite3.Error as error:
                    self._unwritten.tell("the store cannot be written", error, str(unavailable(error)))
                beat_at = time.monotonic() + self._beat_seconds


def _name_of(path: Path | None) -> tuple[int, int] | None:
    """What a file is known by that is at a path; (0, 0) where none is, None where that cannot be seen."""
    try:
        found = None if path is None else os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _empty_wal(cursor: sqlite3.Cursor) -> None:
    """Move all of the WAL to the file, sync it, and truncate the WAL. Raises `sqlite3.Error`."""
    ((busy, _, _),) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise sqlite3.OperationalError("the WAL is in use")


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
