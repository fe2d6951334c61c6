"""Writes runs, threads, files, webhook deliveries and registrations.

Every function runs in the writer's transaction, checks before it writes, and raises an InterlinguaError.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

import msgspec

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import Artifact, Checkpoint, IfBusy, Run, Thread, ThreadChange, ThreadStatus
from gateway.store import Allowance, CreatedRun, LogEntry, Recovered, Registration, RunChange, TakenOver, suffice
from gateway.store.leases import StoreProcess
from gateway.store.records import (
    ACTIVE,
    NO_CHANGE,
    QUEUED,
    RELEASED,
    ThreadRecord,
    changed_thread,
    decode_artifact,
    decode_registration,
    decode_run,
    decode_thread,
    encode,
    few,
    whose,
)
from gateway.store.searches import COLUMNS
from gateway.store.sqlite import lease, log
from gateway.store.sqlite.queries import owner_of, require, row_of, thread
from gateway.store.sqlite.schema import UNFINISHED
from gateway.store.uploads import UploadSteps
from gateway.store.write_queue import Creation, WriteBehind


def nothing(_: sqlite3.Cursor) -> None:
    """Work of a flush: when it has run, everything before it is written."""


def create_run(
    cursor: sqlite3.Cursor,
    *,
    owner: str,
    run: Run,
    events: Sequence[LogEntry],
    reserved: int,
    record: bytearray,
    head: bytearray | None,
) -> CreatedRun:
    """Implements `Store.create_run`. `record` is the encoded run; `head` are the events where they go into its row."""
    request = run.request
    thread_id = request.thread
    place, found = ACTIVE, None
    if thread_id is not None:
        row = cursor.execute(
            f"SELECT EXISTS (SELECT 1 FROM runs WHERE thread = ? AND place = {ACTIVE}) "
            f"OR EXISTS (SELECT 1 FROM runs WHERE thread = ? AND place = {QUEUED}), "
            f"{COLUMNS['threads']} FROM threads WHERE id = ?",
            (thread_id, thread_id, thread_id),
        ).fetchone()
        if row is None:
            raise NotFound(f"no thread {thread_id}")
        busy, *columns = row
        if busy and request.if_busy is IfBusy.REJECT:
            raise Conflict(f"thread {thread_id} has an active run")
        place, found = (QUEUED, None) if busy else (ACTIVE, decode_thread(*columns))
    if not _add_run(cursor, owner, run, record, place=place, reserved=reserved, head=head):
        raise Conflict(f"run {run.id} exists already")
    if events and head is None:
        assert cursor.lastrowid is not None
        log.write_new(cursor, cursor.lastrowid, events)
    for artifact_id in request.files:
        _claim(cursor, artifact_id, run)
    if thread_id is not None:
        _follow(cursor, thread_id, run)
    return CreatedRun(place == ACTIVE, found)


def create_begun(cursor: sqlite3.Cursor, owner: str, new: Creation) -> None:
    """Give a run that has begun its row. Leaves one alone that has a row: another process has taken it over."""
    _add_run(cursor, owner, new.run, new.record, place=ACTIVE, reserved=new.reserved, head=new.head)


def _add_run(
    cursor: sqlite3.Cursor,
    owner: str,
    run: Run,
    record: bytearray | None,
    *,
    place: int,
    reserved: int,
    head: bytearray | None,
    tail: bytearray | None = None,
) -> bool:
    """Write a run's row. Returns False if there is one with its id."""
    request = run.request
    cursor.execute(
        "INSERT INTO runs (id, owner, place, status, agent, thread, protocol, principal, created_at, updated_at, "
        "reserved, record, head, tail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            run.id,
            owner,
            place,
            str(run.status),
            request.agent,
            request.thread,
            request.protocol,
            request.principal,
            run.created_at,
            run.updated_at,
            reserved,
            record,
            head,
            tail,
        ),
    )
    return cursor.rowcount > 0


def _claim(cursor: sqlite3.Cursor, artifact_id: str, run: Run) -> None:
    """Give a file that was stored for this run to it and its thread."""
    row = cursor.execute(
        "SELECT seq, record FROM artifacts WHERE id = ? AND run IS NULL AND thread IS NULL AND uploader IS NULL",
        (artifact_id,),
    ).fetchone()
    if row is not None:
        kept: Artifact = msgspec.structs.replace(decode_artifact(row[1]), run=run.id, thread=run.thread)
        cursor.execute(
            "UPDATE artifacts SET run = ?, thread = ?, record = ? WHERE seq = ?",
            (run.id, run.thread, encode(kept), row[0]),
        )


