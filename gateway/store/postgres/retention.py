"""Removes ended runs by age, then by size, unused threads likewise.

Each step is a short transaction of its own, so that commits can pass in between. It returns how many runs it removed
and whether there is more to do. The size is that of what was given to the store, as `bytes` of its rows says: what the
server's files take is more or less than that, and it is the server's autovacuum that makes room in them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gateway.store.postgres.changes import remove_artifacts, remove_expired, remove_runs, remove_thread
from gateway.store.postgres.connections import Connection, fetch
from gateway.store.postgres.schema import UNFINISHED

STEP = 64
"""How many runs or threads are removed in one transaction."""

FREE = "FOR UPDATE SKIP LOCKED"
"""Not those that somebody writes just now."""

Step = Callable[[Connection], Awaitable[tuple[int, bool]]]

ENDED_RUNS = f"SELECT seq, id, bytes FROM interlingua.runs WHERE NOT {UNFINISHED}"
IDLE_THREADS = (
    "SELECT id, bytes FROM interlingua.threads t "
    "WHERE NOT EXISTS (SELECT 1 FROM interlingua.runs WHERE runs.thread = t.id AND {busy})"
)
USED_BYTES = (
    "SELECT (SELECT coalesce(sum(bytes), 0) FROM interlingua.runs) + "
    "(SELECT coalesce(sum(bytes), 0) FROM interlingua.threads) + "
    "(SELECT coalesce(sum(bytes), 0) FROM interlingua.artifacts)"
)


def steps(older_than: float, max_bytes: int | None, now: float) -> Iterator[Step]:
    """The steps of `Store.prune` in order. Each is repeated until it says that there is no more to do."""
    yield partial(_aged_runs, older_than)
    yield partial(_aged_threads, older_than)
    yield partial(_stray, older_than, now)
    if max_bytes is not None:
        yield partial(_large_runs, max_bytes)
        yield partial(_large_threads, max_bytes)


async def _aged_runs(older_than: float, connection: Connection) -> tuple[int, bool]:
    # created_at has the index, and nothing is updated before it is created
    sql = f"{ENDED_RUNS} AND created_at < $1 AND updated_at < $1 ORDER BY created_at LIMIT {STEP} {FREE}"
    rows = await fetch(connection, sql, older_than)
    if rows:
        await remove_runs(connection, rows)
    return len(rows), bool(rows)


async def _aged_threads(older_than: float, connection: Connection) -> tuple[int, bool]:
    idle = IDLE_THREADS.format(busy="TRUE")
    sql = f"{idle} AND created_at < $1 AND updated_at < $1 ORDER BY created_at LIMIT {STEP} {FREE}"
    rows = await fetch(connection, sql, older_than)
    for row in rows:
        await remove_thread(connection, row["id"])
    return 0, bool(rows)


async def _stray(older_than: float, now: float, connection: Connection) -> tuple[int, bool]:
    """Remove files that belong to nothing, and expired registrations."""
    sql = (
        "SELECT seq FROM interlingua.artifacts WHERE run IS NULL AND thread IS NULL AND uploader IS NULL "
        f"AND created_at < $1 LIMIT {STEP}"
    )
    rows = await fetch(connection, sql, older_than)
    if rows:
        await remove_artifacts(connection, [row["seq"] for row in rows])
    await remove_expired(connection, now)
    return 0, bool(rows)


async def _large_runs(max_bytes: int, connection: Connection) -> tuple[int, bool]:
    rows = await _excess(connection, max_bytes, f"{ENDED_RUNS} ORDER BY created_at LIMIT {STEP}")
    if rows:
        await remove_runs(connection, rows)
    return len(rows), bool(rows)


async def _large_threads(max_bytes: int, connection: Connection) -> tuple[int, bool]:
    idle = IDLE_THREADS.format(busy=UNFINISHED)
    rows = await _excess(connection, max_bytes, f"{idle} ORDER BY created_at LIMIT {STEP}")
    for row in rows:
        await remove_thread(connection, row["id"])
    return 0, bool(rows)


async def _excess(connection: Connection, max_bytes: int, oldest: str) -> Sequence[Any]:
    """The oldest rows that have to go for the store to be small enough, of those that `oldest` selects."""
    too_much = int((await fetch(connection, USED_BYTES))[0][0]) - max_bytes
    found: list[Any] = []
    if too_much > 0:
        for row in await fetch(connection, f"{oldest} {FREE}"):
            if too_much <= 0:
                break
            found.append(row)
            too_much -= row["bytes"]
    return found
