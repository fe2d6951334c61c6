"""A run as the outbound half makes it: what is sent, what the agent says, how it ends."""

from __future__ import annotations

import asyncio
import json

import pytest

from adapters.agent_communication.wire import PROTOCOL
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone
from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, echo, entry, outbound, running


async def test_what_the_agent_says_arrives_while_it_says_it_and_its_result_is_the_output() -> None:
    server = FakeServer({"echo": echo})
    ctx = running(input={"prompt": "one two"})
    await outbound(server).run(ctx)
    assert ctx.snapshots() == [{"text": "one "}, {"text": "one two "}]
    assert isinstance(ctx.end, e.RunFinished)
    assert ctx.output == {"text": "one two "}
    assert not ctx.losses


async def test_an_agent_that_is_silent_until_its_answer_has_an_output_too() -> None:
    async def silent(asked: Asked) -> JsonObject:
        return {"output": {"text": "done", "logs": ["a"]}}

    ctx = running("silent")
    await outbound(FakeServer({"silent": silent})).run(ctx)
    assert ctx.output == {"text": "done", "logs": ["a"]}


async def test_the_result_wins_over_the_deltas() -> None:
    async def wrong(asked: Asked) -> JsonObject:
        await asked.progress({"text": "draft"})
        return {"output": {"text": "final"}}

    ctx = running("wrong")
    await outbound(FakeServer({"wrong": wrong})).run(ctx)
    assert ctx.output == {"text": "final"}


async def test_defaults_that_ride_along_in_every_delta_do_not_add_up() -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "default": ""},
            "model": {"type": "string", "default": "m1"},
            "score": {"type": "integer", "default": 1},
            "done": {"type": "boolean", "default": False},
        },
    }
    defaults = {"model": "m1", "score": 1, "done": False}

    async def dumps(asked: Asked) -> JsonObject:
        for word in ("a ", "b ", "c"):
            await asked.progress({"text": word, **defaults})
        await asked.progress({"text": "", **defaults, "done": True})
        return {"output": {"text": "a b c", **defaults, "done": True}}

    from adapters.agent_communication.codec.agents import agent_of

    ctx = running("dumps")
    ctx.agent = agent_of(entry("dumps", outputSchema=schema))
    ctx.__post_init__()
    await outbound(FakeServer({"dumps": dumps})).run(ctx)
    for seen in ctx.snapshots()[:-1]:
        assert seen.get("model", "m1") == "m1" and seen.get("score", 1) == 1, seen
    assert ctx.output == {"text": "a b c", "model": "m1", "score": 1, "done": True}


async def test_a_delta_that_cannot_be_combined_is_counted_and_the_rest_goes_on() -> None:
    async def odd(asked: Asked) -> JsonObject:
        await asked.progress({"text": "a"})
        await asked.progress({"text": 7})
        await asked.progress({"text": "b"})
        await asked.progress("nonsense")
        await asked.tell("notifications/agents/run/progress", ["nonsense"])
        return {"output": {"text": "ab"}}

    ctx = running("odd")
    await outbound(FakeServer({"odd": odd})).run(ctx)
    assert ctx.snapshots() == [{"text": "a"}, {"text": "ab"}]
    assert ctx.losses["bad_delta"] == 3
    assert isinstance(ctx.end, e.RunFinished)


async def test_progress_after_the_result_changes_nothing() -> None:
    kept: list[Asked] = []

    async def late(asked: Asked) -> JsonObject:
        kept.append(asked)
        return {"output": {"text": "all"}}

    ctx = running("late")
    await outbound(FakeServer({"late": late})).run(ctx)
    await kept[0].progress({"text": " and more"})
    assert ctx.output == {"text": "all"}
    assert isinstance(ctx.events[-1], e.RunFinished)
    assert ctx.losses == {"late_progress": 1}


@pytest.mark.parametrize("code", [0, -32602, -32603, 1])
async def test_an_error_is_the_agents_failure_whatever_its_code_and_keeps_its_words(code: int) -> None:
    async def fails(asked: Asked) -> JsonObject:
        await asked.progress({"text": "so far"})
        raise RpcError(code, "boom", {"why": [1, 2]})

    ctx = running("fails")
    await outbound(FakeServer({"fails": fails})).run(ctx)
    end = ctx.end
    assert isinstance(end, e.RunFailed)
    assert (end.failure.code, end.failure.message) == ("agent_failed", "boom")
    assert end.origin == {"error": {"code": code, "message": "boom", "data": {"why": [1, 2]}}}
    assert ctx.output == {"text": "so far"}


async def test_a_result_without_an_output_is_a_broken_agent() -> None:
    async def broken(asked: Asked) -> JsonObject:
        return {"outputs": {}}

    with pytest.raises(AgentBroken):
        await outbound(FakeServer({"broken": broken})).run(running("broken"))


async def test_a_server_that_dies_leaves_what_was_said_and_the_next_run_has_a_new_one() -> None:
    server = FakeServer({"echo": echo})

    async def dies(asked: Asked) -> JsonObject:
        await asked.progress({"text": "half"})
        server.gone()
        await asyncio.Event().wait()
        raise AssertionError

    server.agents["dies"] = dies
    half = outbound(server)
    ctx = running("dies")
    with pytest.raises(AgentGone):
        await half.run(ctx)
    assert ctx.output == {"text": "half"}
    again = running()
    await half.run(again)
    assert again.output == {"text": "hello "}


async def test_extra_keys_of_the_answer_and_of_progress_reach_a_client_of_the_same_protocol() -> None:
    async def extra(asked: Asked) -> JsonObject:
        await asked.progress({"text": "a"}, mood="good")
        return {"output": {"text": "a"}, "model": "m", "_meta": {"cost": 1}}

    ctx = running("extra", protocol=PROTOCOL)
    await outbound(FakeServer({"extra": extra})).run(ctx)
    [delta] = ctx.said(e.PartDelta)
    assert "good" in json.dumps(delta.origin)
    assert isinstance(ctx.end, e.RunFinished)
    assert "cost" in json.dumps(ctx.end.origin) and '"m"' in json.dumps(ctx.end.origin)


async def test_other_notifications_about_the_run_are_told_as_they_came() -> None:
    async def chatty(asked: Asked) -> JsonObject:
        await asked.tell("notifications/message", {"level": "info", "data": "hm"})
        await asked.progress({"text": "a"})
        await asked.tell("notifications/progress", {"progressToken": "t", "progress": 1, "message": "half"})
        return {"output": {"text": "a"}}

    ctx = running("chatty")
    await outbound(FakeServer({"chatty": chatty})).run(ctx)
    said = [event.data for event in ctx.said(e.Custom)]
    assert said == [
        {"notification": "notifications/message", "params": {"level": "info", "data": "hm"}},
        {"notification": "notifications/progress", "params": {"progress": 1, "message": "half"}},
    ]
    kinds = [type(event) for event in ctx.events]
    assert kinds.index(e.Custom) < kinds.index(e.PartDelta)


async def test_what_comes_together_is_logged_together_and_the_agent_waits_for_a_full_log() -> None:
    drained = 0

    async def big(asked: Asked) -> JsonObject:
        for _ in range(2000):
            await asked.progress({"text": "x"})
        return {"output": {"text": "x" * 2000}}

    ctx = running("big")
    drain = ctx.drain

    async def counted() -> None:
        nonlocal drained
        drained += 1
        await drain()

    ctx.drain = counted  # type: ignore[method-assign]
    await outbound(FakeServer({"big": big})).run(ctx)
    assert ctx.output == {"text": "x" * 2000}
    assert len(ctx.bursts) < 20
    assert drained >= 2000 // 256
