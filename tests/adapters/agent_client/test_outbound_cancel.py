"""Prompts that are cancelled, and agents that do not end them or end themselves."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentGone, AgentTimeout, OutcomeUnknown
from gateway.core.memory import Recalled
from tests.adapters.agent_client.outbound_agent import MANUAL, rig, settled
from tests.support.scripted import until


async def test_a_cancel_tells_the_agent_and_waits_for_its_answer() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        context.cancel_now()
        await it.outbound.cancel(context)
        await it.outbound.cancel(context)
        assert (await it.wire.find("session/cancel"))["params"] == {"sessionId": "s1"}
        it.wire.chunk("s1", "stopping")
        assert not task.done()
        it.wire.end(prompt, "cancelled")
        await task
        assert isinstance(context.end, e.RunCancelled)
        assert context.output == {"message": "stopping"}
        assert len(it.wire.sent("session/cancel")) == 1


async def test_an_answer_that_ignores_the_cancel_is_no_success() -> None:
    for reason in ("end_turn", None):
        async with rig() as it:
            context = it.context()
            [task] = await it.started(context)
            prompt = await it.wire.prompt()
            context.cancel_now()
            await it.outbound.cancel(context)
            if reason is None:
                it.wire.say({"id": prompt["id"], "error": {"code": -32603, "message": "aborted"}})
            else:
                it.wire.end(prompt, reason)
            await task
            assert isinstance(context.end, e.RunCancelled)


async def test_a_cancel_while_the_session_is_made_sends_no_prompt() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: MANUAL
        context = it.context(thread="t1")
        task = asyncio.create_task(it.outbound.run(context))
        await it.connected()
        new = await it.wire.find("session/new")
        context.cancel_now()
        await it.outbound.cancel(context)
        await task
        assert isinstance(context.end, e.RunCancelled)
        it.wire.say({"id": new["id"], "result": {"sessionId": "late"}})
        again = it.context(thread="t1", run="r2")
        await it.turn(again, "ok")
        assert it.wire.sent("session/prompt")[0]["sessionId"] == "late"  # it was for the thread, so it is used
        assert not it.wire.sent("session/cancel")


async def test_a_cancel_while_the_conversation_is_recalled_sends_no_prompt() -> None:
    async with rig() as it:
        context = it.context()
        recall = context.recall

        async def cancelled(**how: bool) -> Recalled:
            context.cancel_now()
            await it.outbound.cancel(context)
            return await recall(**how)

        context.recall = cancelled  # type: ignore[method-assign,assignment]
        await it.outbound.run(context)
        assert context.end == e.RunCancelled(reason="asked to")
        assert not it.wire.sent("session/prompt") and not it.wire.sent("session/cancel")


async def test_a_cancel_while_options_are_set_sends_neither_prompt_nor_cancel() -> None:
    async with rig() as it:
        it.handlers["session/set_config_option"] = lambda _: MANUAL
        context = it.context(config={"model": "large"})
        task = asyncio.create_task(it.outbound.run(context))
        wire = await it.connected()
        await wire.find("session/set_config_option")
        context.cancel_now()
        await it.outbound.cancel(context)
        await task
        assert isinstance(context.end, e.RunCancelled)
        assert not wire.sent("session/prompt") and not wire.sent("session/cancel")


async def test_a_prompt_that_is_answered_after_the_grace_is_dropped_and_the_next_waits_for_it() -> None:
    async with rig(stop_timeout=60) as it:
        context = it.context(thread="t1")
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await it.wire.find("session/cancel"))["params"] == {"sessionId": "s1"}
        assert (await it.wire.find("$/cancel_request"))["params"] == {"requestId": prompt["id"]}
        before = len(context.events)
        it.wire.chunk("s1", "of the old turn")
        again = it.context(run="r2", thread="t1")
        second = asyncio.create_task(it.outbound.run(again))
        await settled()
        assert len(it.wire.sent("session/prompt")) == 1
        it.wire.end(prompt)
        asked = await it.wire.prompt()
        it.wire.chunk("s1", "new")
        it.wire.end(asked)
        await second
        assert len(context.events) == before and not context.notes and not again.notes
        assert again.output == {"message": "new"}


async def test_an_agent_that_never_ends_a_cancelled_prompt_is_ended_for_the_next() -> None:
    async with rig(stop_timeout=0.05) as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: None
        context = it.context(thread="t1")
        [task] = await it.started(context)
        task.cancel()
        await asyncio.wait([task])
        again = it.context(run="r2", thread="t1")
        again.thread = context.thread
        second = asyncio.create_task(it.outbound.run(again))
        await it.connected(2)
        it.wire.end(await it.wire.prompt())
        await second
        assert it.wires[0].closed
        assert it.wire.sent("session/load")[0]["sessionId"] == "s1"


@pytest.mark.parametrize("late", [False, True])
async def test_an_agent_that_others_work_on_is_ended_for_one_stuck_session_when_they_have_done(late: bool) -> None:
    async with rig(stop_timeout=0.05) as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: None
        stuck, busy = it.context(run="r1", thread="t1"), it.context(run="r2", thread="t2")
        tasks = await it.started(stuck, busy)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        with pytest.raises(AgentTimeout, match="still busy"):
            await it.outbound.run(it.context(run="r3", thread="t1"))
        prompts = [await it.wire.prompt(), await it.wire.prompt()]
        if late:
            it.wire.end(prompts[0], "cancelled")
        it.wire.end(prompts[1])
        await tasks[1]
        assert isinstance(busy.end, e.RunFinished)
        if not late:
            await until(lambda: it.wires[0].closed)
        again = it.context(run="r4", thread="t1")
        again.thread = stuck.thread
        await it.turn(again)
        assert isinstance(again.end, e.RunFinished)
        assert len(it.wires) == (1 if late else 2), "one that answers after all is not ended"


async def test_an_agent_with_conversations_that_it_would_forget_is_not_ended_either() -> None:
    async with rig(stop_timeout=0.05) as it:
        await it.turn(it.context(thread="t2"), "remember this")
        [task] = await it.started(it.context(run="r1", thread="t1"))
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(AgentTimeout, match="still busy"):
            await it.outbound.run(it.context(run="r3", thread="t1"))
        assert len(it.wires) == 1 and not it.wire.closed


async def test_an_agent_that_dies_in_mid_turn_fails_the_run_and_the_next_prompt_works() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        [task] = await it.started(context)
        it.wire.chunk("s1", "half")
        it.wire.die("wire exited with 3: out of luck")
        with pytest.raises(AgentGone, match="exited with 3: out of luck"):
            await task
        assert context.output == {"message": "half"}
        again = it.context(run="r2", thread="t1")
        again.thread = context.thread
        second = asyncio.create_task(it.outbound.run(again))
        await it.connected(2)
        it.wire.end(await it.wire.prompt())
        await second
        assert isinstance(again.end, e.RunFinished)
        assert again.losses["session_forgotten"] == 1


async def test_an_agent_that_is_still_being_ended_is_not_used_again() -> None:
    async with rig() as it:
        await it.turn(it.context(), "x")
        first = it.wire
        first.may_close.clear()
        first.die()
        await settled()
        second = asyncio.create_task(it.outbound.run(it.context(run="r2")))
        await settled()
        assert not second.done() and len(it.wires) == 1
        first.may_close.set()
        wire = await it.connected(2)
        wire.end(await wire.prompt())
        await second


async def test_a_prompt_in_flight_at_a_restart_is_ended_and_never_sent_again() -> None:
    async with rig() as it:
        with pytest.raises(OutcomeUnknown, match="stopped while the agent worked"):
            await it.outbound.attach(it.context(upstream={"session": "s1"}))
        assert not it.wires
