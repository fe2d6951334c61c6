"""Writes threads, files, webhook deliveries, registrations and leases, one at a time, and claims runs.

Every function but `spend` runs in the writer's transaction. It checks before it writes: an InterlinguaError that it
raises has written nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import Artifact, Checkpoint, Run, Thread, ThreadChange
from gateway.store import Allowance, Recovered, Registration, suffice
from gateway.store.leases import StoreProcess, has_died
from gateway.store.postgres import queries
from gateway.store.postgres.connections import Connection, fetch, text
from gateway.store.postgres.schema import CLAIMING, LOCK, UNFINISHED
from gateway.store.records import (
    ACTIVE,
    QUEUED,
    RELEASED,
    changed_thread,
    decode_artifact,
    decode_registration,
    decode_run,
    encode,
    whose,
)
from gateway.store.uploads import UploadSteps

SPEND_SECONDS = 4
"""How long a process may keep others from spending."""


async def nothing(_: Connection) -> None:
    """Work of a flush: when it has run, everything before it is written."""


async def activate(connection: Connection, owner: str, run_id: str) -> bool:
    """Implements `Store.activate`. Only its owner starts a run."""
    (thread,) = await queries.row_of(connection, "thread", "runs", run_id)
    if thread is not None:  # whoever else starts one on this thread waits here
        await fetch(connection, "SELECT 1 FROM interlingua.threads WHERE id = $1 FOR UPDATE", thread)
    rows = await fetch(
        connection,
        "SELECT seq, owner, place, "
        f"EXISTS (SELECT 1 FROM interlingua.runs o WHERE o.thread = $2 AND o.place = {ACTIVE}) "
        f"OR EXISTS (SELECT 1 FROM interlingua.runs o WHERE o.thread = $2 AND o.place = {QUEUED} "
        "AND o.seq < r.seq) AS waits FROM interlingua.runs r WHERE id = $1",
        run_id,
        thread,
    )
    if not rows:
        raise NotFound(f"no run {run_id}")
    seq, holder, place, waits = rows[0]
    if holder != owner or place != QUEUED:
        return bool(holder == owner and place == ACTIVE)
    if not waits:
        await fetch(connection, f"UPDATE interlingua.runs SET place = {ACTIVE} WHERE seq = $1", seq)
    return not waits


async def delete_run(connection: Connection, run_id: str) -> None:
    await remove_runs(connection, [await queries.row_of(connection, "seq, id", "runs", run_id, " FOR UPDATE")])


async def remove_runs(connection: Connection, rows: Sequence[Any]) -> None:
    """Remove runs, given `seq` and `id`, and everything that belongs to them alone."""
    seqs, ids = [row["seq"] for row in rows], [row["id"] for row in rows]
    await fetch(connection, "DELETE FROM interlingua.log WHERE run = ANY($1::bigint[])", seqs)
    files = await fetch(connection, "DELETE FROM interlingua.artifacts WHERE run = ANY($1::text[]) RETURNING seq", ids)
    if files:
        await _remove_content(connection, [row["seq"] for row in files])
    await fetch(connection, "DELETE FROM interlingua.deliveries WHERE run = ANY($1::text[])", ids)
    await fetch(connection, "DELETE FROM interlingua.runs WHERE seq = ANY($1::bigint[])", seqs)


async def _remove_content(connection: Connection, seqs: Sequence[int]) -> None:
    await fetch(connection, "DELETE FROM interlingua.chunks WHERE artifact = ANY($1::bigint[])", seqs)


async def remove_artifacts(connection: Connection, seqs: Sequence[int]) -> None:
    await _remove_content(connection, seqs)
    await fetch(connection, "DELETE FROM interlingua.artifacts WHERE seq = ANY($1::bigint[])", seqs)


# --- threads


async def create_thread(connection: Connection, thread: Thread, checkpoints: Sequence[Checkpoint]) -> None:
    record = encode(thread)
    created = await fetch(
        connection,
        "INSERT INTO interlingua.threads (id, status, agent, protocol, whose, created_at, updated_at, bytes, record) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING RETURNING seq",
        thread.id,
        thread.status.value,
        thread.agent,
        thread.protocol,
        whose(thread.attributes),
        thread.created_at,
        thread.updated_at,
        len(record),
        record,
    )
    if not created:
        raise Conflict(f"thread {thread.id} exists already")
    for point in checkpoints:
        await add_checkpoint(connection, thread.id, point, encode(point))


async def update_thread(
    connection: Connection,
    thread_id: str,
    change: ThreadChange,
    checkpoint: Checkpoint | None,
    *,
    record: bytearray | None,
    at: float,
) -> Thread:
    await change_thread(connection, thread_id, change, checkpoint, at)
    if checkpoint is not None:
        await add_checkpoint(connection, checkpoint.thread, checkpoint, record)
    return await queries.thread(connection, thread_id)


async def change_thread(
    connection: Connection, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None, at: float
) -> None:
    """Lock, read, change and write the record, so that no other process writes in between."""
    (before,) = await queries.row_of(connection, "record", "threads", thread_id, " FOR UPDATE")
    changed = changed_thread(before, change, checkpoint)
    record = encode(changed)
    await fetch(
        connection,
        "UPDATE interlingua.threads SET whose = $2, updated_at = greatest(updated_at, $3), record = $4, "
        "bytes = bytes + $5 WHERE id = $1",
        thread_id,
        whose(changed.attributes),
        at,
        record,
        len(record) - len(before),
    )


async def add_checkpoint(
    connection: Connection, thread_id: str, point: Checkpoint, record: bytes | bytearray | None
) -> None:
    assert record is not None
    await fetch(
        connection,
        "INSERT INTO interlingua.checkpoints (thread, id, created_at, record) VALUES ($1, $2, $3, $4)",
        thread_id,
        point.id,
        point.created_at,
        record,
    )
    sql = "UPDATE interlingua.threads SET bytes = bytes + $2 WHERE id = $1"
    await fetch(connection, sql, thread_id, len(record))


async def delete_thread(connection: Connection, thread_id: str) -> None:
    await queries.row_of(connection, "1", "threads", thread_id, " FOR UPDATE")
    used = f"SELECT 1 FROM interlingua.runs WHERE thread = $1 AND place IN ({ACTIVE}, {QUEUED}) LIMIT 1"
    if await fetch(connection, used, thread_id):
        raise Conflict(f"thread {thread_id} has an active run")
    await remove_thread(connection, thread_id)


async def remove_thread(connection: Connection, thread_id: str) -> None:
    """Remove a thread with its checkpoints and uploads. Files that runs made stay with the runs."""
    for seq, record in await fetch(
        connection, "SELECT seq, record FROM interlingua.runs WHERE thread = $1 FOR UPDATE", thread_id
    ):
        run = decode_run(record)
        loose = replace(run, request=replace(run.request, thread=None))
        sql = "UPDATE interlingua.runs SET thread = NULL, record = $2 WHERE seq = $1"
        await fetch(connection, sql, seq, encode(loose))
    for seq, run_id, record in await fetch(
        connection, "SELECT seq, run, record FROM interlingua.artifacts WHERE thread = $1", thread_id
    ):
        if run_id is None:
            await remove_artifacts(connection, [seq])
        else:
            kept: Artifact = replace(decode_artifact(record), thread=None)
            sql = "UPDATE interlingua.artifacts SET thread = NULL, record = $2 WHERE seq = $1"
            await fetch(connection, sql, seq, encode(kept))
    await fetch(connection, "DELETE FROM interlingua.checkpoints WHERE thread = $1", thread_id)
    await fetch(connection, "DELETE FROM interlingua.threads WHERE id = $1", thread_id)


# --- files


async def claim_file(connection: Connection, artifact_id: str, run: Run) -> None:
    """Give a file that was stored for this run to it and its thread."""
    rows = await fetch(
        connection,
        "SELECT seq, record FROM interlingua.artifacts WHERE id = $1 AND run IS NULL AND thread IS NULL "
        "AND uploader IS NULL FOR UPDATE",
        artifact_id,
    )
    for seq, record in rows:
        kept: Artifact = replace(decode_artifact(record), run=run.id, thread=run.thread)
        sql = "UPDATE interlingua.artifacts SET run = $2, thread = $3, record = $4 WHERE seq = $1"
        await fetch(connection, sql, seq, run.id, run.thread, encode(kept))


async def _begin(connection: Connection, *, owner: str, artifact: Artifact) -> int:
    if artifact.run is not None:
        await queries.require(connection, "runs", artifact.run)
    if artifact.thread is not None:
        await queries.require(connection, "threads", artifact.thread)
    rows = await fetch(
        connection,
        "INSERT INTO interlingua.artifacts (id, run, thread, uploader, created_at, bytes, record) "
        "VALUES ($1, $2, $3, $4, $5, 0, $6) ON CONFLICT (id) DO NOTHING RETURNING seq",
        artifact.id,
        artifact.run,
        artifact.thread,
        owner,
        artifact.created_at,
        encode(artifact),
    )
    if not rows:
        raise Conflict(f"artifact {artifact.id} exists already")
    return int(rows[0]["seq"])


async def _add(connection: Connection, *, seq: int, artifact_id: str, number: int, data: bytes) -> None:
    locked = "SELECT 1 FROM interlingua.artifacts WHERE seq = $1 AND id = $2 FOR UPDATE"
    if not await fetch(connection, locked, seq, artifact_id):
        raise NotFound(f"artifact {artifact_id} was removed while it was uploaded")
    sql = "INSERT INTO interlingua.chunks (artifact, number, data) VALUES ($1, $2, $3)"
    await fetch(connection, sql, seq, number, data)


async def _finish(connection: Connection, *, seq: int, artifact: Artifact) -> None:
    rows = await fetch(
        connection,
        "UPDATE interlingua.artifacts SET uploader = NULL, bytes = $3, record = $4 WHERE seq = $1 AND id = $2 "
        "RETURNING seq",
        seq,
        artifact.id,
        artifact.size,
        encode(artifact),
    )
    if not rows:
        raise NotFound(f"artifact {artifact.id} was removed while it was uploaded")


async def _give_up(connection: Connection, *, seq: int, artifact_id: str) -> None:
    unfinished = "SELECT 1 FROM interlingua.artifacts WHERE seq = $1 AND id = $2 AND uploader IS NOT NULL FOR UPDATE"
    if await fetch(connection, unfinished, seq, artifact_id):
        await remove_artifacts(connection, [seq])


STEPS = UploadSteps(_begin, _add, _finish, _give_up)


# --- deliveries and registrations


async def delivered(connection: Connection, delivery_id: str) -> None:
    if not await fetch(connection, "DELETE FROM interlingua.deliveries WHERE id = $1 RETURNING seq", delivery_id):
        raise NotFound(f"no delivery {delivery_id}")


async def postpone(connection: Connection, delivery_id: str, due_at: float) -> None:
    sql = "UPDATE interlingua.deliveries SET due_at = $2, attempts = attempts + 1 WHERE id = $1 RETURNING seq"
    if not await fetch(connection, sql, delivery_id, due_at):
        raise NotFound(f"no delivery {delivery_id}")


async def put_registration(connection: Connection, leases: Leases, registration: Registration) -> None:
    """Implements `Store.put_registration`. If its owner is a store's, a registration ends with that owner's lease."""
    number = await _lock_registrations(connection) + 1
    rows = await fetch(
        connection,
        "SELECT owner, held, expires_at, record FROM interlingua.registrations WHERE name = $1",
        registration.name,
    )
    if rows:
        holder, held, expires_at, record = rows[0]
        if held and (expires_at is None or expires_at > time.time()):
            if holder == registration.owner:
                number = decode_registration(record).number
            else:
                leased = await fetch(connection, "SELECT 1 FROM interlingua.leases WHERE owner = $1", holder)
                if not (leased and await leases.is_dead(connection, holder)):
                    raise Conflict(f"the name {registration.name!r} is taken")
    await fetch(
        connection,
        "INSERT INTO interlingua.registrations (name, owner, held, expires_at, record) VALUES ($1, $2, true, $3, $4) "
        "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, held = true, expires_at = excluded.expires_at, "
        "record = excluded.record",
        registration.name,
        registration.owner,
        registration.expires_at,
        encode(replace(registration, number=number)),
    )
    await _count_registrations(connection)


async def delete_registration(connection: Connection, name: str) -> None:
    await _lock_registrations(connection)
    if not await fetch(connection, "DELETE FROM interlingua.registrations WHERE name = $1 RETURNING name", name):
        raise NotFound(f"no registration {name}")
    await _count_registrations(connection)


async def remove_expired(connection: Connection, now: float) -> None:
    await _lock_registrations(connection)
    if await fetch(connection, "DELETE FROM interlingua.registrations WHERE expires_at <= $1 RETURNING name", now):
        await _count_registrations(connection)


async def _lock_registrations(connection: Connection) -> int:
    """Whoever else writes registrations waits for this transaction. Returns how often they were written before."""
    rows = await fetch(connection, "SELECT value FROM interlingua.counters WHERE name = 'registrations' FOR UPDATE")
    return int(rows[0]["value"])


async def _count_registrations(connection: Connection) -> None:
    await fetch(connection, "UPDATE interlingua.counters SET value = value + 1 WHERE name = 'registrations'")


# --- allowances


async def spend(connection: Connection, allowances: Sequence[Allowance]) -> list[int]:
    """Implements `Store.spend`, in a transaction of its own. What is over is forgotten when something new is spent."""
    names, amounts = [one.name for one in allowances], [one.amount for one in allowances]
    async with connection.transaction():
        # so that a process that hangs keeps the rows from others no longer than that
        await connection.execute(
            f"SET LOCAL lock_timeout = '{SPEND_SECONDS}s'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{SPEND_SECONDS}s'"
        )
        rows = await fetch(  # in the order of their names, so that nobody waits in a circle
            connection,
            "INSERT INTO interlingua.allowances AS known (name, used, until) SELECT * FROM "
            "unnest($1::text[], $2::bigint[], $3::float8[]) AS wanted (name, used, until) ORDER BY name "
            "ON CONFLICT (name) DO UPDATE SET used = greatest(known.used, excluded.used), until = excluded.until "
            "RETURNING name, used, xmax = 0 AS new",
            names,
            [one.used for one in allowances],
            [one.until for one in allowances],
        )
        known: dict[str, int] = {row["name"]: row["used"] for row in rows}
        used = [known[text(name)] for name in names]
        if suffice(allowances, used):
            await fetch(
                connection,
                "UPDATE interlingua.allowances known SET used = known.used + wanted.amount "
                "FROM unnest($1::text[], $2::bigint[]) AS wanted (name, amount) WHERE known.name = wanted.name",
                names,
                amounts,
            )
        if any(row["new"] for row in rows):
            await fetch(
                connection,
                "DELETE FROM interlingua.allowances WHERE name IN (SELECT name FROM interlingua.allowances "
                "WHERE until <= extract(epoch FROM clock_timestamp())::float8 AND name <> ALL ($1::text[]) "
                "FOR UPDATE SKIP LOCKED)",
                names,
            )
    return used


# --- leases and what dead processes leave


class Leases:
    """The lease of this process, and whether others are alive. Leases run out by the server's clock."""

    def __init__(self, me: StoreProcess, seconds: float, ahead: Callable[[], float]) -> None:
        """`ahead`: how many seconds to take the server's clock to be ahead, for tests."""
        self._me = me
        self._seconds = seconds
        self._ahead = ahead

    async def keep(self, connection: Connection, bell: str) -> None:
        """Take the lease or extend it. `bell` is where this process hears of its mail: see mail.py."""
        await fetch(
            connection,
            "INSERT INTO interlingua.leases (owner, host, pid, started, expires_at, expires_tick, bell) "
            "VALUES ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5), $6, $7) "
            "ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at, "
            "expires_tick = excluded.expires_tick, bell = excluded.bell",
            self._me.owner,
            self._me.host,
            self._me.pid,
            self._me.started,
            self._seconds,
            time.monotonic() + self._seconds,
            bell,
        )

    async def drop(self, connection: Connection, owner: str) -> None:
        """End an owner's lease, with the mail that it has not read. Others may then register the names that it had."""
        await fetch(connection, "DELETE FROM interlingua.leases WHERE owner = $1", owner)
        await fetch(connection, "DELETE FROM interlingua.mail WHERE recipient = $1", owner)
        await fetch(connection, "UPDATE interlingua.registrations SET held = false WHERE owner = $1 AND held", owner)

    async def is_dead(self, connection: Connection, owner: str) -> bool:
        """True if `owner` has no lease, its lease has run out, or it is a process of this host that is gone."""
        if owner == self._me.owner:
            return False
        rows = await fetch(
            connection,
            "SELECT host, pid, started, expires_tick, "
            "expires_at < clock_timestamp() + make_interval(secs => $2) AS run_out "
            "FROM interlingua.leases WHERE owner = $1",
            owner,
            self._ahead(),
        )
        if not rows:
            return True
        row = rows[0]
        return has_died(
            self._me,
            row["host"],
            row["pid"],
            row["started"],
            run_out=row["run_out"],
            stood_still=row["expires_tick"] >= time.monotonic(),
        )

    async def sweep(self, connection: Connection) -> None:
        """Remove unfinished uploads of dead processes."""
        sql = "SELECT seq, uploader FROM interlingua.artifacts WHERE uploader IS NOT NULL"
        unfinished = await fetch(connection, sql)
        dead = {owner: await self.is_dead(connection, owner) for owner in {row["uploader"] for row in unfinished}}
        if left := [row["seq"] for row in unfinished if dead[row["uploader"]]]:
            await remove_artifacts(connection, left)

    async def dead_owners(self, connection: Connection) -> list[str]:
        """Dead owners that left something to claim, if only a lease."""
        owners = await fetch(
            connection,
            f"SELECT owner FROM interlingua.runs WHERE {UNFINISHED} UNION SELECT owner FROM interlingua.deliveries "
            "UNION SELECT owner FROM interlingua.leases "
            f"UNION SELECT owner FROM interlingua.runs WHERE place = {ACTIVE} AND thread IS NOT NULL",
        )
        return [owner for (owner,) in owners if await self.is_dead(connection, owner)]

    async def claim(self, connection: Connection) -> list[Recovered]:
        """Implements `Store.claim`. Two processes claim in turn."""
        await fetch(connection, f"SELECT pg_advisory_xact_lock({LOCK}, {CLAIMING})")
        await self.sweep(connection)
        recovered: list[tuple[int, Recovered]] = []
        for owner in await self.dead_owners(connection):
            await fetch(connection, "SELECT 1 FROM interlingua.leases WHERE owner = $1 FOR UPDATE", owner)
            if not await self.is_dead(connection, owner):
                continue  # it has extended its lease meanwhile, and from then on its runs are its own
            for seq, reserved, record in await fetch(
                connection,
                f"UPDATE interlingua.runs SET owner = $2 WHERE owner = $1 AND {UNFINISHED} "
                "RETURNING seq, reserved, record",
                owner,
                self._me.owner,
            ):
                recovered.append((seq, Recovered(run=decode_run(record), reserved=reserved)))
            # ended, but killed before it left its thread
            await fetch(
                connection,
                f"UPDATE interlingua.runs SET place = {RELEASED} WHERE owner = $1 AND place = {ACTIVE} "
                "AND thread IS NOT NULL",
                owner,
            )
            sql = "UPDATE interlingua.deliveries SET owner = $2 WHERE owner = $1"
            await fetch(connection, sql, owner, self._me.owner)
            await self.drop(connection, owner)
        return [one for _, one in sorted(recovered, key=lambda pair: pair[0])]
