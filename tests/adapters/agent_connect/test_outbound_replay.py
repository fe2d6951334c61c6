"""The recorded Agent Connect server, quirks and all, gives the gateway the right answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.agent_connect.wire import UPSTREAM_OUTPUT
from gateway.core import events as e
from gateway.core.errors import AgentFailed, NotFound
from gateway.core.types import Agent
from tests.adapters.agent_connect.outbound_calls import TRACE, calling, done, forget, play, seen
from tests.support import peers
from tests.support.aio import run
from tests.support.context import FakeContext, context
from tests.support.processes import Process

NAME = "org.agntcy.rig_agent"


async def described(server: Process, agent: str | None = NAME) -> Agent:
    async with calling(server.url, agent) as outbound:
        return await outbound.describe()


def test_the_descriptor_becomes_the_agent(agent_connect_replay: Process) -> None:
    agent = run(described(agent_connect_replay))
    assert (agent.name, agent.version, agent.description) == (NAME, "0.0.1", "A Mock Agent")
    assert agent.input_schema["required"] == ["message"]
    assert "steps" in agent.output_schema["properties"]
    assert agent.thread_schema is not None and agent.update_schema is None
    can = agent.capabilities
    assert (can.threads, can.interrupts, can.streaming, can.custom_streaming) == (True, True, True, False)
    assert [spec.kind for spec in agent.interrupts] == ["__interrupt__"]
    assert agent.interrupts[0].answer_schema["required"] == ["message"]
    assert agent.extra["agent_connect"]["specs"]["config"] == {}


def test_a_server_that_lists_only_by_name_asks_for_a_name(agent_connect_replay: Process) -> None:
    with pytest.raises(NotFound, match=r"does not list its agents: name one in `target\.agent`"):
        run(described(agent_connect_replay, None))


def test_an_unknown_name_is_not_found(agent_connect_replay: Process) -> None:
    with pytest.raises(NotFound, match="no agent nobody at"):
        run(described(agent_connect_replay, "nobody"))


def test_a_stream_without_a_terminal_event_ends_with_what_wait_says(agent_connect_replay: Process) -> None:
    ctx = done(play(agent_connect_replay.url, NAME, "stream this"))
    assert ctx.snapshots() == [
        {"message": "stream this", "steps": ["a"]},
        {"message": "echo: stream this", "steps": ["a", "b"]},
    ]
    assert isinstance(ctx.end, e.RunFinished)
    assert json.loads(bytes(ctx.end.output)) == {"message": "echo: stream this", "steps": ["a", "b"]}


def test_an_error_followed_by_endless_keep_alives_fails_the_run_at_once(agent_connect_replay: Process) -> None:
    ctx = done(play(agent_connect_replay.url, NAME, "fail", idle_timeout=60))
    assert isinstance(ctx.end, e.RunFailed)
    assert (ctx.end.failure.code, ctx.end.failure.message) == ("agent_failed", "boom")
    assert ctx.run.upstream is not None and ctx.run.upstream[UPSTREAM_OUTPUT] == {"errcode": 1}


def test_an_interrupt_that_the_stream_loses_is_asked_and_answered(agent_connect_replay: Process) -> None:
    ctx = done(play(agent_connect_replay.url, NAME, "interrupt me", answers=[{"message": "blue"}]))
    (asked,) = ctx.asked
    assert (asked.kind, asked.message) == ("__interrupt__", "How can I help you?")
    assert asked.payload == {"__interrupt__": {"interrupt_message": "How can I help you?"}}
    assert asked.answer_schema["required"] == ["message"]
    assert isinstance(ctx.end, e.RunFinished)
    assert ctx.output["message"] == "resumed with {'message': 'blue'}"


def test_stream_mode_is_not_sent_to_an_agent_without_custom_updates(agent_connect_replay: Process) -> None:
    forget(agent_connect_replay)
    done(play(agent_connect_replay.url, NAME, "hello"))
    (created,) = [r for r in seen(agent_connect_replay) if r["path"] == "/runs/stream"]
    body = json.loads(created["body"])
    assert "stream_mode" not in body
    assert body["on_disconnect"] == "continue" and body["on_completion"] == "keep"


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
def test_a_server_that_refuses_stream_mode_is_asked_without_from_then_on(
    agent_connect_replay: Process, at_once: bool
) -> None:
    async def twice() -> list[Any]:
        async with calling(agent_connect_replay.url, NAME) as outbound:
            agent = await outbound.describe()
            # as if its descriptor said that it streams custom updates, which makes `stream_mode` worth sending
            can = replace(agent.capabilities, custom_streaming=True)
            outbound._locator.agent = replace(agent, capabilities=can)
            contexts = [context(agent, "one"), context(agent, "two")]
            if at_once:
                await asyncio.gather(*map(outbound.run, contexts))
            else:
                for ctx in contexts:
                    await outbound.run(ctx)
            return [ctx.output["message"] for ctx in contexts]

    forget(agent_connect_replay)
    assert run(twice()) == ["echo: one", "echo: two"]
    asked: dict[str, list[Any]] = {"one": [], "two": []}
    for request in seen(agent_connect_replay):
        if request["path"] == "/runs/stream":
            body = json.loads(request["body"])
            asked[body["input"]["message"]].append(body.get("stream_mode"))
    refused = [["values", "custom"], None]
    assert asked == {"one": refused, "two": refused if at_once else [None]}


def test_a_run_on_a_thread_falls_back_to_the_one_way_that_works(agent_connect_replay: Process) -> None:
    async def twice() -> list[FakeContext]:
        async with calling(agent_connect_replay.url, NAME) as outbound:
            agent = await outbound.describe()
            first = context(agent, "in thread", thread="t-1")
            await outbound.run(first)
            second = context(agent, "again", thread="t-1", upstream_thread=first.upstream_thread)
            await outbound.run(second)
            return [first, second]

    forget(agent_connect_replay)
    first, second = run(twice())
    assert (first.output["message"], second.output["message"]) == ("echo: in thread", "echo: again")
    tried = [r["path"] for r in seen(agent_connect_replay) if r["method"] == "POST" and r["path"] != "/agents/search"]
    assert first.upstream_thread is not None
    base = f"/threads/{first.upstream_thread['thread_id']}/runs"
    assert tried == ["/threads", f"{base}/stream", base, f"{base}/wait", f"{base}/wait"]
    assert first.run.upstream is not None and first.run.upstream["thread"] in base


def test_a_run_on_a_thread_is_named_while_the_line_is_held(agent_connect_replay: Process) -> None:
    async def named() -> FakeContext:
        async with calling(agent_connect_replay.url, NAME) as outbound:
            ctx = context(await outbound.describe(), "slow", thread="t-1")
            task = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: c.run.upstream is not None)
            assert not task.done(), "so that it can be cancelled, or found again after a restart"
            await task
            assert len({upstream["run_id"] for upstream in ctx.upstreams}) == 1
            return ctx

    assert done(named()).output["message"] == "echo: slow"


def test_a_slow_run_is_awaited_past_the_silence_of_its_stream(agent_connect_replay: Process) -> None:
    ctx = done(play(agent_connect_replay.url, NAME, "slow", idle_timeout=0.2))
    assert ctx.output["message"] == "echo: slow"


def test_without_streaming_the_run_is_started_and_awaited(agent_connect_replay: Process) -> None:
    forget(agent_connect_replay)
    ctx = done(play(agent_connect_replay.url, NAME, "hello", stream="never"))
    assert ctx.output == {"message": "echo: hello", "steps": ["a", "b"]}
    assert ctx.run.upstream is not None
    asked = [f"{r['method']} {r['path']}" for r in seen(agent_connect_replay) if "/runs" in r["path"]]
    assert asked == ["POST /runs", f"GET /runs/{ctx.run.upstream['run_id']}/wait"]


def test_what_the_run_is_about_reaches_the_agent() -> None:
    asked = {
        "metadata": {"k": "v"},
        "config": {"style": "formal"},
        "protocol": "agent_connect",
        "creation": {"config": {"tags": ["t"], "recursion_limit": 10}, "on_disconnect": "cancel", "x_own": 1},
    }
    with peers.agent_connect_replay("--api-key", "sekret") as server:
        done(play(server.url, NAME, "hello", auth={"api_key": "sekret"}, request=asked))
        requests = seen(server)
        (created,) = [json.loads(r["body"]) for r in requests if r["path"] == "/runs/stream"]
        assert created["metadata"] == {"k": "v"}
        assert created["config"] == {"tags": ["t"], "recursion_limit": 10, "configurable": {"style": "formal"}}
        assert created["on_disconnect"] == "continue" and created["x_own"] == 1
        assert all(r["headers"]["x-api-key"] == "sekret" for r in requests)
        runs = [r for r in requests if r["path"].startswith("/runs")]
        assert len(runs) >= 2 and all(r["headers"]["traceparent"] == TRACE for r in runs)

        with pytest.raises(AgentFailed, match=r"credentials: POST /agents/search answered 401") as error:
            done(play(server.url, NAME, "hello", auth={"api_key": "wrong-key"}))
        assert "wrong-key" not in f"{error.value} {error.value.detail}"


def test_a_cancel_that_the_server_has_not_implemented_is_a_loss(agent_connect_replay: Process) -> None:
    async def cancelled() -> FakeContext:
        async with calling(agent_connect_replay.url, NAME) as outbound:
            ctx = context(await outbound.describe(), "slow")
            task = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: c.run.upstream is not None)
            ctx.cancel_now("enough")
            await outbound.cancel(ctx)
            assert ctx.losses == {"cancel_unsupported": 1}
            await task
            return ctx

    assert done(cancelled()).end == e.RunCancelled(reason="enough")


def test_an_input_that_the_agent_refuses_fails_with_its_reason(agent_connect_replay: Process) -> None:
    with pytest.raises(AgentFailed, match=r"POST /runs/stream answered 422: : 5 is not of type 'string'"):
        done(play(agent_connect_replay.url, NAME, {"message": 5}))


def left_and_found_again(server: Process, message: str, left: Any, answers: list[Any]) -> list[FakeContext]:
    """A run that one gateway leaves when `left(context)` is true, and another attaches to."""

    async def both() -> list[FakeContext]:
        async with calling(server.url, NAME) as first, calling(server.url, NAME) as second:
            before = context(await first.describe(), message)
            task = asyncio.create_task(first.run(before))
            await before.until(left)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not isinstance(before.events[-1], e.TERMINAL)
            after = context(before.agent, message, upstream=before.run.upstream, answers=answers)
            await second.attach(after)
            return [before, after]

    return run(both())


def test_a_run_is_found_again_by_another_gateway(agent_connect_replay: Process) -> None:
    _, after = left_and_found_again(agent_connect_replay, "slow", lambda c: bool(c.said(e.PartDelta)), [])
    assert isinstance(after.end, e.RunFinished)
    assert after.output == {"message": "echo: slow", "steps": ["a", "b"]}


def test_a_question_is_the_same_question_after_a_restart(agent_connect_replay: Process) -> None:
    answers = [{"message": "red"}]
    before, after = left_and_found_again(agent_connect_replay, "interrupt me", lambda c: bool(c.asked), answers)
    assert [i.id for i in before.asked] == [i.id for i in after.asked]
    assert after.output["message"] == "resumed with {'message': 'red'}"
