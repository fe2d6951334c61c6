"""SQLite: what is written behind is held until it is due, too much, asked for, or taken along by a commit of its run; a
record is left out where what follows writes it again, and only there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.types import Run
from gateway.store import LogEntry, RunChange, write_queue
from gateway.store.sqlite import SqliteStore, changes, log
from tests.store.place import entry, eventually, make_checkpoint, make_run, numbers, tokens
from tests.support.aio import Still, later, on


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


async def test_a_record_that_is_committed_at_once_is_not_written_behind_too(tmp_path: Path, written: list[Any]) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    store.save(replace(one, upstream={"at": 1}))
    store.save(replace(one, upstream={"at": 2}))
    await store.commit(one.id, RunChange(run=replace(one, upstream={"at": 3})))
    assert (await store.run(one.id)).upstream == {"at": 3}
    assert written == []
    store.save(replace(one, upstream={"at": 4}))
    store.save(replace(one, upstream={"at": 5}))
    await store.commit(one.id, RunChange(reserved=200))
    assert (await store.run(one.id)).upstream == {"at": 5}
    assert written == [{"at": 5}]
    await store.close()


async def test_a_record_behind_is_written_where_the_commit_after_it_is_refused(
    tmp_path: Path, written: list[Any]
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    store.save(replace(one, upstream={"at": 1}))
    with pytest.raises(NotFound):
        change = RunChange(run=replace(one, upstream={"at": 2}), checkpoint=make_checkpoint("nowhere"))
        await store.commit(one.id, change)
    assert (await store.run(one.id)).upstream == {"at": 1}
    assert written == [{"at": 1}]
    await store.close()


async def test_a_record_without_which_its_run_cannot_be_found_again_is_written_before_any_other(
    tmp_path: Path, written: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "SECONDS", 3600.0)

    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    other, one = make_run(), make_run()
    for each in (other, one):
        await store.create_run(each, [entry(1)], reserved=99)
    store.save(replace(other, upstream={"at": 1}))
    store.save(replace(one, upstream={"at": 2}), soon=True)

    async def anything() -> bool:
        return bool(written)

    await eventually(anything)
    assert written == [{"at": 2}]
    store.save(replace(one, upstream={"at": 3}))
    await store.close()
    assert written == [{"at": 2}, {"at": 1}, {"at": 3}]


async def test_who_reads_in_between_finds_the_record_that_was_written_behind(written: list[Any]) -> None:
    store = SqliteStore()
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    store.save(replace(one, upstream={"at": 1}))
    reading = store._queue.submit(lambda cursor: written[:], run=one.id, durable=False)
    await store.commit(one.id, RunChange(run=replace(one, upstream={"at": 2})))
    assert await reading == [{"at": 1}]
    assert (await store.run(one.id)).upstream == {"at": 2}
    await store.close()


def size(entries: list[LogEntry]) -> int:
    return sum(len(one.data) for one in entries)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is never due."""
    monkeypatch.setattr(write_queue, "DELTA_SECONDS", 3600.0)


