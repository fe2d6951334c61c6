"""The thread beside the event loop: it waits for the disk, for other processes and for what takes long, and keeps the
lease.

Whoever uses the connection, here or on the event loop, holds its lock.
"""

from __future__ import annotations

import asyncio
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
from gateway.store.sqlite.batch import Batches
from gateway.store.sqlite.faults import unavailable
from gateway.store.sqlite.job import Answer, Work

T = TypeVar("T")

logger = logging.getLogger(__name__)
sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class DiskThread:
    """Owns the connection that writes. `start`, `do` and `finish` are called on the event loop, the rest in the thread
    but for what says otherwise.

    `beat` is called in a transaction of its own every `beat_seconds`, `farewell` in the last one.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        owner: str,
        *,
        beat: Work[None],
        farewell: Work[None],
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
        self.lock = threading.Lock()
        self.batches: Batches | None = None
        """What writes, once there is a connection; used with the lock held."""
        self.shared = False
        """Whether the event loop may write too: in memory, and in WAL, where no reader holds up a writer."""
        self.wal: int | None = None
        """What is to be synced for a transaction to outlast a power cut. None: nothing, or SQLite does it."""
        self._doubted = False  # a sync failed: what it was to write may be lost to the next one, which then succeeds
        self.wanted = False
        """The loop found the lock taken: `free` is to be called when it is not any more."""
        self.free: Callable[[], None] = _nothing
        self.died: Callable[[BaseException], None] = _unheard

    def start(self, ready: asyncio.Future[None], gone: asyncio.Future[None]) -> None:
        """Connect. `ready` gets what `connect` or the first `beat` raises, there is no thread then; `gone` is done when
        the thread has ended, with why it could not write everything.
        """
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._main, args=(ready, gone), name="store-writer", daemon=True).start()

    def do(self, order: Callable[[], None]) -> None:
        """Have the thread call this, after what it was given before."""
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
        """Use the connection, and wait for others on the file, which the event loop never does."""
        batches = self.batches
        assert batches is not None
        try:
            with self.lock:
                if self.shared and self._path is not None:
                    batches.cursor.execute(f"PRAGMA busy_timeout = {int(schema.BUSY_SECONDS * 1000)}")
                try:
                    return work(batches)
                finally:
                    if self.shared and self._path is not None:
                        batches.cursor.execute("PRAGMA busy_timeout = 0")
        finally:
            if self.wanted:
                self.post(self.free)

    def on_disk(self, answers: Sequence[Answer]) -> Sequence[Answer]:
        """Sync what is written. What to tell then those who asked for it."""
        if self.wal is None:
            return answers
        try:
            if self._doubted:
                self.holding(_empty_wal)
            sync(self.wal)
        except (OSError, sqlite3.Error) as error:
            self._doubted = True
            logger.error("the store cannot be synced: %s", error)
            failed = Unsynced("the store failed", detail=f"{type(error).__name__}: {error}")
            return [(job, result, wrong or (failed if job.durable else None)) for job, result, wrong in answers]
        self._doubted = False
        return answers

    def checkpoint(self) -> None:
        """Move what is in the WAL to the file."""

        def work(batches: Batches) -> None:
            batches.cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if self._path is not None:
                batches.alone(self._beat)  # SQLite syncs what begins the WAL anew: not on the event loop

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
            self.post(self.died, error)
        except BaseException as error:
            logger.critical("the store's writer died", exc_info=True)
            failure = error
            self.post(self.died, error)
        finally:
            self._close(connection)
            self.post(_settle, gone, failure)

    def _open(self, connection: sqlite3.Connection) -> Batches:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        self.shared = mode in ("wal", "memory")
        batches = self.batches = Batches(connection, self._owner, syncs=self._fsync and not self.shared)
        batches.alone(self._beat)
        if mode == "wal":
            batches.cursor.execute("PRAGMA wal_autocheckpoint = 0")  # `checkpoint` does it, never the event loop
            batches.cursor.execute("PRAGMA busy_timeout = 0")
            if self._fsync:
                (_, _, file), *_ = connection.execute("PRAGMA database_list")  # `path` may be a link to it
                self.wal = os.open(f"{file}-wal", os.O_RDWR)
        return batches

    def _close(self, connection: sqlite3.Connection) -> None:
        with self.lock:
            if self.wal is not None:
                os.close(self.wal)
            if self.batches is not None:
                self.batches.cursor.close()  # else its last statement keeps the file open
            connection.close()

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
                try:
                    self.holding(lambda batches: batches.alone(self._beat))
                except sqlite3.Error:
                    logger.warning("the store's lease could not be refreshed", exc_info=True)
                beat_at = time.monotonic() + self._beat_seconds


def _empty_wal(batches: Batches) -> None:
    """Move all that is in the WAL to the file, which is synced, and begin it anew. Raises `sqlite3.Error`."""
    ((busy, _, _),) = batches.cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise sqlite3.OperationalError("the WAL is in use")


def _nothing() -> None:
    """Where nobody waits for the lock."""


def _unheard(_: BaseException) -> None:
    """Where nobody waits for anything."""


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
