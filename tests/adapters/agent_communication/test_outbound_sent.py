"""Which agent of a server a route means, and what is sent to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_communication.wire import PROTOCOL
from gateway.core.errors import AgentError, Invalid, NotFound
from tests.adapters.agent_communication.outbound_rig import FakeServer, echo, entry, outbound, running


async def test_a_server_without_agents_says_what_it_has() -> None:
    server = FakeServer({"echo": echo}, capabilities={"tools": {}, "prompts": {}, "logging": None})
    half = outbound(server)
    for going in (half.describe(), half.run(running())):
        with pytest.raises(AgentError, match=r"no capability `agents`.*prompts, tools$"):
            await going
    assert not server.calls


async def test_the_only_agent_needs_no_name() -> None:
    server = FakeServer({"echo": echo})
    agent = await outbound(server).describe()
    assert agent.extra[PROTOCOL]["name"] == "echo"
    assert agent.text_output == "/text"
    ctx = running()
    ctx.agent = ctx.agent.__class__(name="x", input_schema={}, output_schema={})  # as far as a route alone tells
    await outbound(server).run(ctx)
    assert server.named("agents/run")[0]["name"] == "echo"


async def test_one_of_several_is_called_by_its_own_name_whatever_the_route_is_called() -> None:
    server = FakeServer({"echo": echo, "other": echo})
    half = outbound(server, agent="other")
    assert (await half.describe()).extra[PROTOCOL]["name"] == "other"
    await half.run(running())
    assert server.named("agents/run")[0]["name"] == "other"


@pytest.mark.parametrize("agents", [{}, {"one": echo, "two": echo}])
async def test_where_several_or_none_live_a_route_that_names_none_is_told_who_does(agents: Any) -> None:
    with pytest.raises(NotFound, match=f"{len(agents)} agents.*{'one, two' if agents else 'none'}$"):
        await outbound(FakeServer(agents)).describe()


async def test_an_agent_that_is_not_there_is_not_found_among_those_that_are() -> None:
    with pytest.raises(NotFound, match=r"no agent three; there are: one, two$"):
        await outbound(FakeServer({"two": echo, "one": echo}), agent="three").describe()


async def test_who_describes_at_the_same_time_asks_once() -> None:
    server = FakeServer({"echo": echo})
    half = outbound(server)
    await asyncio.gather(*(half.describe() for _ in range(5)))
    assert len(server.calls) == 1
    await half.describe()
    assert len(server.calls) == 2


async def test_entries_that_are_none_hide_nobody() -> None:
    server = FakeServer({"echo": echo}, listed=[{}, {"name": ""}, {"name": 3}, entry("echo")])
    assert (await outbound(server).describe()).name == "echo"


async def test_trace_and_metadata_go_along_and_nothing_that_is_about_another_connection() -> None:
    server = FakeServer({"echo": echo})
    metadata = {
        "team": "mail",
        "progressToken": 9,
        "traceparent": {"not": "a header"},
        "tracestate": "a=b",
        "baggage": {"not": "a header"},
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "interlingua/resume": "r.1",
    }
    ctx = running(metadata=metadata)
    await outbound(server).run(ctx)
    [sent] = server.named("agents/run")
    assert sent == {
        "name": "echo",
        "input": {"prompt": "hello"},
        "_meta": {"team": "mail", "tracestate": "a=b", "traceparent": ctx.traceparent},
    }


async def test_nothing_to_say_besides_is_no_meta() -> None:
    server = FakeServer({"echo": echo})
    ctx = running()
    ctx.traceparent = None
    await outbound(server).run(ctx)
    assert server.named("agents/run") == [{"name": "echo", "input": {"prompt": "hello"}}]


async def test_what_a_client_of_the_same_protocol_sent_besides_goes_along() -> None:
    creation = {
        "name": "route",
        "input": {"prompt": "hello"},
        "priority": {"x": 1},
        "requestState": "s",
        "inputResponses": {},
        "_meta": {"progressToken": 3, "mine": [1], "traceparent": "00-old"},
    }

    server = FakeServer({"echo": echo})
    ctx = running(protocol=PROTOCOL, creation=creation)
    await outbound(server).run(ctx)
    [sent] = server.named("agents/run")
    assert sent == {
        "priority": {"x": 1},
        "name": "echo",
        "input": {"prompt": "hello"},
        "_meta": {"mine": [1], "traceparent": ctx.traceparent},
    }
    foreign = running(protocol="test", creation=creation)
    await outbound(server).run(foreign)
    assert "priority" not in server.named("agents/run")[1]


async def test_an_input_that_is_no_object_is_not_sent() -> None:
    server = FakeServer({"echo": echo})
    with pytest.raises(Invalid) as refused:
        await outbound(server).run(running(input=["no"]))
    assert refused.value.path == "/input"
    assert not server.calls and not server.pools


async def test_a_configuration_has_no_place_in_a_run() -> None:
    ctx = running(config={"mood": "good"})
    await outbound(FakeServer({"echo": echo})).run(ctx)
    assert ctx.losses == {"config": 1}
