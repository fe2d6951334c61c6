"""What is forgotten, and what never is."""

from __future__ import annotations

import asyncio
import os

import pytest

from gateway.core.errors import NotFound
from gateway.core.types import RunQuery, RunStatus, ThreadQuery
from gateway.store import LogEntry, RunChange, Store
from tests.store.place import NOW, Place, content, entry, make_artifact, make_checkpoint, make_run, make_thread

DAY = 86400.0


async def ended(store: Store, name: str, at: float, *, size: int = 0, thread: str | None = None) -> None:
    """A run that was created and ended at `at`, with a log of about `size` bytes."""
    await store.create_run(make_run(name, at=at, thread=thread), [entry(1)], reserved=10)
    noise = (LogEntry(2, os.urandom(size // 2).hex().encode()),) if size else ()
    record = make_run(name, at=at, thread=thread, status=RunStatus.SUCCESS)
    await store.commit(name, RunChange(run=record, events=noise, release=True))


async def names(store: Store) -> list[str]:
    return [one.id for one in await store.runs(RunQuery(limit=1000, oldest_first=True))]


class RetentionContract:
    async def test_ended_runs_last_updated_before_the_limit_go_and_are_counted(self, place: Place) -> None:
        async with place.opened() as store:
            for n in range(6):
                await ended(store, f"r{n}", NOW + n * DAY)
            assert await store.prune(older_than=NOW + 2.5 * DAY) == 3
            assert await names(store) == ["r3", "r4", "r5"]
            with pytest.raises(NotFound):
                await store.events("r0")
            assert await store.prune(older_than=NOW + 2.5 * DAY) == 0

    async def test_an_old_run_that_ended_lately_stays(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_run(make_run("r", at=NOW), [], reserved=1)
            late = make_run("r", at=NOW + DAY, status=RunStatus.SUCCESS)
            await store.commit("r", RunChange(run=late, release=True))
            assert await store.prune(older_than=NOW + DAY / 2) == 0
            assert await store.prune(older_than=NOW + 2 * DAY) == 1

    async def test_more_runs_than_fit_one_step_go_in_one_call(self, place: Place) -> None:
        async with place.opened() as store:
            for n in range(200):
                await ended(store, f"r{n}", NOW)
            assert await store.prune(older_than=NOW + 1) == 200
            assert await store.count_runs(RunQuery()) == 0

    @pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.INTERRUPTED])
    async def test_an_unfinished_run_never_goes_nor_does_its_thread(self, place: Place, status: RunStatus) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            await store.create_run(make_run("r", thread="t"), [entry(1)], reserved=1)
            await store.commit("r", RunChange(run=make_run("r", thread="t", status=status)))
            assert await store.prune(older_than=NOW + 9 * DAY, max_bytes=0) == 0
            assert (await store.run("r")).status is status
            assert len(await store.events("r")) == 1
            assert (await store.thread("t")).id == "t"

    async def test_idle_threads_go_with_their_checkpoints_and_uploads_and_used_ones_stay(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("old"), [make_checkpoint("old")])
            await store.put_artifact(make_artifact("upload", thread="old"), content(b"x"), max_bytes=9)
            await store.create_thread(make_thread("new", at=NOW + 2 * DAY))
            await store.create_thread(make_thread("used"))
            await ended(store, "r", NOW + 2 * DAY, thread="used")
            assert await store.prune(older_than=NOW + DAY) == 0
            assert {one.id for one in await store.threads(ThreadQuery())} == {"new", "used"}
            with pytest.raises(NotFound):
                await store.artifact("upload")
            assert (await store.run("r")).thread == "used"
            assert await store.prune(older_than=NOW + 3 * DAY) == 1
            assert await store.threads(ThreadQuery()) == []

    async def test_files_that_belong_to_nothing_go_by_age(self, place: Place) -> None:
        async with place.opened() as store:
            await store.put_artifact(make_artifact("old"), content(b"x"), max_bytes=9)
            await store.put_artifact(make_artifact("new", at=NOW + DAY), content(b"x"), max_bytes=9)
            await store.prune(older_than=NOW + 1)
            assert (await store.artifact("new")).size == 1
            with pytest.raises(NotFound):
                await store.artifact("old")

    async def test_the_oldest_ended_runs_go_while_the_store_is_too_large_and_no_more(self, place: Place) -> None:
        async with place.opened() as store:
            for n in range(20):
                await ended(store, f"r{n:02}", NOW + n, size=100_000)
            limit = 1_000_000
            removed = await store.prune(older_than=0, max_bytes=limit)
            assert 9 <= removed <= 15
            assert await names(store) == [f"r{n:02}" for n in range(removed, 20)], "the oldest went"
            assert await store.prune(older_than=0, max_bytes=limit) == 0, "it is small enough now"

    async def test_idle_threads_go_by_size_once_no_ended_run_is_left(self, place: Place) -> None:
        async with place.opened() as store:
            noise = os.urandom(100_000).hex()
            for n in range(5):
                await store.create_thread(make_thread(f"t{n}", at=NOW + n, values=noise))
            await store.create_thread(make_thread("busy", at=NOW - 1, values=noise))
            await store.create_run(make_run("r", thread="busy"), [], reserved=1)
            await ended(store, "gone", NOW)
            assert await store.prune(older_than=0, max_bytes=700_000) == 1
            left = [one.id for one in await store.threads(ThreadQuery())]
            assert "busy" in left and "t4" in left and "t0" not in left

    async def test_commits_pass_while_a_store_is_pruned(self, place: Place) -> None:
        async with place.opened() as store:
            for n in range(30):
                await ended(store, f"r{n}", NOW, size=200_000)
            task = asyncio.ensure_future(store.prune(older_than=NOW + 1))
            for _ in range(5):
                await store.create_run(make_run(at=NOW + 9), [], reserved=1)
            assert await task == 30
            assert await store.count_runs(RunQuery()) == 5
