"""Reads records by id, filtered lists and their counts, files, and deliveries.

Every function takes a cursor and returns decoded records. It runs on a reader's connection or, for a store in memory,
on the writer's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from gateway.core.errors import NotFound
from gateway.core.types import (
    UNFINISHED,
    Artifact,
    Checkpoint,
    Run,
    RunQuery,
    RunStatus,
    Thread,
    ThreadQuery,
)
from gateway.store import Delivery
from gateway.store.records import (
    Wanted,
    decode_artifact,
    decode_brief,
    decode_checkpoint,
    decode_run,
    decode_thread,
    wanted_run,
    wanted_thread,
)
from gateway.store.searches import (
    COLUMNS,
    FAILED,
    RunRange,
    ThreadRange,
    needs_protocols,
    split_count,
    split_runs,
    split_threads,
)
from gateway.store.sqlite import log, schema

PARTIAL: dict[str, Sequence[RunStatus]] = {schema.UNFINISHED: UNFINISHED, schema.FAILED: FAILED}
"""The words of partial indexes, and the runs that are in them."""

events = log.read


def row_of(cursor: sqlite3.Cursor, columns: str, table: str, key: str, also: str = "") -> tuple[Any, ...]:
    """The columns of the row with this id. Raises NotFound. Not for what each prompt reads: its text is built anew."""
    sql = f"SELECT {columns} FROM {table} WHERE id = ?{also}"
    found: tuple[Any, ...] | None = cursor.execute(sql, (key,)).fetchone()
    if found is None:
        raise NotFound(f"no {table.removesuffix('s')} {key}")
    return found


def run(cursor: sqlite3.Cursor, run_id: str) -> tuple[str, Run]:
    owner, record = row_of(cursor, "owner, record", "runs", run_id)
    return owner, decode_run(record)


def owner_of(cursor: sqlite3.Cursor, run_id: str) -> str:
    return str(row_of(cursor, "owner", "runs", run_id)[0])


def thread(cursor: sqlite3.Cursor, thread_id: str) -> Thread:
    row = cursor.execute(f"SELECT {COLUMNS['threads']} FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id}")
    return decode_thread(*row)


def artifact(cursor: sqlite3.Cursor, artifact_id: str) -> Artifact:
    """Implements `Store.artifact`. Raises NotFound until the upload is complete."""
    return decode_artifact(row_of(cursor, "record", "artifacts", artifact_id, " AND uploader IS NULL")[0])


def require(cursor: sqlite3.Cursor, table: str, key: str) -> None:
    """Raise NotFound unless `table` has the id."""
    row_of(cursor, "1", table, key)


def protocols(cursor: sqlite3.Cursor, table: str) -> list[str]:
    """The protocols of all runs or threads, one step down the index for each."""
    cursor.execute(
        f"WITH RECURSIVE known(one) AS (SELECT min(protocol) FROM {table} UNION ALL "
        f"SELECT (SELECT min(protocol) FROM {table} WHERE protocol > one) FROM known WHERE one IS NOT NULL) "
        "SELECT one FROM known WHERE one IS NOT NULL"
    )
    return [one for (one,) in cursor.fetchall()]


def runs(cursor: sqlite3.Cursor, query: RunQuery) -> list[Run]:
    parts = _rows(cursor, "runs", _split_runs(cursor, query), wanted_run(query))
    decode = decode_brief if query.brief else decode_run
    return [decode(record) for _, _, record in _page(cursor, "runs", query, parts)]


def count_runs(cursor: sqlite3.Cursor, query: RunQuery) -> int:
    wanted = wanted_run(query)
    more, less = split_count(query) if wanted is None else (query, None)
    parts = _rows(cursor, "runs", _split_runs(cursor, more), wanted)
    return _count(cursor, parts, [] if less is None else _rows(cursor, "runs", _split_runs(cursor, less), wanted))


def threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> list[Thread]:
    parts = _rows(cursor, "threads", _split_threads(cursor, query), wanted_thread(query))
    return [decode_thread(*columns) for _, _, *columns in _page(cursor, "threads", query, parts)]


def count_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> int:
    return _count(cursor, _rows(cursor, "threads", _split_threads(cursor, query), wanted_thread(query)), [])


Rows = tuple[str, list[str]]
"""`FROM` and `WHERE` of a part of a search, with its values."""


def _split_runs(cursor: sqlite3.Cursor, query: RunQuery) -> list[RunRange]:
    return split_runs(query, protocols(cursor, "runs") if needs_protocols(query) else ())


def _split_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> list[ThreadRange]:
    return split_threads(query, protocols(cursor, "threads") if needs_protocols(query) else ())


def _rows(
    cursor: sqlite3.Cursor, table: str, parts: Sequence[RunRange | ThreadRange], wanted: Wanted | None
) -> list[Rows]:
    """`INDEXED BY` makes it an error if the index does not serve."""
    asked = []
    if wanted is not None:
        cursor.connection.create_function("wanted", 1, wanted)
        asked = ["wanted(record)"]
    found = []
    for part in parts:
        terms = [*(f"{column} = ?" for column in part.equal), *part.terms(PARTIAL), *asked]
        found.append((f"FROM {table} INDEXED BY {part.name} WHERE {' AND '.join(terms)}", [*part.equal.values()]))
    return found


def _page(cursor: sqlite3.Cursor, table: str, query: RunQuery | ThreadQuery, parts: Sequence[Rows]) -> list[Any]:
    """The rows of the page that is asked for, merged: when and in which place they were created, and `COLUMNS`."""
    if not parts:
        return []
    way = "ASC" if query.oldest_first else "DESC"
    every = " UNION ALL ".join(f"SELECT created_at, seq, {COLUMNS[table]} {rows}" for rows, _ in parts)
    values = [value for _, values in parts for value in values]
    cursor.execute(
        f"{every} ORDER BY created_at {way}, seq {way} LIMIT ? OFFSET ?",
        (*values, max(0, query.limit), max(0, query.offset)),
    )
    return cursor.fetchall()


def _count(cursor: sqlite3.Cursor, parts: Sequence[Rows], fewer: Sequence[Rows]) -> int:
    """How many rows there are in `parts`, less those in `fewer`. One statement: nothing moves meanwhile."""
    terms = [
        *(f"+ (SELECT count(*) {rows})" for rows, _ in parts),
        *(f"- (SELECT count(*) {rows})" for rows, _ in fewer),
    ]
    values = [value for _, values in (*parts, *fewer) for value in values]
    return int(cursor.execute(f"SELECT 0 {' '.join(terms)}", values).fetchone()[0])


def history(cursor: sqlite3.Cursor, thread_id: str, limit: int, before: str | None) -> list[Checkpoint]:
    require(cursor, "threads", thread_id)
    older, bound = "", ()
    if before is not None:
        found = cursor.execute(
            "SELECT created_at, seq FROM checkpoints WHERE thread = ? AND id = ?", (thread_id, before)
        ).fetchone()
        if found is None:
            raise NotFound(f"no checkpoint {before}")
        older, bound = " AND (created_at, seq) < (?, ?)", found
    cursor.execute(
        f"SELECT record FROM checkpoints WHERE thread = ?{older} ORDER BY created_at DESC, seq DESC LIMIT ?",
        (thread_id, *bound, max(0, limit)),
    )
    return [decode_checkpoint(record) for (record,) in cursor.fetchall()]


def has_artifacts(cursor: sqlite3.Cursor, run_id: str) -> bool:
    """Whether a run has a file. Raises NotFound."""
    require(cursor, "runs", run_id)
    cursor.execute("SELECT 1 FROM artifacts WHERE uploader IS NULL AND run = ? LIMIT 1", (run_id,))
    return cursor.fetchone() is not None


def artifacts(cursor: sqlite3.Cursor, run_id: str | None, thread_id: str | None) -> list[Artifact]:
    if run_id is not None:
        require(cursor, "runs", run_id)
    if thread_id is not None:
        require(cursor, "threads", thread_id)
    cursor.execute(
        "SELECT record FROM artifacts WHERE uploader IS NULL AND (run = ? OR thread = ? "
        "OR run IN (SELECT id FROM runs WHERE thread = ?)) ORDER BY created_at, seq",
        (run_id, thread_id, thread_id),
    )
    return [decode_artifact(record) for (record,) in cursor.fetchall()]


def chunk(cursor: sqlite3.Cursor, artifact_id: str, number: int) -> bytes | None:
    """Read chunk `number` (from 0) of a file. None after the last."""
    found = cursor.execute(
        "SELECT data FROM artifacts LEFT JOIN chunks ON artifact = seq AND number = ? "
        "WHERE id = ? AND uploader IS NULL",
        (number, artifact_id),
    ).fetchone()
    if found is None:
        raise NotFound(f"no artifact {artifact_id}")
    data: bytes | None = found[0]
    return data


def deliveries(cursor: sqlite3.Cursor, owner: str, now: float, limit: int) -> list[Delivery]:
    cursor.execute(
        "SELECT id, record, due_at, attempts FROM deliveries WHERE owner = ? AND due_at <= ? "
        "ORDER BY due_at, seq LIMIT ?",
        (owner, now, limit),
    )
    return [
        Delivery(id=key, run=decode_run(record), due_at=due_at, attempts=attempts)
        for key, record, due_at, attempts in cursor.fetchall()
    ]


def registration_changes(cursor: sqlite3.Cursor) -> int:
    """Read the counter of writes to the registrations, which triggers keep (see schema.py)."""
    ((count,),) = cursor.execute("SELECT value FROM counters WHERE name = 'registrations'").fetchall()
    return int(count)


def registrations(cursor: sqlite3.Cursor) -> tuple[int, list[bytes]]:
    """Read the counter and the records, in this order: what is written meanwhile is read again."""
    count = registration_changes(cursor)
    return count, [record for (record,) in cursor.execute("SELECT record FROM registrations ORDER BY name").fetchall()]
