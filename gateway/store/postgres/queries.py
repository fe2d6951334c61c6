"""Reads records by id, filtered lists and their counts, files, and deliveries. Every function takes a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any

from gateway.core.errors import NotFound
from gateway.core.types import UNFINISHED, Artifact, Checkpoint, Run, RunQuery, RunStatus, Thread, ThreadQuery
from gateway.store import Delivery, LogEntry, log_rows
from gateway.store.postgres import schema
from gateway.store.postgres.connections import Connection, fetch
from gateway.store.records import (
    Wanted,
    decode_artifact,
    decode_brief,
    decode_checkpoint,
    decode_run,
    decode_thread,
    of_few,
    wanted_run,
    wanted_thread,
)
from gateway.store.searches import (
    COLUMNS,
    FAILED,
    RunRange,
    ThreadRange,
    needs_protocols,
    split_count,
    split_runs,
    split_threads,
)

PARTIAL: dict[str, Sequence[RunStatus]] = {schema.UNFINISHED: UNFINISHED, schema.FAILED: FAILED}
"""The words of partial indexes, and the runs that are in them."""
SEARCHED = 512
"""How many records are looked at a time where a search asks what no column says."""
LOG_ROWS, MORE_LOG_ROWS = 32, 128
"""How many rows of a log are read first, and then at a time, until there is enough."""


async def row_of(connection: Connection, columns: str, table: str, key: str, also: str = "") -> Any:
    """The columns of the row with this id. Raises NotFound."""
    rows = await fetch(connection, f"SELECT {columns} FROM interlingua.{table} WHERE id = $1{also}", key)
    if not rows:
        raise NotFound(f"no {table.removesuffix('s')} {key}")
    return rows[0]


async def run(connection: Connection, run_id: str) -> tuple[str, Run, int]:
    """A run with its owner, and the number of the transaction that wrote it last."""
    owner, record, written = await row_of(connection, "owner, record, xmin::text::bigint", "runs", run_id)
    return str(owner), decode_run(record), int(written)


async def over_before(connection: Connection) -> int:
    """The number before which all transactions are over: they are on the disk when this one is."""
    rows = await fetch(connection, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    return int(rows[0][0])


def is_before(written: int, limit: int) -> bool:
    """Whether a row's transaction is one before `limit`. The server has 32 bits of its number in a row."""
    return 0 < (limit - written) % (1 << 32) < 1 << 31 and limit > 0


async def owner_of(connection: Connection, run_id: str) -> str:
    return str((await row_of(connection, "owner", "runs", run_id))[0])


async def thread(connection: Connection, thread_id: str) -> Thread:
    return decode_thread(*await row_of(connection, COLUMNS["threads"], "threads", thread_id))


async def artifact(connection: Connection, artifact_id: str) -> Artifact:
    """Implements `Store.artifact`. Raises NotFound until the upload is complete."""
    return decode_artifact((await row_of(connection, "record", "artifacts", artifact_id, " AND uploader IS NULL"))[0])


async def require(connection: Connection, table: str, key: str) -> None:
    """Raise NotFound unless `table` has the id."""
    await row_of(connection, "1", table, key)


# --- searches


async def protocols(connection: Connection, table: str) -> list[str]:
    """The protocols of all runs or threads, one step down the index for each."""
    least = f"SELECT min(protocol) FROM interlingua.{table}"
    rows = await fetch(
        connection,
        f"WITH RECURSIVE known(one) AS (({least}) UNION ALL SELECT ({least} WHERE protocol > one) FROM known "
        "WHERE one IS NOT NULL) SELECT one FROM known WHERE one IS NOT NULL",
    )
    return [one for (one,) in rows]


