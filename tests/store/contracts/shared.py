"""What outlives a process, and what several processes make of one place."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from gateway.core.errors import Conflict, NotFound, Unavailable
from gateway.core.types import IfBusy, RunQuery, RunStatus, ThreadStatus
from gateway.store import Recovered, Registration, RunChange, Store
from tests.store.child import RESERVED
from tests.store.contracts.allowances import SharedAllowancesContract
from tests.store.contracts.mail import MailContract
from tests.store.place import (
    NOW,
    Place,
    content,
    entry,
    eventually,
    make_artifact,
    make_checkpoint,
    make_run,
    make_thread,
    numbers,
    tokens,
    whole,
)

HELD = {
    "run": "run",
    "thread": "thread",
    "queued": "queued",
    "ended": "ended",
    "other": "other",
    "delivery": "owed",
    "name": "name",
}


async def taken_from(store: Store, pid: int) -> list[Recovered]:
    """Stop a process and claim its runs. One that is stopped in mid-transaction holds the lock: it goes on a little."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        try:
            claimed: list[Recovered] = await eventually(store.claim)
            return claimed
        except Unavailable:
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.02)


class SharedContract(MailContract, SharedAllowancesContract):
    async def test_what_was_written_is_there_after_closing_and_opening(self, place: Place) -> None:
        one = make_run()
        async with place.opened() as store:
            await store.create_run(one, [entry(1)], reserved=1000)
            await store.put_artifact(make_artifact("a", run=one.id), content(b"file"), max_bytes=9)
            store.append(one.id, tokens(2, 100))
            store.save(make_run(one.id, status=RunStatus.RUNNING))
        async with place.opened() as store:
            assert (await store.run(one.id)).status is RunStatus.RUNNING
            assert await store.events(one.id) == [entry(1), *tokens(2, 100)]
            assert await whole(store.open_artifact("a")) == b"file"

    async def test_trouble_is_over_once_what_was_refused_could_be_written_and_not_when_something_else_was(
        self, place: Place
    ) -> None:
        async def beaten() -> bool:
            return await place.sql("SELECT expires_at FROM leases") != lease

        async def well() -> bool:
            return not store.trouble

        async with place.opened(lease_seconds=0.3) as store:
            one, refused = make_run(), make_run()
            await store.create_run(one, [entry(1)], reserved=9)
            await place.sql("ALTER TABLE runs RENAME TO away")
            with pytest.raises(Unavailable):
                await store.create_run(refused, [entry(1)], reserved=9)
            await store.create_thread(make_thread())
            for _ in range(2):
                lease = await place.sql("SELECT expires_at FROM leases")
                await eventually(beaten)
            assert store.trouble == "the store failed"
            await place.sql("ALTER TABLE away RENAME TO runs")
            await eventually(well)
            assert await store.runs(RunQuery()) == [one], "what was refused has not happened"
            assert (await store.create_run(refused, [entry(1)], reserved=9)).active

    async def test_appends_reach_other_processes_within_moments(self, place: Place) -> None:
        async with place.opened() as writer, place.opened() as reader:
            one = make_run()
            await writer.create_run(one, [], reserved=1000)
            writer.append(one.id, tokens(1, 10))

            async def seen() -> bool:
                return len(await reader.events(one.id)) == 10

            await eventually(seen)

    async def test_a_closed_store_gives_its_unfinished_runs_away_at_once(self, place: Place) -> None:
        one = make_run()
        async with place.opened(host="elsewhere") as store:
            await store.create_run(one, [], reserved=7)
            assert await store.claim() == [], "its own runs are not to be claimed"
        async with place.opened() as store:
            (recovered,) = await store.claim()
            assert (recovered.run, recovered.reserved) == (one, 7)
            assert await store.claim() == []

    async def test_reserved_numbers_stay_reserved_as_committed(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_run(make_run("a"), [entry(1)], reserved=100)
            await store.commit("a", RunChange(reserved=2000))
            await store.commit("a", RunChange(events=(entry(2),)))
            await store.create_run(make_run("b"), [], reserved=30)
            await store.create_run(make_run("c"), [entry(1), entry(2)], reserved=9)
        async with place.opened() as store:
            found = {one.run.id: one.reserved for one in await store.claim()}
            assert found == {"a": 2000, "b": 30, "c": 9}

    async def test_runs_of_a_living_process_are_not_claimed(self, place: Place) -> None:
        async with place.process("hold", **HELD) as other:
            await other.said()
            async with place.opened() as store:
                assert await store.claim() == []
                assert await store.deliveries(NOW) == []
                with pytest.raises(Conflict):
                    await store.commit("run", RunChange(release=True))
                assert await store.activate("queued") is False
                with pytest.raises(Conflict):
                    await store.put_registration(
                        Registration(name="name", protocol="p", owner=store.owner, data={}, created_at=NOW)
                    )

    async def test_a_killed_process_leaves_its_runs_calls_and_names_to_the_next_at_once(self, place: Place) -> None:
        async with place.opened() as store:
            async with place.process("hold", **HELD) as other:
                owner = await other.said()
                await other.kill()
                assert owner != store.owner
                recovered = await store.claim()
            assert [one.run.id for one in recovered] == ["run", "queued"]
            assert recovered[0].reserved == 50
            assert recovered[0].run.status is RunStatus.RUNNING
            assert [one.id for one in await store.deliveries(NOW)] == ["owed"]
            assert (await store.create_run(make_run(thread="other", if_busy=IfBusy.REJECT), [], reserved=1)).active
            assert await store.activate("queued") is False
            done = make_run("run", thread="thread", status=RunStatus.SUCCESS)
            await store.commit("run", RunChange(run=done, events=(entry(51),), release=True))
            assert await store.activate("queued") is True
            assert numbers(await store.events("run")) == [1, 2, 51]
            await store.put_registration(
                Registration(name="name", protocol="p", owner=store.owner, data={}, created_at=NOW)
            )

    async def test_a_lease_of_another_host_must_run_out_first(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = {"host": "elsewhere", "lease_seconds": 60.0}
        async with place.opened() as store, place.process("hold", options=options, **HELD) as other:
            await other.said()
            await other.kill()
            assert await store.claim() == [], "nobody here can know yet"
            later = time.time() + 61
            monkeypatch.setattr(time, "time", lambda: later)
            assert [one.run.id for one in await store.claim()] == ["run", "queued"]

    async def test_a_lease_is_kept_as_long_as_the_store_is_open(self, place: Place) -> None:
        async with place.opened(host="elsewhere", lease_seconds=5.0) as holder, place.opened() as store:
            await holder.create_run(make_run("r"), [], reserved=1)
            deadline = time.monotonic() + 5.5
            while time.monotonic() < deadline:
                assert await store.claim() == []
                await asyncio.sleep(0.1)

    async def test_a_process_that_lost_a_run_may_not_write_it_any_more(self, place: Place) -> None:
        async with place.opened() as store:
            options = {"lease_seconds": 1.0}
            async with place.process("stream", options=options, run="r") as other:
                await other.said()
                (recovered,) = await taken_from(store, other.pid)
                first = recovered.reserved + 1
                before = numbers(await store.events("r", max_bytes=1 << 30))
                await store.commit("r", RunChange(events=(entry(first),), reserved=first + 10))
                os.kill(other.pid, signal.SIGCONT)
                with pytest.raises(AssertionError, match="ended"):
                    while True:
                        await other.said()
            found = numbers(await store.events("r", max_bytes=1 << 30))
            assert found == [*before, first]

    async def test_after_kill_9_in_mid_stream_commits_are_there_and_the_log_has_no_hole(self, place: Place) -> None:
        async with place.process("stream", run="r") as other:
            committed = 0
            for _ in range(20):
                committed = await other.said()
            await other.kill()
        async with place.opened() as store:
            (recovered,) = await store.claim()
            assert recovered.run.id == "r"
            assert recovered.reserved == RESERVED
            found = await store.events("r", max_bytes=1 << 30)
            assert numbers(found) == list(range(1, len(found) + 1))
            assert committed <= len(found) <= recovered.reserved
            assert found[committed - 1] == entry(committed)
            assert [e for e in found if e.delta][-1] in tokens(len(found) - 250, 251)

    async def test_two_claimers_never_share_a_run(self, place: Place) -> None:
        names = {f"r{n}" for n in range(50)}
        async with place.opened() as store:
            for name in names:
                await store.create_run(make_run(name), [], reserved=1)
        async with place.process("claim") as one, place.process("claim") as two:
            for other in (one, two):
                assert await other.said() == "ready"
            await asyncio.gather(one.go(), two.go())
            first, second = await one.said(), await two.said()
            assert set(first) | set(second) == names
            assert not set(first) & set(second)

    @pytest.mark.parametrize(
        ("if_busy", "loser"), [(IfBusy.REJECT, "conflict"), (IfBusy.ENQUEUE, False), (IfBusy.INTERRUPT, False)]
    )
    async def test_of_two_processes_that_want_one_thread_exactly_one_wins(
        self, place: Place, if_busy: IfBusy, loser: object
    ) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t"))
            wanted = {"thread": "t", "if_busy": if_busy.value}
            async with (
                place.process("create", run="one", **wanted) as one,
                place.process("create", run="two", **wanted) as two,
            ):
                for other in (one, two):
                    assert await other.said() == "ready"
                await asyncio.gather(one.go(), two.go())
                results = [await one.said(), await two.said()]
                assert results in ([True, loser], [loser, True])
                assert await store.count_runs(RunQuery(thread="t")) == (1 if loser == "conflict" else 2)

    async def test_what_two_processes_change_of_one_thread_at_a_time_is_all_there(self, place: Place) -> None:
        async with place.opened() as store:
            await store.create_thread(make_thread("t", values=[1]))
            async with (
                place.process("change", thread="t", name="one", times=40) as one,
                place.process("change", thread="t", name="two", times=40) as two,
            ):
                for other in (one, two):
                    assert await other.said() == "ready"
                await asyncio.gather(one.go(), two.go())
                run_of_ours = make_run(thread="t")
                await store.create_run(run_of_ours, [], reserved=1)
                point = make_checkpoint("t", run=run_of_ours.id, values=[2])
                ended = make_run(run_of_ours.id, thread="t", status=RunStatus.ERROR)
                await store.commit(run_of_ours.id, RunChange(run=ended, checkpoint=point, release=True))
                for other in (one, two):
                    assert await other.said() == "done"
            found = await store.thread("t")
            keys = {f"{name}{number}" for name in ("one", "two") for number in range(40)}
            assert found.metadata.keys() == found.attributes.keys() == found.upstream.keys() == keys
            assert {update.kind for update in found.updates} == keys
            assert (found.values, found.status) == ([2], ThreadStatus.ERROR)

    async def test_what_a_killed_process_had_begun_to_upload_is_gone_once_another_opens(self, place: Place) -> None:
        async with place.process("upload", artifact="a") as other:
            assert await other.said() == "half"
            async with place.opened() as store:
                with pytest.raises(Conflict):
                    await store.put_artifact(make_artifact("a"), content(b"x"), max_bytes=9)
            await other.kill()
        async with place.opened() as store:
            with pytest.raises(NotFound):
                await store.artifact("a")
            await store.put_artifact(make_artifact("a"), content(b"new"), max_bytes=9)
            assert await whole(store.open_artifact("a")) == b"new"

    async def test_what_a_killed_process_had_begun_to_upload_is_gone_once_another_takes_its_runs(
        self, place: Place
    ) -> None:
        async with place.opened() as store, place.process("upload", artifact="a") as other:
            assert await other.said() == "half"
            await other.kill()
            with pytest.raises(Conflict):
                await store.put_artifact(make_artifact("a"), content(b"x"), max_bytes=9)
            await store.claim()
            await store.put_artifact(make_artifact("a"), content(b"new"), max_bytes=9)
            assert await whole(store.open_artifact("a")) == b"new"

    async def test_an_upload_of_a_living_process_survives_the_opening_of_another(self, place: Place) -> None:
        async with place.process("upload", artifact="a") as other:
            assert await other.said() == "half"
            async with place.opened() as store:
                await store.claim()
                await other.go()

                async def there() -> bool:
                    try:
                        return bool(await store.artifact("a"))
                    except NotFound:
                        return False

                await eventually(there)
                assert len(await whole(store.open_artifact("a"))) == (1 << 20) + 8
