"""A store in PostgreSQL, which several gateways may share.

event loop --append, save, commit--> queue --> one connection     group commit (writer.py)
event loop --read--> a few connections                            after the run's appends are written
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from gateway.core.errors import Unavailable
from gateway.core.types import Artifact, Checkpoint, Run, RunQuery, Thread, ThreadChange, ThreadQuery
from gateway.store import Allowance, CreatedRun, Delivery, LogEntry, Recovered, Registration, RunChange
from gateway.store.leases import TTL_SECONDS, HeldLease, identify
from gateway.store.postgres import changes, queries, retention, schema
from gateway.store.postgres.connections import Connection, Server
from gateway.store.postgres.mail import DatabaseMailbox
from gateway.store.postgres.run_writes import NewRun, Transition
from gateway.store.postgres.writer import PostgresWriter
from gateway.store.records import RegistrationCache, encode
from gateway.store.uploads import upload

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]


async def probe(url: str) -> None:
    """Connect and look whether this program can use the database; changes nothing. Raises Unavailable."""
    server = Server(url)
    try:
        connection = await server.connect()
        try:
            await schema.version(connection)
        finally:
            await connection.close(timeout=1.0)
    except Exception as error:
        raise server.opening_error(error) from error


class PostgresStore:
    """Implements `gateway.store.Store`, which has the contract of every method, on PostgreSQL.

    `host`, `lease_seconds` and `ahead` are for tests: the name under which the lease is taken, how long it lasts
    without being refreshed, and how many seconds to take the server's clock to be ahead.
    """

    def __init__(
        self,
        url: str,
        *,
        fsync: bool = True,
        host: str | None = None,
        lease_seconds: float = TTL_SECONDS,
        ahead: Callable[[], float] = lambda: 0.0,
    ) -> None:
        me = identify(host)
        self.owner = me.owner
        self._server = Server(url)
        self._leases = changes.Leases(me, lease_seconds, ahead)
        self._held = HeldLease(lease_seconds)
        self._writer = PostgresWriter(
            self._server,
            self.owner,
            first=schema.migrate,
            beat=self._beat,
            farewell=partial(self._leases.drop, owner=self.owner),
            beat_seconds=lease_seconds / 3,
            fsync=fsync,
        )
        self._queue = self._writer.queue
        self.append = self._queue.append
        self.mailbox = DatabaseMailbox(self._server, self.owner, self._leases.is_dead, self._write, self._read)
        self._on_disk = 0
        """The transactions before this one are on the disk, as far as is known here."""
        self._swept = False
        self._registered = RegistrationCache()
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        if self._closing is not None:
            raise self._queue.closed()
        try:
            await self._writer.start()
        except Exception as error:
            raise self._server.opening_error(error) from error
        self.mailbox.open()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # everything is written even if the caller is cancelled

    async def _close(self) -> None:
        await self.mailbox.close()
        try:
            await self._writer.stop()
        finally:
            await self._server.close()

    @property
    def held_since(self) -> float:
        return self._held.since

    @property
    def backlog(self) -> int:
        return self._writer.backlog

    @property
    def trouble(self) -> str:
        return self._writer.trouble

    async def _beat(self, connection: Connection) -> None:
        with self._held.extending():
            await self._leases.keep(connection, self.mailbox.channel)
        if not self._swept:
            await self._leases.sweep(connection)
            self._swept = True

    async def _write(self, work: Work[T], **how: Any) -> T:
        """Do `work` in the writer's next transaction, as `WriteQueue.submit` has it."""
        return cast(T, await self._queue.submit(work, **how))

    async def _read(self, work: Work[T], run: str | None = None) -> T:
        """Read after everything appended for `run`."""
        if not self._queue.usable:
            raise self._queue.closed()
        if run is not None and not self._writer.settled(run):
            await self._write(_nothing, run=run, own=True, durable=False)
        return await self._server.read(work)

    async def lives(self, owner: str) -> bool:
        return not await self._read(partial(self._leases.is_dead, owner=owner))

    async def is_orphaned(self) -> bool:
        return bool(await self._read(self._leases.dead_owners))

    # runs

    async def create_run(
        self,
        run: Run,
        events: Sequence[LogEntry],
        *,
        reserved: int,
        soon: bool = False,
        written: Callable[[CreatedRun], None] | None = None,
    ) -> CreatedRun:
        work = NewRun(run, events, reserved, encode(run))
        return await self._write(cast("Work[CreatedRun]", work), soon=soon, own=True)

    async def activate(self, run_id: str) -> bool:
        return await self._write(partial(changes.activate, owner=self.owner, run_id=run_id))

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        record = None if change.run is None else encode(change.run)
        work = Transition(run_id, change, record, None if change.checkpoint is None else encode(change.checkpoint))
        await self._write(cast("Work[None]", work), run=run_id, soon=soon, own=True)

    def save(self, run: Run, *, soon: bool = False) -> None:
        self._queue.save(run, soon=soon)

    async def flush(self, run_id: str | None = None) -> None:
        if not self._writer.settled(run_id):
            await self._write(_nothing, run=run_id, own=run_id is not None, durable=False)
        elif not self._queue.usable:
            raise self._queue.closed()

    async def run(self, run_id: str) -> Run:
        read = partial(queries.run, run_id=run_id)
        owner, run, written = await self._read(read, run_id)
        before = -1
        while owner != self.owner and written != before and not queries.is_before(written, self._on_disk):
            try:
                self._on_disk = await self._write(queries.over_before, own=True)
            except Unavailable:
                if self._writer.away:
                    raise
                return run  # it has happened, as for whoever watches it at its owner
            before = written
            owner, run, written = await self._read(read, run_id)  # the server may have crashed and forgotten it
        return run

    async def owner_of(self, run_id: str) -> str:
        return await self._read(partial(queries.owner_of, run_id=run_id), run_id)

    async def synced(self) -> None:
        """The server shows nothing that is not on its disk."""

    async def runs(self, query: RunQuery) -> list[Run]:
        return await self._read(partial(queries.runs, query=query))

    async def count_runs(self, query: RunQuery) -> int:
        return await self._read(partial(queries.count_runs, query=query))

    async def delete_run(self, run_id: str) -> None:
        await self._write(partial(changes.delete_run, run_id=run_id), run=run_id)

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[LogEntry]:
        work = partial(queries.events, run_id=run_id, after=after, max_bytes=max_bytes, deltas=deltas)
        return await self._read(work, run_id)

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        await self._write(partial(changes.create_thread, thread=thread, checkpoints=tuple(checkpoints)))

    async def thread(self, thread_id: str) -> Thread:
        return await self._read(partial(queries.thread, thread_id=thread_id))

    async def threads(self, query: ThreadQuery) -> list[Thread]:
        return await self._read(partial(queries.threads, query=query))

    async def count_threads(self, query: ThreadQuery) -> int:
        return await self._read(partial(queries.count_threads, query=query))

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        record = None if checkpoint is None else encode(checkpoint)
        return await self._write(
            partial(
                changes.update_thread, thread_id=thread_id, change=change, checkpoint=checkpoint, record=record, at=at
            )
        )

    async def delete_thread(self, thread_id: str) -> None:
        await self._write(partial(changes.delete_thread, thread_id=thread_id))

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        return await self._read(partial(queries.history, thread_id=thread_id, limit=limit, before=before))

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        return await upload(self._queue, changes.STEPS, artifact, content, owner=self.owner, max_bytes=max_bytes)

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
        await self._write(partial(changes.delivered, delivery_id=delivery_id))

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        await self._write(partial(changes.postpone, delivery_id=delivery_id, due_at=due_at))

    async def put_registration(self, registration: Registration) -> None:
        await self._write(partial(changes.put_registration, leases=self._leases, registration=registration))

    async def registrations(self, now: float) -> list[Registration]:
        if await self._read(queries.registration_changes) != self._registered.changes:
            self._registered = self._registered.newer(*await self._read(queries.registrations))
        return self._registered.at(now)

    async def delete_registration(self, name: str) -> None:
        await self._write(partial(changes.delete_registration, name=name))

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        # not in the writer's batch, in which every other process that spends would wait for all of its work
        return await self._read(partial(changes.spend, allowances=allowances))

    async def claim(self) -> list[Recovered]:
        return await self._write(self._leases.claim)

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        gone = 0
        for step in retention.steps(older_than, max_bytes, time.time()):
            more = True
            while more:
                removed, more = await self._write(step, durable=False)
                gone += removed
        return gone


async def _nothing(_: Connection) -> None:
    """Work of a flush: when it has run, everything before it is written."""
