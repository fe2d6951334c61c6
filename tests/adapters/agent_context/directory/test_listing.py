"""The directory as everybody sees it: agents of all protocols, and what is not for others' eyes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import AgentGone, NotFound
from gateway.core.types import Agent, Standing
from tests.adapters.agent_context.directory.rig import house, record
from tests.support.scripted import AGENT, Scripted, echo, route, use

STANDING = Standing(quality=7.0, cost=0.25, speed=12.0, security=9.0)


class Away(Scripted):
    """Its target is down."""

    async def describe(self) -> Agent:
        raise AgentGone("it is down")


async def test_agents_of_all_protocols_are_listed_in_the_same_form_with_what_is_known_of_each() -> None:
    agents = ((route("routed"), Scripted(echo)), (route("away"), Away(echo)))
    async with house(*agents) as it:
        await it.register("joined", xOwn=1)
        entries = {one["id"]: one for one in await it.directory.entries()}
        assert list(entries) == list(it.directory.ids()) == ["routed", "away", "joined"]
        assert {name: one["status"] for name, one in entries.items()} == {
            "routed": "active",
            "away": "offline",
            "joined": "active",
        }
        assert entries["joined"]["xOwn"] == 1 and entries["joined"]["meta"]["lastActive"].endswith("Z")
        assert "ACP-0.1" in entries["routed"]["capabilities"]["protocols"]
        for name, entry in entries.items():
            assert await it.directory.entry(name) == entry


async def test_the_coordination_is_hidden_unless_it_has_a_name() -> None:
    hidden = (route("interlingua-tasks"), Scripted(echo))
    async with house(hidden) as it:
        assert not it.directory.ids() and not await it.directory.entries()
        with pytest.raises(NotFound):
            await it.directory.entry("interlingua-tasks")
    async with house((route("boss"), Scripted(echo)), coordinator="boss") as it:
        assert list(it.directory.ids()) == ["boss"]
        assert not await it.directory.candidates(), "it gives tasks, and gets none"


async def test_a_route_that_takes_the_name_of_a_registered_agent_is_the_one_that_is_listed() -> None:
    async with house() as it:
        await it.register()
        use(it.engine, (route("it"), Scripted(echo, agent=replace(AGENT, description="the route's"))))
        entry = await it.directory.entry("it")
        assert entry["meta"]["description"] == "the route's" and len(await it.directory.entries()) == 1


async def test_candidates_carry_what_is_said_measured_and_wrong() -> None:
    agents = ((route("routed"), Scripted(echo, agent=replace(AGENT, standing=STANDING))), (route("away"), Away(echo)))
    async with house(*agents) as it:
        at = await it.register("joined", costMetrics={"costPerToken": 0.5})
        it.hang_up(at)
        found = {one.id: one for one in await it.directory.candidates()}
        assert list(found) == ["routed", "away", "joined"]
        assert found["routed"].active and found["routed"].rated == 7.0 and found["routed"].standing.cost == 0.25
        assert not found["away"].active and found["away"].status == "offline"
        joined = found["joined"]
        assert joined.standing.cost == 0.5 and joined.can == {"hammer", "gpt", "data-analysis"}
        assert joined.why_not == "agent joined is not connected"


async def test_the_load_of_a_candidate_is_what_runs_on_it_now() -> None:
    go = asyncio.Event()

    async def held(context: Any) -> None:
        await go.wait()
        await echo(context)

    async def load(name: str) -> float:
        return next(one.load for one in await it.directory.candidates() if one.id == name)

    async with house((route("routed"), Scripted(held)), (route("idle"), Scripted(echo))) as it:
        runs = [await it.start("routed") for _ in range(3)]
        assert await load("routed") == 3
        assert await load("idle") == 0
        go.set()
        for one in runs:
            await it.engine.runs.wait(one.id, timeout=30)
        assert await load("routed") == 3, "looked up once a second"
        it.clock.pass_(1.1)
        assert await load("routed") == 0


async def test_what_an_agent_sent_as_its_status_or_auth_is_not_what_the_directory_says() -> None:
    async with house() as it:
        await it.register(status="revoked", auth={"token": "s3cret"})
        entry = await it.directory.entry("it")
        assert entry["status"] == "active" and "auth" not in entry
        assert "s3cret" not in str(await it.engine.records.kept("agent_context"))
        assert record()["capabilities"] == entry["capabilities"]
