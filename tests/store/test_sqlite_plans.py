"""SQLite's plan for every statement that a store makes: none reads all runs, or all of anything else that grows.

A plan is the same for ten rows and for a million here: nothing is written (`ANALYZE`) that it would follow.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.core.types import OWNER, RunQuery, RunStatus, ThreadChange, ThreadQuery, ThreadStatus
from gateway.store import Delivery, Message, Registration, RunChange
from gateway.store.records import encode
from gateway.store.sqlite import SqliteStore, schema
from tests.store.place import NOW, content, entry, make_artifact, make_checkpoint, make_run, make_thread, tokens
from tests.support.aio import run

GROWING = "runs|log|threads|checkpoints|artifacts|chunks|deliveries|mail"
LIVE = {"runs_unfinished", "runs_active", "runs_queued", "artifacts_unfinished", "deliveries_due"}
"""Indexes of what is under way or owed, which may be read from end to end."""
OLDEST = "ORDER BY seq LIMIT 64"
"""Read from the beginning of a table, past what is under way, until there are enough."""
Statement = tuple[str, Any]


class NotedCursor(sqlite3.Cursor):
    """A cursor that notes every statement with its values."""

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        if isinstance(self.connection, NotedConnection):
            self.connection.noted.append((sql, values))
        return super().execute(sql, values)

    def executemany(self, sql: str, values: Iterable[Any]) -> sqlite3.Cursor:
        rows = list(values)
        if isinstance(self.connection, NotedConnection):
            self.connection.noted += [(sql, row) for row in rows]
        return super().executemany(sql, rows)


class NotedConnection(sqlite3.Connection):
    noted: list[Statement]

    def cursor(self, *_: Any, **__: Any) -> Any:
        return super().cursor(NotedCursor)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Statement]]:
    """Every statement of every connection that is made from now on."""
    connect = sqlite3.connect
    found: list[Statement] = []

    def noting(*args: Any, **named: Any) -> Any:
        connection = connect(*args, **named, factory=NotedConnection)
        connection.noted = found
        return connection

    monkeypatch.setattr(schema.sqlite3, "connect", noting)
    yield found


def plans(path: Path, statements: Iterable[Statement]) -> dict[str, list[str]]:
    """The steps of the plan of each statement that reads or changes what grows, by its text."""
    connection = sqlite3.Connection(str(path))
    connection.create_function("wanted", 1, lambda record: True)
    found: dict[str, list[str]] = {}
    for sql, values in statements:
        if sql not in found and re.match(r"SELECT|INSERT|UPDATE|DELETE|WITH", sql):
            rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
            found[sql] = [row[3] for row in rows]
    connection.close()
    return found


def endless(steps: Iterable[str]) -> list[str]:
    """Steps that read a table, or an index that grows, from end to end."""
    scans = [re.match(rf"SCAN ({GROWING})\b(?:.* INDEX (\w+))?", step) for step in steps]
    return [scan[0] for scan in scans if scan is not None and scan[2] not in LIVE]


def sorts(steps: list[str]) -> bool:
    """Whether rows are sorted that are not of one run, thread or process."""
    read = [match[1] for step in steps if (match := re.search(r"INDEX (\w+)", step)) is not None]
    return any("ORDER BY" in step for step in steps) and not set(read) <= LIVE


async def everything(store: SqliteStore) -> None:
    """Whatever a store can do, but searches."""
    other = "nobody"
    await store.create_thread(make_thread("t"), [make_checkpoint("t")])
    one, two = make_run("one", thread="t"), make_run("two", thread="t")
    await store.put_artifact(make_artifact("given"), content(b"x"), max_bytes=9)
    await store.create_run(one, [entry(1)], reserved=99)
    await store.create_run(make_run("alone", principal="ana", files=("given",)), [entry(1, "x" * 5000)], reserved=99)
    await store.create_run(two, [], reserved=99)
    store.append(one.id, tokens(2, 200))
    store.append("alone", tokens(2, 2))
    store.save(make_run("alone", status=RunStatus.RUNNING))
    await store.flush()
    await store.put_artifact(make_artifact("file", run=one.id), content(b"x"), max_bytes=9)
    ended = make_run(one.id, thread="t", status=RunStatus.SUCCESS)
    owed = Delivery(id="call", run=ended, due_at=NOW)
    point = make_checkpoint("t", values={"v": 1})
    await store.commit(
        one.id, RunChange(run=ended, events=(entry(202),), checkpoint=point, delivery=owed, release=True)
    )
    await store.commit("alone", RunChange(run=make_run("alone", status=RunStatus.CANCELLED)))
    await store.commit("alone", RunChange(reserved=999))
    assert await store.activate(two.id)
    await store.run(two.id)
    await store.owner_of(two.id)
    await store.events(one.id, 100)
    await store.events(one.id, deltas=False)
    await store.thread("t")
    await store.history("t", before=(await store.history("t", limit=1))[0].id)
    await store.artifact("file")
    await store.artifacts(run=one.id)
    await store.artifacts(thread="t")
    assert [chunk async for chunk in store.open_artifact("file")] == [b"x"]
    await store.deliveries(NOW)
    await store.postpone("call", NOW)
    await store.delivered("call")
    await store.update_thread("t", ThreadChange(metadata={"k": 1}), at=NOW)
    agent = Registration(name="a", protocol="p", owner=other, data={}, created_at=NOW, expires_at=NOW + 1)
    await store.put_registration(agent)
    await store.registrations(NOW)
    await store.delete_registration("a")
    await store.mailbox.send(store.owner, Message(id="m", sender=other, body=b""), seconds=60)
    assert len(await store.mailbox.receive()) == 1
    assert await store.lives(store.owner)
    await store.is_orphaned()
    await store.claim()
    await store.delete_run(two.id)
    await store.create_thread(make_thread("gone"))
    await store.put_artifact(make_artifact("upload", thread="gone"), content(b"x"), max_bytes=9)
    await store.delete_thread("gone")
    await store.prune(older_than=NOW + 9, max_bytes=0)


async def searches(store: SqliteStore) -> None:
    """Every search by columns, page and count."""
    await store.create_thread(make_thread("t"))
    await store.create_run(make_run("r"), [], reserved=1)
    statuses = ((), *((one,) for one in RunStatus), (RunStatus.ERROR, RunStatus.TIMEOUT), tuple(RunStatus))
    some = (None, "x")
    for agent, thread, protocol, principal, wanted in product(some, some, some, some, statuses):
        query = RunQuery(agent=agent, thread=thread, protocol=protocol, principal=principal, statuses=wanted)
        for asked in (query, RunQuery(statuses=wanted, metadata={"k": 1}), RunQuery(threaded=True, oldest_first=True)):
            await store.runs(asked)
            await store.count_runs(asked)
    for agent, protocol, status, owner in product(some, some, (None, *ThreadStatus), some):
        attributes = {} if owner is None else {OWNER: owner}
        threads = ThreadQuery(agent=agent, protocol=protocol, status=status, attributes=attributes)
        await store.threads(threads)
        await store.count_threads(threads)


@pytest.mark.parametrize("what", [everything, searches])
def test_no_statement_reads_all_that_there_is(tmp_path: Path, noted: list[Statement], what: Any) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        noted.clear()
        await what(store)
        await store.close()

    run(main())
    found = plans(path, noted)
    assert len(found) > 50
    assert {sql: steps for sql, steps in found.items() if endless(steps) and not sql.endswith(OLDEST)} == {}
    assert {sql: steps for sql, steps in found.items() if "LIMIT" in sql and sorts(steps)} == {}


def test_a_run_that_succeeds_moves_in_no_index_but_those_of_what_is_under_way(tmp_path: Path) -> None:
    """What a run that ends well costs: the indexes of its id, its protocol and its agent have it once."""
    schema.connect_writer(tmp_path / "store.db").close()
    connection = sqlite3.connect(tmp_path / "store.db")
    found = connection.execute("EXPLAIN UPDATE runs SET status = 'success', record = x'00' WHERE id = 'x'").fetchall()
    connection.close()
    moved = [step for step in found if step[1] == "IdxInsert"]
    assert len(moved) <= 3, "runs_unfinished, runs_failed, runs_agent_failed: each has its condition in front"


async def test_a_file_from_before_knows_whose_its_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    runs = [make_run("a", principal='é"'), make_run("b"), make_run("c", metadata={"principal": "x"})]

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:6])
        connection = schema.connect_writer(path)
        for one in runs:
            connection.execute(
                "INSERT INTO runs (id, owner, place, status, agent, protocol, created_at, updated_at, reserved, "
                "record) VALUES (?, 'o', 2, 'success', 'mail', 'plain', 1, 1, 1, ?)",
                (one.id, encode(one)),
            )
        connection.close()
    store = SqliteStore(path)
    await store.open()
    for query, expected in ((RunQuery(principal='é"'), ["a"]), (RunQuery(principal="x"), [])):
        assert [one.id for one in await store.runs(query)] == expected
        assert await store.count_runs(query) == len(expected)
    await store.close()
