"""Opening, closing, and what a store says when it is not open."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import Unavailable
from gateway.core.types import RunQuery, RunStatus, ThreadChange, ThreadQuery
from gateway.store import CreatedRun, Message, RunChange
from tests.store.place import Place, content, entry, make_artifact, make_run, make_thread, tokens
from tests.support.aio import run


class LifeContract:
    def test_two_stores_have_different_owners(self, place: Place) -> None:
        assert place.store().owner != place.store().owner

    async def test_closing_twice_is_closing_once(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await asyncio.gather(store.close(), store.close())
        await store.close()

    def test_a_store_that_was_never_opened_can_be_closed(self, place: Place) -> None:
        run(place.store().close())

    @pytest.mark.parametrize("opened", [True, False])
    async def test_every_method_of_a_store_that_is_not_open_raises_unavailable(
        self, place: Place, opened: bool
    ) -> None:
        store = place.store()
        if opened:
            await store.open()
            await store.close()
        one, thread = make_run(), make_thread()
        for call in (
            store.activate(one.id),
            store.flush(),
            store.flush(one.id),
            store.lives("x"),
            store.is_orphaned(),
            store.mailbox.send("x", Message(id="m", sender="y", body=b""), seconds=1),
            store.mailbox.receive(),
            store.run(one.id),
            store.owner_of(one.id),
            store.runs(RunQuery()),
            store.count_runs(RunQuery()),
            store.delete_run(one.id),
            store.events(one.id),
            store.create_thread(thread),
            store.thread(thread.id),
            store.threads(ThreadQuery()),
            store.count_threads(ThreadQuery()),
            store.update_thread(thread.id, ThreadChange(), at=0),
            store.delete_thread(thread.id),
            store.history(thread.id),
            store.put_artifact(make_artifact(), content(b"x"), max_bytes=10),
            store.artifact("x"),
            store.artifacts(run="x"),
            anext(store.open_artifact("x")),
            store.deliveries(0),
            store.delivered("x"),
            store.postpone("x", 0),
            store.registrations(0),
            store.delete_registration("x"),
            store.claim(),
            store.prune(older_than=0),
        ):
            with pytest.raises(Unavailable):
                await call
        with pytest.raises(Unavailable):
            await store.create_run(one, [], reserved=1)
        with pytest.raises(Unavailable):
            await store.commit(one.id, RunChange(run=one))
        with pytest.raises(Unavailable):
            store.append(one.id, [entry(1)])
        with pytest.raises(Unavailable):
            store.save(one)

    async def test_a_cancelled_waiter_spoils_nothing_for_the_others_in_its_batch(self, place: Place) -> None:
        async with place.opened() as store:
            runs = [make_run() for _ in range(20)]
            waiting = [asyncio.ensure_future(store.create_run(one, [entry(1)], reserved=9)) for one in runs]
            await asyncio.sleep(0)
            for task in waiting[::2]:
                task.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert results[1::2] == [CreatedRun(True)] * 10
            assert (await store.create_run(make_run(), [], reserved=1)).active
            for one in runs[1::2]:
                assert await store.run(one.id) == one

    async def test_commits_of_many_callers_at_once_all_arrive(self, place: Place) -> None:
        async with place.opened() as store:

            async def one() -> None:
                record = make_run()
                await store.create_run(record, [entry(1)], reserved=100)
                store.append(record.id, tokens(2, 5))
                ended = make_run(record.id, status=RunStatus.SUCCESS)
                await store.commit(record.id, RunChange(run=ended, events=(entry(7),), release=True))
                assert (await store.run(record.id)).status is RunStatus.SUCCESS
                assert [e.number for e in await store.events(record.id)] == [1, 2, 3, 4, 5, 6, 7]

            await asyncio.gather(*(one() for _ in range(100)))
            assert await store.count_runs(RunQuery(statuses=(RunStatus.SUCCESS,))) == 100
