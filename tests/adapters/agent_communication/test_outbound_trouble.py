"""Servers that say what can hardly be said."""

from __future__ import annotations

import msgspec
import pytest

from adapters.agent_communication.outbound.turn import noted
from gateway.core import events as e
from gateway.core.errors import AgentError, NotFound
from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, echo, entry, outbound, raw, running

HALF = "\ud83d"


async def test_half_a_character_in_a_notification_takes_nothing_else_along() -> None:
    async def agent(asked: Asked) -> JsonObject:
        await asked.progress({"text": "a"})
        await asked.tell("notifications/message", {"level": "info", "data": {HALF: f"x{HALF}y"}})
        return {"output": {"text": "a"}}

    context = running("it")
    await outbound(FakeServer({"it": agent})).run(context)
    (custom,) = [event for event in context.events if isinstance(event, e.Custom)]
    assert custom.data["params"]["data"] == {"\ufffd": "x\ufffdy"}
    assert all(e.encode(event) for event in context.events)


async def test_half_a_character_in_an_error_ends_the_run_all_the_same() -> None:
    async def agent(asked: Asked) -> JsonObject:
        raise RpcError(-5, f"bad {HALF}!", raw({"why": f"{HALF}?"}))

    context = running("it")
    await outbound(FakeServer({"it": agent})).run(context)
    assert isinstance(context.end, e.RunFailed)
    assert context.end.failure.message == "bad \ufffd!"
    assert context.end.origin == {"error": {"code": -5, "message": "bad \ufffd!", "data": {"why": "\ufffd?"}}}


def test_a_notification_that_cannot_be_read_is_left_out() -> None:
    deep = msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)
    assert noted("notifications/message", deep) == []


async def test_names_with_half_a_character_can_be_told() -> None:
    server = FakeServer(listed=[entry(f"a{HALF}b", description=HALF)], capabilities={"agents": {}, HALF: {}})
    found = await outbound(server, agents="*").discover()
    assert list(found) == ["a\ufffdb"]
    agent = await found["a\ufffdb"].describe()
    assert msgspec.json.encode(agent.extra)
    with pytest.raises(NotFound) as caught:
        await outbound(server, agent="other").describe()
    assert str(caught.value).encode()
    with pytest.raises(AgentError) as broken:
        await outbound(FakeServer(capabilities={f"x{HALF}": {}})).describe()
    assert str(broken.value).encode()


async def test_of_very_many_agents_some_are_named() -> None:
    server = FakeServer(listed=[entry(f"agent-{number}") for number in range(5000)])
    with pytest.raises(NotFound, match="and 4900 more") as caught:
        await outbound(server, agent="other").describe()
    assert len(str(caught.value)) < 2000


async def test_a_list_is_fetched_once_for_all_that_are_in_it() -> None:
    server = FakeServer({"a": echo, "b": echo})
    found = await outbound(server, agents="*").discover()
    assert [(await half.describe()).name for half in found.values()] == ["a", "b"]
    assert len(server.named("agents/list")) == 1
    server.listed = [entry("a", description="another")]
    assert (await found["a"].describe()).description == "another", "it is asked again"
