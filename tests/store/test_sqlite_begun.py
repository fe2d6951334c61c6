"""SQLite: a run of which nobody is told before its end has a row with its end, or a moment later; until then it is in a
file that outlives its process.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import Conflict, Unavailable
from gateway.core.types import Run, RunQuery, RunStatus
from gateway.store import Recovered, RunChange, write_queue
from gateway.store.sqlite import SqliteStore, changes, writer
from tests.store.makers import SQLITE
from tests.store.place import Place, entry, eventually, make_run, new_id, numbers
from tests.support.aio import Clock, later, on

pytestmark = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="the system cannot write at a place of a file")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is given its row with its end, or when somebody asks."""
    monkeypatch.setattr(write_queue, "SECONDS", 3600.0)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def begin(store: SqliteStore, **fields: Any) -> Run:
    one = make_run(status=RunStatus.RUNNING, **fields)
    created = await store.create_run(one, [entry(1)], reserved=99, soon=True)
    assert created.active
    return one


def ended(one: Run) -> Run:
    return replace(one, status=RunStatus.SUCCESS)


def rows(path: Path) -> list[tuple[str, str]]:
    """As another process sees them."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT id, status FROM runs ORDER BY seq").fetchall()
    finally:
        connection.close()


def run_out(path: Path, owner: str) -> None:
    """Have a process be taken for dead."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE leases SET expires_at = 0, expires_tick = 0 WHERE owner = ?", (owner,))
    connection.commit()
    connection.close()


def files(path: Path) -> list[Path]:
    return sorted(path.parent.glob("store.db-begun-*"))


async def test_a_run_and_its_end_are_one_row_that_is_written_once(path: Path, patient: None) -> None:
    async with opened(path) as store:
        one = await begin(store)
        assert rows(path) == []
        store.append(one.id, [entry(2), entry(3)])
        store.save(replace(one, upstream={"at": 1}))
        await store.commit(one.id, RunChange(run=ended(one), events=(entry(4),), release=True), soon=True)
        assert rows(path) == [(one.id, "success")]
        assert await store.run(one.id) == ended(one)
        assert numbers(await store.events(one.id)) == [1, 2, 3, 4]
        with pytest.raises(Conflict):
            await store.commit(one.id, RunChange(run=ended(one), release=True))
        long = await begin(store)
        said = tuple(entry(number, "x" * 1000) for number in range(2, 9))
        await store.commit(long.id, RunChange(run=ended(long), events=said, release=True), soon=True)
        assert numbers(await store.events(long.id)) == [*range(1, 9)]
        assert await store.is_orphaned() is False
    async with opened(path) as again:
        assert await again.claim() == []


@on(Clock)
async def test_a_run_that_takes_longer_has_its_row_in_a_moment(path: Path) -> None:
    async with opened(path) as store:
        one = await begin(store)
        store.save(replace(one, upstream={"at": 1}))

        async def written() -> bool:
            return rows(path) == [(one.id, "running")]

        await eventually(written)
        assert (await store.run(one.id)).upstream == {"at": 1}
        await store.commit(one.id, RunChange(run=ended(one), events=(entry(2),), release=True))
        assert rows(path) == [(one.id, "success")] and numbers(await store.events(one.id)) == [1, 2]
        other = await begin(store)
        assert (other.id, "running") in rows(path), "it is taken for as slow"
        await later(write_queue.SLOW_SECONDS)
        third = await begin(store)
        assert len(rows(path)) == 2
        await store.commit(third.id, RunChange(run=ended(third), release=True), soon=True)
        await begin(store)
        assert len(rows(path)) == 3


@pytest.mark.parametrize("asks", ["run", "runs", "count_runs", "events", "owner_of", "commit", "delete_run"])
async def test_whoever_asks_this_process_finds_it_at_once(path: Path, patient: None, asks: str) -> None:
    async with opened(path) as store:
        one = await begin(store)
        assert rows(path) == []
        ask: dict[str, Any] = {
            "run": lambda: store.run(one.id),
            "runs": lambda: store.runs(RunQuery()),
            "count_runs": lambda: store.count_runs(RunQuery()),
            "events": lambda: store.events(one.id),
            "owner_of": lambda: store.owner_of(one.id),
            "commit": lambda: store.commit(one.id, RunChange(reserved=500, events=(entry(2),))),
            "delete_run": lambda: store.delete_run(one.id),
        }
        expected = {"run": one, "runs": [one], "count_runs": 1, "owner_of": store.owner}
        found = await ask[asks]()
        assert found == expected.get(asks, found)
        assert [id for id, _ in rows(path)] == ([] if asks == "delete_run" else [one.id])
        assert asks != "events" or numbers(found) == [1]


