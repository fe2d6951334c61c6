"""SQLite's file, its log and the thread beside the event loop, when something is wrong with them: told, made good."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import NotFound, Unavailable
from gateway.core.types import RunQuery
from gateway.store import CreatedRun, RunChange, Unsynced
from gateway.store.sqlite import SqliteStore, disk_thread, schema
from gateway.store.write_queue import LONG, WriteBehind
from tests.store.place import entry, eventually, make_run, numbers, tokens
from tests.support.aio import run

BOUND = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_disk_that_can_be_synced_again_is_noticed_though_nothing_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def sync(descriptor: int) -> None:
        if broken:
            raise OSError("broken")

    async def well() -> bool:
        return not store.trouble

    monkeypatch.setattr(disk_thread, "sync", sync)
    store = SqliteStore(path, lease_seconds=0.3)
    await store.open()
    with pytest.raises(Unsynced):
        await store.create_run(make_run(), [entry(1)], reserved=9)
    assert store.trouble == "the store failed"
    broken = False
    await eventually(well)
    await store.close()


def wal(path: Path) -> bytes:
    """The file's log as it is now."""
    return Path(f"{path}-wal").read_bytes()


async def test_a_path_may_be_a_link_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store.db").symlink_to(tmp_path / "disk" / "real.db")
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    one = make_run()
    assert (await store.create_run(one, [entry(1)], reserved=9)).active
    assert await store.run(one.id) == one
    await store.close()
    assert os.listdir(tmp_path / "disk") == ["real.db"]


async def test_after_a_sync_that_failed_the_next_commit_is_in_the_file_itself_with_all_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = False

    def sync(descriptor: int) -> None:
        if broken:
            raise OSError("broken")

    monkeypatch.setattr(disk_thread, "sync", sync)
    store = SqliteStore(path, lease_seconds=3600.0)
    await store.open()
    one = make_run()
    assert (await store.create_run(one, [entry(1)], reserved=9)).active
    broken = True
    with pytest.raises(Unsynced):
        await store.commit(one.id, RunChange(events=(entry(2),)))
    await store.flush()
    assert store.trouble == "the store failed"
    broken = False
    await store.commit(one.id, RunChange(events=(entry(3),)))
    assert wal(path) == b"", "what the failed sync may have lost is needed no more"
    alone = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)  # reads the file and no log
    assert alone.execute("SELECT max(last) FROM log").fetchone() == (3,)
    alone.close()
    await store.commit(one.id, RunChange(events=(entry(4),)))
    assert wal(path) != b"" and store.trouble == "", "and then all is as it was"
    assert numbers(await store.events(one.id)) == [1, 2, 3, 4]
    await store.close()


async def test_what_begins_the_log_anew_is_written_with_the_checkpoint_and_not_by_the_event_loop(path: Path) -> None:
    store = SqliteStore(path, lease_seconds=3600.0)  # which would write as well
    await store.open()
    await store.create_run(make_run(), [entry(1)], reserved=9)
    before = wal(path)[12:16]
    store._writer._disk.do(store._writer._disk.checkpoint)

    async def anew() -> bool:
        return wal(path)[12:16] != before  # the number of checkpoints, in the log's head

    await eventually(anew)
    await store.close()


