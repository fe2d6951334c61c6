"""The one thread that writes, and its group commit.

The event loop puts work on a queue and never waits for the disk. The thread takes everything that waits, runs it in one
transaction, and wakes all who wait for it at once. A batch in which somebody wants durability is synced; one that holds
only tokens is not, and is held back a few milliseconds so that more of them share a row.

Order is the queue's. Work fails alone: if a batch cannot be written as a whole, it is tried piece by piece. What was
appended without anybody waiting is kept and tried again, and until it is on disk nothing behind it is: a commit never
overtakes the events before it.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from gateway.core.errors import InterlinguaError, Unavailable
from gateway.store import Entry
from gateway.store.sqlite import log
from gateway.store.sqlite.faults import CannotBegin, is_engines, unavailable
from gateway.store.sqlite.job import Answer, Job, Piece, Work

T = TypeVar("T")

HOLD_SECONDS = 0.02
RETRY_SECONDS = 0.5
LONGEST_BATCH = 4096
"""Pieces in one transaction: bounds how long one batch keeps the others waiting."""

logger = logging.getLogger(__name__)


class Writer:
    """Owns the connection that writes. Every method is called on the event loop; the rest runs in its thread.

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
        fsync: bool = True,
    ) -> None:
        self._connect = connect
        self._owner = owner
        self._beat = beat
        self._farewell = farewell
        self._beat_seconds = beat_seconds
        self._fsync = fsync
        self._queue: deque[Piece] = deque()
        self._signal: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False
        self._urgent = False
        self._alarm: asyncio.TimerHandle | None = None
        self._stopping = False
        self._put = 0
        self._written = 0
        self._kept: list[Piece] = []
        self._retry_at = 0.0
        self._synchronous = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self.usable = False
        """Between `start` and `stop`."""
        self.appended = 0
        """Appends and behind-writes so far; see `settled`."""
        self.settled = 0
        """How many of `appended` are on disk, in order."""

    # --- called on the event loop

    @property
    def backlog(self) -> int:
        """Bytes appended and not written."""
        return self._put - self._written

    async def start(self) -> None:
        """Connect in the thread. Raises what `connect` or the first `beat` raises; there is no thread then."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._gone = self._loop.create_future()
        threading.Thread(target=self._main, name="store-writer", daemon=True).start()
        try:
            await asyncio.shield(self._ready)
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
        self, work: Work[T], *, run: str | None = None, durable: bool = True, record: bool = False
    ) -> asyncio.Future[T]:
        """Run `work` in the next transaction, after everything appended for `run`; the future has its result.

        `record`: it writes the whole record of `run`, whatever `behind` was to write of it before.

        `work` raises errors of the tree before it writes anything, or after: what it wrote is undone. Cancelling the
        future does not undo the work.
        """
        if not self.usable:
            raise Unavailable("the store is closed")
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.append(Job(work, run, future, durable=durable, record=record))
        if not self._urgent or self._asleep:
            self._urgent = True
            self._asleep = False
            self._signal.put(None)
        return future

    def behind(self, work: Work[None], run: str | None = None, *, record: bool = False) -> int:
        """Run `work` soon, in order; nobody waits. Returns the mark that `settled` reaches when it is done.

        `record`: it writes the whole record of `run`, and is left out where later work of the same transaction does.
        """
        if not self.usable:
            raise Unavailable("the store is closed")
        self._queue.append(Job(work, run, None, durable=False, record=record))
        self.appended += 1
        if self._asleep and self._alarm is None:
            self._wake_later()
        return self.appended

    def append(self, run: str, entries: Sequence[Entry]) -> int:
        """Write entries of a run's log soon. Returns the mark that `settled` reaches when they are on disk."""
        if not self.usable:
            raise Unavailable("the store is closed")
        size = 0
        for entry in entries:
            size += len(entry.data)
        self._queue.append((run, entries, size))
        self._put += size
        self.appended += 1
        if self._asleep and self._alarm is None:
            self._wake_later()
        return self.appended

    def _wake_later(self) -> None:
        """What nobody waits for is given a moment to become more, or to be taken along by what somebody waits for."""
        assert self._loop is not None
        self._alarm = self._loop.call_later(HOLD_SECONDS, self._wake_now)

    def _wake_now(self) -> None:
        self._alarm = None
        if self._asleep and self._queue:
            self._asleep = False
            self._signal.put(None)

    def _stop(self) -> None:
        self.usable = False
        self._stopping = True
        self._urgent = True
        self._signal.put(None)
        if self._alarm is not None:
            self._alarm.cancel()

    @staticmethod
    def _wake(answers: Sequence[Answer]) -> None:
        for future, result, error in answers:
            if future.done():
                continue  # whoever waited was cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    # --- runs in the thread

    def _main(self) -> None:
        assert self._ready is not None and self._gone is not None
        try:
            connection = self._connect()
        except BaseException as error:
            self._answer([(self._ready, None, error), (self._gone, None, None)])
            return
        failure: BaseException | None = None
        try:
            cursor = connection.cursor()
            try:
                self._alone(cursor, self._beat)
            except BaseException as error:
                self._answer([(self._ready, None, error)])
                return
            self._answer([(self._ready, None, None)])
            self._serve(cursor)
            if self._kept:
                failure = Unavailable("the store closed with events that could not be written")
            self._alone(cursor, self._farewell)
        except sqlite3.Error as error:
            failure = failure or unavailable(error)
        except BaseException as error:
            logger.critical("the store's writer died", exc_info=True)
            failure = error
            self.usable = False
            waiting = [piece.future for piece in self._queue if isinstance(piece, Job)]
            self._answer([(future, None, unavailable(error)) for future in waiting if future is not None])
        finally:
            connection.close()
            self._answer([(self._gone, None, failure)])

    def _serve(self, cursor: sqlite3.Cursor) -> None:
        beat_at = time.monotonic() + self._beat_seconds
        while True:
            stopping = self._stopping
            self._sleep(min(beat_at, self._retry_at) if self._kept else beat_at)
            if batch := self._take():
                self._write(cursor, batch)
            if time.monotonic() >= beat_at:
                try:
                    self._alone(cursor, self._beat)
                except sqlite3.Error:
                    logger.warning("the store's lease could not be refreshed", exc_info=True)
                beat_at = time.monotonic() + self._beat_seconds
            if stopping and not self._queue:
                return

    def _sleep(self, until: float) -> None:
        """Until there is work, or `until`; what nobody waits for is given a moment to become more (`_wake_later`)."""
        self._asleep = True  # before looking: whoever puts work in from here on sends a signal, or sets the alarm
        if not self._queue:
            if not self._stopping:
                self._pause(until - time.monotonic())
            self._asleep = False
        else:
            self._asleep = False
            if not self._urgent:
                self._pause(HOLD_SECONDS)

    def _pause(self, seconds: float) -> None:
        try:
            self._signal.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return

    def _take(self) -> list[Piece]:
        while not self._signal.empty():
            self._signal.get()
        self._urgent = False  # before taking: a job put in after this sends a signal again
        batch: list[Piece] = []
        waiting = self._queue
        if self._kept and (waiting or self._stopping or time.monotonic() >= self._retry_at):
            batch, self._kept = self._kept, batch
        for _ in range(min(len(waiting), LONGEST_BATCH)):
            batch.append(waiting.popleft())
        if waiting:
            self._urgent = True
        return batch

    def _write(self, cursor: sqlite3.Cursor, batch: list[Piece]) -> None:
        try:
            answers = self._transact(cursor, batch)
        except Exception as error:
            if isinstance(error, CannotBegin) or len(batch) == 1:
                answers = self._fail(batch, error)
            else:
                answers = self._write_each(cursor, batch)
        if answers:
            self._answer(answers)

    def _write_each(self, cursor: sqlite3.Cursor, batch: list[Piece]) -> list[Answer]:
        answers: list[Answer] = []
        for index, piece in enumerate(batch):
            try:
                answers += self._transact(cursor, [piece])
            except Exception as error:
                answers += self._fail([piece], error)
                if self._kept:  # nothing may overtake it
                    return answers + self._fail(batch[index + 1 :], error)
        return answers

    def _transact(self, cursor: sqlite3.Cursor, batch: list[Piece]) -> list[Answer]:
        """All of it in one transaction, or an exception and none of it."""
        self._begin(cursor, durable=any(type(piece) is Job and piece.durable for piece in batch))
        try:
            answers, settled, size = self._perform(cursor, batch)
            cursor.execute("COMMIT")
        except BaseException:
            _roll_back(cursor)
            raise
        self.settled += settled
        self._written += size
        return answers

    def _alone(self, cursor: sqlite3.Cursor, work: Work[None]) -> None:
        """Work of the thread's own, which nobody waits for."""
        self._begin(cursor, durable=False)
        try:
            work(cursor)
            cursor.execute("COMMIT")
        except BaseException:
            _roll_back(cursor)
            raise

    def _begin(self, cursor: sqlite3.Cursor, *, durable: bool) -> None:
        wanted = "FULL" if durable and self._fsync else "NORMAL"
        try:
            if wanted != self._synchronous:
                cursor.execute(f"PRAGMA synchronous = {wanted}")
                self._synchronous = wanted
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise CannotBegin(str(error)) from error

    def _perform(self, cursor: sqlite3.Cursor, batch: list[Piece]) -> tuple[list[Answer], int, int]:
        connection = cursor.connection
        answers: list[Answer] = []
        appended: dict[str, list[Entry]] = {}
        settled = size = 0
        records = {piece.run: piece for piece in batch if type(piece) is Job and piece.record}
        left_out: dict[str | None, Job] = {}
        for piece in batch:
            if type(piece) is tuple:
                run, entries, length = piece
                settled += 1
                size += length
                if run in appended:
                    appended[run].extend(entries)
                else:
                    appended[run] = list(entries)
                continue
            assert type(piece) is Job
            if piece.future is None and piece.record and records[piece.run] is not piece:
                left_out[piece.run] = piece
                settled += 1
                continue
            if piece.run in left_out and not piece.record:  # it may look at the record
                left_out.pop(piece.run).work(cursor)
            if piece.run in appended:
                log.write(cursor, self._owner, piece.run, appended.pop(piece.run))
            before = connection.total_changes
            try:
                result = piece.work(cursor)
            except InterlinguaError as error:
                if piece.future is None or connection.total_changes != before:
                    raise  # half done: it is tried again in a transaction of its own, and undone with that
                answers.append((piece.future, None, error))
                if piece.record and piece.run in left_out:
                    left_out.pop(piece.run).work(cursor)
            else:
                if piece.record:
                    left_out.pop(piece.run, None)
                if piece.future is None:
                    settled += 1
                else:
                    answers.append((piece.future, result, None))
        if appended:
            log.write_all(cursor, self._owner, appended)
        return answers, settled, size

    def _fail(self, batch: list[Piece], error: Exception) -> list[Answer]:
        """Tell those who wait; keep the rest if the engine failed, drop it if it can never be written."""
        again = isinstance(error, sqlite3.Error) and is_engines(error)
        answers: list[Answer] = []
        for piece in batch:
            if type(piece) is Job and piece.future is not None:
                answers.append((piece.future, None, unavailable(error)))
            elif again:
                self._kept.append(piece)
            else:
                logger.error("the store drops what cannot be written: %s", error, exc_info=error)
                self.settled += 1
                self._written += piece[2] if type(piece) is tuple else 0
        if self._kept:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            logger.warning("the store cannot be written, %d pieces wait: %s", len(self._kept), error)
        return answers

    def _answer(self, answers: Sequence[Answer]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._wake, answers)
        except RuntimeError:
            logger.debug("the event loop is gone; %d answers of the store go nowhere", len(answers))


def _roll_back(cursor: sqlite3.Cursor) -> None:
    if cursor.connection.in_transaction:  # some errors have ended it already
        cursor.execute("ROLLBACK")
