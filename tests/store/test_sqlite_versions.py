"""SQLite's file as other versions of this program wrote it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import Unavailable, Unsupported
from gateway.core.types import Run, RunQuery, RunStatus
from gateway.store import LogEntry, Message, RunChange
from gateway.store.records import encode
from gateway.store.sqlite import SqliteStore, schema
from tests.store.place import entry, make_run, make_thread, numbers
from tests.support.aio import run

VERSIONS = range(1, len(schema.MIGRATIONS))
LOG = [(1, 1, 0, b'{"n":1}'), (2, 4, 1, b'{"n":2}\n{"n":3}\n{"n":4}'), (5, 5, 0, b"an agent's own\nline")]
"""The rows of a run's log, as every version wrote them: first, last, delta, data."""
ENTRIES = [
    LogEntry(1, b'{"n":1}'),
    *(LogEntry(n, b'{"n":%d}' % n, delta=True) for n in (2, 3, 4)),
    LogEntry(5, b"an agent's own\nline"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def raw(path: Path, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """What another program does with the file, and sees in it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def old_file(path: Path, version: int, runs: list[Run]) -> None:
    """A file of that version with a thread and these runs, each with the same log; their process is gone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for script in schema.MIGRATIONS[:version]:
        for statement in script:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    thread = make_thread("t")
    connection.execute(
        "INSERT INTO threads (id, status, protocol, created_at, updated_at, record) VALUES ('t', 'idle', '', 1, ?, ?)",
        (thread.updated_at, encode(thread)),
    )
    for one in runs:
        seq = connection.execute(
            "INSERT INTO runs (id, owner, place, status, agent, protocol, created_at, updated_at, reserved, record) "
            "VALUES (?, 'nobody', 1, ?, 'mail', 'plain', ?, ?, 99, ?)",
            (one.id, one.status.value, one.created_at, one.updated_at, encode(one)),
        ).lastrowid
        assert seq is not None
        connection.executemany(
            "INSERT INTO log (key, last, delta, data) VALUES (?, ?, ?, ?)",
            [(seq << 32 | first, last, delta, data) for first, last, delta, data in LOG],
        )
    connection.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_file_of_each_earlier_version_is_read_and_its_unfinished_runs_go_on(path: Path, version: int) -> None:
    under_way, over = make_run(status=RunStatus.RUNNING), make_run(status=RunStatus.SUCCESS)
    old_file(path, version, [under_way, over])
    store = SqliteStore(path)
    await store.open()
    (found,) = await store.claim()
    assert (found.run, found.reserved) == (under_way, 99)
    assert await store.runs(RunQuery(statuses=(RunStatus.SUCCESS,))) == [over]
    assert await store.thread("t") == make_thread("t")
    for one in (under_way, over):
        assert await store.events(one.id) == ENTRIES
        assert await store.events(one.id, deltas=False) == [ENTRIES[0], ENTRIES[4]]
    ended = make_run(under_way.id, status=RunStatus.SUCCESS)
    await store.commit(under_way.id, RunChange(run=ended, events=(entry(100),), release=True))
    assert numbers(await store.events(under_way.id)) == [1, 2, 3, 4, 5, 100]
    await store.close()
    plan = raw(path, f"EXPLAIN QUERY PLAN SELECT seq FROM runs WHERE owner = 'x' AND {schema.UNFINISHED}")
    assert "runs_unfinished" in plan[0][3]
    writing = raw(path, "EXPLAIN UPDATE runs SET status = 'error' WHERE id = 'x' AND owner = 'y'")
    assert "OpenEphemeral" not in [step[1] for step in writing]


async def test_a_run_that_an_older_process_creates_beside_this_one_is_its_principals_and_nobody_elses(
    path: Path,
) -> None:
    store = SqliteStore(path)
    await store.open()
    runs = [make_run(principal="ana"), make_run(principal=None), make_run(input={"principal": "ana"})]
    columns = "id, owner, place, status, agent, protocol, created_at, updated_at, reserved, record"
    for one in runs:
        written = (one.id, one.status.value, one.created_at, one.updated_at, encode(one))
        raw(path, f"INSERT INTO runs ({columns}) VALUES (?, 'old', 1, ?, 'mail', 'plain', ?, ?, 99, ?)", written)
    assert [run.id for run in await store.runs(RunQuery(principal="ana"))] == [runs[0].id]
    assert await store.count_runs(RunQuery(principal="ana")) == 1
    assert await store.runs(RunQuery(principal="bob")) == []
    assert await store.count_runs(RunQuery()) == 3
    await store.close()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    raw(path, "PRAGMA user_version = 99")
    with pytest.raises(Unavailable, match=r"newer version.*schema 99"):
        run(SqliteStore(path).open())
    assert raw(path, "SELECT name FROM sqlite_master") == []


async def test_a_process_of_a_version_without_a_mailbox_is_left_alone_and_whoever_writes_to_it_hears_so(
    path: Path,
) -> None:
    store = SqliteStore(path)
    await store.open()
    raw(
        path,
        "INSERT OR REPLACE INTO leases (owner, host, pid, started, expires_at, expires_tick) "
        "VALUES ('older', 'another host', 1, '', 1e12, 1e12)",
    )
    with pytest.raises(Unsupported, match="cannot be told anything"):
        await store.mailbox.send("older", Message(id="m", sender=store.owner, body=b""), seconds=60)
    assert raw(path, "SELECT * FROM mail") == []
    await store.close()


async def test_an_older_file_is_brought_to_this_version_with_what_is_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_run()
    store = SqliteStore(path)
    await store.open()
    await store.create_run(one, [entry(1)], reserved=1)
    await store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN more TEXT",)))
    stores = [SqliteStore(path) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert await store.run(one.id) == one
        await store.close()
    assert raw(path, "PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
    assert raw(path, "SELECT more FROM runs") == [(None,)]


def test_that_a_large_file_is_migrated_is_told_before_it_takes_long(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema, "MANY_RUNS", 1)
    old_file(path, 1, [make_run(), make_run()])
    schema.connect_writer(path).close()
    assert f"has 2 runs and is brought from version 1 to {len(schema.MIGRATIONS)}" in caplog.text
    caplog.clear()
    schema.connect_writer(path).close()
    assert caplog.text == ""


async def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    broken = ("ALTER TABLE runs ADD COLUMN more TEXT", "ALTER TABLE nothing ADD COLUMN more TEXT")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        with pytest.raises(Unavailable, match="nothing"):
            await SqliteStore(path).open()
    store = SqliteStore(path)
    await store.open()
    assert await store.runs(RunQuery()) == []
    await store.close()
    assert raw(path, "PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
