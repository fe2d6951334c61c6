"""Access that is revoked: at once, for whoever it is, until it is given back."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.errors import Denied, NotFound
from gateway.core.types import RunStatus
from tests.adapters.agent_context.directory.rig import ANNA, BERT, house, session
from tests.support.aio import run
from tests.support.scripted import Scripted, echo, route


def test_a_revoked_agent_is_refused_everything_and_its_connection_stays() -> None:
    async def scene() -> None:
        async with house() as it:
            at = await it.register()
            await it.directory.revoke("it")
            assert at.alive and it.directory.revoked("it")
            assert await it.status() == "revoked" and it.directory.session_of("it") is None
            assert not it.directory.hosted() and not it.engine.agents.names("agent_client")
            with pytest.raises(NotFound):
                await it.start()
            with pytest.raises(Denied, match="revoked"):
                it.directory.check("it")
            with pytest.raises(Denied, match="revoked"):
                it.directory.admit(at)
            with pytest.raises(Denied, match="revoked"):
                await it.directory.heartbeat("it", "active", ANNA, at)
            with pytest.raises(Denied, match="revoked"):
                await it.register(at=at)
            assert not it.directory.owned("it", ANNA)
            assert (await it.directory.candidate("it")).why_not and not await it.directory.search()
            assert list(it.directory.ids()) == ["it"]

    run(scene())


def test_runs_of_a_revoked_agent_are_cancelled_and_it_is_told() -> None:
    async def scene() -> None:
        async with house() as it:
            asked = asyncio.Event()

            async def never(method: str, params: object) -> object:
                asked.set()
                await asyncio.Event().wait()
                raise AssertionError

            await it.register(at=session(never))
            started = await it.start()
            await asked.wait()
            await it.directory.revoke("it")
            ended = await it.engine.runs.wait(started.id, timeout=30)
            assert ended is not None and ended.status is RunStatus.CANCELLED
            assert ended.cancel_reason == "the agent's access was revoked"

    run(scene())


def test_access_that_is_given_back_works_again_on_the_same_connection() -> None:
    async def scene() -> None:
        async with house() as it:
            at = await it.register()
            closed = it.directory.hosted()["it"].outbound
            await it.directory.revoke("it")
            await it.directory.restore("it")
            assert it.directory.hosted()["it"].outbound is not closed
            it.directory.admit(at)
            assert await it.status() == "active" and it.directory.session_of("it") is at
            assert (await it.ended()).status is RunStatus.SUCCESS
            await it.directory.restore("it")

    run(scene())


def test_an_id_can_be_revoked_before_anybody_has_it_and_after_it_was_forgotten() -> None:
    async def scene() -> None:
        async with house() as it:
            await it.directory.revoke("it")
            await it.look()
            with pytest.raises(Denied, match="revoked"):
                await it.register()
            assert not it.directory.ids()
            await it.directory.restore("it")
            await it.register()
            await it.directory.revoke("it")
            await it.directory.unregister("it", ANNA)
            assert it.directory.revoked("it")

    run(scene())


def test_a_session_is_let_in_as_long_as_one_of_its_agents_may() -> None:
    async def scene() -> None:
        async with house() as it:
            at = await it.register("one")
            await it.register("two", at=at)
            await it.directory.revoke("one")
            it.directory.admit(at)
            await it.directory.revoke("two")
            with pytest.raises(Denied, match="one, two"):
                it.directory.admit(at)
            it.directory.admit(session())

    run(scene())


def test_an_agent_of_the_route_table_is_revoked_for_this_protocols_clients() -> None:
    async def scene() -> None:
        async with house((route("routed"), Scripted(echo))) as it:
            await it.directory.revoke("routed")
            assert await it.status("routed") == "revoked"
            assert not (await it.directory.candidate("routed")).active
            with pytest.raises(Denied):
                it.directory.check("routed")
            await it.directory.restore("routed")
            assert await it.status("routed") == "active"
            it.directory.check("routed")

    run(scene())


def test_a_revocation_is_told() -> None:
    async def scene() -> None:
        async with house() as it:
            await it.register(who=BERT)
            it.uris.clear()
            await it.directory.revoke("it")
            await it.directory.restore("it")
            assert it.uris == [{"agent://directory", "agent://metrics/it"}] * 2

    run(scene())