class NoRoom:
    """A cursor whose file takes no pages of the log."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if "wal_checkpoint" in sql:
            raise sqlite3.OperationalError("database or disk is full")
        return self._cursor.execute(sql, *values)


async def test_a_log_that_cannot_be_moved_to_its_file_is_told_of_once_and_refuses_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(path, lease_seconds=3600.0)
    await store.open()
    there = store._writer._disk
    whole = there.cursor
    there.cursor = NoRoom(whole)  # type: ignore[assignment]
    for _ in range(3):
        there.do(there.checkpoint)
    await store.create_run(make_run(), [entry(1)], reserved=9)  # on the disk: the thread has done all before
    assert not store.trouble
    there.cursor = whole
    there.do(there.checkpoint)
    await store.create_run(make_run(), [entry(1)], reserved=9)
    await store.close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and "cannot be moved to its file: database or disk is full" in told[0], told


class Meanwhile:
    """A cursor. What another connection reads ends when a checkpoint has left what was written since it began."""

    def __init__(self, cursor: sqlite3.Cursor, other: sqlite3.Connection) -> None:
        self._cursor = cursor
        self._other = other
        self._rows: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, *values: Any) -> Any:
        done = self._cursor.execute(sql, *values)
        if "PASSIVE" not in sql:
            return done
        self._rows = done.fetchall()
        self._other.execute("COMMIT")
        return self

    def fetchall(self) -> list[Any]:
        return self._rows


async def test_a_large_log_of_which_a_checkpoint_leaves_some_begins_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_thread, "RESTART_PAGES", 3)

    store = SqliteStore(path, lease_seconds=3600.0)
    await store.open()
    await store.create_run(make_run(), [entry(1)], reserved=9)
    there = store._writer._disk
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    await store.create_run(make_run(), [entry(1)], reserved=9)
    there.cursor = Meanwhile(there.cursor, other)  # type: ignore[assignment]
    before = wal(path)[12:16]
    there.do(there.checkpoint)

    async def anew() -> bool:
        return wal(path)[12:16] != before

    await eventually(anew)
    assert await store.count_runs(RunQuery()) == 2
    other.close()
    await store.close()


async def test_a_batch_that_is_written_piece_by_piece_waits_for_another_process_between_the_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(cursor: sqlite3.Cursor) -> None:
        cursor.execute("UPDATE runs SET agent = 'spoilt'")
        raise NotFound("half done")

    store = SqliteStore(path)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    undo = disk_thread.DiskThread._roll_back

    def undone(self: disk_thread.DiskThread) -> None:
        undo(self)
        monkeypatch.setattr(disk_thread.DiskThread, "_roll_back", undo)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.1, other.execute, ["COMMIT"]).start()

    monkeypatch.setattr(disk_thread.DiskThread, "_roll_back", undone)

    first = store.create_run(make_run(), [], reserved=1)
    calls: list[Any] = [first, store._queue.submit(half)]
    calls += [store.create_run(make_run(), [], reserved=1) for _ in range(2)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [CreatedRun, NotFound, CreatedRun, CreatedRun]
    assert await store.count_runs(RunQuery(agent="mail")) == 3
    other.close()
    await store.close()


async def test_if_the_thread_dies_everybody_who_waits_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object, **__: object) -> None:
        raise MemoryError("no more")

    store = SqliteStore(path)
    await store.open()
    synced = threading.Event()
    monkeypatch.setattr(disk_thread, "sync", lambda _: synced.wait(BOUND))
    waits = asyncio.ensure_future(store.create_run(make_run(), [], reserved=1))

    async def syncing() -> bool:
        return store._writer._syncing is not None

    await eventually(syncing)
    monkeypatch.setattr(disk_thread.DiskThread, "on_disk", dies)
    monkeypatch.setattr(disk_thread.DiskThread, "write", dies)
    lent = asyncio.ensure_future(store._queue.submit(lambda _: None, size=LONG))
    await asyncio.sleep(0)
    later = asyncio.ensure_future(store.create_run(make_run(), [], reserved=1))
    await asyncio.sleep(0)
    synced.set()
    results = await asyncio.wait_for(asyncio.gather(waits, lent, later, return_exceptions=True), BOUND)
    assert results[0] == CreatedRun(True) and [type(result) for result in results[1:]] == [Unavailable] * 2
    with pytest.raises(MemoryError):
        await store.close()


async def test_after_the_thread_died_nothing_that_was_kept_is_tried_again(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    writer = store._writer
    writer._disk.kept.append(WriteBehind("r"))
    writer._disk.do(lambda: int("dies"))  # type: ignore[arg-type]

    async def died() -> bool:
        return bool(store.trouble)

    await eventually(died)
    writer._again()  # as its alarm does
    assert writer._lent is None, "there is no thread that it could be lent to"
    with pytest.raises(ValueError, match="dies"):
        await store.close()


async def test_a_store_that_closed_with_something_unwritten_leaves_the_event_loop_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.2)
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.append(one.id, tokens(2, 5))
    flushed = asyncio.ensure_future(store.flush())
    writer = store._writer

    async def lent() -> bool:
        return writer._lent is not None

    await eventually(lent)
    monkeypatch.setattr(writer, "_alarm", None)  # as when it has rung meanwhile
    with pytest.raises(Unavailable):
        await store.close()
    with pytest.raises(Unavailable):
        await flushed
    assert writer._alarm is None or writer._alarm.cancelled()  # it was set before the end, where that came late
    other.close()


@pytest.mark.parametrize("found", ["by a commit", "by the lease"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_or_replaced_under_the_store_ends_it_with_a_word_and_takes_nothing_more(
    path: Path, caplog: pytest.LogCaptureFixture, replaced: bool, found: str
) -> None:
    async def gone() -> bool:
        return bool(store.trouble)

    async def main() -> None:
        await store.open()
        await store.create_run(make_run(), [], reserved=1)
        await store.runs(RunQuery())
        if replaced:
            os.replace(shutil.copy(path, f"{path}-copy"), path)
        else:
            os.unlink(path)
        if found == "by a commit":
            with pytest.raises(Unavailable, match="removed"):
                await store.create_run(make_run(), [], reserved=1)
        await eventually(gone)
        with pytest.raises(Unavailable, match="removed"):
            await store.runs(RunQuery())
        with pytest.raises(Unavailable, match="removed"):
            await store.close()

    store = SqliteStore(path, fsync=found == "by a commit", lease_seconds=60 if found == "by a commit" else 0.3)
    run(main())
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(path) in told and "Put a file back" in told
