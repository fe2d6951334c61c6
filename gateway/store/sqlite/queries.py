"""Reads records by id, filtered lists and their counts, files, and deliveries.

Every function takes a cursor and returns decoded records. It runs on a reader's connection or, for a store in memory,
on the writer's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.json_match import contains
from gateway.core.types import (
    OWNER,
    Artifact,
    Checkpoint,
    JsonObject,
    Run,
    RunQuery,
    Thread,
    ThreadQuery,
    ThreadStatus,
)
from gateway.store import Delivery, Registration

T = TypeVar("T")

COLUMNS = {"runs": "record", "threads": "record, status, updated_at"}
"""The columns of which a record is made."""

_encode = msgspec.json.Encoder().encode
decode_run = msgspec.json.Decoder(Run).decode
decode_thread = msgspec.json.Decoder(Thread).decode
decode_artifact = msgspec.json.Decoder(Artifact).decode
decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode
decode_registration = msgspec.json.Decoder(Registration).decode


class _Request(msgspec.Struct):
    metadata: JsonObject = {}
    principal: str | None = None


class _RunParts(msgspec.Struct):
    """The fields of a run's record that a search needs, decoded without the rest."""

    request: _Request


class _ThreadParts(msgspec.Struct):
    metadata: JsonObject = {}
    attributes: JsonObject = {}


_run_parts = msgspec.json.Decoder(_RunParts).decode
_thread_parts = msgspec.json.Decoder(_ThreadParts).decode


def encode(record: msgspec.Struct) -> bytearray:
    """Encode a record as JSON, as a `bytearray`: for `bytes` the sqlite3 module looks up adapters first."""
    return bytearray(_encode(record))


def run(cursor: sqlite3.Cursor, run_id: str) -> Run:
    return _one(cursor, "runs", run_id, decode_run)


def thread(cursor: sqlite3.Cursor, thread_id: str) -> Thread:
    row = cursor.execute(f"SELECT {COLUMNS['threads']} FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id}")
    return _thread(*row)


def _thread(record: bytes, status: str, updated_at: float) -> Thread:
    """Decode a thread. Its columns change with its runs, so they replace what its record says."""
    return replace(decode_thread(record), status=ThreadStatus(status), updated_at=updated_at)


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
    return [_thread(*row) for row in _page(cursor, "threads", query, *_match_threads(cursor, query))]


def count_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> int:
    return _count(cursor, "threads", *_match_threads(cursor, query))


def _match_runs(cursor: sqlite3.Cursor, query: RunQuery) -> tuple[str, list[Any]]:
    terms, values = _equal(agent=query.agent, thread=query.thread, protocol=query.protocol)
    if query.threaded is not None:
        terms.append("thread IS NOT NULL" if query.threaded else "thread IS NULL")
    if query.statuses:
        terms.append(f"status IN ({', '.join('?' * len(query.statuses))})")
        values += [status.value for status in query.statuses]
    if query.metadata or query.principal is not None:
        marks = _marks({} if query.principal is None else {"principal": query.principal})

        def wanted(record: bytes) -> bool:
            if not all(mark in record for mark in marks):
                return False
            request = _run_parts(record).request
            return query.principal in (None, request.principal) and contains(request.metadata, query.metadata)

        _filter(cursor, wanted)
        terms.append("wanted(record)")
    return " AND ".join(terms) or "TRUE", values


def _match_threads(cursor: sqlite3.Cursor, query: ThreadQuery) -> tuple[str, list[Any]]:
    status = None if query.status is None else query.status.value
    owner = whose(query.attributes)
    attributes = query.attributes if owner is None else {k: v for k, v in query.attributes.items() if k != OWNER}
    terms, values = _equal(agent=query.agent, protocol=query.protocol, status=status, whose=owner)
    if query.metadata or attributes:
        marks = _marks(attributes)

        def wanted(record: bytes) -> bool:
            if not all(mark in record for mark in marks):
                return False
            parts = _thread_parts(record)
            return contains(parts.metadata, query.metadata) and contains(parts.attributes, attributes)

        _filter(cursor, wanted)
        terms.append("wanted(record)")
    return " AND ".join(terms) or "TRUE", values


def whose(attributes: JsonObject) -> str | None:
    """The value of column `whose` for a thread with these marks."""
    owner = attributes.get(OWNER)
    return owner if isinstance(owner, str) else None


def _marks(wanted: JsonObject) -> list[bytes]:
    """Strings that every record with these keys and values contains, so that most others need not be decoded."""
    return [_encode(key) + b":" + _encode(value) for key, value in wanted.items() if isinstance(value, str)]


def _equal(**columns: str | None) -> tuple[list[str], list[Any]]:
    given = {column: value for column, value in columns.items() if value is not None}
    return [f"{column} = ?" for column in given], list(given.values())


def _filter(cursor: sqlite3.Cursor, predicate: Callable[[bytes], bool]) -> None:
    """Compare in Python: in SQL's JSON `true` equals 1, and paths cannot name every key."""
    cursor.connection.create_function("wanted", 1, predicate)


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
