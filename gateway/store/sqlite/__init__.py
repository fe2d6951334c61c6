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
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.core.types import Artifact, Checkpoint, Run, RunQuery, Thread, ThreadChange, ThreadQuery
from gateway.store import Allowance, CreatedRun, Delivery, LogEntry, Recovered, Registration, RunChange, Unsynced
from gateway.store.leases import TTL_SECONDS, HeldLease, identify
from gateway.store.records import RegistrationCache, encode, few, size_of
from gateway.store.sqlite import changes, lease, log, mail, queries, retention, schema
from gateway.store.sqlite.batch import unavailable
from gateway.store.sqlite.disk_thread import DiskThread
from gateway.store.sqlite.writer import BegunRuns, Writer
from gateway.store.uploads import upload
from gateway.store.write_queue import Creation

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
        """Wait for running reads, then disconnect."""
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


def _registration_changes(cursor: sqlite3.Cursor) -> int:
    """Read the counter of writes to the registrations, which triggers keep (see schema.py)."""
    ((count,),) = cursor.execute("SELECT value FROM counters WHERE name = 'registrations'").fetchall()
    return int(count)


def _registrations(cursor: sqlite3.Cursor) -> tuple[int, list[bytes]]:
    """Read the counter and the records, in this order: what is written meanwhile is read again."""
    count = _registration_changes(cursor)
    return count, [record for (record,) in cursor.execute("SELECT record FROM registrations ORDER BY name").fetchall()]


class RunsOnDisk:
    """The runs of other processes that were read here and are known to be on the disk, as of their last change."""

    def __init__(self) -> None:
        self._changed: dict[str, float] = {}

    def lacks(self, run: Run) -> bool:
        """Whether the run has to be synced before anybody is told of it."""
        return self._changed.get(run.id) != run.updated_at and time.time() - run.updated_at < FRESH_SECONDS

    def add(self, run: Run) -> None:
        """The run has been synced since it was read."""
        self._changed.pop(run.id, None)
        self._changed[run.id] = run.updated_at
        if len(self._changed) > REMEMBERED:
            del self._changed[next(iter(self._changed))]


