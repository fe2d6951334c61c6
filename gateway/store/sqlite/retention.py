"""Removes ended runs by age, then by size, unused threads likewise, and gives the space back to the file system.

Each step is a short transaction of its own (`BUDGET_SECONDS`), so that commits can pass in between. It returns how many
runs it removed and whether there is more to do.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gateway.store.sqlite.changes import remove_artifact, remove_run, remove_thread
from gateway.store.sqlite.queries import protocols
from gateway.store.sqlite.schema import UNFINISHED

BUDGET_SECONDS = 0.02
STEP = 64
"""How many runs or threads are removed in one transaction, at the most."""
VACUUM_PAGES = 128
SLACK = 0.05
"""The share of free pages that is not worth giving back."""

Step = Callable[[sqlite3.Cursor], tuple[int, bool]]

ENDED_RUNS = f"SELECT seq, id FROM runs WHERE NOT ({UNFINISHED})"
IDLE_THREADS = (
    "SELECT seq, id FROM threads WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.thread = threads.id AND {busy})"
)


def steps(older_than: float, max_bytes: int | None, now: float) -> Iterator[Step]:
    """The steps of `Store.prune` in order. Each is repeated until it says that there is no more to do."""
    yield partial(_aged, "runs", ENDED_RUNS, older_than)
    yield partial(_aged, "threads", IDLE_THREADS.format(busy="TRUE"), older_than)
    yield partial(_stray, older_than, now)
    if max_bytes is not None:
        yield partial(_large, "runs", ENDED_RUNS, max_bytes)
        yield partial(_large, "threads", IDLE_THREADS.format(busy=UNFINISHED), max_bytes)
    yield _shrink


def _aged(table: str, select: str, older_than: float, cursor: sqlite3.Cursor) -> tuple[int, bool]:
    """Remove the oldest rows of one protocol. An index has the times of creation, before which nothing is updated."""
    sql = f"{select} AND protocol = ? AND created_at < ? AND updated_at < ? ORDER BY created_at LIMIT {STEP}"
    for protocol in protocols(cursor, table):
        if rows := cursor.execute(sql, (protocol, older_than, older_than)).fetchall():
            return _remove(cursor, table, rows)
    return 0, False


def _large(table: str, select: str, max_bytes: int, cursor: sqlite3.Cursor) -> tuple[int, bool]:
    rows = cursor.execute(f"{select} ORDER BY seq LIMIT {STEP}").fetchall()
    return _remove(cursor, table, rows, max_bytes)


def _remove(
    cursor: sqlite3.Cursor, table: str, rows: Sequence[tuple[int, str]], max_bytes: int | None = None
) -> tuple[int, bool]:
    stop = time.monotonic() + BUDGET_SECONDS
    gone = 0
    for seq, key in rows:
        if max_bytes is not None and _used_bytes(cursor) <= max_bytes:
            return gone, False
        if table == "runs":
            remove_run(cursor, seq, key)
            gone += 1
        else:
            remove_thread(cursor, key)
        if time.monotonic() > stop:
            break
    return gone, bool(rows)


def _stray(older_than: float, now: float, cursor: sqlite3.Cursor) -> tuple[int, bool]:
    """Remove files that belong to nothing, and expired registrations."""
    where = "SELECT seq, id FROM artifacts WHERE run IS NULL AND thread IS NULL AND uploader IS NULL AND created_at < ?"
    for seq, _ in cursor.execute(where, (older_than,)).fetchall():
        remove_artifact(cursor, seq)
    cursor.execute("DELETE FROM registrations WHERE expires_at <= ?", (now,))
    return 0, False


def _used_bytes(cursor: sqlite3.Cursor) -> int:
    pages, free, size = (_pragma(cursor, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _shrink(cursor: sqlite3.Cursor) -> tuple[int, bool]:
    """Cut free pages off the file; the file itself becomes shorter at the next checkpoint."""
    stop = time.monotonic() + BUDGET_SECONDS
    while (free := _pragma(cursor, "freelist_count")) > max(VACUUM_PAGES, SLACK * _pragma(cursor, "page_count")):
        cursor.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        if _pragma(cursor, "freelist_count") == free:
            break  # a file of before auto_vacuum
        if time.monotonic() > stop:
            return 0, True
    return 0, False


def _pragma(cursor: sqlite3.Cursor, name: str) -> int:
    return int(cursor.execute(f"PRAGMA {name}").fetchone()[0])