def activate(cursor: sqlite3.Cursor, owner: str, run_id: str) -> bool:
    """Implements `Store.activate`. Only its owner starts a run."""
    seq, holder, place, thread = row_of(cursor, "seq, owner, place, thread", "runs", run_id)
    if holder != owner or place != QUEUED:
        return bool(holder == owner and place == ACTIVE)
    (waits,) = cursor.execute(
        f"SELECT EXISTS (SELECT 1 FROM runs WHERE thread = ? AND place = {ACTIVE}) "
        f"OR EXISTS (SELECT 1 FROM runs WHERE thread = ? AND place = {QUEUED} AND seq < ?)",
        (thread, thread, seq),
    ).fetchone()
    if not waits:
        cursor.execute(f"UPDATE runs SET place = {ACTIVE} WHERE seq = ?", (seq,))
    return not waits


def commit(
    cursor: sqlite3.Cursor,
    behind: WriteBehind | None,
    *,
    owner: str,
    run_id: str,
    change: RunChange,
    record: bytearray | None,
    checkpoint: bytearray | None,
) -> None:
    """Implements `Store.commit`. `behind` has the run's held writes; `record` and `checkpoint` are those of `change`,
    encoded.
    """
    run, point = change.run, change.checkpoint
    thread_id = point.thread if point is not None else None if run is None else run.request.thread
    changed: ThreadRecord | None = None
    if thread_id is not None and (point is not None or change.thread is not None):
        changed = _changed_thread(cursor, thread_id, change.thread or NO_CHANGE, point)
    entries = [*(behind.entries if behind is not None else ()), *change.events]
    tail = few(entries) if change.release else None
    new = behind.creation if behind is not None else None
    if new is not None and change.release and run is not None:
        reserved = max(new.reserved, change.reserved or 0)
        found = _add_run(cursor, owner, run, record, place=RELEASED, reserved=reserved, head=new.head, tail=tail)
    else:
        if new is not None:
            create_begun(cursor, owner, new)
        status, at, ended = (None, None, False) if run is None else (str(run.status), run.updated_at, run.status.ended)
        release = change.release
        values = (status, at, record, tail, change.reserved or 0, release, ended, run_id, owner, release)
        found = cursor.execute(_CHANGE, values).rowcount > 0
    if not found:
        if owner_of(cursor, run_id) != owner:
            raise TakenOver(run_id)
        raise Conflict(f"run {run_id} has ended before")
    if behind is not None and behind.record is not None and run is None:  # else it is out of date
        save(cursor, owner, run=behind.record)
    if entries and tail is None:
        log.write(cursor, owner, run_id, entries)
    if changed is not None:
        _write_thread(cursor, changed, point.created_at if point is not None else 0.0, run)
    elif thread_id is not None and run is not None:
        _follow(cursor, thread_id, run)
    if point is not None:
        _add_checkpoint(cursor, point, point.thread, checkpoint)
    if change.delivery is not None:
        owed = change.delivery
        cursor.execute(
            "INSERT INTO deliveries (id, owner, run, due_at, attempts, record) VALUES (?, ?, ?, ?, ?, ?)",
            (owed.id, owner, run_id, owed.due_at, owed.attempts, encode(owed.run)),
        )


# a queued run that has ended waits for nothing; one that has left its thread does not leave it again
_CHANGE = (
    "UPDATE runs SET status = coalesce(?, status), updated_at = coalesce(?, updated_at), "
    "record = coalesce(?, record), tail = coalesce(?, tail), reserved = max(reserved, ?), "
    f"place = CASE WHEN ? OR ? AND place = {QUEUED} THEN {RELEASED} ELSE place END "
    f"WHERE id = ? AND owner = ? AND NOT (? AND place = {RELEASED})"
)


def save(cursor: sqlite3.Cursor, owner: str, run: Run) -> None:
    """Implements `Store.save`. Leaves a run alone that is gone or another owner's by now."""
    cursor.execute(
        "UPDATE runs SET status = ?, updated_at = ?, record = ? WHERE id = ? AND owner = ?",
        (str(run.status), run.updated_at, encode(run), run.id, owner),
    )


