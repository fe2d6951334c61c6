"""Writes many runs at once: new ones, transitions, appends and saves, each kind in one statement for all of them.

A batch costs a handful of statements, however many runs it has. What several pieces of a batch want of the same run or
thread is done in their order: `admits` says when the group has to be written first. Text, and runs that have no thread,
are one statement, which is a transaction by itself: `at_once`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import asyncpg

from gateway.core.errors import Conflict, InterlinguaError, NotFound
from gateway.core.types import IfBusy, Run, Thread, ThreadStatus
from gateway.store import CreatedRun, LogEntry, RunChange, TakenOver
from gateway.store.log_rows import Row, pack
from gateway.store.postgres.changes import add_checkpoint, change_thread, claim_file
from gateway.store.postgres.connections import Connection, fetch, text
from gateway.store.records import (
    ACTIVE,
    NO_CHANGE,
    QUEUED,
    RELEASED,
    decode_thread,
    encode,
    few,
    size_of,
)
from gateway.store.write_queue import WriteBehind, WriteJob


@dataclass(frozen=True)
class NewRun:
    """The work of `Store.create_run`."""

    run: Run
    events: Sequence[LogEntry]
    reserved: int
    record: bytearray


@dataclass(frozen=True)
class Transition:
    """The work of `Store.commit`. `overrules`: a write that was told as failed may have ended the run."""

    run: str
    change: RunChange
    record: bytearray | None = None
    checkpoint: bytearray | None = None
    overrules: bool = False

    @property
    def threads(self) -> Iterable[str]:
        if self.change.run is not None and self.change.run.thread is not None:
            yield self.change.run.thread
        if self.change.checkpoint is not None:
            yield self.change.checkpoint.thread


class RowsSql(NamedTuple):
    """A statement that takes rows, whose columns are parameters: an array each. In its text `{rows}` are the rows,
    `{names}` those of their columns, `{ids}` is the first column, and the owner is `$1`.
    """

    columns: str
    text: str


class Statement(NamedTuple):
    """A statement with the values of its columns."""

    sql: RowsSql
    arguments: Sequence[Any]


class AtOnce(NamedTuple):
    """A transaction in one statement. It writes all or nothing, so how its jobs end is known before it is sent."""

    statements: Sequence[Statement]
    rows: int
    """How many rows the statements that return some have to return."""

    async def write(self, connection: Connection, owner: str, number: int, *, durable: bool) -> bool:
        """Write it with its number in the lease. Returns False, with nothing written, if something does not fit, or if
        a higher number is in the lease.
        """
        sql = _joined(tuple([one.sql for one in self.statements]), durable=durable)
        arguments = chain.from_iterable([one.arguments for one in self.statements])
        try:
            await fetch(connection, sql, owner, number, self.rows + 1, *arguments)
        except asyncpg.DivisionByZeroError:
            return False
        return True


@cache
def _numbered(sql: RowsSql, first: int) -> str:
    """The text of a statement whose columns are parameters from a number on."""
    names, kinds = zip(*(column.split() for column in sql.columns.split(", ")), strict=True)
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, first))
    among = ", ".join(names)
    return sql.text.format(rows=f"unnest({arrays}) u ({among})", names=among, ids=f"${first}")


@cache
def _joined(statements: tuple[RowsSql, ...], *, durable: bool) -> str:
    """One statement for several: `WITH lease AS (UPDATE ...), part0 AS (INSERT ...) SELECT ...`. It divides by zero,
    which undoes all of it, unless those that return rows return as many as `$3` says, the lease's among them.
    """
    sync = "" if durable else " AND set_config('synchronous_commit', 'off', true) = 'off'"
    parts = [f"lease AS (UPDATE interlingua.leases SET batch = $2 WHERE owner = $1 AND batch < $2{sync} RETURNING 1)"]
    first = 4
    for at, sql in enumerate(statements):
        parts.append(f"part{at} AS ({_numbered(sql, first)})")
        first += sql.columns.count(",") + 1
    counts = [f"(SELECT count(*) FROM {part.split()[0]})" for part in parts if " RETURNING " in part]
    return f"WITH {', '.join(parts)} SELECT 1 / ({' + '.join(counts)} = $3)::int"


class RunWrites:
    """A group of writes to runs of one owner. Write it once, then make another."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._new: list[tuple[WriteJob, NewRun]] = []
        self._changes: list[tuple[WriteJob, Transition, list[WriteBehind]]] = []
        self._behind: dict[str, list[WriteBehind]] = {}
        self._runs: set[str] = set()
        self._threads: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._new or self._changes or self._behind)

    def admits(self, work: NewRun | Transition | WriteBehind) -> bool:
        """Whether the work may be done together with what is here."""
        if isinstance(work, NewRun):
            return work.run.id not in self._runs and (work.run.thread is None or work.run.thread not in self._threads)
        if isinstance(work, Transition):
            return work.run not in self._runs
        return work.record is None or work.run not in self._runs

    def add(self, job: WriteJob, work: NewRun | Transition) -> None:
        if isinstance(work, NewRun):
            self._new.append((job, work))
            self._runs.add(work.run.id)
            return
        self._changes.append((job, work, self._behind.pop(work.run, [])))
        self._runs.add(work.run)
        self._threads.update(work.threads)

    def add_behind(self, held: WriteBehind) -> None:
        self._behind.setdefault(held.run, []).append(held)

    def at_once(self) -> AtOnce | None:
        """What writes all of it if nothing is in its way. None if it takes more: threads, files, webhooks, a run whose
        row would be written twice.
        """
        if self._threads or any(new.run.thread is not None or new.run.request.files for _, new in self._new):
            return None
        if any(
            work.change.delivery is not None or (work.change.run is None and _records(behind))
            for _, work, behind in self._changes
        ):
            return None
        new = [(job, work, ACTIVE, few(work.events)) for job, work in self._new]
        if any((head is None and work.events) or work.run.id in self._behind for _, work, _, head in new):
            return None  # rows of a log are not added to runs that are not there yet
        behind = list(chain.from_iterable(self._behind.values()))
        rows = [(held.run, row) for held in behind for row in pack(held.entries)]
        statements: list[Statement] = []
        if new:
            statements.append(_insertion(new))
        if saved := _records(behind):
            statements.append(_saving(saved))
        if self._changes:
            change, entries = _changing(self._changes)
            statements.append(change)
            rows += [(run, row) for run, said in entries.items() for row in pack(said)]
        if rows:
            statements.append(_logging(rows))
        for job, _ in self._new:
            job.ends(CreatedRun(True))
        for job, _, _ in self._changes:
            job.ends(None)
        return AtOnce(statements, len(self._new) + len(self._changes))

    async def write(self, connection: Connection) -> None:
        """Write all of it. Raises what the server says: then nothing may be kept of the transaction."""
        known = await self._lock_threads(connection)
        rows: list[tuple[str, Row]] = []
        statuses: dict[str, Run] = {}
        if self._new:
            await self._create(connection, known, rows, statuses)
        fit: list[tuple[WriteJob, Transition, list[WriteBehind]]] = []
        for job, work, behind in self._changes:
            point = work.change.checkpoint
            if point is not None and point.thread not in known:
                job.ends(None, NotFound(f"no thread {point.thread}"))
                self._behind[work.run] = [*behind, *self._behind.get(work.run, ())]
            else:
                fit.append((job, work, behind))
        # a change that writes the record itself puts a held one out of date
        joined = [behind for _, work, behind in fit if work.change.run is None]
        if saved := _records(chain.from_iterable([*self._behind.values(), *joined])):
            await self._do(connection, _saving(saved))
        done = await self._change(connection, fit, rows) if fit else []
        for held in chain.from_iterable(self._behind.values()):
            rows += [(held.run, row) for row in pack(held.entries)]
        if rows:
            await self._do(connection, _logging(rows))
        statuses.update({run.thread: run for work in done if (run := work.change.run) and run.thread is not None})
        if statuses:
            await self._follow(connection, statuses)
        if done:
            await self._change_threads(connection, done)
            await self._owe(connection, done)

    async def _lock_threads(self, connection: Connection) -> Locked:
        """Lock the threads, in the order of their ids: two processes that lock several never wait for each other."""
        new = {new.run.thread for _, new in self._new if new.run.thread is not None}
        wanted = new | self._threads
        if not wanted:
            return {}
        sql = (
            "SELECT id, CASE WHEN id = ANY($2::text[]) THEN record END, status, updated_at FROM interlingua.threads "
            "WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
        )
        rows = await fetch(connection, sql, list(wanted), list(new))
        locked = {row[0]: None if row[1] is None else decode_thread(*row[1:]) for row in rows}
        return {thread: locked[name] for thread in wanted if (name := text(thread)) in locked}

    async def _create(
        self, connection: Connection, known: Locked, rows: list[tuple[str, Row]], statuses: dict[str, Run]
    ) -> None:
        asked = [new.run.thread for _, new in self._new if new.run.thread is not None]
        busy: set[str] = set()
        if asked:
            sql = (
                f"SELECT thread FROM interlingua.runs WHERE thread = ANY($1::text[]) AND place = {ACTIVE} UNION "
                f"SELECT thread FROM interlingua.runs WHERE thread = ANY($1::text[]) AND place = {QUEUED}"
            )
            there = {row[0] for row in await fetch(connection, sql, asked)}
            busy = {thread for thread in asked if text(thread) in there}
        fit: list[tuple[WriteJob, NewRun, int, bytearray | None]] = []
        for job, new in self._new:
            thread = new.run.thread
            place = ACTIVE
            if thread is not None:
                if thread not in known:
                    job.ends(None, NotFound(f"no thread {thread}"))
                    continue
                if thread in busy and new.run.request.if_busy is IfBusy.REJECT:
                    job.ends(None, Conflict(f"thread {thread} has an active run"))
                    continue
                place = QUEUED if thread in busy else ACTIVE
                busy.add(thread)
            fit.append((job, new, place, few(new.events)))
        created = {row[0] for row in await self._do(connection, _insertion(fit))} if fit else set()
        for job, new, place, head in fit:
            if text(new.run.id) not in created:
                job.ends(None, Conflict("this id exists already", detail=new.run.id))
                continue
            found = known.get(new.run.thread) if place == ACTIVE else None
            job.ends(CreatedRun(place == ACTIVE, found))
            if head is None:
                rows += [(new.run.id, row) for row in pack(new.events)]
            if new.run.thread is not None:
                statuses[new.run.thread] = new.run
            for artifact in new.run.request.files:
                await claim_file(connection, artifact, new.run)

    async def _change(
        self,
        connection: Connection,
        changes: Sequence[tuple[WriteJob, Transition, list[WriteBehind]]],
        rows: list[tuple[str, Row]],
    ) -> list[Transition]:
        """Update the runs. Returns the work that was done; the rest ends with Conflict or NotFound."""
        change, entries = _changing(changes)
        written = {row[0] for row in await self._do(connection, change)}
        missing = [work.run for _, work, _ in changes if text(work.run) not in written]
        owners: dict[str, str] = {}
        if missing:
            sql = "SELECT id, owner FROM interlingua.runs WHERE id = ANY($1::text[])"
            owners = {row[0]: row[1] for row in await fetch(connection, sql, missing)}
        done: list[Transition] = []
        for job, work, _ in changes:
            wrong: InterlinguaError | None = None
            if text(work.run) in written:
                done.append(work)
                rows += [(work.run, row) for row in pack(entries.get(work.run, ()))]
            elif (owner := owners.get(text(work.run))) is not None:
                mine = owner == self._owner
                wrong = Conflict(f"run {work.run} has ended before") if mine else TakenOver(work.run)
            else:
                wrong = NotFound(f"no run {work.run}")
            job.ends(None, wrong)
        return done

    async def _do(self, connection: Connection, statement: Statement) -> Sequence[Any]:
        return await fetch(connection, _numbered(statement.sql, 2), self._owner, *statement.arguments)

    async def _follow(self, connection: Connection, runs: dict[str, Run]) -> None:
        """Set the status of threads: a column, so that the record, which may be large, is not written."""
        await fetch(
            connection,
            "UPDATE interlingua.threads t SET status = u.status, updated_at = greatest(t.updated_at, u.updated_at) "
            "FROM unnest($1::text[], $2::text[], $3::float8[]) u (id, status, updated_at) "
            "WHERE t.id = u.id AND t.id = ANY($1) AND t.status <> u.status",
            list(runs),
            [ThreadStatus.after(run.status).value for run in runs.values()],
            [run.updated_at for run in runs.values()],
        )

    async def _change_threads(self, connection: Connection, done: Sequence[Transition]) -> None:
        for work in done:
            change, point = work.change, work.change.checkpoint
            if point is not None:
                await change_thread(connection, point.thread, change.thread or NO_CHANGE, point, point.created_at)
                await add_checkpoint(connection, point.thread, point, work.checkpoint)
            elif change.thread is not None and change.run is not None and change.run.thread is not None:
                await change_thread(connection, change.run.thread, change.thread, None, change.run.updated_at)

    async def _owe(self, connection: Connection, done: Sequence[Transition]) -> None:
        for work in done:
            owed = work.change.delivery
            if owed is not None:
                await fetch(
                    connection,
                    "INSERT INTO interlingua.deliveries (id, owner, run, due_at, attempts, record) "
                    "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
                    owed.id,
                    self._owner,
                    work.run,
                    owed.due_at,
                    owed.attempts,
                    encode(owed.run),
                )


