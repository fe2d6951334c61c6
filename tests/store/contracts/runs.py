"""Finding runs, and removing them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.core.errors import NotFound
from gateway.core.types import NULL, Failure, Interrupt, RunQuery, RunRequest, RunStatus
from gateway.store import Delivery, RunChange
from tests.store.place import NOW, Place, content, entry, make_artifact, make_run, make_thread


class RunsContract:
    async def test_an_unknown_run_is_not_found(self, place: Place) -> None:
        async with place.opened() as store:
            with pytest.raises(NotFound):
                await store.run("nothing")
            with pytest.raises(NotFound):
                await store.delete_run("nothing")

    async def test_a_run_whose_creator_was_cancelled_is_read_once_it_is_written(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            creating = asyncio.ensure_future(store.create_run(one, [], reserved=1))
            if isinstance(creating, asyncio.Task):
                await asyncio.sleep(0)  # it begins
            creating.cancel()
            assert await store.run(one.id) == one

    async def test_runs_come_newest_first_or_oldest_first_page_by_page(self, place: Place) -> None:
        async with place.opened() as store:
            made = [make_run(f"r{n}", at=NOW + n) for n in (3, 0, 4, 1, 2)]
            for one in made:
                await store.create_run(one, [], reserved=1)
            newest = ["r4", "r3", "r2", "r1", "r0"]
            assert [r.id for r in await store.runs(RunQuery())] == newest
            assert [r.id for r in await store.runs(RunQuery(oldest_first=True))] == newest[::-1]
            assert [r.id for r in await store.runs(RunQuery(limit=2, offset=1))] == ["r3", "r2"]
            assert [r.id for r in await store.runs(RunQuery(limit=2, offset=4))] == ["r0"]
            assert await store.runs(RunQuery(limit=0)) == []
            assert await store.runs(RunQuery(offset=9)) == []
            assert await store.count_runs(RunQuery(limit=2, offset=4)) == 5

    async def test_a_brief_list_has_all_of_its_runs_but_what_was_asked_and_said(self, place: Place) -> None:
        async with place.opened() as store:
            asked = Interrupt(id="q", kind="permission", message="May I?", answer_schema={})
            wrong = Failure(code="agent_failed", message="boom")
            plain = make_run("r", principal="ana")
            large = replace(
                plain,
                request=replace(plain.request, metadata={"a": 1}, creation={"b": 2}),
                output=Raw(b'{"message":"said"}'),
                status=RunStatus.ERROR,
                failure=wrong,
                interrupts=(asked,),
                losses={"tags": 2},
            )
            await store.create_run(large, [], reserved=1)
            known = RunRequest(agent=plain.agent, input=None, protocol=plain.request.protocol, principal="ana")
            brief = replace(large, output=NULL, request=known)
            assert await store.runs(RunQuery(brief=True)) == [brief]
            assert [one.output for one in await store.runs(RunQuery())] == [large.output]

    async def test_runs_of_one_instant_come_in_the_order_of_creation(self, place: Place) -> None:
        async with place.opened() as store:
            for name in "cab":
                await store.create_run(make_run(name), [], reserved=1)
            assert [r.id for r in await store.runs(RunQuery(oldest_first=True))] == ["c", "a", "b"]
            assert [r.id for r in await store.runs(RunQuery())] == ["b", "a", "c"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (RunQuery(agent="mail"), "abd"),
            (RunQuery(protocol="other"), "bc"),
            (RunQuery(thread="t"), "cd"),
            (RunQuery(thread="nowhere"), ""),
            (RunQuery(threaded=True), "cd"),
            (RunQuery(threaded=False), "ab"),
            (RunQuery(statuses=(RunStatus.PENDING,)), "abd"),
            (RunQuery(statuses=(RunStatus.SUCCESS, RunStatus.PENDING)), "abcd"),
            (RunQuery(statuses=(RunStatus.ERROR,)), ""),
            (RunQuery(agent="mail", threaded=True), "d"),
            (RunQuery(metadata={"team": "x"}), "ab"),
            (RunQuery(metadata={"team": "x", "n": 1}), "b"),
            (RunQuery(metadata={"team": "x"}, protocol="other"), "b"),
            (RunQuery(principal='ana "é\n'), "ab"),
            (RunQuery(principal='ana "é\n', metadata={"n": 1}), "b"),
            (RunQuery(principal="team"), ""),
        ],
    )
    async def test_every_given_field_must_match(self, place: Place, query: RunQuery, expected: str) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            for one in (
                make_run("a", metadata={"team": "x", "n": 2}, principal='ana "é\n'),
                make_run("b", protocol="other", metadata={"team": "x", "n": 1}, principal='ana "é\n'),
                make_run("c", agent="else", protocol="other", thread="t"),
                make_run("d", thread="t", metadata={"team": "y", "principal": "team"}),
            ):
                await store.create_run(one, [], reserved=1)
            ended = make_run("c", agent="else", protocol="other", thread="t", status=RunStatus.SUCCESS)
            await store.commit("c", RunChange(run=ended, release=True))
            found = await store.runs(query)
            assert sorted(one.id for one in found) == list(expected)
            assert await store.count_runs(query) == len(expected)

    @pytest.mark.parametrize(
        ("stored", "wanted", "matches"),
        [
            (True, True, True),
            (True, 1, False),
            (1, True, False),
            (0, False, False),
            (1, 1.0, True),
            ("1", 1, False),
            (None, None, True),
            (None, False, False),
            ([1, [2]], [1, [2]], True),
            ([1, 2], [2, 1], False),
            ([1, True], [1, 1], False),
            ({"a": {"b": True}}, {"a": {"b": True}}, True),
            ({"a": 1, "b": 2}, {"a": 1}, False),
            ('it\'s "odd" \\ é', 'it\'s "odd" \\ é', True),
            ("a%", "a_", False),
        ],
    )
    async def test_metadata_matches_as_json_does(self, place: Place, stored: Any, wanted: Any, matches: bool) -> None:
        async with place.opened() as store:
            key = 'odd."key"[0]$'
            await store.create_run(make_run("a", metadata={key: stored, "more": 1}), [], reserved=1)
            await store.create_run(make_run("b", metadata={"odd": {"key": stored}}), [], reserved=1)
            query = RunQuery(metadata={key: wanted})
            assert [one.id for one in await store.runs(query)] == (["a"] if matches else [])
            assert await store.count_runs(query) == int(matches)

    async def test_paging_counts_only_what_matches_the_metadata(self, place: Place) -> None:
        async with place.opened() as store:
            for n in range(30):
                await store.create_run(make_run(f"r{n:02}", at=NOW + n, metadata={"odd": n % 2}), [], reserved=1)
            query = RunQuery(metadata={"odd": 1}, limit=4, offset=3, oldest_first=True)
            assert [one.id for one in await store.runs(query)] == ["r07", "r09", "r11", "r13"]
            assert await store.count_runs(query) == 15

    async def test_a_search_sees_the_status_that_was_committed_last(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_run(make_run("a"), [], reserved=1)
            for status in (RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.RUNNING, RunStatus.TIMEOUT):
                await store.commit("a", RunChange(run=make_run("a", status=status), release=status.ended))
                assert [one.id for one in await store.runs(RunQuery(statuses=(status,)))] == ["a"]
                assert await store.count_runs(RunQuery(statuses=(RunStatus.PENDING,))) == 0

    async def test_deleting_a_run_takes_its_log_its_artifacts_and_its_deliveries(self, place: Place) -> None:
        async with place.opened() as store:
            gone, kept = make_run(), make_run()
            for one in (gone, kept):
                await store.create_run(one, [entry(1)], reserved=1)
                owed = Delivery(id=f"d-{one.id}", run=one, due_at=NOW)
                await store.commit(one.id, RunChange(delivery=owed))
                await store.put_artifact(make_artifact(f"a-{one.id}", run=one.id), content(b"x"), max_bytes=9)
            await store.delete_run(gone.id)
            for call in (
                store.run(gone.id),
                store.events(gone.id),
                store.artifact(f"a-{gone.id}"),
                store.artifacts(run=gone.id),
                anext(store.open_artifact(f"a-{gone.id}")),
                store.delivered(f"d-{gone.id}"),
                store.delete_run(gone.id),
            ):
                with pytest.raises(NotFound):
                    await call
            assert [one.id for one in await store.deliveries(NOW)] == [f"d-{kept.id}"]
            assert [one.id for one in await store.artifacts(run=kept.id)] == [f"a-{kept.id}"]
            assert len(await store.events(kept.id)) == 1