def delete_run(cursor: sqlite3.Cursor, run_id: str) -> None:
    remove_run(cursor, row_of(cursor, "seq", "runs", run_id)[0], run_id)


def remove_run(cursor: sqlite3.Cursor, seq: int, run_id: str) -> None:
    """Remove a run and everything that belongs to it alone."""
    log.remove(cursor, seq)
    cursor.execute("DELETE FROM chunks WHERE artifact IN (SELECT seq FROM artifacts WHERE run = ?)", (run_id,))
    cursor.execute("DELETE FROM artifacts WHERE run = ?", (run_id,))
    cursor.execute("DELETE FROM deliveries WHERE run = ?", (run_id,))
    cursor.execute("DELETE FROM runs WHERE seq = ?", (seq,))


def create_thread(cursor: sqlite3.Cursor, thread: Thread, checkpoints: Sequence[Checkpoint]) -> None:
    if cursor.execute("SELECT 1 FROM threads WHERE id = ?", (thread.id,)).fetchone() is not None:
        raise Conflict(f"thread {thread.id} exists already")
    cursor.execute(
        "INSERT INTO threads (id, status, agent, protocol, whose, created_at, updated_at, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            thread.id,
            thread.status.value,
            thread.agent,
            thread.protocol,
            whose(thread.attributes),
            thread.created_at,
            thread.updated_at,
            encode(thread),
        ),
    )
    for checkpoint in checkpoints:
        _add_checkpoint(cursor, checkpoint, thread.id, encode(checkpoint))


def update_thread(
    cursor: sqlite3.Cursor,
    *,
    thread_id: str,
    change: ThreadChange,
    checkpoint: Checkpoint | None,
    record: bytearray | None,
    at: float,
) -> Thread:
    """Implements `Store.update_thread`. `record` is the encoded checkpoint."""
    _write_thread(cursor, _changed_thread(cursor, thread_id, change, checkpoint), at)
    if checkpoint is not None:
        _add_checkpoint(cursor, checkpoint, checkpoint.thread, record)
    return thread(cursor, thread_id)


def _changed_thread(
    cursor: sqlite3.Cursor, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None
) -> ThreadRecord:
    """The record, read in the transaction that writes it, so that no other process writes in between."""
    row = cursor.execute("SELECT record FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id}")
    return changed_thread(row[0], change, checkpoint)


def _write_thread(cursor: sqlite3.Cursor, record: ThreadRecord, at: float, run: Run | None = None) -> None:
    """Write a record, and the status that follows that of `run`, if one has changed."""
    status, at = (None, at) if run is None else (str(ThreadStatus.after(run.status)), max(at, run.updated_at))
    cursor.execute(
        "UPDATE threads SET status = coalesce(?, status), whose = ?, updated_at = max(updated_at, ?), record = ? "
        "WHERE id = ?",
        (status, whose(record.attributes), at, encode(record), record.id),
    )


def _follow(cursor: sqlite3.Cursor, thread_id: str, run: Run) -> None:
    """Set the status of a run's thread: a column, so that the record, which may be large, is not written."""
    status = str(ThreadStatus.after(run.status))
    cursor.execute(
        "UPDATE threads SET status = ?, updated_at = max(updated_at, ?) WHERE id = ? AND status <> ?",
        (status, run.updated_at, thread_id, status),
    )


def _add_checkpoint(cursor: sqlite3.Cursor, checkpoint: Checkpoint, thread_id: str, record: bytearray | None) -> None:
    cursor.execute(
        "INSERT INTO checkpoints (thread, id, created_at, record) VALUES (?, ?, ?, ?)",
        (thread_id, checkpoint.id, checkpoint.created_at, record),
    )


def delete_thread(cursor: sqlite3.Cursor, thread_id: str) -> None:
    require(cursor, "threads", thread_id)
    if cursor.execute(
        "SELECT 1 FROM runs WHERE thread = ? AND place IN (?, ?) LIMIT 1", (thread_id, ACTIVE, QUEUED)
    ).fetchone():
        raise Conflict(f"thread {thread_id} has an active run")
    remove_thread(cursor, thread_id)


