"""What is SQLite's own: the file, group commit, packing, what it refuses."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import NotFound, Unavailable
from gateway.core.types import RunQuery
from gateway.store import CreatedRun, Registration, RunChange, write_queue
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore, disk_thread, lease, schema
from tests.store.contracts.retention import ended
from tests.store.place import NOW, entry, eventually, make_run, numbers, tokens
from tests.support.aio import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def raw(path: Path, statement: str) -> list[Any]:
    """What another program sees in the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def seen(path: Path, statement: str, number: int) -> Any:
    """For `eventually`: whether another program sees this number."""

    async def found() -> bool:
        return raw(path, statement) == [(number,)]

    return found


async def inside(store: SqliteStore, statement: str, *, durable: bool = False) -> Any:
    """The first value of a statement on the writer's own connection."""

    def work(cursor: sqlite3.Cursor) -> Any:
        return cursor.execute(statement).fetchone()

    return (await store._queue.submit(work, durable=durable))[0]


# --- the file


def test_a_url_names_a_file_relative_to_the_base_or_absolute_or_memory(tmp_path: Path) -> None:
    async def used(url: str, base: str) -> None:
        store = open_store(url, base)
        await store.open()
        await store.create_run(make_run(), [], reserved=1)
        await store.close()

    (tmp_path / "sub").mkdir()
    run(used("sqlite:///one.db", str(tmp_path)))
    run(used("sqlite:///sub/two.db", str(tmp_path)))
    run(used(f"sqlite:///{tmp_path}/three.db", "/nowhere"))
    run(used("sqlite://", str(tmp_path)))
    found = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.db*"))
    assert found == ["one.db", "sub/two.db", "three.db"]


def test_an_unknown_engine_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'mysql'.*sqlite"):
        open_store("mysql://x")


async def test_several_stores_may_make_the_file_at_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.create_run(make_run(), [], reserved=1) for store in stores))
    assert await stores[0].count_runs(RunQuery()) == 6
    await asyncio.gather(*(store.close() for store in stores))


def test_what_is_no_database_or_nowhere_is_unavailable_by_name(path: Path) -> None:
    path.write_bytes(b"this is a letter to my aunt, and not a database at all" * 99)

    async def main() -> None:
        for wrong in (path, path.parent / "missing" / "store.db"):
            store = SqliteStore(wrong)
            with pytest.raises(Unavailable, match=str(wrong)):
                await store.open()
            with pytest.raises(Unavailable):
                await store.run("x")
            await store.close()

    run(main())


