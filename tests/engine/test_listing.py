"""The list of agents while the routes change."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from gateway.core.types import Agent
from gateway.engine import agents
from tests.support.aio import run
from tests.support.scripted import Scripted, echo, engine, route, use


def test_an_agent_whose_route_goes_while_all_are_described_is_left_out() -> None:
    async def story() -> None:
        stays, goes = (route("stays"), Scripted(echo)), (route("goes"), Scripted(echo))
        async with engine(stays, goes) as it:
            listing = asyncio.ensure_future(it.agents("test"))
            await asyncio.sleep(0)
            use(it, stays)
            assert [agent.name for agent in await listing] == ["stays"]

    run(story())


def test_a_target_that_does_not_answer_holds_no_list_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "LIST_SECONDS", 0.01)

    async def story() -> None:
        answers = asyncio.Event()

        class Hanging(Scripted):
            async def describe(self) -> Agent:
                await answers.wait()
                return replace(await super().describe(), version="1.2.3")

        async with engine((route("hangs"), Hanging(echo)), (route("quick"), Scripted(echo))) as it:
            listed = await it.agents("test")
            assert [agent.name for agent in listed] == ["hangs", "quick"] and listed[0].version == "0.0.0"
            assert (await it.agents("test"))[0].version == "0.0.0"
            answers.set()
            assert (await it.agent("hangs", "test")).version == "1.2.3"
            assert (await it.agents("test"))[0].version == "1.2.3"

    run(story())
