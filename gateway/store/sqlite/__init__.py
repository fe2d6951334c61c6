"""The default store: one SQLite file (WAL), shared by several processes if need be, or a database in memory.

event loop --append, save, commit--> queue --> file       group commit (writer.py)
thread --fsync--> answers those who wait for the disk; does all long work
event loop --read--> reader threads --> file              after the run's appends are written
event loop --read one record--> file                      the same without a thread
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.core.types import Artifact, Run, RunQuery
from gateway.store import Allowance, CreatedRun, LogEntry, Recovered, Registration, RunChange, Unsynced
from gateway.store.engine import StoreEngine
from gateway.store.leases import TTL_SECONDS, HeldLease, identify
from gateway.store.records import encode, few, size_of
from gateway.store.sqlite import changes, lease, mail, queries, retention, schema
from gateway.store.sqlite.disk_thread import DiskThread, unavailable
from gateway.store.sqlite.writer import BegunRuns, Writer
from gateway.store.write_queue import LONG, Creation

T = TypeVar("T")

READER_THREADS = 2
FRESH_SECONDS = 60.0
"""How long after a change of a run other processes see to it that it is on the disk. Its own takes milliseconds. Who
shares a WAL is of the same machine, and has its clock.
"""
REMEMBERED = 1000
"""How many runs of other processes are known to be on the disk."""


class Locked(Exception):
    """A read would have to wait for another connection."""


class Readers:
    """Threads that read, each with its own connection, so that neither the event loop nor the writer waits for a read.

    Its methods are called on the event loop. A read sees everything that was committed before it began.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="store-reader")
        self._local = threading.local()
        self._here: sqlite3.Cursor | None = None
        self._connections: list[sqlite3.Connection] = []

    async def __call__(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run `work` in a thread with a cursor that cannot write, and return its result. Raises Unavailable."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)
        except RuntimeError as error:  # how an executor says that it is shut down
            raise Unavailable("the store is closed", detail=str(error)) from error
        return await future

    def at_once(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run `work`, which reads a record or two, on the event loop: some 20 us, a tenth of the way through a thread.

        Raises Locked if it would have to wait.
        """
        try:
            if self._here is None:
                self._here = self._connect(waits=False).cursor()
            return work(self._here)
        except sqlite3.OperationalError as error:
            raise Locked from error
        except sqlite3.Error as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
        for connection in self._connections:
            connection.close()

    def _read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        try:
            cursor: sqlite3.Cursor | None = getattr(self._local, "cursor", None)
            if cursor is None:
                cursor = self._local.cursor = self._connect().cursor()
            return work(cursor)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def _connect(self, *, waits: bool = True) -> sqlite3.Connection:
        connection = schema.connect_reader(self._path, waits=waits)
        self._connections.append(connection)
        return connection


class RunsOnDisk:
    """The runs of other processes that were read here and are known to be on the disk, as of their last change."""

    def __init__(self) -> None:
        self._changed: dict[str, float] = {}

    def lacks(self, run: Run) -> bool:
        """Whether the run has to be synced before anybody is told of it."""
        return self._changed.get(run.id) != run.updated_at and time.time() - run.updated_at < FRESH_SECONDS

    def add(self, run: Run) -> None:
        self._changed.pop(run.id, None)
        self._changed[run.id] = run.updated_at
        if len(self._changed) > REMEMBERED:
            del self._changed[next(iter(self._changed))]


class SqliteStore(StoreEngine):
    """Implements `gateway.store.Store`, which has the contract of every method, on SQLite.

    Make one per process and file. `host` and `lease_seconds` are for tests: the name under which the lease is taken,
    and how long it lasts without being refreshed.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        fsync: bool = True,
        host: str | None = None,
        lease_seconds: float = TTL_SECONDS,
    ) -> None:
        self._path = path
        self._me = me = identify(host)
        self._lease_seconds = lease_seconds
        self._writer = Writer(
            DiskThread(
                partial(schema.connect_writer, path),
                me.owner,
                beat=self._beat,
                farewell=partial(lease.drop, owner=me.owner),
                beat_seconds=lease_seconds / 3,
                fsync=fsync,
                path=path,
            )
        )
        held = HeldLease(lease_seconds)
        super().__init__(me.owner, held, self._writer, queries=queries, changes=changes, retention=retention)
        self._bell = None if path is None else mail.SocketBell(path, self.owner)
        self.mailbox = mail.FileMailbox(self._me, self._queue, self._bell, self._read)
        self._begun = BegunRuns(path, self.owner)
        self._readers: Readers | None = None
        self._on_disk = RunsOnDisk()
        self._swept = False

    async def open(self) -> None:
        if self._closing is not None:
            raise self._queue.closed()
        try:
            if self._bell is not None:
                self._bell.open(self.mailbox.heard)
            await self._writer.start()
        except BaseException as error:
            if self._bell is not None:
                self._bell.close()
            if isinstance(error, sqlite3.Error):
                raise Unavailable(f"cannot open the store {self._path or 'in memory'}: {error}") from error
            raise
        if self._path is not None:
            self._readers = Readers(self._path)
        self._begun.open()

    async def _close(self) -> None:
        self._queue.close()
        if self._readers is not None:
            await self._readers.close()  # first: the last connection to close cleans up, which a reader must not
        try:
            await self._writer.stop()
        finally:
            self._begun.close()
            if self._bell is not None:
                self._bell.close()

    def _beat(self, cursor: sqlite3.Cursor) -> None:
        self._begun.look()
        with self._held.extending():
            lease.keep(cursor, self._me, self._lease_seconds, self._bell.name if self._bell is not None else "")
        if not self._swept:
            changes.sweep(cursor, self._me)
            self._swept = True

    async def _read(self, work: Callable[[sqlite3.Cursor], T], run: str | None = None, *, one: bool = False) -> T:
        if not self._queue.usable:
            raise self._queue.closed()
        if self._readers is None:
            return await self._queue.submit(work, run=run, durable=False)
        if run is not None and not self._writer.settled(run):
            await self._queue.submit(changes.nothing, run=run, own=True, durable=False)
        try:
            return self._readers.at_once(work) if one else await self._readers(work)
        except Locked:
            return await self._readers(work)

    async def lives(self, owner: str) -> bool:
        return not await self._read(partial(lease.is_dead, owner=owner, me=self._me), one=True)

    async def is_orphaned(self) -> bool:
        return bool(await self._read(partial(changes.dead_owners, me=self._me), one=True))

    # runs

    def create_run(
        self,
        run: Run,
        events: Sequence[LogEntry],
        *,
        reserved: int,
        soon: bool = False,
        written: Callable[[CreatedRun], None] | None = None,
    ) -> asyncio.Future[CreatedRun]:
        record, head = encode(run), few(events)
        if soon and head is not None and self._writer.quick and _is_alone(run):
            has_row = self._begun.keep(record, head, reserved)
            if has_row is not None:
                self._queue.create(Creation(run, record, head, reserved, has_row))
                created: asyncio.Future[CreatedRun] = asyncio.get_running_loop().create_future()
                created.set_result(CreatedRun(True))
                return created
        size = len(record) + (size_of(events) if head is None else len(head))
        work = partial(
            changes.create_run, owner=self.owner, run=run, events=events, reserved=reserved, record=record, head=head
        )
        return self._queue.submit(work, run=run.id, soon=soon, own=True, size=size, written=written)

    def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> asyncio.Future[None]:
        run = None if change.run is None else encode(change.run)
        point = None if change.checkpoint is None else encode(change.checkpoint)
        work = partial(changes.commit, owner=self.owner, run_id=run_id, change=change, record=run, checkpoint=point)
        size = len(run or b"") + len(point or b"") + size_of(change.events)
        return self._queue.submit(work, run=run_id, soon=soon, joins=True, own=True, size=size)

    async def synced(self) -> None:
        if self._writer.owes:
            with contextlib.suppress(Unsynced):
                await self._writer.synced()

    async def run(self, run_id: str) -> Run:
        owner, run = await self._read(partial(queries.run, run_id=run_id), run_id, one=True)
        if owner != self.owner and self._on_disk.lacks(run):
            with contextlib.suppress(Unsynced):  # it has happened, as for whoever watches it at its owner
                await self._writer.synced()
                self._on_disk.add(run)
        return run

    async def runs(self, query: RunQuery) -> list[Run]:
        if self._begun.some:
            await self.flush()
        newest = query.thread is not None and query == RunQuery(thread=query.thread, limit=1, brief=True)
        return await self._read(partial(queries.runs, query=query), one=newest)

    async def count_runs(self, query: RunQuery) -> int:
        if self._begun.some:
            await self.flush()
        return await super().count_runs(query)

    async def _any_artifact(self, run_id: str) -> bool:
        """Whether a run has files. Most have none, and to read that is not worth the way through a thread."""
        return await self._read(partial(queries.has_artifacts, run_id=run_id), one=True)

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
        if run is not None and thread is None and not await self._any_artifact(run):
            return []
        return await super().artifacts(run=run, thread=thread)

    # registrations, allowances, recovery

    async def put_registration(self, registration: Registration) -> None:
        await self._queue.submit(partial(changes.put_registration, me=self._me, registration=registration))

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        # not synced: all who may spend are of this machine, and know after a power cut what their audit logs say
        return await self._queue.submit(partial(changes.spend, allowances=allowances), own=True, durable=False)

    async def claim(self) -> list[Recovered]:
        found: list[Recovered] = []
        with contextlib.suppress(Unsynced):  # they are this process's: nobody else drives them
            await self._queue.submit(partial(self._claim, found), size=LONG)
        self._begun.forget()
        return found

    def _claim(self, found: list[Recovered], cursor: sqlite3.Cursor) -> None:
        changes.sweep(cursor, self._me)
        for owner, creation in self._begun.left(partial(lease.is_dead, cursor, me=self._me)):
            changes.create_begun(cursor, owner, creation)
        found[:] = changes.claim(cursor, self._me)


def _is_alone(run: Run) -> bool:
    """Whether nothing has to be looked up, or changed as well, to create the run."""
    return run.request.id is None and run.request.thread is None and not run.request.files
