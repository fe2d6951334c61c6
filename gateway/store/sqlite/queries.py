"""Reads records by id, filtered lists and their counts, files, and deliveries.

Every function takes a cursor and returns decoded records. It runs on a reader's connection or, for a store in memory,
on the writer's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.core.errors import NotFound
from gateway.core.types import Artifact, Checkpoint, Run, RunQuery, Thread, ThreadQuery
from gateway.store import Delivery, records
from gateway.store.records import decode_artifact, decode_checkpoint, decode_run, decode_thread

T = TypeVar("T")

COLUMNS = {"runs": "record", "threads": "record, status, updated_at"}
"""The columns of which a record is made."""


def run(cursor: sqlite3.Cursor, run_id: str) -> Run:
    return _one(cursor, "runs", run_id, decode_run)


def owner_of(cursor: sqlite3.Cursor, run_id: str) -> str:
    row = cursor.execute("SELECT owner FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"no run {run_id}")
    return str(row[0])


def thread(cursor: sqlite3.Cursor, thread_id: str) -> Thread:
    row = cursor.execute(f"SELECT {COLUMNS['threads']} FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id}")
    return decode_thread(*row)


def artifact(cursor: sqlite3.Cursor, artifact_id: str) -> Artifact:
    """Implements `Store.artifact`. Raises NotFound until the upload is complete."""
    return _one(cursor, "artifacts", artifact_id, decode_artifact, " AND uploader IS NULL")


def _one(cursor: sqlite3.Cursor, table: str, key: str, decode: Callable[[bytes], T], also: str = "") -> T:
    row = cursor.execute(f"SELECT record FROM {table} WHERE id = ?{also}", (key,)).fetchone()
    if row is None:
        raise NotFound(f"no {table.removesuffix('s')} {key}")
    return decode(row[0])


def require(cursor: sqlite3.Cursor, table: str, key: str) -> None:
    """Raise NotFound unless `table` has the id."""
    if cursor.execute(f"SELECT 1 FROM {table} WHERE id = ?", (key,)).fetchone() is None:
        raise NotFound(f"no {table.removesuffix('s')} {key}")


def runs(cursor: sqlite3.Cursor, query: RunQuery) -> list[Run]:
    found = _page(cursor, "runs", query, *_match_runs(cursor, query))
    return [decode_run(record) for (record,) in found]


def count_runs(cursor: sqlite3.Cursor, query: RunQuery) -> int:
    return _count(cursor, "runs", *_match_runs(cursor, query))


def threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> list[Thread]:
    return [decode_thread(*row) for row in _page(cursor, "threads", query, *_match_threads(cursor, query))]


def count_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> int:
    return _count(cursor, "threads", *_match_threads(cursor, query))


def _match_runs(cursor: sqlite3.Cursor, query: RunQuery) -> tuple[str, list[Any]]:
    terms, values = _equal(agent=query.agent, thread=query.thread, protocol=query.protocol)
    if query.threaded is not None:
        terms.append("thread IS NOT NULL" if query.threaded else "thread IS NULL")
    if query.statuses:
        terms.append(f"status IN ({', '.join('?' * len(query.statuses))})")
        values += [status.value for status in query.statuses]
    _also(cursor, terms, records.wanted_run(query))
    return " AND ".join(terms) or "TRUE", values


def _match_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> tuple[str, list[Any]]:
    status = None if query.status is None else query.status.value
    whose = records.whose(query.attributes)
    terms, values = _equal(agent=query.agent, protocol=query.protocol, status=status, whose=whose)
    _also(cursor, terms, records.wanted_thread(query))
    return " AND ".join(terms) or "TRUE", values


def _equal(**columns: str | None) -> tuple[list[str], list[Any]]:
    given = {column: value for column, value in columns.items() if value is not None}
    return [f"{column} = ?" for column in given], list(given.values())


def _also(cursor: sqlite3.Cursor, terms: list[str], wanted: records.Wanted | None) -> None:
    if wanted is not None:
        cursor.connection.create_function("wanted", 1, wanted)
        terms.append("wanted(record)")


def _page(
    cursor: sqlite3.Cursor, table: str, query: RunQuery | ThreadQuery, where: str, values: list[Any]
) -> Sequence[Any]:
    way = "ASC" if query.oldest_first else "DESC"
    cursor.execute(
        f"SELECT {COLUMNS[table]} FROM {table} WHERE {where} ORDER BY created_at {way}, seq {way} LIMIT ? OFFSET ?",
        (*values, max(0, query.limit), max(0, query.offset)),
    )
    return cursor.fetchall()


def _count(cursor: sqlite3.Cursor, table: str, where: str, values: list[Any]) -> int:
    return int(cursor.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0])


def history(cursor: sqlite3.Cursor, thread_id: str, limit: int, before: str | None) -> list[Checkpoint]:
    require(cursor, "threads", thread_id)
    older, bound = "", ()
    if before is not None:
        row = cursor.execute(
            "SELECT created_at, seq FROM checkpoints WHERE thread = ? AND id = ?", (thread_id, before)
        ).fetchone()
        if row is None:
            raise NotFound(f"no checkpoint {before}")
        older, bound = " AND (created_at, seq) < (?, ?)", row
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
    row = cursor.execute(
        "SELECT data FROM artifacts LEFT JOIN chunks ON artifact = seq AND number = ? "
        "WHERE id = ? AND uploader IS NULL",
        (number, artifact_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"no artifact {artifact_id}")
    data: bytes | None = row[0]
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
