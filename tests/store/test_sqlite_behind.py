"""SQLite: a record that is written behind is left out where what follows at once writes it again, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.types import Run
from gateway.store import Change
from gateway.store.sqlite import SqliteStore, changes
from tests.store.place import entry, make_run, make_thread
from tests.support.aio import run


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `upstream` each record had that was written behind."""
    found: list[Any] = []
    save = changes.save

    def noted(*args: Any, run: Run, **named: Any) -> None:
        found.append(run.upstream)
        save(*args, run=run, **named)

    monkeypatch.setattr(changes, "save", noted)
    return found


def test_a_record_that_is_committed_at_once_is_not_written_behind_too(tmp_path: Path, written: list[Any]) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=99)
        store.save(replace(one, upstream={"at": 1}))
        store.save(replace(one, upstream={"at": 2}))
        await store.commit(one.id, Change(run=replace(one, upstream={"at": 3})))
        assert (await store.run(one.id)).upstream == {"at": 3}
        assert written == []
        store.save(replace(one, upstream={"at": 4}))
        store.save(replace(one, upstream={"at": 5}))
        await store.commit(one.id, Change(reserved=200))
        assert (await store.run(one.id)).upstream == {"at": 5}
        assert written == [{"at": 5}]
        await store.close()

    run(main())


def test_a_record_behind_is_written_where_the_commit_after_it_is_refused(tmp_path: Path, written: list[Any]) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=99)
        store.save(replace(one, upstream={"at": 1}))
        with pytest.raises(NotFound):
            await store.commit(one.id, Change(run=replace(one, upstream={"at": 2}), thread=make_thread()))
        assert (await store.run(one.id)).upstream == {"at": 1}
        assert written == [{"at": 1}]
        await store.close()

    run(main())


def test_who_reads_in_between_finds_the_record_that_was_written_behind(written: list[Any]) -> None:
    async def main() -> None:
        store = SqliteStore()
        await store.open()
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=99)
        store.save(replace(one, upstream={"at": 1}))
        reading = store._writer.submit(lambda cursor: written[:], run=one.id, durable=False)
        await store.commit(one.id, Change(run=replace(one, upstream={"at": 2})))
        assert await reading == [{"at": 1}]
        assert (await store.run(one.id)).upstream == {"at": 2}
        await store.close()

    run(main())