class SqliteStore:
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
        self._me = identify(host)
        self._lease_seconds = lease_seconds
        self._held = HeldLease(lease_seconds)
        self.owner = self._me.owner
        self._writer = Writer(
            DiskThread(
                partial(schema.connect_writer, path),
                self.owner,
                beat=self._beat,
                farewell=partial(lease.drop, owner=self.owner),
                beat_seconds=lease_seconds / 3,
                fsync=fsync,
                path=path,
            )
        )
        self._queue = self._writer.queue
        self.append = self._queue.append
        self._bell = None if path is None else mail.SocketBell(path, self.owner)
        self.mailbox = mail.FileMailbox(self._me, self._queue, self._bell, self._read)
        self._begun = BegunRuns(path, self.owner)
        self._readers: Readers | None = None
        self._on_disk = RunsOnDisk()
        self._swept = False
        self._registered = RegistrationCache()
        self._closing: asyncio.Future[None] | None = None

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

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # everything is written even if the caller is cancelled

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

    @property
    def trouble(self) -> str:
        return self._writer.trouble

    @property
    def held_since(self) -> float:
        return self._held.since

    @property
    def backlog(self) -> int:
        return self._writer.backlog

    def _beat(self, cursor: sqlite3.Cursor) -> None:
        self._begun.look()
        with self._held.extending():
            lease.keep(cursor, self._me, self._lease_seconds, self._bell.name if self._bell is not None else "")
        if not self._swept:
            changes.sweep(cursor, self._me)
            self._swept = True

    async def _read(self, work: Callable[[sqlite3.Cursor], T], run: str | None = None, *, one: bool = False) -> T:
        """Read on a reader's connection, after everything appended for `run`. `one`: it reads a record or two."""
        if not self._queue.usable:
            raise self._queue.closed()
        if self._readers is None:
            return await self._queue.submit(work, run=run, durable=False)
        if run is not None and not self._writer.settled(run):
            await self._queue.submit(_nothing, run=run, own=True, durable=False)
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
        return self._queue.submit(work, soon=soon, own=True, size=size, written=written)

    async def activate(self, run_id: str) -> bool:
        return await self._queue.submit(partial(changes.activate, owner=self.owner, run_id=run_id))

    def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> asyncio.Future[None]:
        run = None if change.run is None else encode(change.run)
        point = None if change.checkpoint is None else encode(change.checkpoint)
        work = partial(changes.commit, owner=self.owner, run_id=run_id, change=change, record=run, checkpoint=point)
        size = len(run or b"") + len(point or b"") + size_of(change.events)
        return self._queue.submit(work, run=run_id, soon=soon, joins=True, own=True, size=size)

    def save(self, run: Run, *, soon: bool = False) -> None:
        self._queue.save(run, soon=soon)

    async def flush(self, run_id: str | None = None) -> None:
        if not self._writer.settled(run_id):
            await self._queue.submit(_nothing, run=run_id, own=run_id is not None, durable=False)
        elif not self._queue.usable:
            raise self._queue.closed()

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

    async def owner_of(self, run_id: str) -> str:
        return await self._read(partial(queries.owner_of, run_id=run_id), run_id, one=True)

    async def runs(self, query: RunQuery) -> list[Run]:
        if self._begun.some:
            await self.flush()
        newest = query.thread is not None and query == RunQuery(thread=query.thread, limit=1, brief=True)
        return await self._read(partial(queries.runs, query=query), one=newest)

    async def count_runs(self, query: RunQuery) -> int:
        if self._begun.some:
            await self.flush()
        return await self._read(partial(queries.count_runs, query=query))

    async def delete_run(self, run_id: str) -> None:
        await self._queue.submit(partial(changes.delete_run, run_id=run_id), run=run_id, long=True)

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[LogEntry]:
        work = partial(log.read, run_id=run_id, after=after, max_bytes=max_bytes, deltas=deltas)
        return await self._read(work, run_id)

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        work = partial(changes.create_thread, thread=thread, checkpoints=tuple(checkpoints))
        await self._queue.submit(work, long=bool(checkpoints))

    async def thread(self, thread_id: str) -> Thread:
        return await self._read(partial(queries.thread, thread_id=thread_id), one=True)

    async def threads(self, query: ThreadQuery) -> list[Thread]:
        return await self._read(partial(queries.threads, query=query))

    async def count_threads(self, query: ThreadQuery) -> int:
        return await self._read(partial(queries.count_threads, query=query))

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        point = None if checkpoint is None else encode(checkpoint)
        work = partial(
            changes.update_thread, thread_id=thread_id, change=change, checkpoint=checkpoint, record=point, at=at
        )
        return await self._queue.submit(work, size=len(point or b"") + len(encode(change)))

    async def delete_thread(self, thread_id: str) -> None:
        await self._queue.submit(partial(changes.delete_thread, thread_id=thread_id), long=True)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        return await self._read(partial(queries.history, thread_id=thread_id, limit=limit, before=before))

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        return await upload(self._queue, changes.STEPS, artifact, content, owner=self.owner, max_bytes=max_bytes)

    async def artifact(self, artifact_id: str) -> Artifact:
        return await self._read(partial(queries.artifact, artifact_id=artifact_id))

    async def _any_artifact(self, run_id: str) -> bool:
        """Whether a run has files. Most have none, and to read that is not worth the way through a thread."""
        return await self._read(partial(queries.has_artifacts, run_id=run_id), one=True)

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
        if run is not None and thread is None and not await self._any_artifact(run):
            return []
        return await self._read(partial(queries.artifacts, run_id=run, thread_id=thread))

    async def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        number = 0
        while data := await self._read(partial(queries.chunk, artifact_id=artifact_id, number=number)):
            yield data
            number += 1

    # callbacks, registrations, recovery, retention

    async def deliveries(self, now: float, limit: int = 100) -> list[Delivery]:
        return await self._read(partial(queries.deliveries, owner=self.owner, now=now, limit=limit))

    async def delivered(self, delivery_id: str) -> None:
        await self._queue.submit(partial(changes.delivered, delivery_id=delivery_id))

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        await self._queue.submit(partial(changes.postpone, delivery_id=delivery_id, due_at=due_at))

    async def put_registration(self, registration: Registration) -> None:
        await self._queue.submit(partial(changes.put_registration, me=self._me, registration=registration))

    async def registrations(self, now: float) -> list[Registration]:
        if await self._read(_registration_changes, one=True) != self._registered.changes:
            self._registered = self._registered.newer(*await self._read(_registrations))
        return self._registered.at(now)

    async def delete_registration(self, name: str) -> None:
        await self._queue.submit(partial(changes.delete_registration, name=name))

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        # not synced: all who may spend are of this machine, and know after a power cut what their audit logs say
        return await self._queue.submit(partial(changes.spend, allowances=allowances), own=True, durable=False)

    async def claim(self) -> list[Recovered]:
        found: list[Recovered] = []
        with contextlib.suppress(Unsynced):  # they are this process's: nobody else drives them
            await self._queue.submit(partial(self._claim, found), long=True)
        self._begun.forget()
        return found

    def _claim(self, found: list[Recovered], cursor: sqlite3.Cursor) -> None:
        changes.sweep(cursor, self._me)
        for owner, creation in self._begun.left(partial(lease.is_dead, cursor, me=self._me)):
            changes.create_begun(cursor, owner, creation)
        found[:] = changes.claim(cursor, self._me)

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        gone = 0
        for step in retention.steps(older_than, max_bytes, time.time()):
            more = True
            while more:
                removed, more = await self._queue.submit(step, durable=False, long=True)
                gone += removed
        return gone


def _is_alone(run: Run) -> bool:
    """Whether nothing has to be looked up, or changed as well, to create the run."""
    return run.request.id is None and run.request.thread is None and not run.request.files


def _nothing(_: sqlite3.Cursor) -> None:
    """Work of a flush: when it has run, everything before it is written."""
