"""The list of agents while the routes change."""

from __future__ import annotations

import asyncio

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
