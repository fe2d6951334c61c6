"""The event log in tables: rows of entries (see log_rows.py), and `head` and `tail` in the run's own row.

A row's key is the run's `seq` in the upper half and its first number in the lower, so the table itself is in order of
run and number, without a second index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import chain

from gateway.core.errors import NotFound
from gateway.store import LogEntry, log_rows
from gateway.store.records import of_few

RUN_BITS = 32

_ADD = (
    f"INSERT INTO log (key, last, delta, data) SELECT (seq << {RUN_BITS}) | ?, ?, ?, ? FROM runs "
    "WHERE id = ? AND owner = ?"
)


def write(cursor: sqlite3.Cursor, owner: str, run_id: str, entries: Iterable[LogEntry]) -> None:
    """Add to a run's log, unless the run is gone or another owner's by now."""
    write_all(cursor, owner, [(run_id, entries)])


def write_all(cursor: sqlite3.Cursor, owner: str, runs: Iterable[tuple[str, Iterable[LogEntry]]]) -> None:
    """Add to the logs of many runs, as `write` does."""
    rows = [
        (first, last, int(delta), data, run_id, owner)
        for run_id, entries in runs
        for first, last, delta, data in log_rows.pack(entries)
    ]
    if len(rows) == 1:
        cursor.execute(_ADD, rows[0])
    else:
        cursor.executemany(_ADD, rows)


def write_new(cursor: sqlite3.Cursor, seq: int, entries: Iterable[LogEntry]) -> None:
    cursor.executemany(
        "INSERT INTO log (key, last, delta, data) VALUES (?, ?, ?, ?)",
        [(seq << RUN_BITS | first, last, int(delta), data) for first, last, delta, data in log_rows.pack(entries)],
    )


def remove(cursor: sqlite3.Cursor, seq: int) -> None:
    cursor.execute("DELETE FROM log WHERE key BETWEEN ? AND ?", _span(seq))


def _span(seq: int) -> tuple[int, int]:
    return seq << RUN_BITS, (seq + 1 << RUN_BITS) - 1


def read(cursor: sqlite3.Cursor, run_id: str, after: int, max_bytes: int, deltas: bool) -> list[LogEntry]:
    """Implements `Store.events`."""
    found = cursor.execute("SELECT seq, head, tail FROM runs WHERE id = ?", (run_id,)).fetchone()
    if found is None:
        raise NotFound(f"no run {run_id}")
    seq, head, tail = found
    with closing(_rows(cursor, seq, after, deltas)) as rows:
        return log_rows.page(chain(of_few(head), rows, of_few(tail)), after, max_bytes, deltas)


def _rows(cursor: sqlite3.Cursor, seq: int, after: int, deltas: bool) -> Generator[LogEntry, None, None]:
    """Read entries, beginning with the row that has the one after `after`."""
    lowest, highest = _span(seq)
    (start,) = cursor.execute(
        "SELECT max(key) FROM log WHERE key BETWEEN ? AND ?", (lowest, lowest + max(0, after) + 1)
    ).fetchone()
    kinds = "" if deltas else " AND delta = 0"
    rows = cursor.connection.execute(
        f"SELECT key, last, delta, data FROM log WHERE key BETWEEN ? AND ? AND last > ?{kinds} ORDER BY key",
        (start or lowest, highest, after),
    )
    with closing(rows):  # else its snapshot would hold up checkpoints
        for key, last, delta, data in rows:
            yield from log_rows.unpack(key - lowest, last, bool(delta), data)
