"""One active run a thread: creation, the queue, activation, release."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import IfBusy, RunStatus, ThreadChange, ThreadQuery, ThreadStatus
from gateway.store import CreatedRun, RunChange, Store
from tests.store.place import NOW, Place, entry, make_run, make_thread, numbers

WAITING = [IfBusy.ENQUEUE, IfBusy.INTERRUPT, IfBusy.ROLLBACK]


async def release(store: Store, run_id: str, thread: str) -> None:
    ended = make_run(run_id, thread=thread, status=RunStatus.SUCCESS)
    await store.commit(run_id, RunChange(run=ended, release=True))


class QueueContract:
    async def test_a_new_run_is_there_with_its_events_once_create_returns(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run(metadata={"deep": [1, {"x": None}]}, config={"k": "v"})
            assert (await store.create_run(one, [entry(1), entry(2)], reserved=10)).active is True
            assert await store.run(one.id) == one
            assert await store.events(one.id) == [entry(1), entry(2)]
            talks, said = make_run(), [entry(n) for n in range(1, 301)]
            await store.create_run(talks, said, reserved=999)
            assert await store.events(talks.id) == said

    async def test_runs_without_a_thread_never_wait_for_each_other(self, place: Place) -> None:
        async with place.opened() as store:
            for _ in range(3):
                assert (await store.create_run(make_run(if_busy=IfBusy.REJECT), [], reserved=1)).active is True

    async def test_a_run_changes_its_thread_as_it_is_created_and_not_if_it_is_refused(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            one, other = (make_run(thread="t", if_busy=IfBusy.REJECT) for _ in range(2))
            busy = make_thread("t", at=NOW, status=ThreadStatus.BUSY)
            assert await store.create_run(one, [], reserved=1) == CreatedRun(True, make_thread("t"))
            assert await store.thread("t") == busy
            assert await store.threads(ThreadQuery(status=ThreadStatus.BUSY)) == [busy]
            with pytest.raises(Conflict):
                await store.create_run(other, [], reserved=1)
            assert await store.thread("t") == busy

    async def test_a_run_that_may_start_finds_its_thread_as_others_left_it(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            change = ThreadChange(upstream={"mail": {"session": "s"}})
            left = await store.update_thread("t", change, at=NOW + 1)
            assert left != make_thread("t")
            first, second = make_run(thread="t"), make_run(thread="t")
            assert await store.create_run(first, [], reserved=1) == CreatedRun(True, left)
            assert await store.create_run(second, [], reserved=1) == CreatedRun(False)

    async def test_a_run_on_an_unknown_thread_is_not_found_and_not_written(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run(thread="nowhere")
            with pytest.raises(NotFound):
                await store.create_run(one, [entry(1)], reserved=1)
            with pytest.raises(NotFound):
                await store.run(one.id)

    async def test_a_run_id_is_given_once(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1)
            with pytest.raises(Conflict):
                await store.create_run(make_run(one.id, agent="other"), [entry(1)], reserved=1)
            assert await store.run(one.id) == one
            assert len(await store.events(one.id)) == 1

    async def test_reject_on_a_busy_thread_conflicts_and_writes_nothing(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, second = make_run(thread="t"), make_run(thread="t", if_busy=IfBusy.REJECT)
            assert (await store.create_run(first, [], reserved=1)).active is True
            with pytest.raises(Conflict):
                await store.create_run(second, [entry(1)], reserved=1)
            with pytest.raises(NotFound):
                await store.run(second.id)
            await release(store, first.id, "t")
            assert (await store.create_run(second, [entry(1)], reserved=1)).active is True

    async def test_reject_conflicts_too_while_another_run_waits_for_the_free_thread(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, second = make_run(thread="t"), make_run(thread="t")
            await store.create_run(first, [], reserved=1)
            assert (await store.create_run(second, [], reserved=1)).active is False
            await release(store, first.id, "t")
            with pytest.raises(Conflict):
                await store.create_run(make_run(thread="t", if_busy=IfBusy.REJECT), [], reserved=1)

    @pytest.mark.parametrize("if_busy", WAITING)
    async def test_any_other_run_on_a_busy_thread_queues(self, place: Place, if_busy: IfBusy) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            await store.create_run(make_run(thread="t"), [], reserved=1)
            one = make_run(thread="t", if_busy=if_busy)
            assert (await store.create_run(one, [entry(1)], reserved=1)).active is False
            assert await store.run(one.id) == one
            assert numbers(await store.events(one.id)) == [1]

    async def test_of_many_runs_on_one_thread_at_once_exactly_one_starts(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            made = await asyncio.gather(*(store.create_run(make_run(thread="t"), [], reserved=1) for _ in range(20)))
            assert sorted(one.active for one in made) == [False] * 19 + [True]

    async def test_queued_runs_start_in_the_order_of_creation_each_when_the_thread_is_free(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            # the clock of the records does not order the queue
            first, second, third = (make_run(thread="t", at=100.0 - n) for n in range(3))
            for one in (first, second, third):
                await store.create_run(one, [], reserved=1)
            assert [await store.activate(one.id) for one in (first, second, third)] == [True, False, False]
            await release(store, first.id, "t")
            assert await store.activate(third.id) is False, "an older run waits"
            assert await store.activate(second.id) is True
            assert await store.activate(second.id) is True, "asking again changes nothing"
            assert await store.activate(third.id) is False, "the thread is busy"
            await release(store, second.id, "t")
            assert await store.activate(third.id) is True
            assert await store.activate(first.id) is False, "it has ended"

    async def test_a_new_run_does_not_overtake_those_that_wait_for_a_free_thread(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, second, third = (make_run(thread="t") for _ in range(3))
            await store.create_run(first, [], reserved=1)
            await store.create_run(second, [], reserved=1)
            await release(store, first.id, "t")
            assert (await store.create_run(third, [], reserved=1)).active is False
            assert await store.activate(second.id) is True

    async def test_a_queued_run_that_ends_or_goes_leaves_the_queue(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, cancelled, deleted, last = (make_run(thread="t") for _ in range(4))
            for one in (first, cancelled, deleted, last):
                await store.create_run(one, [], reserved=1)
            await store.commit(
                cancelled.id, RunChange(run=make_run(cancelled.id, thread="t", status=RunStatus.CANCELLED))
            )
            await store.delete_run(deleted.id)
            await release(store, first.id, "t")
            assert await store.activate(cancelled.id) is False
            assert await store.activate(last.id) is True

    async def test_a_run_that_ended_keeps_its_thread_until_it_is_released(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, second = make_run(thread="t"), make_run(thread="t")
            await store.create_run(first, [], reserved=1)
            await store.create_run(second, [], reserved=1)
            await store.commit(first.id, RunChange(run=make_run(first.id, thread="t", status=RunStatus.ERROR)))
            assert await store.activate(second.id) is False
            await store.commit(first.id, RunChange(release=True))
            assert await store.activate(second.id) is True

    async def test_deleting_the_active_run_frees_its_thread(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first = make_run(thread="t")
            await store.create_run(first, [], reserved=1)
            await store.delete_run(first.id)
            again = make_run(thread="t", if_busy=IfBusy.REJECT)
            assert (await store.create_run(again, [], reserved=1)).active is True

    async def test_activating_an_unknown_run_is_not_found(self, place: Place) -> None:
        async with place.opened() as store:
            with pytest.raises(NotFound):
                await store.activate("nothing")