def test_a_closed_store_leaves_one_file_no_lease_and_nothing_in_the_event_loop(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        assert store._bell is not None and store._bell._socket is not None
        bell = store._bell._socket.fileno()
        await store.create_run(make_run(), [entry(1)], reserved=1)
        assert await store.runs(RunQuery())
        await store.close()
        assert not asyncio.get_running_loop().remove_reader(bell)

    run(main())
    assert caplog.messages == []
    assert [one.name for one in path.parent.iterdir()] == ["store.db"]
    assert raw(path, "SELECT * FROM leases") == []


def test_the_file_shrinks_when_runs_are_forgotten(path: Path) -> None:
    async def main() -> int:
        store = SqliteStore(path)
        await store.open()
        for n in range(20):
            await ended(store, f"r{n}", NOW, size=300_000)
        before = int(await inside(store, "PRAGMA page_count"))
        assert await store.prune(older_than=NOW + 1) == 20
        assert await inside(store, "PRAGMA page_count") < before / 4
        await store.close()
        return before

    before = run(main())
    assert path.stat().st_size < before * 4096 / 4


# --- group commit


async def test_commits_that_wait_together_share_a_transaction_and_one_wake(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    loop = asyncio.get_running_loop()
    wakes: list[Any] = []
    wake = loop.call_soon_threadsafe

    def counted(callback: Any, *args: Any, **options: Any) -> Any:
        wakes.append(callback)
        return wake(callback, *args, **options)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
    await asyncio.gather(*(store.create_run(make_run(), [], reserved=1) for _ in range(256)))
    assert len(wakes) <= 32
    del loop.call_soon_threadsafe  # type: ignore[attr-defined]
    await store.close()


@dataclass
class Disk:
    """What the store does to it. While `stuck` is set a sync does not end; `broken` makes it fail."""

    syncs: int = 0
    stuck: threading.Event = field(default_factory=threading.Event)
    broken: OSError | None = None

    def sync(self, descriptor: int) -> None:
        while self.stuck.is_set():
            time.sleep(0.001)
        os.fsync(descriptor)
        self.syncs += 1
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(disk_thread, "sync", disk.sync)
    yield disk
    disk.stuck.clear()


async def test_a_commit_waits_for_the_disk_and_tokens_do_not(path: Path, disk: Disk) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    before = disk.syncs
    store.append(one.id, tokens(2, 5))
    await store.flush()
    assert disk.syncs == before
    disk.stuck.set()
    commit = asyncio.ensure_future(store.commit(one.id, RunChange(events=(entry(7),))))
    await eventually(seen(path, "SELECT count(*) FROM log WHERE last = 7", 1))
    await asyncio.wait([commit], timeout=0.05)
    assert not commit.done(), "it is written, and not on the disk yet"
    disk.stuck.clear()
    await commit
    assert disk.syncs == before + 1
    await store.close()


async def test_commits_are_written_while_others_wait_for_the_disk_and_share_the_next_sync(
    path: Path, disk: Disk
) -> None:
    store = SqliteStore(path)
    await store.open()
    runs = [make_run() for _ in range(20)]
    disk.stuck.set()
    before = disk.syncs
    first = asyncio.ensure_future(store.create_run(runs[0], [], reserved=1))
    await eventually(seen(path, "SELECT count(*) FROM runs", 1))
    others = [asyncio.ensure_future(store.create_run(one, [], reserved=1)) for one in runs[1:]]
    await eventually(seen(path, "SELECT count(*) FROM runs", 20))
    assert not any(one.done() for one in (first, *others))
    disk.stuck.clear()
    assert await asyncio.gather(first, *others) == [CreatedRun(True)] * 20
    assert disk.syncs == before + 2
    await store.close()


async def test_a_run_that_nobody_is_told_of_has_its_row_in_a_moment_and_is_on_the_disk_moments_later(
    path: Path, disk: Disk
) -> None:
    store = SqliteStore(path)
    await store.open()
    before = disk.syncs
    disk.stuck.set()
    assert (await store.create_run(make_run(), [entry(1)], reserved=99, soon=True)).active
    await eventually(seen(path, "SELECT count(*) FROM runs", 1))
    disk.stuck.clear()

    async def synced() -> bool:
        return disk.syncs == before + 1

    await eventually(synced)
    await store.close()


async def test_what_is_owed_to_the_disk_is_synced_though_a_sync_was_under_way(path: Path, disk: Disk) -> None:
    store = SqliteStore(path)
    await store.open()
    before = disk.syncs
    disk.stuck.set()
    first = asyncio.ensure_future(store.create_run(make_run(), [], reserved=1))
    await eventually(seen(path, "SELECT count(*) FROM runs", 1))
    assert (await store.create_run(make_run(), [], reserved=1, soon=True)).active

    async def reminded() -> bool:
        return store._writer._sync_alarm is None

    await eventually(reminded)
    assert not first.done()
    disk.stuck.clear()

    async def synced() -> bool:
        return disk.syncs == before + 2

    await eventually(synced)
    assert (await first).active
    await store.close()


async def test_a_disk_that_does_not_take_it_is_an_error_for_those_who_wait_for_it(path: Path, disk: Disk) -> None:
    store = SqliteStore(path)
    await store.open()
    disk.broken = OSError("broken")
    with pytest.raises(Unavailable) as failed:
        await store.create_run(make_run(), [], reserved=1)
    assert "broken" in failed.value.detail and "broken" not in str(failed.value)
    disk.broken = None
    assert (await store.create_run(make_run(), [], reserved=1)).active
    await store.close()


async def test_closing_waits_for_commits_that_came_while_others_waited_for_the_disk(path: Path, disk: Disk) -> None:
    store = SqliteStore(path)
    await store.open()
    disk.stuck.set()
    made = []
    for count in (1, 2):
        made.append(asyncio.ensure_future(store.create_run(make_run(), [], reserved=1)))
        await eventually(seen(path, "SELECT count(*) FROM runs", count))
    closing = asyncio.ensure_future(store.close())
    await asyncio.wait([closing], timeout=0.01)
    assert not closing.done()
    disk.stuck.clear()
    assert await asyncio.wait_for(asyncio.gather(*made), 30) == [CreatedRun(True)] * 2
    await closing


async def test_what_comes_while_the_thread_works_is_written_when_it_is_done(path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    def works(*_: Any) -> None:
        held.set()
        assert go.wait(60)

    def works_alone() -> None:
        with disk.held():
            works()

    store = SqliteStore(path)
    await store.open()
    disk = store._writer._disk
    one = make_run()
    await store.create_run(one, [], reserved=9)
    for work in (
        lambda: store._queue.submit(works, durable=False, size=write_queue.LONG),  # what it was given to write
        lambda: disk.do(works_alone),  # what it does by itself
    ):
        held.clear()
        go.clear()
        working = work()
        await asyncio.to_thread(held.wait, 60)
        committing = asyncio.ensure_future(store.commit(one.id, RunChange(reserved=9)))
        await asyncio.wait([committing], timeout=0.01)
        assert not committing.done()
        go.set()
        await asyncio.wait_for(committing, 30)
        if working is not None:
            await working
    await store.close()


async def test_the_log_beside_the_file_is_moved_into_it_while_the_store_is_open(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [], reserved=9999)
    before = os.stat(path).st_size
    for number in range(1, 40):
        store.append(one.id, [entry(number, "x" * 300_000)])
        await store.flush()

    async def moved() -> bool:
        return os.stat(path).st_size > before + 5_000_000

    await eventually(moved)
    await store.close()


@pytest.mark.parametrize("fsync", [True, False])
async def test_without_a_log_beside_the_file_sqlite_syncs_commits_that_somebody_waits_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    monkeypatch.setattr(schema, "_use_wal", lambda connection: None)

    store = SqliteStore(path, fsync=fsync)
    await store.open()
    levels = [await inside(store, "PRAGMA synchronous", durable=durable) for durable in (True, False)]
    assert levels == ([2, 1] if fsync else [1, 1]), "FULL and NORMAL"
    await store.close()


async def test_names_that_have_expired_are_removed_from_the_file(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    for name, expires in (("old", 1.0), ("new", 2.0**40), ("kept", None)):
        said = Registration(name=name, protocol="p", owner=store.owner, data={}, created_at=NOW, expires_at=expires)
        await store.put_registration(said)
    await store.prune(older_than=NOW)
    assert await inside(store, "SELECT group_concat(name) FROM registrations") == "kept,new"
    await store.close()


def test_a_store_whose_lease_cannot_be_taken_does_not_open_and_leaves_no_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(lease, "keep", fails)
    before = threading.enumerate()

    async def main() -> None:
        store = SqliteStore(path)
        with pytest.raises(Unavailable, match="disk I/O error"):
            await store.open()
        await store.close()

    run(main())
    for each in threading.enumerate():
        if each.name == "store-writer" and each not in before:
            each.join(60)
            assert not each.is_alive()


async def test_a_file_that_is_damaged_is_unavailable_to_who_reads_it(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [], reserved=9)
    await store.close()
    store = SqliteStore(path)
    await store.open()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (os.stat(path).st_size - 4096))
    with pytest.raises(Unavailable, match="the store failed"):
        await store.run(one.id)
    with pytest.raises(Unavailable, match="the store failed"):
        await store.close()


async def test_closing_waits_for_the_disk(path: Path, disk: Disk) -> None:
    store = SqliteStore(path)
    await store.open()
    before = disk.syncs
    made = [asyncio.ensure_future(store.create_run(make_run(), [], reserved=1)) for _ in range(3)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*made) == [CreatedRun(True)] * 3
    assert disk.syncs > before


async def test_work_that_refuses_after_it_has_written_is_undone_and_the_rest_of_its_batch_is_not(path: Path) -> None:
    def half(cursor: sqlite3.Cursor) -> None:
        cursor.execute("UPDATE runs SET agent = 'spoilt'")
        raise NotFound("half done")

    store = SqliteStore(path)
    await store.open()
    await store.create_run(make_run(), [], reserved=1)
    calls: list[Any] = [store.create_run(make_run(), [], reserved=1) for _ in range(20)]
    calls[10:10] = [store._queue.submit(half)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results if result != CreatedRun(True)] == [NotFound]
    assert await store.count_runs(RunQuery(agent="mail")) == 21
    await store.close()


async def test_work_that_cannot_be_written_fails_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = SqliteStore(path)
    await store.open()
    good = [make_run() for _ in range(10)]
    calls = [store.create_run(one, [entry(1)], reserved=5) for one in good]
    calls[4:4] = [store.create_run(make_run(), [entry(1)], reserved=1 << 70)]
    calls[2:2] = [store.create_run(make_run(thread="nowhere"), [], reserved=1)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(r) for r in results if r != CreatedRun(True)] == [NotFound, Unavailable]
    assert results.count(CreatedRun(True)) == 10
    store.append(good[0].id, [entry(1 << 70)])
    store.append(good[0].id, [entry(2)])
    store.append(good[1].id, [entry(2)])
    await store.flush()
    assert store.backlog == 0
    assert numbers(await store.events(good[1].id)) == [1, 2]
    await store.close()
    assert "drops what cannot be written" in caplog.text


async def test_a_run_of_another_process_that_could_not_be_synced_is_synced_when_it_is_read_again(
    path: Path, disk: Disk
) -> None:
    one, other = SqliteStore(path, host="here"), SqliteStore(path, host="there")
    await one.open()
    await other.open()
    here = make_run()
    await one.create_run(here, [entry(1)], reserved=99)
    disk.broken = OSError(errno.EIO, "no disk")
    assert await other.run(here.id) == here, "it has happened"
    disk.broken = None
    before = disk.syncs
    for _ in range(2):
        assert await other.run(here.id) == here
    assert disk.syncs == before + 1
    await one.close()
    await other.close()


async def test_without_fsync_a_commit_is_written_but_not_waited_for_on_disk(path: Path, disk: Disk) -> None:
    store = open_store(f"sqlite:///{path}", fsync=False)
    assert isinstance(store, SqliteStore)
    await store.open()
    made = make_run()
    await store.create_run(made, [], reserved=1)
    assert raw(path, "SELECT count(*) FROM runs") == [(1,)]
    assert disk.syncs == 0
    await store.close()
