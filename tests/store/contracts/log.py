"""The event log: transitions ahead, tokens behind, each entry separately readable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.types import RunStatus, ThreadStatus
from gateway.store import Delivery, LogEntry, RunChange
from tests.store.place import NOW, Place, entry, eventually, make_checkpoint, make_run, make_thread, numbers, tokens
from tests.support.aio import run

KINDS = st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "bb", "line\nbreak", "é" * 40, ""])), max_size=40)


class LogContract:
    async def test_what_was_appended_can_be_read_at_once_in_order(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1000)
            store.append(one.id, tokens(2, 10))
            store.append(one.id, [entry(12)])
            store.append(one.id, tokens(13, 10))
            assert await store.events(one.id) == [entry(1), *tokens(2, 10), entry(12), *tokens(13, 10)]

    async def test_what_was_appended_is_written_soon_although_nobody_waits(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1000)
            store.append(one.id, tokens(1, 10))
            assert store.backlog == sum(len(token.data) for token in tokens(1, 10))

            async def written() -> bool:
                return store.backlog == 0

            await eventually(written)

    async def test_after_a_flush_nothing_waits(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1000)
            store.append(one.id, tokens(1, 500))
            store.save(make_run(one.id, status=RunStatus.RUNNING, metadata={"seen": True}))
            await store.flush()
            assert store.backlog == 0
            assert (await store.run(one.id)).request.metadata == {"seen": True}
            assert len(await store.events(one.id)) == 500

    async def test_a_list_of_entries_may_be_used_again_once_append_returns(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1000)
            batch = tokens(1, 3)
            store.append(one.id, batch)
            batch.clear()
            assert numbers(await store.events(one.id)) == [1, 2, 3]

    async def test_a_saved_record_can_be_read_and_a_later_commit_wins(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            saved = make_run(one.id, status=RunStatus.RUNNING)
            store.save(saved)
            assert await store.run(one.id) == saved
            store.save(make_run(one.id, status=RunStatus.INTERRUPTED))
            ended = make_run(one.id, status=RunStatus.SUCCESS)
            await store.commit(one.id, RunChange(run=ended, release=True))
            assert await store.run(one.id) == ended

    async def test_a_commit_comes_after_everything_appended_before_it(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1000)
            store.append(one.id, tokens(2, 100))
            await store.commit(one.id, RunChange(events=(entry(102),)))
            store.append(one.id, tokens(103, 2))
            assert numbers(await store.events(one.id)) == list(range(1, 105))

    async def test_runs_that_stream_at_the_same_time_keep_their_own_logs(self, place: Place) -> None:
        async with place.opened() as store:
            runs = [make_run() for _ in range(5)]
            for one in runs:
                await store.create_run(one, [], reserved=1000)
            for number in range(1, 101):
                for index, one in enumerate(runs):
                    store.append(one.id, [entry(number, f'"{index}-{number}"', delta=number % 7 != 0)])
            for index, one in enumerate(runs):
                found = await store.events(one.id)
                assert [e.data for e in found] == [f'"{index}-{n}"'.encode() for n in range(1, 101)]

    async def test_a_log_is_read_from_any_number(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1000)
            store.append(one.id, [*tokens(2, 30), entry(32), *tokens(33, 30)])
            for after in range(64):
                assert numbers(await store.events(one.id, after)) == list(range(after + 1, 63))

    async def test_numbers_may_leap_where_a_recovered_run_goes_on(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1000)
            store.append(one.id, tokens(2, 3))
            store.append(one.id, tokens(1001, 3))
            await store.flush()
            assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 1001, 1002, 1003]
            assert numbers(await store.events(one.id, 500)) == [1001, 1002, 1003]

    async def test_a_page_holds_about_max_bytes_and_at_least_one_entry(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1000)
            store.append(one.id, [entry(n, '"' + "x" * 998 + '"', delta=True) for n in range(1, 101)])
            assert numbers(await store.events(one.id, max_bytes=1)) == [1]
            assert len(await store.events(one.id, max_bytes=10_000)) in range(9, 12)
            seen: list[int] = []
            while page := await store.events(one.id, seen[-1] if seen else 0, max_bytes=7_000):
                seen += numbers(page)
            assert seen == list(range(1, 101))

    async def test_without_deltas_everything_else_is_left(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=1000)
            store.append(one.id, [*tokens(2, 50), entry(52), entry(53), *tokens(54, 50), entry(104)])
            assert numbers(await store.events(one.id, deltas=False)) == [1, 52, 53, 104]
            assert numbers(await store.events(one.id, 52, deltas=False)) == [53, 104]
            assert [e.delta for e in await store.events(one.id, 50, max_bytes=200)][:3] == [True, False, False]

    def test_any_mixture_of_entries_comes_back_byte_for_byte(self, place: Place) -> None:
        @settings(max_examples=25, deadline=None, database=None)
        @given(KINDS, st.lists(st.integers(0, 6), max_size=12))
        def check(kinds: list[tuple[bool, str]], cuts: list[int]) -> None:
            run(mixture(kinds, cuts))

        async def mixture(kinds: list[tuple[bool, str]], cuts: list[int]) -> None:
            async with place.opened() as store:
                one = make_run()
                await store.create_run(one, [], reserved=1000)
                entries = [LogEntry(n, data.encode(), delta) for n, (delta, data) in enumerate(kinds, 1)]
                rest = entries
                for cut in cuts:
                    store.append(one.id, rest[:cut])
                    rest = rest[cut:]
                    if cut == 3:
                        await store.flush()
                await store.commit(one.id, RunChange(events=tuple(rest)))
                assert await store.events(one.id) == entries
                assert await store.events(one.id, 5) == entries[5:]
                assert await store.events(one.id, deltas=False) == [e for e in entries if not e.delta]

        check()

    async def test_a_run_without_events_has_an_empty_log_and_an_unknown_run_none(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            assert await store.events(one.id) == []
            with pytest.raises(NotFound):
                await store.events("nothing")

    async def test_appends_to_a_run_that_is_gone_are_dropped(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            await store.delete_run(one.id)
            store.append(one.id, tokens(1, 3))
            store.save(one)
            await store.flush()
            assert store.backlog == 0
            with pytest.raises(NotFound):
                await store.run(one.id)

    async def test_a_commit_writes_all_that_it_names_and_leaves_the_rest(self, place: Place) -> None:
        async with place.opened() as store:
            thread = make_thread("t", metadata={"k": 1})
            await store.create_thread(thread)
            one = make_run(thread="t")
            await store.create_run(one, [entry(1)], reserved=5)
            await store.commit(one.id, RunChange(events=(entry(2),), reserved=9))
            assert await store.run(one.id) == one
            assert await store.thread("t") == replace(thread, status=ThreadStatus.BUSY)
            running = make_run(one.id, thread="t", status=RunStatus.INTERRUPTED, at=NOW + 1)
            after = replace(thread, values={"v": 1}, status=ThreadStatus.INTERRUPTED, updated_at=NOW + 1)
            checkpoint = make_checkpoint("t", run=one.id, values={"v": 1})
            owed = Delivery(id="d", run=running, due_at=NOW)
            await store.commit(one.id, RunChange(run=running, checkpoint=checkpoint, delivery=owed))
            assert await store.run(one.id) == running
            assert numbers(await store.events(one.id)) == [1, 2]
            assert await store.thread("t") == replace(after, checkpoint=checkpoint.id)
            assert await store.history("t") == [checkpoint]
            assert await store.deliveries(NOW) == [owed]

    async def test_a_commit_that_cannot_be_whole_writes_nothing(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [entry(1)], reserved=5)
            ended = make_run(one.id, status=RunStatus.SUCCESS)
            nowhere = make_checkpoint("nowhere")
            with pytest.raises(NotFound):
                change = RunChange(run=ended, events=(entry(2),), checkpoint=nowhere, release=True)
                await store.commit(one.id, change)
            assert await store.run(one.id) == one
            assert numbers(await store.events(one.id)) == [1]
            for change in (RunChange(run=ended), RunChange(events=(entry(2),)), RunChange()):
                with pytest.raises(NotFound):
                    await store.commit("nothing", change)
