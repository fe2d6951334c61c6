"""Writes a batch of pieces in one transaction, in order, with an answer for each piece.

If a batch cannot be written as a whole, it is tried piece by piece, so that work fails alone. Appends that fail are
kept and tried again, and nothing behind them is written before: a commit never overtakes the events before it.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
import time
from collections.abc import Callable

from gateway.core.errors import Conflict, InterlinguaError, Unavailable
from gateway.store.sqlite import changes, log
from gateway.store.write_queue import Answer, Piece, Trouble, WriteBehind, WriteJob

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

DAMAGED = f"the store failed{WHY[sqlite3.SQLITE_CORRUPT]}"

logger = logging.getLogger(__name__)


class CannotBegin(sqlite3.OperationalError):
    """The transaction did not start (locked for too long, disk gone), so trying piece by piece would not help."""


class NotWhole(Exception):
    """The batch has to be written piece by piece."""


def is_engines(error: sqlite3.Error) -> bool:
    """True if another try may succeed (locked, full, broken disk). False if the values are at fault."""
    values = sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    return not isinstance(error, values)


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


class Batches:
    """The one connection that writes. One thread uses it at a time: the holder of `lock`."""

    def __init__(self, connection: sqlite3.Connection, owner: str, *, syncs: bool) -> None:
        """`syncs`: SQLite itself syncs a transaction that has a durable job."""
        self.cursor = connection.cursor()
        self.lock = threading.Lock()
        """Held by who uses the connection."""
        self.wanted = False
        """Whether the event loop has found the lock taken."""
        self.kept: list[Piece] = []
        """Pieces that could not be written; they go before everything else."""
        self.retry_at = 0.0
        self.written = 0
        """Bytes of appended entries, all told."""
        self.failing = False
        """Whether the last transaction that is over was not written."""
        self._owner = owner
        self._syncs = syncs
        self._synchronous = ""
        self.trouble = Trouble()

    def try_lock(self) -> bool:
        """Take the connection for the event loop, which does not wait for it: `wanted` tells who has it."""
        self.wanted = True
        if not self.lock.acquire(blocking=False):
            return False
        self.wanted = False
        return True

    def write(self, batch: list[Piece], *, waits: bool) -> list[Answer]:
        """Write the batch, as much of it as possible. `waits`: the connection is set to wait for other processes.

        Raises CannotBegin or NotWhole, with nothing written, if the batch needs a caller that may wait.
        """
        try:
            return self._transact(batch)
        except Exception as error:
            alone = len(batch) == 1
            if not waits and isinstance(error, CannotBegin):
                raise
            if not waits and not alone:  # another process may write between the pieces
                raise NotWhole from error
            return self._fail(batch, error) if alone or isinstance(error, CannotBegin) else self._write_each(batch)

    def take_kept(self) -> list[Piece]:
        """Hand out what could not be written, to go before everything else."""
        kept, self.kept = self.kept, []
        return kept

    def alone(self, work: Callable[[sqlite3.Cursor], None]) -> None:
        """Do the store's own work (the lease) in a transaction of its own, not synced."""
        self._begin(durable=False)
        try:
            work(self.cursor)
            self.cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        if not self.kept and self.trouble.why != DAMAGED:  # the lease has pages of its own
            self.trouble.over()

    def _write_each(self, batch: list[Piece]) -> list[Answer]:
        answers: list[Answer] = []
        for index, piece in enumerate(batch):
            try:
                answers += self._transact([piece])
            except Exception as error:
                answers += self._fail([piece], error)
                if self.kept:  # nothing may overtake it
                    return answers + self._fail(batch[index + 1 :], error)
        return answers

    def _transact(self, batch: list[Piece]) -> list[Answer]:
        """Write all of it in one transaction, or raise and write nothing."""
        changes = self.cursor.connection.total_changes
        try:
            self._begin(durable=self._syncs and any(type(piece) is WriteJob and piece.durable for piece in batch))
            answers, size = self._perform(batch)
            self.cursor.execute("COMMIT")
        except BaseException:
            self.failing = True
            self._roll_back()
            raise
        self.failing = False
        self.written += size
        for piece in batch:
            if type(piece) is WriteBehind and piece.creation is not None:
                piece.creation.written()
        if not self.kept and self.cursor.connection.total_changes != changes:
            self.trouble.over()
        return answers

    def _begin(self, *, durable: bool) -> None:
        wanted = "FULL" if durable else "NORMAL"
        try:
            if wanted != self._synchronous:
                self.cursor.execute(f"PRAGMA synchronous = {wanted}")
                self._synchronous = wanted
            self.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise CannotBegin(str(error)) from error

    def _roll_back(self) -> None:
        if self.cursor.connection.in_transaction:  # some errors have ended it already
            self.cursor.execute("ROLLBACK")

    def _perform(self, batch: list[Piece]) -> tuple[list[Answer], int]:
        cursor = self.cursor
        connection = cursor.connection
        answers: list[Answer] = []
        behind: list[WriteBehind] = []
        size = 0
        for piece in batch:
            if type(piece) is WriteBehind:
                behind.append(piece)
                size += piece.size
                continue
            assert type(piece) is WriteJob
            joined = behind.pop() if behind and piece.joins and behind[-1].run == piece.run else None
            if behind:  # the work may read it
                self._write_behind(behind)
                behind.clear()
            before = connection.total_changes
            try:
                result = piece.work(cursor, joined) if piece.joins else piece.work(cursor)
            except InterlinguaError as error:
                if piece.future is None or connection.total_changes != before:
                    raise  # half done: tried again in a transaction of its own, which is rolled back
                answers.append((piece, None, error))
                if joined is not None:
                    self._write_behind([joined])
            else:
                if piece.future is not None:
                    answers.append((piece, result, None))
        if behind:
            self._write_behind(behind)
        return answers, size

    def _write_behind(self, runs: list[WriteBehind]) -> None:
        for one in runs:
            if one.creation is not None:
                changes.create_begun(self.cursor, self._owner, one.creation)
        log.write_all(self.cursor, self._owner, [(one.run, one.entries) for one in runs])
        for one in runs:
            if one.record is not None:
                changes.save(self.cursor, self._owner, run=one.record)

    def _fail(self, batch: list[Piece], error: Exception) -> list[Answer]:
        """Answer jobs with the error. Keep appends if the engine failed; drop them if they can never be written."""
        again = isinstance(error, sqlite3.Error) and is_engines(error)
        answers: list[Answer] = []
        for piece in batch:
            if type(piece) is WriteJob and piece.future is not None:
                answers.append((piece, None, unavailable(error)))
            elif again:
                self.kept.append(piece)
            else:
                logger.error("the store drops what cannot be written: %s", error, exc_info=error)
                if type(piece) is WriteBehind:
                    self.written += piece.size
                    if piece.creation is not None:
                        piece.creation.written()
        if self.kept:
            self.retry_at = time.monotonic() + RETRY_SECONDS
        if again:
            self.trouble.tell("the store cannot be written", error, str(unavailable(error)))
        return answers
