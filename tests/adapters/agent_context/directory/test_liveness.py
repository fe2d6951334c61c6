"""Heartbeats and connections: who is active, busy, inactive, offline; who gets work; what happens to runs."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import Unavailable
from gateway.core.types import RunStatus
from tests.adapters.agent_context.directory.rig import ANNA, House, house, session

MISSED = 3 * 30.0


async def refused(it: House, match: str) -> None:
    """A run of it fails at once, may be tried again, and was never sent."""
    assert not it.engine.agents.reachable("it", "test")
    failed = await it.ended()
    assert failed.failure is not None and failed.failure.retryable and match in failed.failure.message
    with pytest.raises(Unavailable, match=match):
        it.directory.check("it")
    one = await it.directory.candidate("it")
    assert not one.active and match in (one.why_not or "")


async def test_an_agent_that_misses_three_beats_is_inactive_and_gets_no_work_until_it_is_heard() -> None:
    async with house() as it:
        at = await it.register()
        it.clock.pass_(MISSED)
        assert await it.status() == "active" and it.engine.agents.reachable("it", "test")
        it.clock.pass_(0.1)
        assert await it.status() == "inactive"
        await refused(it, "missed its heartbeats")
        assert not at.asked
        it.directory.heard(at)
        assert await it.status() == "active" and it.engine.agents.reachable("it", "test")
        assert (await it.ended()).status is RunStatus.SUCCESS


async def test_every_message_of_a_connection_is_a_beat_of_all_its_agents_and_of_no_others() -> None:
    async with house() as it:
        at = await it.register("one")
        await it.register("two", at=at)
        other = await it.register("other")
        for _ in range(4):
            it.clock.pass_(30)
            it.directory.heard(at)
        assert [await it.status(name) for name in ("one", "two", "other")] == ["active", "active", "inactive"]
        it.directory.heard(other)
        assert await it.status("other") == "active"
        it.directory.heard(session())


async def test_interval_and_number_of_beats_are_options() -> None:
    async with house(heartbeat=1, missed=2) as it:
        await it.register()
        it.clock.pass_(1.9)
        assert await it.status() == "active"
        it.clock.pass_(0.2)
        assert await it.status() == "inactive"


@pytest.mark.parametrize(
    ("said", "shown", "reachable"),
    [("busy", "busy", True), ("draining", "busy", True), ("inactive", "inactive", False), ("Active", "active", True)],
)
async def test_what_a_heartbeat_says_is_shown_and_only_the_active_get_tasks(
    said: str, shown: str, reachable: bool
) -> None:
    async with house() as it:
        at = await it.register()
        await it.directory.heartbeat("it", said, ANNA, at)
        assert await it.status() == shown
        assert it.engine.agents.reachable("it", "test") is reachable
        assert (await it.directory.candidate("it")).active is (shown == "active")
        await it.directory.heartbeat("it", "active", ANNA, at)
        assert await it.status() == "active"


async def test_a_change_of_status_is_told_once_whether_by_a_beat_or_by_silence() -> None:
    async with house() as it:
        at = await it.register()
        it.uris.clear()
        await it.look()
        assert not it.uris
        it.clock.pass_(MISSED + 1)
        await it.look()
        await it.look()
        assert it.uris == [{"agent://directory", "agent://metrics/it"}]
        await it.directory.heartbeat("it", "active", ANNA, at)
        assert len(it.uris) == 2
        it.clock.pass_(MISSED + 1)
        await it.look()
        it.directory.heard(at)
        assert len(it.uris) == 4
        await it.look()
        assert len(it.uris) == 4


async def test_a_session_that_died_without_a_word_is_noticed_by_the_next_look() -> None:
    async with house() as it:
        at = await it.register()
        at.alive = False
        assert await it.status() == "offline" and it.connection() is None
        it.uris.clear()
        await it.look()
        assert it.uris and await it.status() == "offline"


async def test_a_connection_that_takes_no_requests_at_the_moment_gets_none() -> None:
    async with house() as it:
        at = await it.register()
        it.uris.clear()
        for takes in (False, True, True):
            at.can_ask = takes
            await it.look()
        assert it.uris == [{"agent://directory", "agent://metrics/it"}] * 2
        at.can_ask = False
        await refused(it, "takes no requests now")
        assert await it.status() == "inactive", "tasks wait for it to come back"
        at.can_ask = True
        assert await it.status() == "active"
        assert (await it.ended()).status is RunStatus.SUCCESS


async def test_an_agent_that_was_not_heard_of_for_long_is_forgotten_everywhere() -> None:
    async with house(forget=1000) as it:
        at = await it.register()
        it.hang_up(at)
        it.clock.pass_(999)
        await it.look()
        assert await it.status() == "offline"
        it.clock.pass_(4)
        await it.look()
        await it.directory.settled()
        assert not it.directory.ids() and not it.engine.agents.names("test")
        assert not [one for one in await it.engine.records.kept("agent_context") if one.name.startswith("agent/")]


async def test_what_an_agent_was_last_heard_is_written_at_most_once_per_interval() -> None:
    async with house() as it:
        at = await it.register()
        written: list[str] = []
        keep = it.engine.records.keep

        async def counted(protocol: str, name: str, *args: Any, **kwargs: Any) -> None:
            written.append(name)
            await keep(protocol, name, *args, **kwargs)

        it.engine.records.keep = counted  # type: ignore[method-assign]
        for _ in range(29):
            it.clock.pass_(1)
            it.directory.heard(at)
            await it.directory.heartbeat("it", "active", ANNA, at)
            await it.look()
            await it.directory.settled()
        assert not written
        it.clock.pass_(3)
        await it.look()
        await it.directory.settled()
        assert written == ["agent/it"]
        it.clock.pass_(100)
        await it.look()
        await it.directory.settled()
        assert written == ["agent/it"], "nothing was heard"
