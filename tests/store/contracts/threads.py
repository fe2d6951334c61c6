"""Threads, their history, and their end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import (
    ChatMessage,
    Role,
    RunQuery,
    RunStatus,
    ThreadChange,
    ThreadQuery,
    ThreadStatus,
    ThreadUpdate,
)
from gateway.store import RunChange
from tests.store.place import NOW, Place, content, make_artifact, make_checkpoint, make_run, make_thread


class ThreadsContract:
    async def test_a_thread_comes_back_as_it_was_put(self, place: Place) -> None:
        async with place.opened() as store:
            thread = make_thread(
                "t",
                protocol="plain",
                agent="mail",
                metadata={"k": [1, None]},
                attributes={"mark": True},
                values={"messages": []},
                status=ThreadStatus.BUSY,
                upstream={"mail": {"id": "x"}},
            )
            await store.create_thread(thread)
            assert await store.thread("t") == thread
            assert await store.history("t") == []

    async def test_a_thread_id_is_given_once(self, place: Place) -> None:
        async with place.opened() as store:
            thread = make_thread("t", metadata={"first": True})
            await store.create_thread(thread)
            with pytest.raises(Conflict):
                await store.create_thread(make_thread("t"), [make_checkpoint("t")])
            assert await store.thread("t") == thread
            assert await store.history("t") == []

    async def test_unknown_threads_are_not_found(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            for call in (
                store.thread("x"),
                store.update_thread("x", ThreadChange(), at=NOW),
                store.update_thread("x", ThreadChange(), make_checkpoint("x"), at=NOW),
                store.delete_thread("x"),
                store.history("x"),
                store.history("t", before="nothing"),
                store.artifacts(thread="x"),
            ):
                with pytest.raises(NotFound):
                    await call

    async def test_an_update_adds_to_the_record_and_a_checkpoint_is_its_state(self, place: Place) -> None:
        async with place.opened() as store:
            thread = make_thread("t", metadata={"a": 1, "b": {"c": 1}}, attributes={"a": 1}, values=[0])
            await store.create_thread(thread, [make_checkpoint("t", "c0", at=NOW)])
            change = ThreadChange(
                metadata={"b": None},
                attributes={"b": [2]},
                upstream={"mail": {"id": "x"}},
                updates=(ThreadUpdate(protocol="plain", kind="title", data="T"),),
            )
            after = replace(change.of(thread), metadata={"a": 1, "b": None}, updated_at=NOW + 5)
            assert await store.update_thread("t", change, at=NOW + 5) == after
            assert await store.thread("t") == after
            message = ChatMessage(role=Role.USER, content="hi", metadata={"k": 1})
            newest = make_checkpoint("t", "c1", at=NOW + 1, values=[1], messages=(message,))
            after = replace(after, values=[1], checkpoint="c1")
            assert await store.update_thread("t", ThreadChange(), newest, at=NOW) == after
            assert [one.id for one in await store.history("t")] == ["c1", "c0"]
            assert (await store.history("t"))[0] == newest
            last = make_checkpoint("t", "c2", at=NOW + 2, replaces=True)
            after = replace(after, checkpoint="c2")
            assert await store.update_thread("t", ThreadChange(), last, at=NOW) == after, "it has no values"

    async def test_what_a_run_changes_of_its_thread_is_written_with_it_with_or_without_a_checkpoint(
        self, place: Place
    ) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t", upstream={"kept": {}}))
            one = make_run("r", thread="t")
            await store.create_run(one, [], reserved=9)
            named = ThreadChange(upstream={"mail": {"id": "x"}})
            await store.commit("r", RunChange(run=replace(one, updated_at=NOW + 1), thread=named))
            found = await store.thread("t")
            assert (found.upstream, found.updated_at) == ({"kept": {}, "mail": {"id": "x"}}, NOW + 1)
            point = make_checkpoint("t", "c", at=NOW + 2, values=[1])
            told = ThreadChange(untold={"mail": "r"})
            await store.commit("r", RunChange(run=one, thread=told, checkpoint=point))
            found = await store.thread("t")
            assert (found.untold, found.checkpoint, found.upstream["mail"]) == ({"mail": "r"}, "c", {"id": "x"})

    async def test_history_is_newest_first_limited_and_goes_on_before_a_checkpoint(self, place: Place) -> None:
        async with place.opened() as store:
            first = [make_checkpoint("t", f"c{n}", at=NOW + n) for n in range(5)]
            await store.create_thread(make_thread("t"), first)
            await store.create_thread(make_thread("u"), [make_checkpoint("u", "c9", at=NOW + 9)])
            for n in range(5, 15):
                point = make_checkpoint("t", f"c{n}", at=NOW + n)
                await store.update_thread("t", ThreadChange(), point, at=NOW + n)
            newest = [f"c{n}" for n in range(14, -1, -1)]
            assert [one.id for one in await store.history("t")] == newest[:10]
            assert [one.id for one in await store.history("t", limit=3)] == newest[:3]
            assert [one.id for one in await store.history("t", limit=3, before="c12")] == ["c11", "c10", "c9"]
            assert [one.id for one in await store.history("t", limit=50, before="c2")] == ["c1", "c0"]
            assert await store.history("t", before="c0") == []

    async def test_checkpoints_of_one_instant_keep_their_order(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"), [make_checkpoint("t", name) for name in "bca"])
            assert [one.id for one in await store.history("t")] == ["a", "c", "b"]
            assert [one.id for one in await store.history("t", before="a")] == ["c", "b"]

    async def test_two_threads_may_have_checkpoints_of_the_same_id(self, place: Place) -> None:
        async with place.opened() as store:
            for thread in ("t", "u"):
                await store.create_thread(make_thread(thread), [make_checkpoint(thread, "c", values=thread)])
            assert [one.values for one in await store.history("u")] == ["u"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (ThreadQuery(), ["d", "c", "b", "a"]),
            (ThreadQuery(oldest_first=True, limit=2, offset=1), ["b", "c"]),
            (ThreadQuery(agent="mail"), ["b"]),
            (ThreadQuery(protocol="other"), ["c", "b"]),
            (ThreadQuery(status=ThreadStatus.BUSY), ["c"]),
            (ThreadQuery(status=ThreadStatus.IDLE), ["d", "b", "a"]),
            (ThreadQuery(metadata={"k": 1}), ["b", "a"]),
            (ThreadQuery(metadata={"k": True}), []),
            (ThreadQuery(metadata={"k": 1}, limit=1), ["b"]),
            (ThreadQuery(attributes={"owner": 'é"'}), ["d", "a"]),
            (ThreadQuery(attributes={"owner": 'é"', "n": 1}), ["d"]),
            (ThreadQuery(attributes={"owner": 'é"'}, metadata={"k": 1}), ["a"]),
            (ThreadQuery(attributes={"owner": "text"}), []),
        ],
    )
    async def test_threads_are_found_by_every_given_field(
        self, place: Place, query: ThreadQuery, expected: list[str]
    ) -> None:
        async with place.opened() as store:
            for thread in (
                make_thread("a", at=NOW, metadata={"k": 1}, values={"v": [1], "w": 2}, attributes={"owner": 'é"'}),
                make_thread("b", at=NOW + 1, agent="mail", protocol="other", metadata={"k": 1}, values="text"),
                make_thread("c", at=NOW + 2, protocol="other", metadata={"k": 1, "owner": "text"}),
                make_thread("d", at=NOW + 3, values={"v": [1]}, attributes={"owner": 'é"', "n": 1}),
            ):
                await store.create_thread(thread)
            await store.update_thread("c", ThreadChange(metadata={"k": 2}), at=NOW + 2)
            await store.create_run(make_run(thread="c"), [], reserved=1)
            assert [one.id for one in await store.threads(query)] == expected
            unpaged = ThreadQuery(
                agent=query.agent,
                protocol=query.protocol,
                status=query.status,
                metadata=query.metadata,
                attributes=query.attributes,
            )
            assert await store.count_threads(query) == len(await store.threads(unpaged))

    @pytest.mark.parametrize("queued", [False, True])
    async def test_a_thread_with_an_active_run_is_not_deleted(self, place: Place, queued: bool) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            first, second = make_run(thread="t"), make_run(thread="t")
            await store.create_run(first, [], reserved=1)
            if queued:
                await store.create_run(second, [], reserved=1)
                ended = make_run(first.id, thread="t", status=RunStatus.SUCCESS)
                await store.commit(first.id, RunChange(run=ended, release=True))
            with pytest.raises(Conflict):
                await store.delete_thread("t")
            assert (await store.thread("t")).id == "t"

    async def test_a_deleted_thread_takes_checkpoints_and_uploads_and_leaves_its_runs_without_it(
        self, place: Place
    ) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"), [make_checkpoint("t")])
            one = make_run(thread="t", metadata={"k": 1})
            await store.create_run(one, [], reserved=1)
            await store.put_artifact(make_artifact("upload", thread="t"), content(b"x"), max_bytes=9)
            await store.put_artifact(make_artifact("made", run=one.id, thread="t"), content(b"y"), max_bytes=9)
            ended = make_run(one.id, thread="t", status=RunStatus.SUCCESS, metadata={"k": 1})
            await store.commit(one.id, RunChange(run=ended, release=True))
            await store.delete_thread("t")
            for call in (store.thread("t"), store.history("t"), store.artifact("upload"), store.delete_thread("t")):
                with pytest.raises(NotFound):
                    await call
            assert await store.run(one.id) == make_run(one.id, status=RunStatus.SUCCESS, metadata={"k": 1})
            assert [r.id for r in await store.runs(RunQuery(threaded=False))] == [one.id]
            assert (await store.artifact("made")).thread is None
            with pytest.raises(NotFound):
                await store.create_run(make_run(thread="t"), [], reserved=1)
            await store.create_thread(make_thread("t"))
            assert await store.history("t") == []
            assert await store.artifacts(thread="t") == []
