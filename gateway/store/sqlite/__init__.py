"""The default store: one SQLite file (WAL), shared by several processes if need be, or a database in memory.

event loop --append, save, commit--> queue --> file                group commit, see writer.py
thread --fsync--> wake all who wait for the disk; and all that takes long
event loop --read--> reader threads --> file                       after this run's appends are written
event loop --read one record--> file                               the same, without a thread
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.core.types import Artifact, Checkpoint, Run, RunQuery, Thread, ThreadChange, ThreadQuery
from gateway.store import Change, Delivery, Entry, Recovered, Registration
from gateway.store.sqlite import changes, files, lease, log, queries, registered, retention, schema
from gateway.store.sqlite.disk_thread import DiskThread
from gateway.store.sqlite.faults import closed
from gateway.store.sqlite.readers import Locked, Readers
from gateway.store.sqlite.writer import Writer

T = TypeVar("T")


class SqliteStore:
    """`gateway.store.Store` on SQLite; the contract of every method is there.

    One per process and file. `host` and `lease_seconds` are for tests: the name under which the lease is taken, and how
    long it lasts without being refreshed.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        fsync: bool = True,
        host: str | None = None,
        lease_seconds: float = lease.TTL_SECONDS,
    ) -> None:
        self._path = path
        self._me = lease.identify(host)
        self._lease_seconds = lease_seconds
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
        self._readers: Readers | None = None
        self._swept = False
        self._registered = registered.Table()
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        if self._closing is not None:
            raise closed()
        try:
            await self._writer.start()
        except sqlite3.Error as error:
            raise Unavailable(f"cannot open the store {self._path or 'in memory'}: {error}") from error
        if self._path is not None:
            self._readers = Readers(self._path)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # whoever is cancelled here, the rest still gets written

    async def _close(self) -> None:
        self._writer.usable = False
        if self._readers is not None:
            await self._readers.close()  # first: the last connection tidies up, which these may not
        await self._writer.stop()

    @property
    def backlog(self) -> int:
        return self._writer.backlog

    def _beat(self, cursor: sqlite3.Cursor) -> None:
        lease.keep(cursor, self._me, self._lease_seconds)
        if not self._swept:
            files.sweep(cursor, self._me)
            self._swept = True

    async def _read(self, work: Callable[[sqlite3.Cursor], T], run: str | None = None, *, one: bool = False) -> T:
        """Read on a reader's connection, after what was appended for `run`. `one`: no more than a record or two."""
        if not self._writer.usable:
            raise closed()
        if self._readers is None:
            return await self._writer.submit(work, run=run, durable=False)
        if run is not None and not self._writer.settled(run):
            await self._writer.submit(_nothing, run=run, own=True, durable=False)
        try:
            return self._readers.at_once(work) if one else await self._readers(work)
        except Locked:
            return await self._readers(work)

    # runs

    async def create_run(self, run: Run, events: Sequence[Entry], *, reserved: int, soon: bool = False) -> bool:
        record = queries.encode(run)
        work = partial(changes.create_run, owner=self.owner, run=run, events=events, reserved=reserved, record=record)
        return await self._writer.submit(work, soon=soon, own=True, size=len(record))

    async def activate(self, run_id: str) -> bool:
        return await self._writer.submit(partial(changes.activate, owner=self.owner, run_id=run_id))

    async def commit(self, run_id: str, change: Change, *, soon: bool = False) -> None:
        records = changes.Records.of(change.run, change.checkpoint)
        work = partial(changes.commit, owner=self.owner, run_id=run_id, change=change, records=records)
        await self._writer.submit(work, run=run_id, soon=soon, joins=True, own=True, size=records.size)

    def append(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._writer.append(run_id, entries)

    def save(self, run: Run) -> None:
        self._writer.save(run.id, partial(changes.save, owner=self.owner, run=run))

    async def flush(self) -> None:
        if not self._writer.settled():
            await self._writer.submit(_nothing, durable=False)
        elif not self._writer.usable:
            raise closed()

    async def run(self, run_id: str) -> Run:
        return await self._read(partial(queries.run, run_id=run_id), run_id, one=True)

    async def runs(self, query: RunQuery) -> list[Run]:
        return await self._read(partial(queries.runs, query=query))

    async def count_runs(self, query: RunQuery) -> int:
        return await self._read(partial(queries.count_runs, query=query))

    async def delete_run(self, run_id: str) -> None:
        await self._writer.submit(partial(changes.delete_run, run_id=run_id), run=run_id, long=True)

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[Entry]:
        work = partial(log.read, run_id=run_id, after=after, max_bytes=max_bytes, deltas=deltas)
        return await self._read(work, run_id)

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        work = partial(changes.create_thread, thread=thread, checkpoints=tuple(checkpoints))
        await self._writer.submit(work, long=bool(checkpoints))

    async def thread(self, thread_id: str) -> Thread:
        return await self._read(partial(queries.thread, thread_id=thread_id), one=True)

    async def threads(self, query: ThreadQuery) -> list[Thread]:
        return await self._read(partial(queries.threads, query=query))

    async def count_threads(self, query: ThreadQuery) -> int:
        return await self._read(partial(queries.count_threads, query=query))

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        records = changes.Records.of(None, checkpoint)
        work = partial(
            changes.update_thread, thread_id=thread_id, change=change, checkpoint=checkpoint, records=records, at=at
        )
        return await self._writer.submit(work, size=records.size + len(queries.encode(change)))

    async def delete_thread(self, thread_id: str) -> None:
        await self._writer.submit(partial(changes.delete_thread, thread_id=thread_id), long=True)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        return await self._read(partial(queries.history, thread_id=thread_id, limit=limit, before=before))

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        begin = partial(files.begin, owner=self.owner, artifact=artifact)
        return await files.upload(
            artifact,
            content,
            max_bytes,
            begin=begin,
            write=partial(self._writer.submit, long=True),
            forget=self._writer.behind,
        )

    async def artifact(self, artifact_id: str) -> Artifact:
        return await self._read(partial(queries.artifact, artifact_id=artifact_id))

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
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
        await self._writer.submit(partial(changes.delivered, delivery_id=delivery_id))

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        await self._writer.submit(partial(changes.postpone, delivery_id=delivery_id, due_at=due_at))

    async def put_registration(self, registration: Registration) -> None:
        await self._writer.submit(partial(changes.put_registration, me=self._me, registration=registration))

    async def registrations(self, now: float) -> list[Registration]:
        if await self._read(registered.changes, one=True) != self._registered.changes:
            read = await self._read(self._registered.read)
            if read.changes > self._registered.changes:  # else somebody else was faster
                self._registered = read
        return self._registered.at(now)

    async def delete_registration(self, name: str) -> None:
        await self._writer.submit(partial(changes.delete_registration, name=name))

    async def claim(self) -> list[Recovered]:
        return await self._writer.submit(self._claim, long=True)

    def _claim(self, cursor: sqlite3.Cursor) -> list[Recovered]:
        files.sweep(cursor, self._me)
        return changes.claim(cursor, self._me)

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        gone = 0
        for step in retention.steps(older_than, max_bytes, time.time()):
            more = True
            while more:
                removed, more = await self._writer.submit(step, durable=False, long=True)
                gone += removed
        return gone


def _nothing(_: sqlite3.Cursor) -> None:
    """What a flush does: it is there when everything before it is written."""
