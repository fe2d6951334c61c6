"""How entries of a log become rows: neighbours of one kind share one, and each stays separately readable.

A row holds entries `first` to `last`, one per line. An entry that contains a newline (an agent's own document, kept as
it came, may) has a row to itself, and a row of one entry is never split.

A short run has no rows: the few entries written with its creation and with its end are kept in the run's own row, which
is written at those moments anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gateway.store import LogEntry

ROW_BYTES = 64 * 1024
FEW_BYTES = 2048
"""The most bytes of entries that go into their run's own row."""
LF = 10

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[LogEntry]).decode

Row = tuple[int, int, bool, bytearray]
"""first, last, delta, data."""


def few(entries: Sequence[LogEntry]) -> bytearray | None:
    """Encode entries for their run's own row. None for no entries, or too many."""
    size = 0
    for entry in entries:
        size += len(entry.data)
    return bytearray(_encode(entries)) if 0 < size <= FEW_BYTES else None


def of_few(data: bytes | None) -> list[LogEntry]:
    """The entries in a run's own row."""
    return _decode(data) if data is not None else []


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
                rows.append((first, following - 1, delta, bytearray(b"\n").join(lines)))
            lines = []
            first = number
            delta = entry.delta
            room = ROW_BYTES
        if alone:
            rows.append((number, number, delta, bytearray(data)))
            following = -1
            continue
        lines.append(data)
        room -= len(data)
        following = number + 1
    if lines:
        rows.append((first, following - 1, delta, bytearray(b"\n").join(lines)))
    return rows


def unpack(first: int, last: int, delta: bool, data: bytes) -> Iterator[LogEntry]:
    """The entries of a row."""
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