def remove_thread(cursor: sqlite3.Cursor, thread_id: str) -> None:
    """Remove a thread with its checkpoints and uploads. Files that runs made stay with the runs."""
    one = "SELECT seq, record FROM runs WHERE thread = ? LIMIT 1"  # the outputs of all may be more than memory holds
    while (row := cursor.execute(one, (thread_id,)).fetchone()) is not None:
        seq, record = row
        run = decode_run(record)
        loose = msgspec.structs.replace(run, request=msgspec.structs.replace(run.request, thread=None))
        cursor.execute("UPDATE runs SET thread = NULL, record = ? WHERE seq = ?", (encode(loose), seq))
    for seq, run_id, record in cursor.execute(
        "SELECT seq, run, record FROM artifacts WHERE thread = ?", (thread_id,)
    ).fetchall():
        if run_id is None:
            remove_artifact(cursor, seq)
        else:
            kept: Artifact = msgspec.structs.replace(decode_artifact(record), thread=None)
            cursor.execute("UPDATE artifacts SET thread = NULL, record = ? WHERE seq = ?", (encode(kept), seq))
    cursor.execute("DELETE FROM checkpoints WHERE thread = ?", (thread_id,))
    cursor.execute("DELETE FROM threads WHERE id = ?", (thread_id,))


def remove_artifact(cursor: sqlite3.Cursor, seq: int) -> None:
    cursor.execute("DELETE FROM chunks WHERE artifact = ?", (seq,))
    cursor.execute("DELETE FROM artifacts WHERE seq = ?", (seq,))


def delivered(cursor: sqlite3.Cursor, delivery_id: str) -> None:
    cursor.execute("DELETE FROM deliveries WHERE id = ?", (delivery_id,))
    if not cursor.rowcount:
        raise NotFound(f"no delivery {delivery_id}")


def postpone(cursor: sqlite3.Cursor, delivery_id: str, due_at: float) -> None:
    cursor.execute("UPDATE deliveries SET due_at = ?, attempts = attempts + 1 WHERE id = ?", (due_at, delivery_id))
    if not cursor.rowcount:
        raise NotFound(f"no delivery {delivery_id}")


def put_registration(cursor: sqlite3.Cursor, me: StoreProcess, registration: Registration) -> None:
    """Implements `Store.put_registration`. If its owner is a store's, a registration ends with that owner's lease."""
    row = cursor.execute(
        "SELECT owner, held, expires_at, EXISTS (SELECT 1 FROM leases WHERE leases.owner = registrations.owner), "
        "record FROM registrations WHERE name = ?",
        (registration.name,),
    ).fetchone()
    ((number,),) = cursor.execute("SELECT value + 1 FROM counters WHERE name = 'registrations'").fetchall()
    if row is not None:
        holder, held, expires_at, leased, record = row
        if held and (expires_at is None or expires_at > time.time()):
            if holder == registration.owner:
                number = decode_registration(record).number
            elif not (leased and lease.is_dead(cursor, holder, me)):
                raise Conflict(f"the name {registration.name!r} is taken")
    cursor.execute(
        "INSERT OR REPLACE INTO registrations (name, owner, held, expires_at, record) VALUES (?, ?, 1, ?, ?)",
        (
            registration.name,
            registration.owner,
            registration.expires_at,
            encode(msgspec.structs.replace(registration, number=number)),
        ),
    )


def delete_registration(cursor: sqlite3.Cursor, name: str) -> None:
    cursor.execute("DELETE FROM registrations WHERE name = ?", (name,))
    if not cursor.rowcount:
        raise NotFound(f"no registration {name}")


def spend(cursor: sqlite3.Cursor, allowances: Sequence[Allowance]) -> list[int]:
    """Implements `Store.spend`. What is over is forgotten when something new is spent."""
    known = [cursor.execute("SELECT used FROM allowances WHERE name = ?", (one.name,)).fetchone() for one in allowances]
    used = [max(one.used, row[0] if row else 0) for one, row in zip(allowances, known, strict=True)]
    if suffice(allowances, used):
        if None in known:
            cursor.execute("DELETE FROM allowances WHERE until <= ?", (time.time(),))
        cursor.executemany(
            "INSERT OR REPLACE INTO allowances (name, used, until) VALUES (?, ?, ?)",
            [(one.name, before + one.amount, one.until) for one, before in zip(allowances, used, strict=True)],
        )
    return used