Created = tuple[WriteJob, NewRun, int, bytearray | None]
"""A new run with its place, and the entries that go into its row."""
Changed = tuple[WriteJob, Transition, list[WriteBehind]]
"""A transition, with what was held back for its run."""
Locked = Mapping[str | None, Thread | None]
"""Threads that exist, by id, with the records that new runs need."""

# `= ANY`: the server can only find a run by its id, whatever it knows of the table when it plans
INSERT = RowsSql(
    "id text, place smallint, status text, agent text, thread text, protocol text, principal text, created_at float8, "
    "updated_at float8, reserved bigint, bytes bigint, record bytea, head bytea",
    "INSERT INTO interlingua.runs (owner, {names}) SELECT $1, * FROM {rows} ON CONFLICT (id) DO NOTHING RETURNING id",
)
SAVE = RowsSql(
    "id text, status text, updated_at float8, record bytea",
    "UPDATE interlingua.runs r SET status = u.status, updated_at = u.updated_at, record = u.record FROM {rows} "
    "WHERE r.id = u.id AND r.id = ANY({ids}) AND r.owner = $1",
)
CHANGE = RowsSql(
    "id text, status text, updated_at float8, record bytea, tail bytea, reserved bigint, bytes bigint, "
    "release boolean, ended boolean, overrules boolean",
    "UPDATE interlingua.runs r SET status = coalesce(u.status, r.status), "
    "updated_at = coalesce(u.updated_at, r.updated_at), record = coalesce(u.record, r.record), "
    "tail = coalesce(u.tail, r.tail), reserved = greatest(r.reserved, u.reserved), bytes = r.bytes + u.bytes, "
    f"place = CASE WHEN u.release OR u.ended AND r.place = {QUEUED} THEN {RELEASED} ELSE r.place END "
    "FROM {rows} WHERE r.id = u.id AND r.id = ANY({ids}) AND r.owner = $1 "
    f"AND (r.place <> {RELEASED} OR u.overrules OR NOT u.release) RETURNING r.id",
)
LOG = RowsSql(
    "id text, first bigint, last bigint, delta boolean, data bytea",
    "INSERT INTO interlingua.log (run, first, last, delta, data) SELECT r.seq, u.first, u.last, u.delta, u.data "
    "FROM {rows} JOIN interlingua.runs r ON r.id = u.id AND r.id = ANY({ids}) AND r.owner = $1 "
    "ON CONFLICT (run, first) DO UPDATE SET last = excluded.last, delta = excluded.delta, data = excluded.data",
)


