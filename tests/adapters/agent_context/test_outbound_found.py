"""Who lives at a target: described, found, and news of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, AgentError, NotFound, Unsupported
from gateway.core.types import JsonObject
from tests.adapters.agent_context.outbound_rig import NATIVE, PLAIN, RECORD, House, piped
from tests.support.rpc import settled

OTHER: JsonObject = {**RECORD, "id": "other", "name": "Other"}


def directory(*records: JsonObject, **more: Any) -> JsonObject:
    text = json.dumps({"agents": list(records), **more})
    return {"contents": [{"uri": "agent://directory", "mimeType": "application/json", "text": text}]}


async def asked(
    house: House, work: Callable[[], Awaitable[Any]], method: str, result: Any = None, error: Any = None
) -> Any:
    """What `work` returns, once the server has answered what it asks."""
    task = asyncio.ensure_future(work())
    request = await (await house.called()).hear(method)
    await house.agent.answer(request["id"], result, error)
    return await asyncio.wait_for(task, 30)


async def test_an_agent_is_described_as_the_directory_has_it() -> None:
    async with piped(agent=None) as house:
        agent = await asked(house, house.outbound.describe, "resources/read", directory(RECORD))
        assert agent.name == "it" and agent.labels["specializations"] == ["nlp"]
        assert agent.extra["agent_context"]["name"] == "It"
        with pytest.raises(NotFound, match="it, other"):
            await asked(house, house.outbound.describe, "resources/read", directory(RECORD, OTHER))
    async with piped(agent="nobody") as house:
        with pytest.raises(NotFound, match=r"no agent nobody; there are: it"):
            await asked(house, house.outbound.describe, "resources/read", directory(RECORD))


async def test_an_agent_without_a_directory_is_described_by_its_handshake() -> None:
    missing = {"code": -32601, "message": "Method not found"}
    async with piped({"agent": {"specializations": ["x"]}}, agent=None) as house:
        agent = await asked(house, house.outbound.describe, "resources/read", error=missing)
        assert (agent.name, agent.version, agent.labels["specializations"]) == ("It", "1", ["x"])


async def test_a_plain_server_s_tools_are_found_and_one_of_them_described() -> None:
    tools = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}, {"name": "sub", "inputSchema": {}}]}

    async with piped(PLAIN, agent="sub") as house:
        agent = await asked(house, house.outbound.describe, "tools/list", tools)
        assert (agent.name, agent.version) == ("sub", "1"), "a tool is of the version of its server"
    async with piped(PLAIN, agent=None, agents="*") as house:
        found = await asked(house, house.outbound.discover, "tools/list", tools)  # type: ignore[attr-defined]
        assert list(found) == ["add", "sub"]
        assert (await found["add"].describe()).name == "add"
        with pytest.raises(Unsupported):
            await house.outbound.describe()
    async with piped({"prompts": {}}) as house:
        with pytest.raises(AgentError, match="neither agents nor tools; it has prompts"):
            task = asyncio.ensure_future(house.outbound.describe())
            await asyncio.wait_for(task, 30)


async def test_a_route_may_insist_on_the_tools_of_a_server_that_has_agents() -> None:
    async with piped({**NATIVE, **PLAIN}, agent=None, call="tool") as house:
        tools = {"tools": [{"name": "agentSearch", "inputSchema": {"type": "object"}}]}
        assert (await asked(house, house.outbound.describe, "tools/list", tools)).name == "agentSearch"


async def test_all_agents_of_a_directory_are_found_but_those_that_are_away_or_none() -> None:
    entries = [
        RECORD,
        OTHER,
        {**RECORD, "id": "off", "status": "offline"},
        {**RECORD, "id": "no", "status": "revoked"},
        {**RECORD, "id": "asleep", "status": "inactive"},
        {"id": "broken"},
        {**RECORD, "id": "interlingua"},
    ]

    async with piped(agent=None, agents="*") as house:
        assert house.outbound.discovers  # type: ignore[attr-defined]
        found = await asked(house, house.outbound.discover, "resources/read", directory(*entries))  # type: ignore[attr-defined]
        assert list(found) == ["it", "other", "asleep"]
        again = await asked(house, house.outbound.discover, "resources/read", directory(RECORD))  # type: ignore[attr-defined]
        assert again["it"] is found["it"]


@pytest.mark.parametrize("text", ["{", "5", '{"agents": 5}'])
async def test_a_directory_that_is_none_is_the_server_s_fault(text: str) -> None:
    async with piped() as house:
        result = {"contents": [{"uri": "agent://directory", "text": text}]}
        with pytest.raises(AgentBroken):
            await asked(house, house.outbound.describe, "resources/read", result)


@pytest.mark.parametrize("error", [None, {"code": -32601, "message": "not after all"}])
async def test_changes_of_the_directory_and_of_the_tools_are_told(error: Any) -> None:
    async with piped(agent=None, agents="*") as house:
        told: list[int] = []
        house.outbound.on_change(lambda: told.append(1))  # type: ignore[attr-defined]
        request = await (await house.called()).hear("resources/subscribe")
        assert request["params"] == {"uri": "agent://directory"}
        await house.agent.answer(request["id"], None, error)
        await house.agent.tell("notifications/resources/updated", {"uri": "agent://tasks"})
        await settled()
        assert not told
        await house.agent.tell("notifications/resources/updated", {"uri": "agent://directory"})
        await house.agent.tell("notifications/tools/list_changed", {})
        await house.agent.tell("notifications/resources/list_changed", {})
        await settled()
        assert len(told) == 3
