"""Whose a thread is has a column of its own, by which somebody's are found and counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gateway.core.types import OWNER, Thread, ThreadChange, ThreadQuery
from gateway.store.records import encode
from gateway.store.sqlite import SqliteStore, schema
from tests.store.place import NOW, make_thread

BEFORE = 3
"""Versions of the file that had no such column."""
DEEP = 5000
"""More arrays in one another than SQLite reads."""


async def owned(store: SqliteStore, owner: str) -> list[str]:
    """The ids of somebody's threads; as many as are counted."""
    query = ThreadQuery(attributes={OWNER: owner})
    found = [thread.id for thread in await store.threads(query)]
    assert await store.count_threads(query) == len(found)
    return found


async def test_a_thread_that_is_given_to_somebody_else_is_found_there() -> None:
    store = SqliteStore(None)
    await store.open()
    for owner in ("ana", "bob"):
        await store.create_thread(make_thread(owner, attributes={OWNER: owner}))
    await store.create_thread(make_thread("nobody's", attributes={OWNER: 1}))
    assert (await owned(store, "ana"), await owned(store, "bob"), await owned(store, "1")) == (["ana"], ["bob"], [])
    await store.update_thread("bob", ThreadChange(attributes={OWNER: "ana"}), at=NOW)
    assert (sorted(await owned(store, "ana")), await owned(store, "bob")) == (["ana", "bob"], [])
    assert await store.count_threads(ThreadQuery(attributes={OWNER: 1})) == 1
    await store.close()


async def test_a_file_from_before_is_read_once_and_found_by_its_owners_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    threads = [make_thread("a", attributes={OWNER: 'é"'}), make_thread("b", attributes={OWNER: 1}), make_thread("c")]
    records = [(one, bytes(encode(one))) for one in threads]
    deep = bytes(encode(make_thread("d", values="DEEP"))).replace(b'"DEEP"', b"[" * DEEP + b"]" * DEEP)
    records.append((make_thread("d"), deep))

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:BEFORE])
        schema.connect_writer(path).close()
    _write(path, records)
    store = SqliteStore(path)
    await store.open()
    assert await owned(store, 'é"') == ["a"]
    assert await owned(store, "1") == []
    assert await store.count_threads(ThreadQuery()) == len(records)
    await store.close()


def _write(path: Path, records: list[tuple[Thread, bytes]]) -> None:
    connection = sqlite3.connect(path)
    for thread, record in records:
        connection.execute(
            "INSERT INTO threads (id, status, protocol, created_at, updated_at, record) "
            "VALUES (?, 'idle', '', 1, 1, ?)",
            (thread.id, record),
        )
    connection.commit()
    connection.close()
