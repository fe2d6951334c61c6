"""The store's thread: it waits for the disk, for other processes and for long work, and keeps the lease.

The thread and the event loop share one connection; the one that uses it holds the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.store import Unsynced
from gateway.store.sqlite import schema
from gateway.store.sqlite.batch import Batches, unavailable, why
from gateway.store.write_queue import Answer, Trouble

T = TypeVar("T")

RESTART_PAGES = 4000
"""Pages in the WAL from which a checkpoint sees to it that it begins anew."""
RESTART_SECONDS = 0.05
"""How long everybody who writes waits then for who reads."""

logger = logging.getLogger(__name__)
sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class FileGone(Unavailable):
    """Another file, or none, is where the store's file was."""


class DiskThread:
    """Owns the connection that writes. `start`, `do` and `finish` are called on the event loop,
    everything else in the thread.

    `beat` is called in a transaction of its own every `beat_seconds`, `farewell` in the last one.
    """

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
        self._over = False
        self.batches: Batches | None = None
        """Writes, once there is a connection. Used with its lock held."""
        self.shared = False
        """Whether the event loop may write too: in memory and in WAL mode, where readers do not block a writer."""
        self.wal: int | None = None
        """The descriptor to sync for a transaction to survive a power cut. None: nothing to sync, or SQLite does it."""
        self._file: tuple[int, int] | None = None
        """Names the file that is open, whatever is at its path by now."""
        self.unsynced = Trouble()
        """What a sync failed of: the next may succeed without having written the same pages."""

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

        `free` is called on the event loop after a `Batches.try_lock` that failed, `died` when the thread cannot go on.
        """
        self._free, self._died = free, died
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._main, args=(ready, gone), name="store-writer", daemon=True).start()

    def do(self, order: Callable[[], None]) -> None:
        """Have the thread call this, in order."""
        self._orders.put(order)

    def finish(self, last: Callable[[], None]) -> None:
        """Have the thread call this and end."""

        def order() -> None:
            self._over = True
            last()

        self._orders.put(order)

    def post(self, call: Callable[..., None], *arguments: object) -> None:
        """Have the event loop call this."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            logger.debug("the event loop is gone; an answer of the store goes nowhere")

    def holding(self, work: Callable[[Batches], T]) -> T:
        """Use the connection, and wait for other processes, which the event loop never does."""
        batches = self.batches
        assert batches is not None
        try:
            with batches.lock:
                if self.shared and self._path is not None:
                    _wait_at_most(batches, schema.BUSY_SECONDS)
                try:
                    return work(batches)
                finally:
                    if self.shared and self._path is not None:
                        _wait_at_most(batches, 0)
        finally:
            if batches.wanted:
                self.post(self._free)

    def on_disk(self, answers: Sequence[Answer]) -> Sequence[Answer]:
        """Sync everything written. Returns the answers, with Unsynced for durable jobs if it failed.

        Raises FileGone.
        """
        if self.wal is None:
            return answers
        self._look()
        try:
            if self.unsynced.why:
                self.holding(_empty_wal)
            sync(self.wal)
        except (OSError, sqlite3.Error) as error:
            failed = Unsynced(f"the store failed{why(error)}", detail=f"{type(error).__name__}: {error}")
            self.unsynced.tell("the store cannot be synced", error, str(failed))
            return [(job, result, wrong or (failed if job.durable else None)) for job, result, wrong in answers]
        self.unsynced.over()
        return answers

    def checkpoint(self) -> None:
        """Move the WAL's pages to the file."""

        def work(batches: Batches) -> None:
            ((_, pages, _),) = batches.cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if pages > RESTART_PAGES:  # other processes write while it moves pages, so that some are always left
                _wait_at_most(batches, RESTART_SECONDS)
                batches.cursor.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                _wait_at_most(batches, schema.BUSY_SECONDS)
            if self._path is not None:
                batches.alone(self._beat)  # the first write to a new WAL makes SQLite sync: not on the event loop

        try:
            self.holding(work)
        except sqlite3.Error:
            logger.warning("the store's log could not be moved to its file", exc_info=True)

    def _main(self, ready: asyncio.Future[None], gone: asyncio.Future[None]) -> None:
        try:
            connection = self._connect()
        except BaseException as error:
            self.post(_settle, ready, error)
            self.post(_settle, gone, None)
            return
        failure: BaseException | None = None
        try:
            try:
                batches = self._open(connection)
            except BaseException as error:
                self.post(_settle, ready, error)
                return
            self.post(_settle, ready, None)
            self._serve()
            if batches.kept:
                failure = Unavailable("the store closed with events that could not be written")
            self.holding(lambda batches: batches.alone(self._farewell))
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
            self._close(connection)
            self.post(_settle, gone, failure)

    def _open(self, connection: sqlite3.Connection) -> Batches:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        self.shared = mode in ("wal", "memory")
        batches = self.batches = Batches(connection, self._owner, syncs=self._fsync and not self.shared)
        batches.alone(self._beat)
        self._file = _name_of(self._path)
        if mode == "wal":
            batches.cursor.execute("PRAGMA wal_autocheckpoint = 0")  # `checkpoint` does it, never the event loop
            batches.cursor.execute("PRAGMA busy_timeout = 0")
            if self._fsync:
                (_, _, file), *_ = connection.execute("PRAGMA database_list")  # `path` may be a link to it
                self.wal = os.open(f"{file}-wal", os.O_RDWR)
        return batches

    def _close(self, connection: sqlite3.Connection) -> None:
        batches = self.batches
        with contextlib.nullcontext() if batches is None else batches.lock:
            if self.wal is not None:
                os.close(self.wal)
            if batches is not None:
                batches.cursor.close()  # else its last statement keeps the file open
            connection.close()

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
                if self.unsynced.why:
                    self.on_disk(())
                try:
                    self.holding(lambda batches: batches.alone(self._beat))
                except sqlite3.Error as error:
                    assert self.batches is not None
                    told = str(unavailable(error))
                    self.batches.trouble.tell("the store's lease could not be refreshed", error, told)
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


def _wait_at_most(batches: Batches, seconds: float) -> None:
    """For other processes."""
    batches.cursor.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def _empty_wal(batches: Batches) -> None:
    """Move all of the WAL to the file, sync it, and truncate the WAL. Raises `sqlite3.Error`."""
    ((busy, _, _),) = batches.cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise sqlite3.OperationalError("the WAL is in use")


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
