"""Prompts of version 2 that are cancelled, and agents that do not end them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentTimeout
from tests.adapters.agent_client.outbound_agent import Rig, settled
from tests.adapters.agent_client.v2_agent import Agent, rig
from tests.support.context import FakeContext


async def cancelled(it: Rig, context: FakeContext) -> None:
    context.cancel_now()
    await it.outbound.cancel(context)


async def given_up(it: Rig, thread: str = "t1", name: str = "r1") -> tuple[FakeContext, Agent]:
    """A run that the engine has stopped waiting for while the agent works."""
    context = it.context(run=name, thread=thread)
    [task] = await it.started(context)
    prompt, agent = await it.wire.prompt(), Agent(it.wire, "s1" if thread == "t1" else "s2")
    agent.accept(prompt, messageId="u1")
    agent.user()
    agent.state("running")
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return context, agent


async def test_a_cancel_tells_the_agent_once_and_waits_until_it_is_idle() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.accept(prompt, messageId="u1")
        agent.user()
        await settled()
        await cancelled(it, context)
        await it.outbound.cancel(context)
        agent.say("stopping")
        await settled()
        assert not task.done()
        agent.idle("cancelled")
        await task
        assert isinstance(context.end, e.RunCancelled) and context.output == {"message": "stopping"}
        assert it.wire.sent("session/cancel") == [{"sessionId": "s1"}]


@pytest.mark.parametrize("reason", ["end_turn", "refusal", None, "_other"])
async def test_an_end_that_ignores_the_cancel_is_no_success(reason: str | None) -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.accept(prompt)
        await cancelled(it, context)
        agent.idle(reason)
        await task
        assert isinstance(context.end, e.RunCancelled)


async def test_a_prompt_that_is_withdrawn_before_it_was_acknowledged_is_cancelled() -> None:
    async with rig() as it:
        for code in (-32800, -32603):
            context = it.context(run=f"r{code}")
            [task] = await it.started(context)
            prompt, agent = await it.wire.prompt(), Agent(it.wire)
            await cancelled(it, context)
            agent.refuse(prompt, code, "withdrawn")
            await task
            assert isinstance(context.end, e.RunCancelled)


async def test_any_idle_after_a_cancel_is_the_end_even_of_work_that_was_not_the_prompts() -> None:
    async with rig() as it:
        [task] = await it.started(it.context(thread="t1"))
        await Agent(it.wire).turn("first")
        await task
        Agent(it.wire).state("running")
        await settled()
        context = it.context(run="r2", thread="t1")
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.accept(prompt)
        await cancelled(it, context)
        agent.idle("cancelled")
        await task
        assert isinstance(context.end, e.RunCancelled)


async def test_what_a_prompt_that_was_given_up_still_says_is_dropped_and_the_next_waits_for_its_end() -> None:
    async with rig(stop_timeout=60) as it:
        context, agent = await given_up(it)
        assert it.wire.sent("session/cancel") == [{"sessionId": "s1"}]
        assert not it.wire.sent("$/cancel_request"), "its request was answered"
        before = len(context.events)
        agent.say("of the old turn")
        again = it.context(run="r2", thread="t1")
        second = asyncio.create_task(it.outbound.run(again))
        await settled()
        assert len(it.wire.sent("session/prompt")) == 1
        agent.idle("cancelled")
        await agent.turn("new")
        await second
        assert len(context.events) == before and not context.notes and not again.notes
        assert again.output == {"message": "new"}


async def test_a_prompt_given_up_before_its_acknowledgement_is_withdrawn_too() -> None:
    async with rig() as it:
        [task] = await it.started(it.context(thread="t1"))
        prompt = await it.wire.prompt()
        task.cancel()
        await asyncio.wait([task])
        assert (await it.wire.find("$/cancel_request"))["params"] == {"requestId": prompt["id"]}
        Agent(it.wire).refuse(prompt, -32800, "withdrawn")
        again = it.context(run="r2", thread="t1")
        second = asyncio.create_task(it.outbound.run(again))
        await Agent(it.wire).turn("new")
        await second
        assert again.output == {"message": "new"}


async def test_an_agent_that_never_ends_a_cancelled_prompt_is_ended_and_the_session_resumed() -> None:
    async with rig(stop_timeout=0.05) as it:
        it.handlers["session/resume"] = lambda _: {}
        context, _ = await given_up(it)
        again = it.context(run="r2", thread="t1")
        again.thread = context.thread
        second = asyncio.create_task(it.outbound.run(again))
        await it.connected(2)
        await Agent(it.wire).turn("new")
        await second
        assert it.wires[0].closed and it.wire.sent("session/resume")[0]["sessionId"] == "s1"
        assert again.output == {"message": "new"} and not again.losses


async def test_an_agent_that_others_work_on_is_not_ended_for_one_stuck_session() -> None:
    async with rig(stop_timeout=0.05) as it:
        await given_up(it)
        busy = it.context(run="r2", thread="t2")
        [task] = await it.started(busy)
        with pytest.raises(AgentTimeout, match="still busy"):
            await it.outbound.run(it.context(run="r3", thread="t1"))
        await Agent(it.wire, "s2").turn("fine")
        await task
        assert busy.output == {"message": "fine"}


async def test_an_agent_that_works_of_its_own_elsewhere_is_not_ended_either() -> None:
    async with rig(stop_timeout=0.05) as it:
        [task] = await it.started(it.context(thread="t1"))
        await Agent(it.wire).turn("first")
        await task
        context, _ = await given_up(it, "t2", "r2")
        Agent(it.wire).state("running")
        await settled()
        with pytest.raises(AgentTimeout, match="still busy"):
            await it.outbound.run(it.context(run="r3", thread="t2"))
        assert not it.wire.closed
        Agent(it.wire).idle()
        await settled()
        it.handlers["session/resume"] = lambda _: {}
        again = it.context(run="r4", thread="t2")
        again.thread = context.thread
        task = asyncio.create_task(it.outbound.run(again))
        await it.connected(2)
        await Agent(it.wire, "s2").turn("new")
        await task
        assert it.wires[0].closed and again.output == {"message": "new"}