class Search:
    """One search: its parts, each a `WHERE`, with the values of all of them, and what only the record says."""

    def __init__(self, table: str, query: RunQuery | ThreadQuery, wanted: Wanted | None) -> None:
        self._table = table
        self._query = query
        self._wanted = wanted
        self._parts: list[str] = []
        self._fewer: list[str] = []
        self._values: list[Any] = []

    def take(self, parts: Iterable[RunRange | ThreadRange], *, fewer: bool = False) -> Search:
        """Read these parts; or, counting, take them off."""
        for part in parts:
            equal = []
            for column, value in part.equal.items():
                self._values.append(value)
                equal.append(f"{column} = ${len(self._values)}")
            (self._fewer if fewer else self._parts).append(" AND ".join([*equal, *part.terms(PARTIAL)]))
        return self

    async def rows(self, connection: Connection) -> list[tuple[Any, ...]]:
        """The rows of the page that is asked for, of the table's `COLUMNS`."""
        limit, offset = max(0, self._query.limit), max(0, self._query.offset)
        if not self._parts:
            return []
        if self._wanted is None:
            sql = f"{self._select()} LIMIT {limit} OFFSET {offset}"
            return [tuple(row)[2:] for row in await fetch(connection, sql, *self._values)]
        found: list[tuple[Any, ...]] = []
        async with aclosing(self._matching(connection)) as matching:
            async for row in matching:
                if len(found) == offset + limit:
                    break
                found.append(row)
        return found[offset:]

    async def count(self, connection: Connection) -> int:
        if self._wanted is None:
            counted = f"(SELECT count(*) FROM interlingua.{self._table} WHERE "
            terms = [*(f"+ {counted}{part})" for part in self._parts), *(f"- {counted}{part})" for part in self._fewer)]
            return int((await fetch(connection, f"SELECT 0 {' '.join(terms)}", *self._values))[0][0])
        if not self._parts:
            return 0
        async with aclosing(self._matching(connection)) as matching:
            return len([None async for _ in matching])

    def _select(self, also: str = "") -> str:
        way = "ASC" if self._query.oldest_first else "DESC"
        columns = f"created_at, seq, {COLUMNS[self._table]} FROM interlingua.{self._table}"
        every = " UNION ALL ".join(f"SELECT {columns} WHERE {part}{also}" for part in self._parts)
        return f"{every} ORDER BY created_at {way}, seq {way}"

    async def _matching(self, connection: Connection) -> AsyncGenerator[tuple[Any, ...], None]:
        """The rows that match, a page after the other: memory does not grow with their number."""
        assert self._wanted is not None
        at = len(self._values) + 1
        sign = ">" if self._query.oldest_first else "<"
        bound: tuple[Any, ...] = ()
        while True:
            also = f" AND (created_at, seq) {sign} (${at}, ${at + 1})" if bound else ""
            rows = await fetch(connection, f"{self._select(also)} LIMIT {SEARCHED}", *self._values, *bound)
            for row in rows:
                if self._wanted(row["record"]):
                    yield tuple(row)[2:]
            if len(rows) < SEARCHED:
                return
            bound = tuple(rows[-1])[:2]


async def _split_runs(connection: Connection, query: RunQuery) -> list[RunRange]:
    return split_runs(query, await protocols(connection, "runs") if needs_protocols(query) else ())


async def _threads(connection: Connection, query: ThreadQuery) -> Search:
    known = await protocols(connection, "threads") if needs_protocols(query) else ()
    return Search("threads", query, wanted_thread(query)).take(split_threads(query, known))


async def runs(connection: Connection, query: RunQuery) -> list[Run]:
    search = Search("runs", query, wanted_run(query)).take(await _split_runs(connection, query))
    decode = decode_brief if query.brief else decode_run
    return [decode(record) for (record,) in await search.rows(connection)]


async def count_runs(connection: Connection, query: RunQuery) -> int:
    wanted = wanted_run(query)
    more, less = (query, None) if wanted is not None else split_count(query)
    search = Search("runs", query, wanted).take(await _split_runs(connection, more))
    if less is not None:
        search.take(await _split_runs(connection, less), fewer=True)
    return await search.count(connection)


async def threads(connection: Connection, query: ThreadQuery) -> list[Thread]:
    return [decode_thread(*row) for row in await (await _threads(connection, query)).rows(connection)]


async def count_threads(connection: Connection, query: ThreadQuery) -> int:
    return await (await _threads(connection, query)).count(connection)


# --- what belongs to runs and threads


