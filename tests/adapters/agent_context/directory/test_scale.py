"""Ten thousand agents: whoever else waits for the loop gets a turn every hundred of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec.structs import replace

from adapters.agent_context.wire import PROTOCOL
from tests.adapters.agent_context.directory.rig import House, house

MANY = 10_000


async def crowd(it: House) -> None:
    """As many agents as one that registered, all of them alike, and nothing written down."""
    await it.register("agent-0")
    members = it.directory._members
    one = members.by_id["agent-0"]
    for number in range(1, MANY):
        name = f"agent-{number}"
        joined = replace(one.joined, record={**one.joined.record, "id": name})
        members.by_id[name] = replace(one, id=name, joined=joined)
    names = list(members.by_id)
    it.engine.agents.names = lambda protocol: names if protocol == PROTOCOL else ()  # type: ignore[method-assign]


async def turns(work: Awaitable[Any]) -> tuple[Any, int]:
    """What comes of it, and how many turns somebody else had meanwhile."""
    count, going = 0, True

    async def other() -> None:
        nonlocal count
        while going:
            count += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(other())
    try:
        found = await work
    finally:
        going = False
        await waiting
    return found, count


async def test_the_directory_a_search_the_candidates_and_a_look_leave_others_their_turns() -> None:
    async with house() as it:
        await crowd(it)
        it.clock.pass_(31)
        for work in (it.directory.entries(), it.directory.search(["hammer"]), it.directory.candidates()):
            found, others = await turns(work)
            assert len(found) == MANY and others >= MANY // 100
        _, others = await turns(it.directory._sweep())
        assert others >= MANY // 100
