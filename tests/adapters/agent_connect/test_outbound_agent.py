"""Runs at a plain, correct Agent Connect server: a process of its own, made from the specification alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, NotFound
from gateway.core.types import Agent
from tests.adapters.agent_connect.outbound_calls import calling, done, forget, play, seen
from tests.support import peers
from tests.support.aio import run
from tests.support.context import CANCELLED, DECLINED, FakeContext, context
from tests.support.processes import Process


def requests(server: Process, about: str = "/runs") -> list[str]:
    return [f"{r['method']} {r['path']}" for r in seen(server) if about in r["path"]]


def test_several_agents_and_none_named_are_listed(agent_connect_agent: Process) -> None:
    async def describe() -> Agent:
        async with calling(agent_connect_agent.url, None) as outbound:
            return await outbound.describe()

    with pytest.raises(NotFound, match=r"name one in `target\.agent` \(asker, chat, echo, failer, pal, slow, writer\)"):
        run(describe())


def test_an_agent_can_be_named_by_its_id(agent_connect_agent: Process) -> None:
    async def describe() -> list[str]:
        async with calling(agent_connect_agent.url, "echo") as outbound:
            found = await outbound._locator.id()
        async with calling(agent_connect_agent.url, found) as outbound:
            return [(await outbound.describe()).name]

    assert run(describe()) == ["echo"]


def test_a_stream_is_shown_word_by_word_and_needs_no_second_request(agent_connect_agent: Process) -> None:
    forget(agent_connect_agent)
    ctx = done(play(agent_connect_agent.url, "echo", "one two three"))
    assert ctx.snapshots() == [{"message": "one"}, {"message": "one two"}, {"message": "one two three"}]
    assert [p.delta for p in ctx.said(e.PartDelta)] == [{"message": "one"}, {"message": " two"}, {"message": " three"}]
    assert requests(agent_connect_agent) == ["POST /runs/stream"]


def test_custom_updates_come_beside_the_document(agent_connect_agent: Process) -> None:
    forget(agent_connect_agent)
    ctx = done(play(agent_connect_agent.url, "writer", "tea"))
    updates = ctx.said(e.Custom)
    assert {u.name for u in updates} == {"agent_connect"}
    assert [u.data["words"] for u in updates] == list(range(1, len(updates) + 1)) and len(updates) > 3
    assert [s["heading"] for s in ctx.output["sections"]] == ["Beginning", "Middle", "End"]
    (created,) = [json.loads(r["body"]) for r in seen(agent_connect_agent) if r["path"] == "/runs/stream"]
    assert created["stream_mode"] == ["values", "custom"]


def test_a_failure_comes_with_the_agents_own_words_and_code(agent_connect_agent: Process) -> None:
    ctx = done(play(agent_connect_agent.url, "failer", "x"))
    assert ctx.snapshots() == [{"message": "so far"}]
    assert isinstance(ctx.end, e.RunFailed)
    assert ctx.end.failure.message == "it failed on purpose" and ctx.end.origin == {"errcode": 7}


def test_every_question_is_asked_and_every_answer_delivered(agent_connect_agent: Process) -> None:
    answers = [{"approved": True, "reason": "fine"}, {"approved": False}]
    ctx = done(play(agent_connect_agent.url, "asker", "twice this", answers=answers))
    assert ctx.output == {"message": "approved (fine) and declined: twice this"}
    assert [(i.kind, i.message) for i in ctx.asked] == [("approval", "Is it right?"), ("approval", "Really?")]
    assert ctx.asked[0].answer_schema["required"] == ["approved"]
    assert len({i.id for i in ctx.asked}) == 2
    assert ctx.run.upstream is not None and ctx.run.upstream["questions"] == 2, "the next process counts on"


@pytest.mark.parametrize("answer", [DECLINED, CANCELLED])
def test_a_question_that_is_not_answered_cancels_the_run_at_the_agent(
    agent_connect_agent: Process, answer: Any
) -> None:
    forget(agent_connect_agent)
    ctx = done(play(agent_connect_agent.url, "asker", "this", answers=[answer]))
    assert isinstance(ctx.end, e.RunCancelled) and ctx.end.reason == "the agent's question was not answered"
    assert ctx.run.upstream is not None
    assert f"POST /runs/{ctx.run.upstream['run_id']}/cancel" in requests(agent_connect_agent)
    assert not ctx.losses


def test_an_answer_that_the_agent_refuses_fails_the_run_with_its_reason(agent_connect_agent: Process) -> None:
    with pytest.raises(AgentFailed, match=r"POST /runs/\S+ answered 422: resume payload"):
        done(play(agent_connect_agent.url, "asker", "this", answers=[{"approved": "maybe"}]))


def test_a_thread_is_made_once_and_remembered(agent_connect_agent: Process) -> None:
    forget(agent_connect_agent)
    first = done(play(agent_connect_agent.url, "echo", "remember me", thread="t-1"))
    known = first.upstream_thread
    assert known is not None and first.run.upstream is not None and first.run.upstream["thread"] == known["thread_id"]
    second = done(play(agent_connect_agent.url, "echo", "again", thread="t-1", upstream_thread=known))
    assert second.output == {"message": "remember me"} and (first.fresh, second.fresh) == ([True], [False])
    assert requests(agent_connect_agent, "/threads")[0] == "POST /threads"
    assert requests(agent_connect_agent, "/threads").count("POST /threads") == 1


def test_a_thread_that_the_agent_has_lost_is_made_anew_and_said(agent_connect_agent: Process) -> None:
    gone = {"thread_id": "00000000-0000-4000-8000-000000000000"}
    ctx = done(
        play(
            agent_connect_agent.url,
            "echo",
            "hello",
            thread="t-1",
            upstream_thread=gone,
            request={"before": "as I said"},
        )
    )
    assert ctx.output == {"message": "as I said\n\nhello"} and ctx.fresh == [False, True], "and told what was lost"
    assert ctx.losses == {"thread_recreated": 1}
    assert ctx.upstream_thread not in (None, gone)


def test_a_cancel_stops_the_agent(agent_connect_agent: Process) -> None:
    async def cancelled() -> FakeContext:
        async with calling(agent_connect_agent.url, "slow", idle_timeout=30) as outbound:
            ctx = context(await outbound.describe(), "60 seconds")
            task = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: bool(c.said(e.PartDelta)))
            ctx.cancel_now("enough")
            await outbound.cancel(ctx)
            await asyncio.wait_for(task, 30)
            reply = await outbound._client.send("GET", f"/runs/{(ctx.run.upstream or {})['run_id']}")
            assert json.loads(reply.body)["status"] == "error"
            return ctx

    ctx = done(cancelled())
    assert ctx.end == e.RunCancelled(reason="enough") and not ctx.losses


def test_a_run_whose_time_is_over_is_cancelled_at_the_agent(agent_connect_agent: Process) -> None:
    async def timed_out() -> str:
        async with calling(agent_connect_agent.url, "slow") as outbound:
            ctx = context(await outbound.describe(), "60 seconds")
            running = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: bool(c.upstreams))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(running, 0.1)
            await outbound.cancel(ctx)
            reply = await outbound._client.send("GET", f"/runs/{(ctx.run.upstream or {})['run_id']}")
            return str(json.loads(reply.body)["status"])

    assert run(timed_out()) == "error"


def test_the_run_goes_on_at_the_agent_when_this_gateway_dies(agent_connect_agent: Process) -> None:
    """Whoever attaches shows the whole document, whatever was seen before."""

    def said(ctx: FakeContext) -> str:
        return str(ctx.output["message"])

    async def both() -> list[FakeContext]:
        url = agent_connect_agent.url
        async with calling(url, "slow") as second:
            agent = await second.describe()
            async with calling(url, "slow") as first:
                before = context(agent, "60 seconds")
                task = asyncio.create_task(first.run(before))
                await before.until(lambda c: len(c.said(e.PartDelta)) >= 2)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            after = context(agent, "60 seconds", upstream=before.run.upstream)
            task = asyncio.create_task(second.attach(after))
            await after.until(lambda c: bool(c.said(e.PartReplaced)) and len(said(c)) > len(said(before)))
            after.cancel_now()
            await second.cancel(after)
            await task
            return [before, after]

    before, after = run(both())
    assert before.snapshots()[0]["message"].startswith("tick 1")
    assert after.said(e.PartReplaced)[0].pointer == ""
    assert said(after).startswith(f"{said(before)} tick")


def test_a_run_that_ended_meanwhile_is_found_ended(agent_connect_agent: Process) -> None:
    async def both() -> FakeContext:
        async with calling(agent_connect_agent.url, "echo") as outbound:
            ended = context(await outbound.describe(), "short")
            await outbound.run(ended)
            after = context(ended.agent, "short", upstream=ended.run.upstream)
            await outbound.attach(after)
            return after

    ctx = done(both())
    assert ctx.output == {"message": "short"} and isinstance(ctx.end, e.RunFinished)


def test_an_agent_that_is_killed_in_mid_stream_is_gone_after_a_while() -> None:
    async def killed(server: Process) -> FakeContext:
        async with calling(server.url, "slow", reconnect_timeout=1) as outbound:
            ctx = context(await outbound.describe(), "60 seconds")
            task = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: bool(c.said(e.PartDelta)))
            await asyncio.to_thread(server.kill9)
            with pytest.raises(AgentGone, match="the agent went away in the middle of the run"):
                await task
            return ctx

    with peers.agent_connect_agent() as server:
        ctx = run(killed(server))
    assert ctx.snapshots()[0]["message"].startswith("tick 1"), "what came before is kept"


async def test_an_agent_that_was_started_anew_has_forgotten_the_run() -> None:
    with peers.agent_connect_agent() as server:
        async with calling(server.url, "slow", reconnect_timeout=60, stream="auto") as outbound:
            ctx = context(await outbound.describe(), "60 seconds")
            task = asyncio.create_task(outbound.run(ctx))
            await ctx.until(lambda c: bool(c.said(e.PartDelta)))
            await asyncio.to_thread(server.kill9)
            again = peers.agent_connect_agent(port=server.port)
            await asyncio.to_thread(again.__enter__)
            try:
                with pytest.raises(AgentGone, match="the agent does not know the run any more"):
                    await task
            finally:
                await asyncio.to_thread(again.__exit__, None, None, None)


def test_an_agent_that_is_not_there_is_gone() -> None:
    async def describe() -> Agent:
        async with calling("http://127.0.0.1:1", "echo") as outbound:
            return await outbound.describe()

    with pytest.raises(AgentGone, match=r"no connection could be made to 127\.0\.0\.1:1: connection refused"):
        run(describe())