async def events(connection: Connection, run_id: str, after: int, *, max_bytes: int, deltas: bool) -> list[LogEntry]:
    """Implements `Store.events`."""
    seq, head, tail = await row_of(connection, "seq, head, tail", "runs", run_id)
    kinds = "" if deltas else " AND NOT delta"
    sql = (
        f"SELECT first, last, delta, data FROM interlingua.log WHERE run = $1 AND first >= $2 AND last > $3{kinds} "
        "ORDER BY first LIMIT $4"
    )
    begin = await fetch(
        connection, "SELECT coalesce(max(first), 0) FROM interlingua.log WHERE run = $1 AND first <= $2", seq, after + 1
    )
    entries: list[LogEntry] = []
    start, limit, more = int(begin[0][0]), LOG_ROWS, True
    room = max_bytes + log_rows.ROW_BYTES  # of the first row the reader may have a part already
    while more and room > 0:
        rows = await fetch(connection, sql, seq, start, after, limit)
        for row in rows:
            entries += log_rows.unpack(*row)
            room -= len(row["data"])
        more = len(rows) == limit
        start, limit = int(rows[-1]["last"]) + 1 if more else 0, MORE_LOG_ROWS
    last = [] if more else of_few(tail)
    return log_rows.page(chain(of_few(head), entries, last), after, max_bytes, deltas)


async def history(connection: Connection, thread_id: str, limit: int, before: str | None) -> list[Checkpoint]:
    await require(connection, "threads", thread_id)
    older, bound = "", ()
    if before is not None:
        sql = "SELECT created_at, seq FROM interlingua.checkpoints WHERE thread = $1 AND id = $2"
        rows = await fetch(connection, sql, thread_id, before)
        if not rows:
            raise NotFound(f"no checkpoint {before}")
        older, bound = " AND (created_at, seq) < ($3, $4)", tuple(rows[0])
    rows = await fetch(
        connection,
        f"SELECT record FROM interlingua.checkpoints WHERE thread = $1{older} "
        "ORDER BY created_at DESC, seq DESC LIMIT $2",
        thread_id,
        max(0, limit),
        *bound,
    )
    return [decode_checkpoint(record) for (record,) in rows]


async def artifacts(connection: Connection, run_id: str | None, thread_id: str | None) -> list[Artifact]:
    if run_id is not None:
        await require(connection, "runs", run_id)
    if thread_id is not None:
        await require(connection, "threads", thread_id)
    rows = await fetch(
        connection,
        "SELECT created_at, seq, record FROM interlingua.artifacts WHERE uploader IS NULL AND run = $1 UNION "
        "SELECT created_at, seq, record FROM interlingua.artifacts WHERE uploader IS NULL AND thread = $2 UNION "
        "SELECT created_at, seq, record FROM interlingua.artifacts WHERE uploader IS NULL "
        "AND run IN (SELECT id FROM interlingua.runs WHERE thread = $2) ORDER BY created_at, seq",
        run_id,
        thread_id,
    )
    return [decode_artifact(row["record"]) for row in rows]


async def chunk(connection: Connection, artifact_id: str, number: int) -> bytes | None:
    """Read chunk `number` (from 0) of a file. None after the last."""
    rows = await fetch(
        connection,
        "SELECT data FROM interlingua.artifacts LEFT JOIN interlingua.chunks ON artifact = seq AND number = $2 "
        "WHERE id = $1 AND uploader IS NULL",
        artifact_id,
        number,
    )
    if not rows:
        raise NotFound(f"no artifact {artifact_id}")
    data: bytes | None = rows[0][0]
    return data


async def deliveries(connection: Connection, owner: str, now: float, limit: int) -> list[Delivery]:
    rows = await fetch(
        connection,
        "SELECT id, record, due_at, attempts FROM interlingua.deliveries WHERE owner = $1 AND due_at <= $2 "
        "ORDER BY due_at, seq LIMIT $3",
        owner,
        now,
        limit,
    )
    return [
        Delivery(id=key, run=decode_run(record), due_at=due_at, attempts=attempts)
        for key, record, due_at, attempts in rows
    ]


async def registration_changes(connection: Connection) -> int:
    rows = await fetch(connection, "SELECT value FROM interlingua.counters WHERE name = 'registrations'")
    return int(rows[0][0])


async def registrations(connection: Connection) -> tuple[int, list[bytes]]:
    """Read the counter and the records, in this order: what is written meanwhile is read again."""
    count = await registration_changes(connection)
    rows = await fetch(connection, "SELECT record FROM interlingua.registrations ORDER BY name")
    return count, [record for (record,) in rows]