def _insertion(new: Sequence[Created]) -> Statement:
    """Inserts runs that have their places. Returns the ids of those whose id was free."""
    values = [
        (
            work.run.id,
            place,
            work.run.status.value,
            work.run.request.agent,
            work.run.thread,
            work.run.request.protocol,
            work.run.request.principal,
            work.run.created_at,
            work.run.updated_at,
            work.reserved,
            len(work.record) + size_of(work.events),
            work.record,
            head,
        )
        for _, work, place, head in new
    ]
    return Statement(INSERT, list(zip(*values, strict=True)))


def _saving(runs: Sequence[Run]) -> Statement:
    values = [(run.id, run.status.value, run.updated_at, encode(run)) for run in runs]
    return Statement(SAVE, list(zip(*values, strict=True)))


def _changing(changes: Sequence[Changed]) -> tuple[Statement, dict[str, list[LogEntry]]]:
    """Updates runs. Returns the ids of those that were ours. With it, the entries that do not go into their rows."""
    values = []
    entries: dict[str, list[LogEntry]] = {}
    for _, work, behind in changes:
        change = work.change
        said = [*chain.from_iterable([held.entries for held in behind]), *change.events]
        tail = few(said) if change.release else None
        if tail is None and said:
            entries[work.run] = said
        status = None if change.run is None else change.run.status
        values.append(
            (
                work.run,
                None if status is None else status.value,
                None if change.run is None else change.run.updated_at,
                work.record,
                tail,
                change.reserved,
                size_of(said),
                change.release,
                status is not None and status.ended,
                work.overrules,
            )
        )
    return Statement(CHANGE, list(zip(*values, strict=True))), entries


def _logging(rows: Sequence[tuple[str, Row]]) -> Statement:
    """Adds rows to the logs of runs, unless a run is gone or another owner's by now.

    A row that is there with this number was written by a transition that was told as failed.
    """
    return Statement(LOG, list(zip(*[(run, *row) for run, row in rows], strict=True)))


def _records(behind: Iterable[WriteBehind]) -> list[Run]:
    """The newest record of each run that has one."""
    return list({held.run: held.record for held in behind if held.record is not None}.values())
