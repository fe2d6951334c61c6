"""How entries of a log become rows: neighbours of one kind share one, and each stays separately readable.

A row holds entries `first` to `last`, one per line. An entry that contains a newline (an agent's own document, kept as
it came, may), or that is larger than a row, has a row to itself, and a row of one entry is never split.

A short run has no rows: the few entries written with its creation and with its end are kept in the run's own row
(records.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.store import LogEntry

ROW_BYTES = 64 * 1024
LF = 10

Row = tuple[int, int, bool, bytearray | bytes]
"""first, last, delta, data."""


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
        size = len(data)
        alone = size > ROW_BYTES or LF in data
        if number != following or entry.delta is not delta or room <= 0 or alone:
            if lines:
                rows.append((first, following - 1, delta, bytearray(b"\n").join(lines)))
            lines = []
            first = number
            delta = entry.delta
            room = ROW_BYTES
        if alone:
            rows.append((number, number, delta, data))
            following = -1
            continue
        lines.append(data)
        room -= size
        following = number + 1
    if lines:
        rows.append((first, following - 1, delta, bytearray(b"\n").join(lines)))
    return rows


def unpack(first: int, last: int, delta: bool, data: bytes) -> Iterator[LogEntry]:
    lines = [data] if first == last else data.split(b"\n")
    for number, line in enumerate(lines, first):
        yield LogEntry(number, line, delta)


def page(entries: Iterable[LogEntry], after: int, max_bytes: int, deltas: bool) -> list[LogEntry]:
    """Implements `Store.events`, given entries in order that begin no later than the one after `after`."""
    found: list[LogEntry] = []
    room = max_bytes
    for entry in entries:
        if entry.number <= after or (entry.delta and not deltas):
            continue
        if room < len(entry.data) and found:
            break
        found.append(entry)
        room -= len(entry.data)
    return found