async def test_text_is_held_for_a_commit_of_its_run_and_anything_else_is_written_soon(
    tmp_path: Path, patient: None
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    speaks, acts = make_run(), make_run()
    await store.create_run(speaks, [entry(1)], reserved=99)
    await store.create_run(acts, [entry(1)], reserved=99)
    said, more = tokens(2, 5), tokens(7, 2)
    store.append(speaks.id, said)
    store.append(acts.id, tokens(2, 5))
    store.append(acts.id, [entry(7)])

    async def written() -> bool:
        return store.backlog == size(said)

    await eventually(written)
    await store.commit(acts.id, RunChange(events=(entry(8),)))
    store.append(speaks.id, more)
    assert store.backlog == size(said + more), "neither is any business of the other run's"
    await store.commit(speaks.id, RunChange(events=(entry(9),)))
    assert store.backlog == 0
    assert numbers(await store.events(speaks.id)) == list(range(1, 10))
    await store.close()


async def test_who_reads_a_log_has_only_that_one_written(tmp_path: Path, patient: None) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    one, other = make_run(), make_run()
    for each in (one, other):
        await store.create_run(each, [entry(1)], reserved=99)
        store.append(each.id, tokens(2, 5))
    assert numbers(await store.events(one.id)) == list(range(1, 7))
    assert store.backlog == size(tokens(2, 5))
    await store.close()
    again = SqliteStore(tmp_path / "store.db")
    await again.open()
    assert numbers(await again.events(other.id)) == list(range(1, 7)), "closing writes what is held"
    await again.close()


async def test_when_much_is_held_all_of_it_is_written(tmp_path: Path, patient: None) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    runs = [make_run() for _ in range(4)]
    for one in runs:
        await store.create_run(one, [entry(1)], reserved=9)
    for one in runs[:3]:
        store.append(one.id, [entry(2, "x" * (write_queue.MOST_BYTES // 3), delta=True)])
    await store.commit(runs[0].id, RunChange(reserved=10))
    assert store.backlog == write_queue.MOST_BYTES // 3 * 2
    store.append(runs[3].id, [entry(2, "x" * (write_queue.MOST_BYTES // 4), delta=True)])
    assert len(store._queue._held) == 3, "what a commit took along is no more counted"
    store.append(runs[3].id, [entry(3, "x" * (write_queue.MOST_BYTES // 4), delta=True)])

    async def written() -> bool:
        return store.backlog == 0

    await eventually(written)
    await store.close()


async def test_what_is_due_of_many_runs_is_written_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "DELTA_SECONDS", 0.01)
    together: list[list[str]] = []
    write = log.write_all

    def noted(cursor: Any, owner: str, runs: list[tuple[str, Any]]) -> None:
        together.append([run_id for run_id, _ in runs])
        write(cursor, owner, runs)

    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    runs = [make_run() for _ in range(3 * write_queue.MOST_RUNS)]
    for one in runs:
        await store.create_run(one, [entry(1)], reserved=99)
    monkeypatch.setattr(log, "write_all", noted)
    for one in runs:
        store.append(one.id, tokens(2, 1))

    async def written() -> bool:
        return store.backlog == 0

    await eventually(written)
    assert max(map(len, together)) == write_queue.MOST_RUNS
    assert [each for few in together for each in few] == [one.id for one in runs], "the oldest first, each once"
    await store.close()


def released(found: list[list[str]], most: int = write_queue.MOST_RUNS) -> write_queue.WriteQueue:
    """A queue. The runs of what it releases are put into `found`, those of each time together."""
    queue = write_queue.WriteQueue(lambda: found.append([str(one.run) for one in queue.take(99)]), most)
    queue.open()
    return queue


@on(Still)
async def test_the_text_of_all_runs_is_written_when_the_first_is_due_and_with_nothing_that_is_due_earlier() -> None:
    found: list[list[str]] = []
    held = released(found)
    held.append("early", tokens(1, 1))
    await later(write_queue.DELTA_SECONDS * 0.5)
    held.append("late", tokens(1, 1))
    held.append("acts", [entry(1)])
    await later(write_queue.SECONDS + 0.001)
    assert found == [["acts"]]
    await later(write_queue.DELTA_SECONDS * 0.4)
    assert found == [["acts"], ["early", "late"]]
    assert not held.holds()


@on(Still)
async def test_the_text_of_many_runs_that_came_bit_by_bit_is_released_bit_by_bit_and_none_later_than_is_due() -> None:
    found: list[list[str]] = []
    held = released(found, 2)
    for name in "abcde":
        held.append(name, tokens(1, 1))
        await later(0.01)
    await later(write_queue.DELTA_SECONDS - 0.05)
    assert found == [["a", "b"]], "the second goes with the first, and the others are not due"
    held.append("acts", [entry(1)])
    await later(0.02)
    assert found == [["a", "b"], ["c", "d"]]
    await later(0.02)
    assert found == [["a", "b"], ["c", "d"], ["e", "acts"]]
    assert not held.holds()


@on(Still)
async def test_what_was_taken_meanwhile_is_not_released_again_and_what_came_since_only_when_it_is_due() -> None:
    found: list[list[str]] = []
    held = released(found)
    held.append("taken", tokens(1, 1))
    await later(write_queue.DELTA_SECONDS * 0.5)
    held.submit(lambda: None, run="taken", own=True)
    assert found.pop() == ["taken", "taken"], "with the job that it goes before"
    held.append("taken", tokens(2, 1))
    await later(write_queue.DELTA_SECONDS * 0.5)
    assert found == []
    held.append("taken", [entry(3)])
    await later(write_queue.SECONDS)
    assert found == [["taken"]] and not held.holds()
    await later(write_queue.DELTA_SECONDS)
    assert found == [["taken"]]


async def test_text_is_written_though_no_commit_comes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    runs = [make_run() for _ in range(3)]
    for one in runs:
        await store.create_run(one, [entry(1)], reserved=99)
        store.append(one.id, tokens(2, 1))
    store.save(replace(runs[0], upstream={"at": 1}))  # which is due earlier than the rest

    async def written() -> bool:
        return store.backlog == 0

    await eventually(written)
    store.append(runs[1].id, tokens(3, 1))
    await eventually(written)
    await store.close()
