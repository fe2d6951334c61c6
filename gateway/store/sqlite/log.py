"""Rows of the event log: neighbours of one kind share a row, each entry stays separately readable.

A row holds entries `first` to `last`, one a line. An entry that itself contains a newline (an agent's own document may,
where it is kept as it came) has a row to itself, and a row of one entry is never split.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from gateway.core.errors import NotFound
from gateway.store import Entry

ROW_BYTES = 64 * 1024

Row = tuple[int, int, bool, bytes]
"""first, last, delta, data"""


def pack(entries: Iterable[Entry]) -> list[Row]:
    """As few rows as may be, of about `ROW_BYTES` at most, in the order of the entries."""
    rows: list[Row] = []
    lines: list[bytes] = []
    first = following = -1
    delta = False
    room = 0
    for entry in entries:
        data = entry.data
        number = entry.number
        alone = b"\n" in data
        if number != following or entry.delta is not delta or room <= 0 or alone:
            if lines:
                rows.append((first, following - 1, delta, b"\n".join(lines)))
            lines = []
            first = number
            delta = entry.delta
            room = ROW_BYTES
        if alone:
            rows.append((number, number, delta, data))
            following = -1
            continue
        lines.append(data)
        room -= len(data)
        following = number + 1
    if lines:
        rows.append((first, following - 1, delta, b"\n".join(lines)))
    return rows


def write(cursor: sqlite3.Cursor, owner: str, run_id: str, entries: Iterable[Entry]) -> None:
    """Add to a run's log, unless the run is gone or belongs to another owner by now."""
    cursor.executemany(
        "INSERT INTO log (run, first, last, delta, data) SELECT seq, ?, ?, ?, ? FROM runs WHERE id = ? AND owner = ?",
        [(*row, run_id, owner) for row in pack(entries)],
    )


def read(cursor: sqlite3.Cursor, run_id: str, after: int, max_bytes: int, deltas: bool) -> list[Entry]:
    """See `Store.events`."""
    found = cursor.execute("SELECT seq FROM runs WHERE id = ?", (run_id,)).fetchone()
    if found is None:
        raise NotFound(f"no run {run_id}")
    (seq,) = found
    start = cursor.execute(
        "SELECT first FROM log WHERE run = ? AND first <= ? ORDER BY first DESC LIMIT 1", (seq, after + 1)
    ).fetchone()
    kinds = "" if deltas else " AND delta = 0"
    rows = cursor.connection.execute(
        f"SELECT first, last, delta, data FROM log WHERE run = ? AND first >= ? AND last > ?{kinds} ORDER BY first",
        (seq, start[0] if start else 0, after),
    )
    entries: list[Entry] = []
    room = max_bytes
    with closing(rows):  # else its snapshot would hold up checkpoints
        for first, last, delta, data in rows:
            lines = [data] if first == last else data.split(b"\n")
            for number, line in enumerate(lines, first):
                if number <= after:
                    continue
                if room < len(line) and entries:
                    return entries
                entries.append(Entry(number, line, bool(delta)))
                room -= len(line)
    return entries


def last_number(cursor: sqlite3.Cursor, seq: int) -> int:
    """The newest entry on disk, 0 if there is none."""
    row = cursor.execute("SELECT last FROM log WHERE run = ? ORDER BY first DESC LIMIT 1", (seq,)).fetchone()
    return int(row[0]) if row else 0
