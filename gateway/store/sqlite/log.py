"""The event log: neighbours of one kind share a row, each entry stays separately readable.

A short run has no rows in the log: the few entries written with its creation and with its end are kept in the run's own
row (`head`, `tail`), which is written at those moments anyway.

A row holds entries `first` to `last`, one per line. An entry that contains a newline (an agent's own document, kept as
it came, may) has a row to itself, and a row of one entry is never split. A row's key is the run's `seq` in the upper
half and `first` in the lower, so the table itself is in order of run and number, without a second index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import chain

import msgspec

from gateway.core.errors import NotFound
from gateway.store import LogEntry

ROW_BYTES = 64 * 1024
FEW_BYTES = 2048
"""The most bytes of entries that go into their run's own row."""
RUN_BITS = 32
LF = 10

_ADD = (
    f"INSERT INTO log (key, last, delta, data) SELECT (seq << {RUN_BITS}) | ?, ?, ?, ? FROM runs "
    "WHERE id = ? AND owner = ?"
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[LogEntry]).decode

Row = tuple[int, int, int, bytearray]
"""first, last, delta (0 or 1), data. The sqlite3 module binds these types directly, but not `bool` and `bytes`."""


def few(entries: Sequence[LogEntry]) -> bytearray | None:
    """Encode entries for their run's own row. None if there are none, or too many."""
    size = 0
    for entry in entries:
        size += len(entry.data)
    return bytearray(_encode(entries)) if 0 < size <= FEW_BYTES else None


def pack(entries: Iterable[LogEntry]) -> list[Row]:
    """Pack entries in order into as few rows as possible, of about `ROW_BYTES` at most."""
    rows: list[Row] = []
    lines: list[bytes] = []
    first = following = -1
    delta = False
    room = 0
    for entry in entries:
        data = entry.data
        number = entry.number
        alone = LF in data
        if number != following or entry.delta is not delta or room <= 0 or alone:
            if lines:
                rows.append((first, following - 1, int(delta), bytearray(b"\n").join(lines)))
            lines = []
            first = number
            delta = entry.delta
            room = ROW_BYTES
        if alone:
            rows.append((number, number, int(delta), bytearray(data)))
            following = -1
            continue
        lines.append(data)
        room -= len(data)
        following = number + 1
    if lines:
        rows.append((first, following - 1, int(delta), bytearray(b"\n").join(lines)))
    return rows


def write(cursor: sqlite3.Cursor, owner: str, run_id: str, entries: Iterable[LogEntry]) -> None:
    """Add to a run's log, unless the run is gone or another owner's by now."""
    write_all(cursor, owner, [(run_id, entries)])


def write_all(cursor: sqlite3.Cursor, owner: str, runs: Iterable[tuple[str, Iterable[LogEntry]]]) -> None:
    """Add to the logs of many runs, as `write` does."""
    rows = [(*row, run_id, owner) for run_id, entries in runs for row in pack(entries)]
    if len(rows) == 1:
        cursor.execute(_ADD, rows[0])
    else:
        cursor.executemany(_ADD, rows)


def write_new(cursor: sqlite3.Cursor, seq: int, entries: Iterable[LogEntry]) -> None:
    """Write the first entries of a new run."""
    cursor.executemany(
        "INSERT INTO log (key, last, delta, data) VALUES (?, ?, ?, ?)",
        [(seq << RUN_BITS | first, last, delta, data) for first, last, delta, data in pack(entries)],
    )


def remove(cursor: sqlite3.Cursor, seq: int) -> None:
    """Remove the whole log of a run."""
    cursor.execute("DELETE FROM log WHERE key BETWEEN ? AND ?", _span(seq))


def _span(seq: int) -> tuple[int, int]:
    return seq << RUN_BITS, (seq + 1 << RUN_BITS) - 1


def read(cursor: sqlite3.Cursor, run_id: str, after: int, max_bytes: int, deltas: bool) -> list[LogEntry]:
    """Implements `Store.events`."""
    found = cursor.execute("SELECT seq, head, tail FROM runs WHERE id = ?", (run_id,)).fetchone()
    if found is None:
        raise NotFound(f"no run {run_id}")
    seq, head, tail = found
    entries: list[LogEntry] = []
    room = max_bytes
    with closing(_rows(cursor, seq, after, deltas)) as rows:
        for entry in chain(_few(head), rows, _few(tail)):
            if entry.number <= after or (entry.delta and not deltas):
                continue
            if room < len(entry.data) and entries:
                break
            entries.append(entry)
            room -= len(entry.data)
    return entries


def _few(data: bytes | None) -> list[LogEntry]:
    return _decode(data) if data is not None else []


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
            first = key - lowest
            lines = [data] if first == last else data.split(b"\n")
            for number, line in enumerate(lines, first):
                yield LogEntry(number, line, bool(delta))
