"""Artifacts: content in chunks, whole or not at all."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from gateway.core.errors import Conflict, NotFound, TooLarge
from gateway.store import Store
from tests.store.place import NOW, Place, content, make_artifact, make_run, make_thread, whole

CHUNK = 256 * 1024


async def gone(store: Store, artifact_id: str) -> None:
    with pytest.raises(NotFound):
        await store.artifact(artifact_id)
    with pytest.raises(NotFound):
        await anext(store.open_artifact(artifact_id))
    again = await store.put_artifact(make_artifact(artifact_id), content(b"again"), max_bytes=9)
    assert again.size == 5, "the id is free and nothing of the old content is left"
    assert await whole(store.open_artifact(artifact_id)) == b"again"


class FilesContract:
    @pytest.mark.parametrize(
        "pieces",
        [
            [],
            [b""],
            [b"a"],
            [b"a", b"", b"bc"],
            [b"x" * CHUNK],
            [b"x" * (CHUNK - 1), b"yz"],
            [bytes(range(256)) * 4000],
            [b"ab" * 50_000] * 9,
        ],
    )
    async def test_content_comes_back_in_chunks_of_at_most_256_kib(self, place: Place, pieces: list[bytes]) -> None:
        async with place.opened() as store:
            artifact = make_artifact("a", media_type="text/plain", relative_path="x/y", metadata={"k": 1})
            stored = await store.put_artifact(artifact, content(*pieces), max_bytes=1 << 21)
            data = b"".join(pieces)
            assert stored == make_artifact(
                "a", media_type="text/plain", relative_path="x/y", metadata={"k": 1}, size=len(data)
            )
            assert await store.artifact("a") == stored
            chunks = [chunk async for chunk in store.open_artifact("a")]
            assert all(0 < len(chunk) <= CHUNK for chunk in chunks)
            assert b"".join(chunks) == data

    async def test_a_file_of_just_the_limit_is_kept_and_one_byte_more_is_too_large(self, place: Place) -> None:
        async with place.opened() as store:
            limit = CHUNK + 10
            pieces = [b"x" * CHUNK, b"y" * 10]
            assert (await store.put_artifact(make_artifact("a"), content(*pieces), max_bytes=limit)).size == limit
            with pytest.raises(TooLarge):
                await store.put_artifact(make_artifact("b"), content(*pieces, b"z"), max_bytes=limit)
            await gone(store, "b")

    async def test_an_upload_that_breaks_keeps_nothing_and_raises_what_broke_it(self, place: Place) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * CHUNK * 2
            raise ConnectionError("the client went away")

        async with place.opened() as store:
            with pytest.raises(ConnectionError, match="went away"):
                await store.put_artifact(make_artifact("a"), broken(), max_bytes=1 << 30)
            await gone(store, "a")

    async def test_an_upload_that_is_cancelled_keeps_nothing(self, place: Place) -> None:
        async with place.opened() as store:
            begun = asyncio.Event()

            async def endless() -> AsyncIterator[bytes]:
                yield b"x" * CHUNK * 2
                begun.set()
                await asyncio.Event().wait()

            task = asyncio.ensure_future(store.put_artifact(make_artifact("a"), endless(), max_bytes=1 << 30))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await store.flush()
            await gone(store, "a")

    async def test_a_file_is_not_there_before_it_is_whole(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)

            async def looking() -> AsyncIterator[bytes]:
                yield b"x" * CHUNK * 2
                with pytest.raises(NotFound):
                    await store.artifact("a")
                with pytest.raises(NotFound):
                    await anext(store.open_artifact("a"))
                assert await store.artifacts(run=one.id) == []
                yield b"y"

            await store.put_artifact(make_artifact("a", run=one.id), looking(), max_bytes=1 << 30)
            assert [a.id for a in await store.artifacts(run=one.id)] == ["a"]

    async def test_a_file_whose_run_is_deleted_meanwhile_is_not_found_and_not_kept(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)

            async def deleting() -> AsyncIterator[bytes]:
                yield b"x" * CHUNK
                await store.delete_run(one.id)
                yield b"y" * CHUNK

            with pytest.raises(NotFound):
                await store.put_artifact(make_artifact("a", run=one.id), deleting(), max_bytes=1 << 30)
            await gone(store, "a")

    async def test_a_large_file_goes_through_little_memory(self, place: Place) -> None:
        async def large() -> AsyncIterator[bytes]:
            for _ in range(512):
                yield bytes(64 * 1024)

        async with place.opened() as store:
            tracemalloc.start()
            try:
                stored = await store.put_artifact(make_artifact("a"), large(), max_bytes=1 << 30)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert stored.size == 32 << 20
            assert peak < 4 << 20
            assert sum([len(chunk) async for chunk in store.open_artifact("a")]) == 32 << 20

    async def test_files_of_a_run_and_of_a_thread_come_oldest_first(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            await store.create_run(make_run("r", thread="t"), [], reserved=1)
            await store.create_run(make_run("s"), [], reserved=1)
            for name, at, run_id, thread in (
                ("late", 3.0, "r", None),
                ("both", 2.0, "r", "t"),
                ("upload", 1.0, None, "t"),
                ("other", 0.0, "s", None),
            ):
                artifact = make_artifact(name, at=NOW + at, run=run_id, thread=thread)
                await store.put_artifact(artifact, content(name.encode()), max_bytes=9)
            assert [a.id for a in await store.artifacts(run="r")] == ["both", "late"]
            assert [a.id for a in await store.artifacts(thread="t")] == ["upload", "both", "late"]
            assert [a.id for a in await store.artifacts(run="s")] == ["other"]
            assert await store.artifacts() == []

    async def test_a_file_that_was_stored_before_its_run_is_the_runs_and_its_threads(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            await store.create_run(make_run("s"), [], reserved=1)
            await store.put_artifact(make_artifact("mine"), content(b"mine"), max_bytes=9)
            await store.put_artifact(make_artifact("other", run="s"), content(b"other"), max_bytes=9)
            files = ("mine", "other", "gone")
            await store.create_run(make_run("r", thread="t", files=files), [], reserved=1)
            found = await store.artifact("mine")
            assert (found.run, found.thread) == ("r", "t")
            assert await store.artifacts(run="r") == await store.artifacts(thread="t") == [found]
            assert (await store.artifact("other")).run == "s"
            assert await whole(store.open_artifact("mine")) == b"mine"

    async def test_files_need_a_fresh_id_and_a_run_and_thread_that_exist(self, place: Place) -> None:
        async with place.opened() as store:
            await store.put_artifact(make_artifact("a"), content(b"first"), max_bytes=9)
            with pytest.raises(Conflict):
                await store.put_artifact(make_artifact("a"), content(b"second"), max_bytes=9)
            assert await whole(store.open_artifact("a")) == b"first"
            for artifact in (make_artifact("b", run="x"), make_artifact("b", thread="x")):
                with pytest.raises(NotFound):
                    await store.put_artifact(artifact, content(b"x"), max_bytes=9)
            for call in (store.artifact("b"), store.artifacts(run="x"), anext(store.open_artifact("b"))):
                with pytest.raises(NotFound):
                    await call

    async def test_several_uploads_at_once_do_not_mix(self, place: Place) -> None:
        async def slowly(name: str) -> AsyncIterator[bytes]:
            for _ in range(10):
                yield name.encode() * 40_000
                await asyncio.sleep(0)

        async with place.opened() as store:
            await asyncio.gather(
                *(store.put_artifact(make_artifact(name), slowly(name), max_bytes=1 << 20) for name in "abc")
            )
            for name in "abc":
                assert await whole(store.open_artifact(name)) == name.encode() * 400_000
