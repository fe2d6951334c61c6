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
from gateway.store.postgres.queries import protocols
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
    yield partial(_aged, "runs", ENDED_RUNS, older_than)
    yield partial(_aged, "threads", IDLE_THREADS.format(busy="TRUE"), older_than)
    yield partial(_stray, older_than, now)
    if max_bytes is not None:
        excess = Excess(max_bytes)
        yield partial(_large, "runs", ENDED_RUNS, excess)
        yield partial(_large, "threads", IDLE_THREADS.format(busy=UNFINISHED), excess)


async def _aged(table: str, select: str, older_than: float, connection: Connection) -> tuple[int, bool]:
    """Remove the oldest rows of one protocol. An index has the times of creation, before which nothing is updated."""
    sql = f"{select} AND protocol = $2 AND created_at < $1 AND updated_at < $1 ORDER BY created_at LIMIT {STEP} {FREE}"
    for protocol in await protocols(connection, table):
        if rows := await fetch(connection, sql, older_than, protocol):
            return await _remove(connection, table, rows)
    return 0, False


async def _large(table: str, select: str, excess: Excess, connection: Connection) -> tuple[int, bool]:
    return await _remove(connection, table, await excess.oldest(connection, select))


async def _remove(connection: Connection, table: str, rows: Sequence[Any]) -> tuple[int, bool]:
    if table == "threads":
        for row in rows:
            await remove_thread(connection, row["id"])
        return 0, bool(rows)
    if rows:
        await remove_runs(connection, rows)
    return len(rows), bool(rows)


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


class Excess:
    """By how much the store is too large. All rows are read to add it up, so what is removed is only taken off; unless
    another process removes rows as well, which a counter shows.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = self._turn = 0

    async def oldest(self, connection: Connection, select: str) -> Sequence[Any]:
        """The oldest rows that have to go for the store to be small enough. They count as gone."""
        sql = "UPDATE interlingua.counters SET value = value + 1 WHERE name = 'pruned' RETURNING value"
        turn = int((await fetch(connection, sql))[0][0])  # whoever else prunes waits for this transaction
        if turn != self._turn + 1:
            self._bytes = int((await fetch(connection, USED_BYTES))[0][0]) - self._max_bytes
        self._turn = turn
        found: list[Any] = []
        if self._bytes > 0:
            for row in await fetch(connection, f"{select} ORDER BY seq LIMIT {STEP} {FREE}"):
                if self._bytes <= 0:
                    break
                found.append(row)
                self._bytes -= row["bytes"]
        return found
