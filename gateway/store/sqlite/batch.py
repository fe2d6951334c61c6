"""Writing a batch of pieces: one transaction, in order, each piece answered by itself.

Work fails alone: if a batch cannot be written as a whole, it is tried piece by piece. What was appended without anybody
waiting is kept and tried again, and until it is written nothing behind it is: a commit never overtakes the events
before it.
"""

from __future__ import annotations

import logging
import sqlite3
import time

from gateway.core.errors import InterlinguaError
from gateway.store.sqlite import log
from gateway.store.sqlite.faults import CannotBegin, NotWhole, is_engines, unavailable
from gateway.store.sqlite.job import Answer, Job, Piece, Work
from gateway.store.sqlite.write_behind import WriteBehind

RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Batches:
    """The one connection that writes. Used by one thread at a time; which, is for the Writer to see to."""

    def __init__(self, connection: sqlite3.Connection, owner: str, *, syncs: bool) -> None:
        """`syncs`: SQLite itself syncs a transaction in which somebody wants durability."""
        self.cursor = connection.cursor()
        self.kept: list[Piece] = []
        """What could not be written and goes before everything else."""
        self.retry_at = 0.0
        self.written = 0
        """Bytes of entries that nobody waited for."""
        self._owner = owner
        self._syncs = syncs
        self._synchronous = ""

    def write(self, batch: list[Piece], *, waits: bool) -> list[Answer]:
        """All of the batch, as far as that is possible. `waits`: for other processes, as the connection is set to now.
        Raises CannotBegin or NotWhole, with nothing done, where only who waits can do it.
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

    def alone(self, work: Work[None]) -> None:
        """Work of the Writer's own, in a transaction that nobody waits for."""
        self._begin(durable=False)
        try:
            work(self.cursor)
            self.cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

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
        """All of it in one transaction, or an exception and none of it."""
        self._begin(durable=self._syncs and any(type(piece) is Job and piece.durable for piece in batch))
        try:
            answers, size = self._perform(batch)
            self.cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self.written += size
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
            assert type(piece) is Job
            joined = behind.pop() if behind and piece.joins and behind[-1].run == piece.run else None
            if behind:  # the work may look at what is in it
                self._write_behind(behind)
                behind.clear()
            before = connection.total_changes
            try:
                result = piece.work(cursor, joined) if piece.joins else piece.work(cursor)
            except InterlinguaError as error:
                if piece.future is None or connection.total_changes != before:
                    raise  # half done: it is tried again in a transaction of its own, and undone with that
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
        log.write_all(self.cursor, self._owner, [(one.run, one.entries) for one in runs])
        for one in runs:
            if one.record is not None:
                one.record(self.cursor)

    def _fail(self, batch: list[Piece], error: Exception) -> list[Answer]:
        """Tell those who wait; keep the rest if the engine failed, drop it if it can never be written."""
        again = isinstance(error, sqlite3.Error) and is_engines(error)
        answers: list[Answer] = []
        for piece in batch:
            if type(piece) is Job and piece.future is not None:
                answers.append((piece, None, unavailable(error)))
            elif again:
                self.kept.append(piece)
            else:
                logger.error("the store drops what cannot be written: %s", error, exc_info=error)
                self.written += piece.size if type(piece) is WriteBehind else 0
        if self.kept:
            self.retry_at = time.monotonic() + RETRY_SECONDS
            logger.warning("the store cannot be written, %d pieces wait: %s", len(self.kept), error)
        return answers