def dead_owners(cursor: sqlite3.Cursor, me: StoreProcess) -> list[str]:
    """Dead owners that left something to claim, if only a lease."""
    owners = cursor.execute(
        f"SELECT owner FROM runs WHERE {UNFINISHED} UNION SELECT owner FROM deliveries "
        f"UNION SELECT owner FROM leases UNION SELECT owner FROM runs WHERE place = {ACTIVE} AND thread IS NOT NULL"
    ).fetchall()
    return [owner for (owner,) in owners if lease.is_dead(cursor, owner, me)]


def claim(cursor: sqlite3.Cursor, me: StoreProcess) -> list[Recovered]:
    recovered: list[tuple[int, Recovered]] = []
    for owner in dead_owners(cursor, me):
        for seq, reserved, record in cursor.execute(
            f"SELECT seq, reserved, record FROM runs WHERE owner = ? AND {UNFINISHED}", (owner,)
        ).fetchall():
            recovered.append((seq, Recovered(run=decode_run(record), reserved=reserved)))
        cursor.execute(f"UPDATE runs SET owner = ? WHERE owner = ? AND {UNFINISHED}", (me.owner, owner))
        # ended, but killed before it left its thread
        cursor.execute(
            f"UPDATE runs SET place = {RELEASED} WHERE owner = ? AND place = {ACTIVE} AND thread IS NOT NULL", (owner,)
        )
        cursor.execute("UPDATE deliveries SET owner = ? WHERE owner = ?", (me.owner, owner))
        lease.drop(cursor, owner)
    return [one for _, one in sorted(recovered, key=lambda pair: pair[0])]


# --- uploads


def _begin(cursor: sqlite3.Cursor, *, owner: str, artifact: Artifact) -> int:
    """Create the record of a file that `owner` uploads. Returns its `seq`."""
    if artifact.run is not None:
        require(cursor, "runs", artifact.run)
    if artifact.thread is not None:
        require(cursor, "threads", artifact.thread)
    if cursor.execute("SELECT 1 FROM artifacts WHERE id = ?", (artifact.id,)).fetchone() is not None:
        raise Conflict(f"artifact {artifact.id} exists already")
    cursor.execute(
        "INSERT INTO artifacts (id, run, thread, uploader, created_at, record) VALUES (?, ?, ?, ?, ?, ?)",
        (artifact.id, artifact.run, artifact.thread, owner, artifact.created_at, encode(artifact)),
    )
    seq = cursor.lastrowid
    assert seq is not None
    return seq


def _add(cursor: sqlite3.Cursor, *, seq: int, artifact_id: str, number: int, data: bytes) -> None:
    cursor.execute(
        "INSERT INTO chunks (artifact, number, data) SELECT seq, ?, ? FROM artifacts WHERE seq = ? AND id = ?",
        (number, data, seq, artifact_id),
    )
    if not cursor.rowcount:
        raise NotFound(f"artifact {artifact_id} was removed while it was uploaded")


def _finish(cursor: sqlite3.Cursor, *, seq: int, artifact: Artifact) -> None:
    cursor.execute(
        "UPDATE artifacts SET uploader = NULL, record = ? WHERE seq = ? AND id = ?",
        (encode(artifact), seq, artifact.id),
    )
    if not cursor.rowcount:
        raise NotFound(f"artifact {artifact.id} was removed while it was uploaded")


def _give_up(cursor: sqlite3.Cursor, *, seq: int, artifact_id: str) -> None:
    if cursor.execute(
        "SELECT 1 FROM artifacts WHERE seq = ? AND id = ? AND uploader IS NOT NULL", (seq, artifact_id)
    ).fetchone():
        remove_artifact(cursor, seq)


STEPS = UploadSteps(_begin, _add, _finish, _give_up)


def sweep(cursor: sqlite3.Cursor, me: StoreProcess) -> None:
    """Remove unfinished uploads of dead processes."""
    unfinished = cursor.execute("SELECT seq, uploader FROM artifacts WHERE uploader IS NOT NULL").fetchall()
    dead = {owner: lease.is_dead(cursor, owner, me) for owner in {owner for _, owner in unfinished}}
    for seq, owner in unfinished:
        if dead[owner]:
            remove_artifact(cursor, seq)
