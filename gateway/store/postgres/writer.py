"""Group commit: one connection writes what the queue gathers, a batch in a transaction, while the next is gathered.

event loop --submit--> queue --> task: one statement for all of it (run_writes.py) --> answers
                                       or BEGIN, a few statements, COMMIT

Where a batch has no `durable` job, the server answers before it has synced (`synchronous_commit`); its own WAL writer
syncs within three times `wal_writer_delay`, 0.6 s as it comes.

A connection that breaks is made anew, and what was not committed is written again, in order, before anything else. Each
transaction leaves its number in our lease: if the connection broke while it was committed, the next one finds out there
whether it was, and leaves a higher number where it was not, so that it never will be. Jobs wait for
PATIENCE_SECONDS from when it broke, then they are refused, and what is refused has not happened: `_settle` sees to it.
Only time in which this process runs is counted: after a stop (SIGSTOP, a machine that sleeps) nothing has failed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import asyncpg

from gateway.core.errors import InterlinguaError, Unavailable
from gateway.store.postgres.changes import remove_runs
from gateway.store.postgres.connections import (
    Connection,
    Patience,
    Server,
    fetch,
    is_engines,
    is_lost,
    unavailable,
)
from gateway.store.postgres.run_writes import AtOnce, NewRun, RunWrites, Transition
from gateway.store.write_queue import Piece, Trouble, WriteBehind, WriteJob, WriteQueue

PATIENCE_SECONDS = 5.0
"""How long jobs wait for a server that is away."""
BATCH_SECONDS = 10.0
"""How long a transaction may take before its connection is given up, and how long the server lets one stand open."""
LOCK_SECONDS = 4.0
"""How long a statement waits for another transaction."""
RETRY_SECONDS = 0.5
LOOK_SECONDS = 0.25
"""Between two looks at who has waited for long enough."""
CONTENDED = asyncpg.LockNotAvailableError, asyncpg.TransactionRollbackError, asyncpg.QueryCanceledError
"""What is wrong with one job, and not with the server: another transaction was in its way."""
AWAY = "the store cannot be reached"
LONGEST_BATCH = 1024
"""Pieces in one transaction: limits how long a batch delays the next one."""

Work = Callable[[Connection], Awaitable[Any]]

logger = logging.getLogger(__name__)


class Lost(Exception):
    """The connection is lost: nothing can be written until there is a new one."""


@dataclass(frozen=True)
class Doubt:
    """A transaction of the first `count` pieces that was being committed when the connection broke."""

    number: int
    count: int


class PostgresWriter:
    """Writes what its queue gathers. The work of a job is a NewRun, a Transition, or is called with the connection and
    awaited; an InterlinguaError that it raises then has written nothing.

    `first` is done with each new connection, `beat` in a transaction of its own every `beat_seconds`, `farewell` in the
    last one.
    """

    def __init__(
        self,
        server: Server,
        owner: str,
        *,
        first: Work,
        beat: Work,
        farewell: Work,
        beat_seconds: float,
        fsync: bool,
    ) -> None:
        self.queue = WriteQueue(self._wake, LONGEST_BATCH)
        self._server = server
        self._owner = owner
        self._first = first
        self._beat = beat
        self._farewell = farewell
        self._beat_seconds = beat_seconds
        self._fsync = fsync
        self._connection: Connection = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._again = False
        """Whether the last of it is tried again: the connection may have broken long ago, and the server be back."""
        self._ahead: list[Piece] = []
        """Taken from the queue and not yet written, in order."""
        self._doubt: Doubt | None = None
        self._overruled: set[str] = set()
        """Runs with a transition that was written although it was refused: the next one overrules it."""
        self._number = 0
        self._trouble = Trouble()
        self._written = 0
        self._beat_at = self._retry_at = 0.0
        self._down_since: float | None = None
        """Nothing has been written since then."""
        self._looks = 0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def away(self) -> bool:
        """Whether there is no server that takes anything."""
        return not self.queue.usable or self._down_since is not None

    @property
    def trouble(self) -> str:
        return str(AWAY if self.queue.usable else self.queue.closed()) if self.away else self._trouble.why

    @property
    def backlog(self) -> int:
        """Bytes appended but not yet written."""
        return self.queue.put - self._written

    def settled(self, run: str | None) -> bool:
        """Whether all that was to be written (of `run`, if given) is. May return False although it is."""
        return not self.queue.holds(run, self._ahead)

    async def start(self) -> None:
        """Connect. Raises what connecting, `first` and the first `beat` raise."""
        self._connection = await self._server.connect()
        try:
            await self._begin_with(self._connection)
            await self._alone(self._beat)
        except BaseException:
            self._connection.terminate()
            raise
        self.queue.open()
        self._task = asyncio.create_task(self._run(), name="postgres writer")

    async def stop(self) -> None:
        """Write everything that waits, drop the lease, disconnect. Raises Unavailable if that was not possible."""
        self.queue.close()
        self._stopping.set()
        self._wake()
        if self._task is not None:
            await asyncio.shield(self._task)

    def _wake(self) -> None:
        self._woken.set()

    # --- the task

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while await self._step():
                pass
        except (Lost, asyncpg.PostgresError) as error:
            left = self._ahead or self.queue
            why = "the store closed with events that could not be written" if left else "the store failed"
            failure = Unavailable(why, detail=str(error))
        except BaseException as error:
            logger.critical("the store's writer died", exc_info=True)
            failure = error
        self.queue.close()
        self._ahead += self.queue.take(len(self.queue))
        self._refuse()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._connection is not None:
            self._connection.terminate()
        if failure is not None:
            raise failure

    async def _step(self) -> bool:
        """Do what is next. Returns False when all is done, which is after `stop`; raises Lost if it cannot be."""
        try:
            if self._connection is None:
                await self._reconnect()
            if self._doubt is not None:
                await self._settle(self._doubt)
            now, stopping = time.monotonic(), self._stopping.is_set()
            if now >= self._beat_at and not stopping:
                await self._keep_lease()
            elif self.queue or (self._ahead and (now >= self._retry_at or stopping)):
                await self._write()
                if stopping and self._ahead:
                    raise Lost("the server does not take it")
            elif stopping:
                await self._alone(self._farewell)
                await self._connection.close(timeout=PATIENCE_SECONDS)
                return False
            else:
                await self._wait(min(self._beat_at, self._retry_at if self._ahead else self._beat_at) - now)
        except Lost as error:
            self._lose(error)
            if self._stopping.is_set():
                if self._again:
                    raise
                self._again = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._stopping.wait()
        return True

    async def _wait(self, seconds: float) -> None:
        """Wait until there is something to do."""
        self._woken.clear()
        if not self.queue:
            alarm = asyncio.get_running_loop().call_later(seconds, self._wake)
            try:
                await self._woken.wait()
            finally:
                alarm.cancel()

    # --- transactions

    async def _begin_with(self, connection: Connection) -> None:
        """Do what comes first on a new connection."""
        await self._first(connection)
        if not self._server.pooled:
            await connection.execute(f"{_limits('SET')}SET plan_cache_mode = force_generic_plan")

    async def _write(self) -> None:
        """Write what waits, as much of it as possible. If it cannot be written as a whole, work fails alone."""
        self._ahead += self.queue.take(max(0, LONGEST_BATCH - len(self._ahead)))
        count = min(len(self._ahead), LONGEST_BATCH)
        try:
            await self._transact(count)
        except Lost:
            raise
        except Exception as error:
            if count == 1:
                self._fail(error)
                return
            for _ in range(count):
                try:
                    await self._transact(1)
                except Lost:
                    raise
                except Exception as alone:
                    if not self._fail(alone):
                        return

    async def _transact(self, count: int) -> None:
        """Write the first pieces in one transaction, and answer them. Raises, with nothing written, Lost among others:
        then it may be in doubt.
        """
        connection = self._connection
        assert connection is not None
        batch = self._ahead[:count]
        durable = self._fsync and any(isinstance(piece, WriteJob) and piece.durable for piece in batch)
        self._number += 1
        doubt: Doubt | None = None
        try:
            async with Patience(BATCH_SECONDS):
                if (once := self._at_once(batch)) is not None:
                    doubt = Doubt(self._number, count)
                    if not await once.write(connection, self._owner, self._number, durable=durable):
                        once = doubt = None
                if once is None:
                    await connection.execute(self._begin(durable))
                    await self._perform(connection, batch)
                    doubt = Doubt(self._number, count)
                    await connection.execute("COMMIT")
        except Exception as error:
            if is_lost(error):
                self._doubt = doubt
                raise Lost(f"{type(error).__name__}: {error}") from error
            await self._roll_back()
            raise
        self._done(count)

    def _begin(self, durable: bool) -> str:
        """Begin a transaction, with its number in the lease. What it sets holds until it ends: see connections.py."""
        limits = _limits("SET LOCAL") if self._server.pooled else ""
        sync = "" if durable else "SET LOCAL synchronous_commit = off; "
        return (
            f"BEGIN; {limits}{sync}UPDATE interlingua.leases SET batch = {self._number} WHERE owner = '{self._owner}'"
        )

    def _at_once(self, batch: list[Piece]) -> AtOnce | None:
        """The batch as one statement, if it can be. Not behind a pooler: there a transaction begins with its limits."""
        if self._server.pooled:
            return None
        group = RunWrites(self._owner)
        for piece in batch:
            if not self._join(group, piece):
                return None
        return group.at_once()

    def _join(self, group: RunWrites, piece: Piece) -> bool:
        """Add a piece to the group. Returns False if it is no write to a run, or has to wait for those in the group."""
        if isinstance(piece, WriteBehind):
            if group.admits(piece):
                group.add_behind(piece)
                return True
            return False
        work = piece.work
        if not isinstance(work, NewRun | Transition) or not group.admits(work):
            return False
        if isinstance(work, Transition) and work.run in self._overruled:
            group.add(piece, replace(work, overrules=True))
        else:
            group.add(piece, work)
        return True

    async def _perform(self, connection: Connection, batch: list[Piece]) -> None:
        group = RunWrites(self._owner)
        for piece in batch:
            if self._join(group, piece):
                continue
            if group:
                await group.write(connection)
                group = RunWrites(self._owner)
                if self._join(group, piece):
                    continue
            assert isinstance(piece, WriteJob)
            try:
                piece.ends(await piece.work(connection))
            except InterlinguaError as error:
                piece.ends(None, error)
        if group:
            await group.write(connection)

    def _done(self, count: int) -> None:
        done = self._ahead[:count]
        for piece in done:
            if isinstance(piece, WriteBehind):
                self._written += piece.size
            elif isinstance(piece.work, Transition) and piece.work.change.release:
                self._overruled.discard(piece.work.run)
        del self._ahead[:count]
        self._is_back()
        for piece in done:
            if isinstance(piece, WriteJob):
                piece.answer()

    async def _roll_back(self) -> None:
        assert self._connection is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._connection.execute("ROLLBACK")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error

    async def _alone(self, work: Work) -> None:
        """Do the store's own work (the lease) in a transaction of its own."""
        connection = self._connection
        assert connection is not None
        self._beat_at = time.monotonic() + self._beat_seconds
        try:
            async with Patience(BATCH_SECONDS), connection.transaction():
                await work(connection)
        except Exception as error:
            if is_lost(error):
                raise Lost(f"{type(error).__name__}: {error}") from error
            raise
        self._is_back()

    async def _keep_lease(self) -> None:
        """Extend the lease. Trouble is over with it if nothing that could not be written is left.

        What was refused is tried again and undone, since the lease may be written where nothing else is: in its place.
        """
        try:
            await self._alone(self._beat)
            if self._ahead:
                return
            if (refused := self._trouble.refused) is not None:
                await self._alone(partial(self._undone, refused))
            self._trouble.over()
        except asyncpg.PostgresError as error:
            self._trouble.tell("the store cannot be written", error, str(unavailable(error)))

    async def _undone(self, job: WriteJob, connection: Connection) -> None:
        """Do the work of a job and undo it. Raises what keeps it from being done."""
        await connection.execute("SAVEPOINT refused")
        try:
            await self._perform(connection, [job])
        except Exception as error:
            if is_lost(error) or (is_engines(error) and not isinstance(error, CONTENDED)):
                raise
        await connection.execute("ROLLBACK TO refused")

    def _fail(self, error: Exception) -> bool:
        """Answer the first piece with the error, or keep it if the server failed and nobody waits for the answer.

        Returns whether the pieces behind it may be written: not before one that is kept.
        """
        piece = self._ahead[0]
        refused = piece if isinstance(piece, WriteJob) and piece.future is not None else None
        if is_engines(error) and not (refused is not None and isinstance(error, CONTENDED)):
            self._trouble.tell("the store cannot be written", error, str(unavailable(error)), refused)
        if refused is not None:
            del self._ahead[0]
            refused.ends(None, unavailable(error))
            refused.answer()
            return True
        if not is_engines(error):
            logger.error("the store drops what cannot be written: %s", error, exc_info=error)
            self._done(1)
            return True
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._refuse(error)
        return False

    # --- a server that goes and comes back

    def _lose(self, error: Lost) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        if self._down_since is None:
            self._down_since = time.monotonic()
            self._looks = 0
            self._alarm = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
            logger.error("the store %s is away: %s", self._server.name, error)
        self._give_up_waiting()

    def _look(self) -> None:
        self._looks += 1
        self._alarm = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        if self._connection is None:  # else it is being tried
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """Refuse the jobs that wait, once the server has been away for long enough."""
        if self._looks * LOOK_SECONDS >= PATIENCE_SECONDS:
            self._ahead += self.queue.take(len(self.queue))
            self._refuse()

    def _is_back(self) -> None:
        """Something has been written."""
        if self._down_since is not None and self._alarm is not None:
            logger.warning("the store %s is back after %.1f s", self._server.name, time.monotonic() - self._down_since)
            self._alarm.cancel()
            self._down_since = self._alarm = None

    def _refuse(self, error: Exception | None = None) -> None:
        """Refuse jobs that somebody waits for. Those in doubt stay: whether they were written is found out."""
        wrong = unavailable(error) if error is not None else Unavailable(AWAY)
        doubted = self._doubt.count if self._doubt is not None else 0
        old = [piece for piece in self._ahead if isinstance(piece, WriteJob) and piece.future is not None]
        for job in old:
            job.ends(None, wrong)
            job.answer()
        gone = set(map(id, old))
        self._ahead = [*self._ahead[:doubted], *(one for one in self._ahead[doubted:] if id(one) not in gone)]

    async def _reconnect(self) -> None:
        """Connect again. Raises Lost."""
        try:
            connection = await self._server.connect()
            try:
                async with Patience(BATCH_SECONDS):
                    await self._begin_with(connection)
            except BaseException:
                connection.terminate()
                raise
            await self._server.renew()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, InterlinguaError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error
        self._connection = connection
        self._beat_at = 0.0

    async def _settle(self, doubt: Doubt) -> None:
        """Find out whether a transaction was committed. If so its jobs are answered now; one that was refused meanwhile
        is undone. Else it is written again, without those, and never committed, though the server may not have read it.
        """
        assert self._connection is not None
        batch = self._ahead[: doubt.count]
        refused = [piece for piece in batch if isinstance(piece, WriteJob) and _is_refused(piece)]
        self._number += 1
        fence = "UPDATE interlingua.leases SET batch = $2 WHERE owner = $1 AND batch <> $3 RETURNING batch"
        sql = "SELECT batch FROM interlingua.leases WHERE owner = $1"
        try:
            async with Patience(BATCH_SECONDS):
                await fetch(self._connection, fence, self._owner, self._number, doubt.number)
                rows = await fetch(self._connection, sql, self._owner)
            if not (rows and rows[0]["batch"] == doubt.number):
                self._doubt = None
                self._ahead = [piece for piece in self._ahead if piece not in refused]
                return
            if new := [job.work.run.id for job in refused if isinstance(job.work, NewRun)]:
                async with self._connection.transaction():
                    found = "SELECT seq, id FROM interlingua.runs WHERE id = ANY($1::text[]) AND owner = $2"
                    await remove_runs(self._connection, await fetch(self._connection, found, new, self._owner))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error
        self._doubt = None
        self._done(doubt.count)
        self._overruled.update(job.work.run for job in refused if isinstance(job.work, Transition))


def _limits(how: str) -> str:
    return (
        f"{how} lock_timeout = {LOCK_SECONDS * 1000:.0f}; "
        f"{how} idle_in_transaction_session_timeout = {BATCH_SECONDS * 1000:.0f}; "
    )


def _is_refused(job: WriteJob) -> bool:
    return job.future is not None and job.future.done() and not job.future.cancelled()
