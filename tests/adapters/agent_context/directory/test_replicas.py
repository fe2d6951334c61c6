"""Two gateways on one store, and one that starts again: registrations are kept and shared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import Conflict
from gateway.core.types import RunStatus
from gateway.store.sqlite import SqliteStore
from tests.adapters.agent_context.directory.rig import ANNA, BERT, Clock, House, house, session


@contextlib.asynccontextmanager
async def two(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[House, House]]:
    """On two hosts, whose monotonic clocks have nothing in common."""
    stores = [SqliteStore(tmp_path / "s.db", host=name) for name in ("a", "b")]
    async with (
        house(store=stores[0], clock=Clock(50.0), **options) as one,
        house(store=stores[1], clock=Clock(7e6), **options) as other,
    ):
        await one.look()
        yield one, other


async def settle(*houses: House) -> None:
    """What one wrote, the others read."""
    for each in houses:
        await each.directory.settled()
    for each in houses:
        await each.look()
        await each.directory.settled()


async def test_an_agent_of_another_replica_is_listed_there_and_its_runs_are_driven_where_it_is(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await here.register()
        await settle(there)
        assert list(there.engine.agents.names("agent_client")) == ["it"]
        assert await there.status() == "active" and there.connection() is None
        assert (await there.directory.candidate("it")).active
        done = await there.ended()
        assert done.status is RunStatus.SUCCESS
        assert await there.engine.store.owner_of(done.id) == here.engine.process
        assert (await here.ended()).status is RunStatus.SUCCESS


async def test_an_agent_with_an_endpoint_can_be_called_from_every_replica(tmp_path: Path) -> None:
    async with two(tmp_path, endpoints=["127.0.0.0/8"]) as (here, there):
        await here.register(endpoint={"url": "http://127.0.0.1:1/?key=s3cret"})
        await settle(there)
        assert (await there.directory.candidate("it")).active
        failed = await there.ended()
        assert failed.failure is not None and failed.failure.code == "agent_gone", "it was tried"


async def test_the_end_of_a_connection_and_silence_are_seen_by_the_other_replica(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register("gone")
        await here.register("silent")
        await settle(there)
        here.hang_up(at)
        await settle(here, there)
        assert (await there.status("gone"), await there.status("silent")) == ("offline", "active")
        there.clock.pass_(3 * 30 + 29)
        assert await there.status("silent") == "active", "the other one writes once per interval"
        there.clock.pass_(7)
        assert await there.status("silent") == "inactive"


async def test_an_agent_that_can_be_asked_no_more_is_offline_at_the_other_replica_and_may_come_there(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register()
        await settle(there)
        for connected, status in ((False, "offline"), (True, "active"), (False, "offline")):
            at.can_ask = at.connected = connected
            await settle(here, there)
            assert await there.status() == status
        await there.register()
        await settle(here, there)
        assert (await here.status(), await there.status()) == ("active", "active")
        assert here.connection() is None and [method for method, _ in at.told] == ["agent/error"]


async def test_beats_heard_by_one_replica_keep_an_agent_active_at_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register()
        for _ in range(10):
            here.clock.pass_(30)
            there.clock.pass_(30)
            here.directory.heard(at)
            await settle(here, there)
            assert await there.status() == "active"
        await here.directory.heartbeat("it", "busy", ANNA, at)
        await settle(here, there)
        assert await there.status() == "busy"


async def test_a_heartbeat_that_comes_to_another_replica_than_the_agents_own_counts_at_both(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register()
        await settle(there)
        here.clock.pass_(91)
        there.clock.pass_(91)
        await there.directory.heartbeat("it", "busy", ANNA)
        assert await here.status() == "inactive"
        await settle(there, here)
        assert (await here.status(), await there.status()) == ("busy", "busy")
        assert here.connection() is at


async def test_what_another_replica_writes_late_does_not_bring_a_connection_back(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register()
        await settle(there)
        here.hang_up(at)
        await here.directory.settled()
        await there.directory.heartbeat("it", "busy", ANNA)
        for _ in range(2):
            await settle(there, here)
        assert (await here.status(), await there.status()) == ("offline", "offline")


async def test_the_same_id_at_two_replicas_is_a_conflict_while_the_first_is_there(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register()
        with pytest.raises(Conflict, match="taken"):
            await there.register(who=BERT)
        await settle(there)
        with pytest.raises(Conflict, match="connected to another gateway"):
            await there.register()
        here.hang_up(at)
        await settle(here, there)
        await there.register()
        await settle(here)
        assert await here.status() == "active" and here.connection() is None
        assert (await there.ended()).status is RunStatus.SUCCESS


async def test_who_registers_last_has_the_agent_and_the_other_is_told_where_two_replicas_did_not_know(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (here, there):
        first, second = await here.register(), await there.register()
        await settle(here, there)
        await settle(here, there)
        assert not second.told and [method for method, _ in first.told] == ["agent/error"]
        assert (first.told[0][1]["source"], first.told[0][1]["error"]["code"]) == ("it", -32005)
        assert here.connection() is None and there.connection() is not None
        assert (await there.ended()).status is RunStatus.SUCCESS
        assert await there.engine.store.owner_of((await here.ended()).id) == there.engine.process


async def test_unregistering_and_other_words_reach_the_other_replica(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        at = await here.register(xMood="good")
        await settle(there)
        await here.register(at=at, xMood="better")
        there.uris.clear()
        await settle(there)
        assert (await there.directory.entry("it"))["xMood"] == "better" and there.uris
        await here.directory.unregister("it", ANNA)
        await settle(there)
        assert not there.directory.ids() and not there.engine.agents.names("test")


async def test_a_look_while_nothing_changes_writes_nothing_and_tells_nothing(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await here.register("one")
        await there.register("two")
        await settle(here, there)  # a look that was under way when it registered may not have seen it
        await here.directory.evaluate("two", 5, BERT)
        for _ in range(6):
            await settle(here, there)
        before = await here.engine.records.kept("agent_context")
        here.uris.clear()
        for _ in range(5):
            await settle(here, there)
        assert await here.engine.records.kept("agent_context") is before and not here.uris


async def test_registrations_survive_a_restart_and_the_agent_takes_its_own_up_again(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with house(file=file) as first:
        await first.register(xMood="good")
    async with house(file=file) as second:
        assert await second.status() == "offline" and (await second.directory.entry("it"))["xMood"] == "good"
        failed = await second.ended()
        assert failed.failure is not None and failed.failure.message == "agent it is not connected"
        with pytest.raises(Conflict):
            await second.register(who=BERT)
        await second.register()
        assert (await second.ended()).status is RunStatus.SUCCESS


async def test_agents_of_a_gateway_that_was_killed_are_offline_soon_and_can_register_again(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with house(file=file) as survivor:
        elsewhere = SqliteStore(file, host="elsewhere")
        async with house(store=elsewhere) as victim:
            await victim.register()
            await victim.register("orphan")
            await settle(survivor)
            survivor.clock.pass_(6)
            await settle(survivor)
            assert await survivor.status() == "active", "that one lives"
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if task.get_name().startswith("run "):
                    task.cancel()
            victim.directory.aclose = nothing  # type: ignore[method-assign]
        assert await survivor.status() == "active", "nobody has looked yet"
        survivor.clock.pass_(6)
        survivor.uris.clear()
        await settle(survivor)
        assert await survivor.status() == "offline" and survivor.uris
        await survivor.register()
        assert (await survivor.ended()).status is RunStatus.SUCCESS
        assert await survivor.status("orphan") == "offline"


async def test_an_agent_that_registers_where_its_revocation_is_not_known_yet_is_served_nowhere(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await there.directory.revoking.revoke("it")
        await here.register()
        await settle(there, here)
        for each in (here, there):
            assert await each.status() == "revoked" and not each.engine.agents.names("test")


async def test_a_process_that_was_taken_for_dead_says_that_it_lives(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await here.register()
        await settle(there)
        await there.engine.records.forget("agent_context", f"process/{here.engine.process}")
        await settle(there)
        assert await there.status() == "offline"
        await settle(here)
        await settle(there)
        assert await there.status() == "active"


async def nothing() -> None:
    """A gateway that is killed says good-bye to nobody."""


async def test_votes_given_at_two_replicas_at_the_same_moment_all_count(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await here.register()
        await settle(there)
        votes = [(here, 2), (there, 4), (here, 6), (there, 8)]
        await asyncio.gather(*(each.directory.evaluate("it", score, BERT, f"task-{score}") for each, score in votes))
        for _ in range(3):
            await settle(here, there)
        for each in (here, there):
            found = (await each.directory.entry("it"))["evaluation"]
            assert (found["qualityScore"], found["evaluationCount"]) == (5, 4)


async def test_a_revocation_reaches_the_other_replica_with_the_next_look_and_outlives_everything(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    async with two(tmp_path) as (here, there):
        asked = asyncio.Event()

        async def never(method: str, params: object) -> object:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        at = await here.register(at=session(never))
        await settle(there)
        started = await here.start()
        await asked.wait()
        await there.directory.revoking.revoke("it")
        await settle(here)
        ended = await here.engine.runs.wait(started.id, timeout=30)
        assert ended is not None and ended.status is RunStatus.CANCELLED
        assert await here.status() == "revoked" and not here.engine.agents.names("test")
        assert here.connection() is None and at.alive
    async with house(file=file) as again:
        assert await again.status() == "revoked" and not again.engine.agents.names("test")
        await again.directory.revoking.restore("it")
        assert await again.status() == "offline" and list(again.engine.agents.names("test")) == ["it"]


async def test_one_replica_coordinates_and_the_next_oldest_when_it_has_gone(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with (
        house(store=SqliteStore(file, host="b"), clock=Clock(7e6)) as second,
        house(store=SqliteStore(file, host="c"), clock=Clock(3.0)) as third,
    ):
        await settle(second, third)
        assert second.directory.coordinated_at is None
        assert third.directory.coordinated_at == second.engine.process
        await second.engine.close()
        assert third.directory.coordinated_at == second.engine.process, "nobody has looked yet"
        third.directory.doubt()
        await third.look()
        assert third.directory.coordinated_at is None


async def test_a_revocation_that_cannot_be_read_holds_and_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        await here.register()
        await here.register("bad")
        await here.engine.records.keep("agent_context", "revoked/bad", {"at": "yesterday"}, owner="gateway")
        await there.look()
        assert (await there.status("bad"), await there.status()) == ("revoked", "active")


async def test_a_run_that_begins_before_a_revocation_is_known_there_ends_once_it_is(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(method: str, params: object) -> object:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with two(tmp_path) as (here, there):
        await there.register(at=session(never))
        await here.look()
        await here.directory.revoking.revoke("it")
        started = await there.start()
        await asked.wait()
        await there.look()
        ended = await there.engine.runs.wait(started.id, timeout=30)
        assert ended is not None and ended.status is RunStatus.CANCELLED
