"""Where SQLite keeps the entries of a log: in rows that neighbours share, or with their run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import RunStatus
from gateway.store import LogEntry, RunChange
from gateway.store.records import FEW_BYTES
from gateway.store.sqlite import SqliteStore
from tests.store.place import entry, make_checkpoint, make_run, numbers, tokens


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def rows(store: SqliteStore) -> int:
    """How many rows all logs have."""

    def work(cursor: sqlite3.Cursor) -> int:
        return int(cursor.execute("SELECT count(*) FROM log").fetchone()[0])

    return await store._queue.submit(work, durable=False)


async def test_neighbouring_tokens_share_a_row(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9999)
    for number in range(2, 1002):
        store.append(one.id, tokens(number, 1))
    await store.flush()
    assert await rows(store) < 100
    assert len(await store.events(one.id)) == 1001
    await store.close()


async def test_what_was_appended_before_a_commit_shares_its_row(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    store.append(one.id, [entry(2), entry(3)])
    store.append(one.id, [entry(4)])
    await store.commit(one.id, RunChange(events=(entry(5),)))
    assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5]
    assert await rows(store) == 1
    store.append(one.id, [entry(6)])
    with pytest.raises(NotFound):
        await store.commit(one.id, RunChange(events=(entry(7),), checkpoint=make_checkpoint("nowhere")))
    assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5, 6], "what was refused took nothing with it"
    await store.close()


async def test_a_short_run_has_its_whole_log_in_its_own_row_and_a_long_one_has_not(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    for length, expected in ((3, 0), (300, 3)):
        one = make_run()
        log = [entry(1), entry(2), *tokens(3, length), entry(3 + length, "line\nbreak")]
        await store.create_run(one, log[:1], reserved=9999)
        store.append(one.id, log[1:-1])
        ended = make_run(one.id, status=RunStatus.SUCCESS)
        await store.commit(one.id, RunChange(run=ended, events=tuple(log[-1:]), release=True))
        assert await rows(store) == expected
        assert await store.run(one.id) == ended
        assert await store.events(one.id) == log
        assert await store.events(one.id, 1 + length) == log[1 + length :]
        assert await store.events(one.id, max_bytes=1) == log[:1]
        assert await store.events(one.id, deltas=False) == [*log[:2], log[-1]]
        await store.delete_run(one.id)
    await store.close()


async def test_a_runs_own_row_is_read_as_it_was_written_by_whatever_version(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [LogEntry(1, b"a"), LogEntry(2, b"b", delta=True)], reserved=99)
    connection = sqlite3.connect(path)
    ((head,),) = connection.execute("SELECT head FROM runs").fetchall()
    connection.close()
    assert head == b"\x92\x93\x01\xc4\x01a\xc2\x93\x02\xc4\x01b\xc3"
    await store.close()


@pytest.mark.parametrize("length", [2, FEW_BYTES + 1])
async def test_a_run_does_not_end_twice(path: Path, length: int) -> None:
    store = SqliteStore(path)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    ended = make_run(one.id, status=RunStatus.SUCCESS)
    await store.commit(one.id, RunChange(run=ended, events=(LogEntry(2, b"x" * length),), release=True))
    again = make_run(one.id, status=RunStatus.ERROR)
    with pytest.raises(Conflict, match="has ended"):
        await store.commit(one.id, RunChange(run=again, events=(entry(3),), release=True))
    assert await store.run(one.id) == ended
    assert numbers(await store.events(one.id)) == [1, 2]
    await store.close()
