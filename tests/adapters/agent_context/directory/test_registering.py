"""Registering, updating, taking over, leaving: who may be which agent, and that every protocol can call it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import Conflict, Denied, Invalid, NotFound, TooLarge
from gateway.core.types import RunStatus
from tests.adapters.agent_context.directory.rig import ANNA, ANYBODY, BERT, house, session


async def test_the_same_principal_takes_over_once_its_connection_has_gone_and_nobody_else_does() -> None:
    async with house() as it:
        first = await it.register()
        outbound = it.directory.hosted()["it"].outbound
        it.hang_up(first)
        with pytest.raises(Conflict, match="taken"):
            await it.register(who=BERT)
        second = await it.register()
        assert it.connection() == second
        assert it.directory.hosted()["it"].outbound is outbound, "the same agent, for the engine"
        assert (await it.ended()).status is RunStatus.SUCCESS
        assert not first.asked and second.asked


@pytest.mark.parametrize("how", ["silent", "has lost its GET"])
async def test_a_connection_that_is_as_good_as_gone_is_taken_over_too(how: str) -> None:
    async with house() as it:
        first = await it.register()
        if how == "silent":
            it.clock.pass_(91)
        else:
            first.connected = False
        second = await it.register()
        it.hang_up(first)
        assert it.connection() is second and await it.status() == "active"


async def test_one_session_registers_many_agents_and_all_are_offline_when_it_ends() -> None:
    async with house() as it:
        at = await it.register("one")
        await asyncio.gather(it.register("two", at=at), it.register("three", at=at))
        assert set(it.directory.ids()) == {"one", "two", "three"}
        it.uris.clear()
        it.hang_up(at)
        assert [await it.status(name) for name in ("one", "two", "three")] == ["offline"] * 3
        assert it.uris[0] >= {"agent://directory", "agent://metrics/one", "agent://metrics/three"}
        failed = await it.ended("two")
        assert failed.failure is not None and failed.failure.code == "unavailable" and failed.failure.retryable
        assert not at.asked


async def test_an_agent_that_left_is_gone_from_every_list_and_a_run_under_way_goes_on() -> None:
    async with house() as it:
        go = asyncio.Event()

        async def slowly(method: str, params: object) -> object:
            await go.wait()
            return {"content": {"type": "response", "payload": {"messages": [{"text": "late"}]}}}

        at = await it.register(at=session(slowly))
        under_way = await it.start()
        with pytest.raises(Denied, match="somebody else"):
            await it.directory.unregister("it", BERT)
        await it.directory.unregister("it", ANNA)
        assert not it.engine.agents.names("test") and not it.directory.ids()
        with pytest.raises(NotFound):
            await it.directory.unregister("it", ANNA)
        go.set()
        done = await it.engine.runs.wait(under_way.id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "late"}
        assert await it.register(at=at) is at


async def test_where_everybody_is_the_same_principal_an_agent_with_a_connection_is_its_own() -> None:
    async with house() as it:
        at = await it.register(who=ANYBODY)
        other = session()
        assert not it.directory.owned("it", ANYBODY)
        with pytest.raises(Denied, match="connection of its own"):
            await it.directory.unregister("it", ANYBODY, other)
        with pytest.raises(Denied, match="connection of its own"):
            await it.directory.heartbeat("it", "busy", ANYBODY, other)
        await it.directory.heartbeat("it", "busy", ANYBODY, at)
        assert await it.status() == "busy"
        it.hang_up(at)
        assert it.directory.owned("it", ANYBODY)
        await it.directory.unregister("it", ANYBODY, other)


async def test_two_sessions_that_register_the_same_id_at_the_same_moment_get_one_agent_and_one_conflict() -> None:
    async with house() as it:
        both = await asyncio.gather(it.register(), it.register(), return_exceptions=True)
        refused = [one for one in both if isinstance(one, Conflict)]
        served = [one for one in both if not isinstance(one, BaseException)]
        assert len(refused) == len(served) == 1
        assert it.connection() is served[0]


async def test_a_session_that_ends_while_its_agent_registers_leaves_it_offline() -> None:
    async with house() as it:
        at = session()
        registering = asyncio.create_task(it.register(at=at))
        await asyncio.sleep(0)
        it.hang_up(at)
        await registering
        assert await it.status() == "offline" and it.connection() is None
        await it.directory.settled()
        kept = {one.name: one.data for one in await it.engine.records.kept("agent_context")}
        assert "process" not in kept["agent/it"]


async def test_records_that_cannot_be_kept_are_refused_with_the_reason() -> None:
    async with house() as it:
        with pytest.raises(TooLarge, match="65536"):
            await it.register(xBig="x" * 70_000)
        with pytest.raises(Invalid, match="no agent"):
            await it.directory.register({"id": "it", "name": "It"}, ANNA, session())
        assert not it.directory.ids()


async def test_an_endpoint_whose_transport_does_not_go_with_its_url_is_refused_and_not_kept() -> None:
    async with house(endpoints=["127.0.0.0/8"]) as it:
        with pytest.raises(Invalid, match="does not go with"):
            await it.register(endpoint={"url": "ws://127.0.0.1:1/", "transport": "sse"})
        assert not [one for one in await it.engine.records.kept("agent_context") if one.name.startswith("agent/")]


@pytest.mark.parametrize("levels", [101, 900, 5000])
async def test_a_record_nested_so_deep_that_not_everybody_can_read_it_is_refused(levels: int) -> None:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]

    async with house() as it:
        with pytest.raises(Invalid, match="nested deeper than 100 levels"):
            await it.register(xDeep=deep)
        await it.register(xDeep=deep[0][0][0] if levels == 101 else 1)


@pytest.mark.parametrize("error", [RecursionError(), ValueError("no endpoint")])
async def test_a_record_that_was_kept_and_cannot_be_read_any_more_does_not_keep_the_gateway_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def too_deep(*args: Any) -> Any:
        raise error

    async with house(file=tmp_path / "db") as it:
        await it.register()
    monkeypatch.setattr("adapters.agent_context.directory.members.agent_of", too_deep)
    async with house(file=tmp_path / "db") as it:
        assert not it.directory.ids()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "ws://[::1]:1/x", "http://10.0.0.1/"])
async def test_an_endpoint_at_an_internal_address_is_refused_unless_the_options_allow_it(url: str) -> None:
    async with house() as it:
        with pytest.raises(Denied, match="endpoint"):
            await it.register(endpoint={"url": url})
    async with house(endpoints=["127.0.0.0/8", "10.0.0.0/8", "::1/128"]) as it:
        await it.register(endpoint={"url": url})
        assert await it.status() == "active"


async def test_credentials_in_an_endpoint_are_refused_or_never_shown() -> None:
    async with house(endpoints=["127.0.0.0/8"]) as it:
        with pytest.raises(Invalid, match="user name"):
            await it.register(endpoint={"url": "http://u:s3cret@127.0.0.1:1/"})
        secret = {"url": "http://127.0.0.1:1/mcp?key=s3cret", "transport": "auto", "headers": {"x": "s3cret"}}
        await it.register(endpoint=secret)
        entries = await it.directory.entries()
        assert entries[0]["endpoint"] == {"url": "http://127.0.0.1:1/mcp", "transport": "auto"}
        assert "s3cret" not in str(await it.engine.agents.get("it", "test"))


async def test_an_agent_with_an_endpoint_stays_when_the_session_it_registered_on_ends() -> None:
    async with house(endpoints=["127.0.0.0/8"]) as it:
        at = await it.register(endpoint={"url": "http://127.0.0.1:1/"})
        it.hang_up(at)
        assert await it.status() == "active"
        failed = await it.ended()
        assert failed.failure is not None and failed.failure.code == "agent_gone", "it was tried"
        it.clock.pass_(91)
        assert await it.status() == "inactive"
        await it.directory.heartbeat("it", "active", ANNA)
        assert await it.status() == "active"
