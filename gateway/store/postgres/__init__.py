"""A store in PostgreSQL, which several gateways may share.

event loop --append, save, commit--> queue --> one connection     group commit (writer.py)
event loop --read--> a few connections                            after the run's appends are written
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from gateway.core.errors import Unavailable
from gateway.core.types import Run
from gateway.store import Allowance, CreatedRun, LogEntry, Recovered, Registration, RunChange
from gateway.store.engine import StoreEngine
from gateway.store.leases import TTL_SECONDS, HeldLease, identify
from gateway.store.postgres import changes, queries, retention, schema
from gateway.store.postgres.connections import Connection, Server
from gateway.store.postgres.mail import DatabaseMailbox
from gateway.store.postgres.run_writes import NewRun, Transition
from gateway.store.postgres.writer import PostgresWriter
from gateway.store.records import encode

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


class PostgresStore(StoreEngine):
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
        self._server = Server(url)
        self._leases = changes.Leases(me, lease_seconds, ahead)
        self._writer = PostgresWriter(
            self._server,
            me.owner,
            first=schema.migrate,
            beat=self._beat,
            farewell=partial(self._leases.drop, owner=me.owner),
            beat_seconds=lease_seconds / 3,
            fsync=fsync,
        )
        held = HeldLease(lease_seconds)
        super().__init__(me.owner, held, self._writer, queries=queries, changes=changes, retention=retention)
        self.mailbox = DatabaseMailbox(self._server, self.owner, self._leases.is_dead, self._write, self._read)
        self._on_disk = 0
        """The transactions before this one are on the disk, as far as is known here."""
        self._swept = False

    async def open(self) -> None:
        if self._closing is not None:
            raise self._queue.closed()
        try:
            await self._writer.start()
        except Exception as error:
            raise self._server.opening_error(error) from error
        self.mailbox.open()

    async def _close(self) -> None:
        await self.mailbox.close()
        try:
            await self._writer.stop()
        finally:
            await self._server.close()

    async def _beat(self, connection: Connection) -> None:
        with self._held.extending():
            await self._leases.keep(connection, self.mailbox.channel)
        if not self._swept:
            await self._leases.sweep(connection)
            self._swept = True

    async def _write(self, work: Work[T], **how: Any) -> T:
        """Do `work` in the writer's next transaction, as `WriteQueue.submit` has it."""
        return cast(T, await self._queue.submit(work, **how))

    async def _read(self, work: Work[T], run: str | None = None, *, one: bool = False) -> T:
        if not self._queue.usable:
            raise self._queue.closed()
        if run is not None and not self._writer.settled(run):
            await self._write(changes.nothing, run=run, own=True, durable=False)
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
        return await self._write(cast("Work[CreatedRun]", work), run=run.id, soon=soon, own=True)

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        record = None if change.run is None else encode(change.run)
        work = Transition(run_id, change, record, None if change.checkpoint is None else encode(change.checkpoint))
        await self._write(cast("Work[None]", work), run=run_id, soon=soon, own=True)

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

    async def synced(self) -> None:
        """The server shows nothing that is not on its disk."""

    # registrations, allowances, recovery

    async def put_registration(self, registration: Registration) -> None:
        await self._write(partial(changes.put_registration, leases=self._leases, registration=registration))

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        # not in the writer's batch, in which every other process that spends would wait for all of its work
        return await self._read(partial(changes.spend, allowances=allowances))

    async def claim(self) -> list[Recovered]:
        return await self._write(self._leases.claim)
