"""Agents of the protocol that are servers made with a real MCP SDK, behind an engine, over every transport it has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from adapters.agent_context.outbound import AgentContextTurn
from adapters.agent_context.outbound.links import ServerLink
from gateway.core import events as e
from gateway.core.errors import Denied
from gateway.core.types import Answer, JsonObject, RunStatus
from tests.adapters.agent_context.outbound_house import PATIENCE, House, house, output
from tests.adapters.agent_context.outbound_rig import running
from tests.support.agent_context import agents_command
from tests.support.processes import Process

HERE = ("stdio", "mcp", "ws")


@pytest.fixture(scope="module")
def there(agent_context_server: Process) -> Mapping[str, JsonObject]:
    """Targets by name."""
    url = agent_context_server.url
    return {
        "stdio": {"command": agents_command("stdio")},
        "mcp": {"url": f"{url}/mcp"},
        "ws": {"url": f"{url.replace('http', 'ws', 1)}/ws"},
    }


@pytest.mark.parametrize("name", HERE)
async def test_agents_on_a_server_are_run_with_all_they_say(there: Mapping[str, JsonObject], name: str) -> None:
    async with house(**there[name]) as it:
        await streams(it)
        await is_answered_later(it)
        await fails(it)
        await asks(it)
        await is_cancelled(it)


async def streams(it: House) -> None:
    done = await it.go("echo", {"message": "one two"})
    assert (done.status, output(done)) == (RunStatus.SUCCESS, {"message": "one two "})
    assert "".join(event.delta for event in await it.events(done, e.PartDelta)) == "one two "
    assert not await it.events(done, e.PartReplaced)


async def is_answered_later(it: House) -> None:
    done = await it.go("later", {"message": "hello"})
    assert (done.status, output(done)) == (RunStatus.SUCCESS, {"message": "hello"})
    assert [event.data["message"] for event in await it.events(done, e.Custom)] == ["half"]


async def fails(it: House) -> None:
    for agent in ("fail", "erring"):
        done = await it.go(agent, {"message": "x"})
        assert done.status is RunStatus.ERROR and done.failure is not None
        assert (done.failure.code, done.failure.message) == ("agent_failed", "it failed on purpose")
        assert [event.delta for event in await it.events(done, e.PartDelta)] == ["so far "]


async def asks(it: House) -> None:
    asking = await it.go("ask", {"message": "x"})
    assert asking.status is RunStatus.INTERRUPTED and asking.interrupts[0].message == "Who are you?"
    await it.engine.runs.answer(asking.id, Answer(value={"name": "Ada"}))
    done = await it.stopped(asking)
    assert json.loads(output(done)["message"].removeprefix("asking "))["answer"] == {"name": "Ada"}


async def is_cancelled(it: House) -> None:
    begun = await it.start("slow", {"message": "x"})
    await it.until(begun, e.PartDelta)
    await it.engine.runs.cancel(begun.id)
    assert (await it.stopped(begun)).status is RunStatus.CANCELLED
    async with asyncio.timeout(PATIENCE):  # it is told by a request of its own, which the next may overtake
        while begun.id not in json.loads(output(await it.go("echo", {"message": "cancelled?"}))["message"]):
            pass


@pytest.mark.parametrize("name", ["mcp", "ws"])
async def test_an_endpoint_that_an_agent_named_is_called_where_that_is_allowed(
    there: Mapping[str, JsonObject], name: str
) -> None:
    link = ServerLink.to_endpoint({"url": there[name]["url"]}, allow=["127.0.0.0/8"])
    refused = ServerLink.to_endpoint({"url": there[name]["url"], "transport": "auto"})
    try:
        context = running("hello")
        await AgentContextTurn(context, lambda: link, "echo", "auto").run()
        assert context.output == {"message": "hello "}
        with pytest.raises(Denied, match="internal address"):
            await AgentContextTurn(running("hello"), lambda: refused, "echo", "auto").run()
    finally:
        await link.aclose()
        await refused.aclose()