async def test_a_killed_process_leaves_it_to_whoever_claims_its_runs(path: Path) -> None:
    place, (first, second) = Place(SQLITE, f"sqlite:///{path}"), (new_id(), new_id())
    async with place.process("begin", runs=[first, second], ends=second) as child:
        owner = await child.said()
        assert rows(path) == [(second, "success")]
        await child.kill()
        async with opened(path) as store:
            assert owner in files(path)[0].name or owner in files(path)[1].name
            assert await store.is_orphaned()
            (found,) = await store.claim()
            assert (found.run.id, found.run.status, found.reserved) == (first, RunStatus.RUNNING, 99)
            assert numbers(await store.events(first)) == [1] and await store.owner_of(first) == store.owner
            assert [store.owner in file.name for file in files(path)] == [True], "the other one is gone"
            await store.commit(first, RunChange(run=ended(found.run), release=True))
            assert await store.claim() == []
    assert files(path) == []


async def test_what_a_process_begins_that_was_taken_for_dead_is_found_when_it_is_killed(path: Path) -> None:
    place, (first, second, later) = Place(SQLITE, f"sqlite:///{path}"), (new_id(), new_id(), new_id())
    async with place.process("begin", runs=[first, second], ends=second, then=later) as child, opened(path) as store:
        owner = await child.said()
        claimed: list[Recovered] = []
        while not claimed:  # its heart may beat in between
            run_out(path, owner)
            claimed = await store.claim()
        assert [found.run.id for found in claimed] == [first]
        await child.go()
        assert await child.said() == "begun"
        await child.kill()
        assert [found.run.id for found in await store.claim()] == [later]


