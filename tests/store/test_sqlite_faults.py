"""SQLite on a disk that is full, or in a file that another process holds: told, never hung, never out of order."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import Unavailable
from gateway.core.types import RunStatus
from gateway.store import RunChange
from gateway.store.sqlite import SqliteStore, disk_thread, schema
from tests.store.place import entry, eventually, make_run, numbers, tokens


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def well(store: SqliteStore) -> Callable[[], Awaitable[bool]]:
    async def found() -> bool:
        return not store.trouble

    return found


async def inside(store: SqliteStore, statement: str, *, durable: bool = False) -> Any:
    """The first value of a statement on the writer's own connection."""

    def work(cursor: sqlite3.Cursor) -> Any:
        return cursor.execute(statement).fetchone()

    return (await store._queue.submit(work, durable=durable))[0]


async def test_a_record_that_another_process_holds_is_waited_for_and_the_event_loop_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_use_wal", lambda connection: None)  # as on a file system without shared memory
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    assert await store.run(one.id) == one
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    reading = asyncio.ensure_future(store.run(one.id))
    await asyncio.wait([reading], timeout=0.1)
    assert not reading.done()
    other.execute("COMMIT")
    other.close()
    assert await asyncio.wait_for(reading, 30) == one
    await store.close()


async def test_while_another_process_holds_the_file_commits_end_unavailable_and_tokens_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 60.0)
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits = asyncio.ensure_future(store.create_run(make_run(), [], reserved=1))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waits.done(), "the event loop did not wait for the lock"
    other.execute("COMMIT")
    assert (await asyncio.wait_for(waits, 60)).active
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.2)
    other.execute("BEGIN IMMEDIATE")
    store.append(one.id, tokens(2, 5))
    running = make_run(one.id, status=RunStatus.RUNNING)
    calls = [store.commit(one.id, RunChange(run=running)), store.create_run(make_run(), [], reserved=1), store.flush()]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 3
    assert store.backlog > 0
    with pytest.raises(Unavailable):
        await store.events(one.id)  # cannot answer truthfully
    other.execute("COMMIT")
    other.close()

    async def written() -> bool:
        return store.backlog == 0

    await eventually(written)
    assert await store.run(one.id) == one, "what was refused did not happen"
    await store.commit(one.id, RunChange(run=running, events=(entry(7),)))
    assert numbers(await store.events(one.id)) == list(range(1, 8))
    await store.close()


async def test_on_a_full_disk_commits_end_unavailable_and_never_overtake_the_tokens_before_them(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is told once, however often it is tried again."""
    monkeypatch.setattr(disk_thread, "RETRY_SECONDS", 0.0)

    store = SqliteStore(path, lease_seconds=0.3)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9999)
    pages = await inside(store, "PRAGMA page_count")
    await inside(store, f"PRAGMA max_page_count = {pages + 4}")
    store.append(one.id, tokens(2, 5000))
    for _ in range(3):
        with pytest.raises(Unavailable, match="no space is left on its disk") as failed:
            await store.commit(one.id, RunChange(events=(entry(5002),)))
        assert "full" in failed.value.detail
    assert store.backlog > 100_000 and store.trouble == "the store failed: no space is left on its disk"
    with pytest.raises(Unavailable):
        await store.flush()
    _relieve(store)
    await store.commit(one.id, RunChange(events=(entry(5002),)))
    assert numbers(await store.events(one.id, max_bytes=1 << 30)) == list(range(1, 5003))
    assert store.backlog == 0
    await eventually(well(store))
    await store.close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and "disk is full" in told[0] and told[1] == "the store is written again"


async def test_that_the_lease_can_be_written_is_no_sign_that_a_damaged_file_can_and_one_that_was_mended_is_noticed(
    path: Path,
) -> None:
    store = SqliteStore(path, lease_seconds=0.3)
    await store.open()
    await store.create_run(make_run(), [entry(1)], reserved=9)
    table = await inside(store, "SELECT rootpage FROM sqlite_schema WHERE name = 'runs'")
    with store._writer._disk.held() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with path.open("r+b") as file:
        file.seek((table - 1) * 4096)
        whole = file.read(4096)
        file.seek((table - 1) * 4096)
        file.write(b"\xa5" * 4096)
    with store._writer._disk.held() as cursor:
        cursor.execute("PRAGMA shrink_memory")
    with pytest.raises(Unavailable, match="it is damaged"):
        await store.create_run(make_run(), [entry(1)], reserved=9)
    before = await inside(store, "SELECT expires_at FROM leases")

    async def extended() -> bool:
        return bool(await inside(store, "SELECT expires_at FROM leases") != before)

    await eventually(extended)
    assert store.trouble == "the store failed: it is damaged"
    with path.open("r+b") as file:
        file.seek((table - 1) * 4096)
        file.write(whole)
    await eventually(well(store))
    await store.create_run(make_run(), [entry(1)], reserved=9)
    await store.close()


def _relieve(store: SqliteStore) -> None:
    """Room on the disk again."""
    with store._writer._disk.held() as cursor:
        cursor.execute("PRAGMA max_page_count = 1000000").fetchall()


async def test_closing_on_a_full_disk_says_so_and_does_not_hang(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9999)
    pages = await inside(store, "PRAGMA page_count")
    await inside(store, f"PRAGMA max_page_count = {pages + 4}")
    store.append(one.id, tokens(2, 5000))
    with pytest.raises(Unavailable, match="could not be written"):
        await store.close()
    with pytest.raises(Unavailable, match="could not be written"):
        await store.close()
    store = SqliteStore(path)
    await store.open()
    assert numbers(await store.events(one.id)) == [1]
    await store.close()