async def test_a_run_that_is_begun_while_its_process_is_taken_for_dead_is_read_or_has_its_row(
    path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the other process has done when the run is written: nothing, taken the file, read it, removed it."""
    real, found = os.pwrite, [0]

    async with opened(path, host="there", lease_seconds=3600.0) as store, opened(path, host="here") as survivor:
        run_out(path, store.owner)
        begun = survivor._begun
        assert begun is not None
        owned = store.owner

        def dead(owner: str) -> bool:
            return owner == owned

        def late(descriptor: int, data: bytes, at: int) -> int:
            """The run is written after the file is taken, and before it is read; and after it is read."""
            if len(data) == 1:
                return real(descriptor, data, at)
            written = real(descriptor, data, at)
            if found[0] == 0 and any(data):
                found[0] = len([*begun.left(dead)])
            return written

        monkeypatch.setattr(os, "pwrite", late)
        one = await begin(store)
        assert found[0] == 1 and rows(path) == [(one.id, "running")], "it is both"
        begun.forget()
        other = await begin(store)
        assert [id for id, _ in rows(path)] == [one.id, other.id]


async def test_a_run_is_wiped_out_of_the_file_when_it_has_its_row(path: Path, patient: None) -> None:
    async with opened(path) as store:
        (file,) = files(path)
        ends = await begin(store, metadata={"text": "a secret"})
        stays = await begin(store)
        assert b"a secret" in file.read_bytes()
        await store.commit(ends.id, RunChange(run=ended(ends), release=True), soon=True)
        assert b"a secret" not in file.read_bytes() and stays.id.encode() in file.read_bytes()
        await store.flush()
        assert not file.read_bytes().strip(b"\0")


async def test_a_run_that_another_process_deletes_stays_deleted_when_its_own_is_killed(path: Path) -> None:
    place, (first, second) = Place(SQLITE, f"sqlite:///{path}"), (new_id(), new_id())
    async with place.process("begin", runs=[first, second], ends=second) as child:
        await child.said()
        async with opened(path) as store:
            await store.delete_run(second)
            await child.kill()
            assert [found.run.id for found in await store.claim()] == [first]
            assert rows(path) == [(first, "running")]


@pytest.mark.parametrize("said", [b'{"id":"half', b'{"id":"\xff"}'], ids=["half a record", "no text"])
async def test_half_a_run_in_the_file_of_a_killed_process_is_none(path: Path, said: bytes) -> None:
    async with opened(path) as store:
        left = path.with_name(f"{path.name}-begun-of-the-dead")
        left.write_bytes((writer._HEAD.pack(20, 5, 9) + said).ljust(writer.PLACE_BYTES, b"\0"))
        assert await store.claim() == [] and rows(path) == [] and not left.exists()


@pytest.mark.parametrize("keeps", ["gone", "unreadable", "not removed"])
async def test_a_file_that_is_in_the_way_keeps_no_run_from_whoever_claims_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    place, (first, second) = Place(SQLITE, f"sqlite:///{path}"), (new_id(), new_id())
    other = path.with_name(f"{path.name}-begun-{keeps}")
    async with place.process("begin", runs=[first, second], ends=second) as child, opened(path) as store:
        await child.said()
        await child.kill()
        if keeps == "gone":  # another process has removed it between two looks
            other.symlink_to("nowhere")
        elif keeps == "unreadable":
            other.mkdir()
        else:
            monkeypatch.setattr(Path, "unlink", refused)
        assert [found.run.id for found in await store.claim()] == [first]
        monkeypatch.undo()


async def test_a_folder_that_may_not_be_looked_into_any_more_ends_no_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> os.stat_result:
        raise PermissionError("not yours")

    async with opened(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", refused)
            store._begun.look()
        one = await begin(store)
        assert rows(path) == [(one.id, "running")]


async def test_a_process_that_was_taken_for_dead_ends_no_run_that_another_has(path: Path, patient: None) -> None:
    async with opened(path, host="there", lease_seconds=3600.0) as store:
        one, other = await begin(store), await begin(store)
        async with opened(path, host="here") as survivor:
            run_out(path, store.owner)
            found = await survivor.claim()
            assert [each.run.id for each in found] == [one.id, other.id]
            with pytest.raises(Conflict, match="taken over by another process"):
                await store.commit(one.id, RunChange(run=ended(one), release=True), soon=True)
            with pytest.raises(Conflict, match="taken over by another process"):
                await store.commit(other.id, RunChange(run=replace(other, cancel_reason="x")))
            assert rows(path) == [(one.id, "running"), (other.id, "running")]
            third = await begin(store)
            assert (third.id, "running") in rows(path), "its file is gone: what it begins has its row at once"


async def test_what_does_not_fit_or_has_more_to_it_has_its_row_at_once(
    path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PLACES", 2)

    async with opened(path) as store:
        large = await begin(store, metadata={"text": "x" * writer.PLACE_BYTES})
        silent = make_run()
        await store.create_run(silent, [], reserved=1, soon=True)
        at_once = [large.id, silent.id]
        assert [id for id, _ in rows(path)] == at_once
        small = [await begin(store), await begin(store)]
        assert [id for id, _ in rows(path)] == at_once, "there are two places"
        third = await begin(store)
        assert [id for id, _ in rows(path)] == [*at_once, third.id]
        for each in small:
            await store.commit(each.id, RunChange(run=ended(each), events=(entry(2),), release=True), soon=True)
        await begin(store)
        assert len(rows(path)) == 5


async def test_a_store_that_takes_nothing_takes_no_run_either(
    path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def well() -> bool:
        return not store.trouble

    async with opened(path, lease_seconds=0.3) as store:
        one = await begin(store)
        with monkeypatch.context() as patch:
            patch.setattr(changes, "_add_run", full)
            with pytest.raises(Unavailable):
                await store.commit(one.id, RunChange(run=ended(one), release=True), soon=True)
            with pytest.raises(Unavailable):
                await begin(store)
        await store.commit(one.id, RunChange(run=ended(one), release=True), soon=True)
        assert rows(path) == [(one.id, "success")]
        await eventually(well)
        await begin(store)
        assert len(rows(path)) == 1


async def test_a_run_begins_while_something_long_is_being_written(path: Path, patient: None) -> None:
    async with opened(path) as store:
        started, go = threading.Event(), threading.Event()

        def long(_: sqlite3.Cursor) -> None:
            started.set()
            assert go.wait(10)

        writing = store._queue.submit(long, size=write_queue.LONG)
        try:
            assert await asyncio.to_thread(started.wait, 10)
            async with asyncio.timeout(5):
                one = await begin(store)
            assert rows(path) == [] and not writing.done()
        finally:
            go.set()
        await writing
        await store.commit(one.id, RunChange(run=ended(one), release=True), soon=True)
        assert rows(path) == [(one.id, "success")]


@pytest.mark.parametrize("fails", ["open", "pwrite"])
async def test_a_file_that_cannot_be_written_is_done_without(
    path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    real = os.open

    def full(*args: Any, **named: Any) -> int:
        if fails == "open" and "-begun-" not in str(args[0]):
            return real(*args, **named)
        raise OSError("no room")

    async with opened(path):  # makes the database
        pass
    with monkeypatch.context() as patch:
        patch.setattr(os, fails, full)
        async with opened(path) as store:
            one = await begin(store)
            assert rows(path) == [(one.id, "running")]
            await store.commit(one.id, RunChange(run=ended(one), release=True))
    assert rows(path) == [(one.id, "success")] and files(path) == []
