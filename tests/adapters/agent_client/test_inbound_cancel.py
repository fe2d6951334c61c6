"""`session/cancel` and `$/cancel_request`: the answer is the stop reason, never an error."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed, Unavailable
from gateway.core.types import Interrupt, Outcome, RunStatus
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import asking, rig, scripted
from tests.support.scripted import echo, held, until

CANCELLED = {"stopReason": "cancelled"}


async def test_a_cancelled_turn_says_so_and_tells_the_agent() -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.heard("before")
        await editor.notify("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED
        assert agent.cancels == 1
        assert (await gateway.run(session)).status is RunStatus.CANCELLED
        assert editor.text() == "before after", "what the agent still says is told before the answer"
        assert await editor.prompt(session) == {"stopReason": "end_turn"}


async def test_the_request_can_be_cancelled_as_well() -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session, id="turn")
        await editor.heard("before")
        await editor.notify("$/cancel_request", {"requestId": "turn"})
        assert await turn == CANCELLED


async def test_a_cancel_right_behind_the_prompt_is_not_lost() -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        prompt = {"jsonrpc": "2.0", "id": 50, "method": "session/prompt", "params": said(session, "go")}
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        future = asyncio.get_running_loop().create_future()
        editor._waiting[50] = ("session/prompt", future)
        await editor.pipe.send([msgspec.json.encode(prompt), msgspec.json.encode(cancel)])
        async with asyncio.timeout(30):
            assert await future == CANCELLED


async def test_a_cancel_after_the_end_changes_nothing() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        await editor.notify("session/cancel", {"sessionId": session})
        assert await editor.prompt(session, "more") == {"stopReason": "end_turn"}
        assert editor.text() == "hello there more "


async def test_an_agent_that_fails_when_it_is_cancelled_was_cancelled() -> None:
    go = asyncio.Event()

    async def fails(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before"))
        await context.drain()
        await go.wait()
        raise AgentFailed("aborted!")

    route, agent = scripted(fails)
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.heard("before")
        await editor.notify("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED


@pytest.mark.parametrize("fails", [True, False])
async def test_a_cancel_while_the_run_is_being_started_is_the_answer_whatever_comes_of_it(fails: bool) -> None:
    never = asyncio.Event()
    route, agent = scripted(held(lambda: never))
    agent.on_cancel = never.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        began, go = asyncio.Event(), asyncio.Event()
        create = gateway.engine.store.create_run

        async def slowly(*args: Any, **options: Any) -> bool:
            began.set()
            await go.wait()
            if fails:
                raise Unavailable("the disk is full")
            return await create(*args, **options)

        gateway.engine.store.create_run = slowly  # type: ignore[method-assign]
        turn = await editor.start(session)
        await began.wait()
        await editor.notify("session/cancel", {"sessionId": session})
        (here,) = gateway.inbound.clients.open(session)
        await until(lambda: here.context.turn is not None and here.context.turn.cancelled)
        go.set()
        assert await turn == CANCELLED


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_a_session_that_is_closed_while_its_run_is_being_started_ends_the_prompt(method: str) -> None:
    began, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    route, agent = scripted(held(lambda: ended))
    agent.on_cancel = ended.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        create = gateway.engine.store.create_run

        async def slowly(*args: Any, **options: Any) -> bool:
            began.set()
            await go.wait()
            return await create(*args, **options)

        gateway.engine.store.create_run = slowly  # type: ignore[method-assign]
        turn = await editor.start(session)
        await began.wait()
        closed = await editor.begin(method, {"sessionId": session})
        (here,) = gateway.inbound.clients.open(session)
        await until(lambda: here.context.turn is not None and here.context.turn.cancelled)
        go.set()
        async with asyncio.timeout(30):
            assert await turn == CANCELLED
            assert await closed == {}


async def test_an_agent_that_does_not_hear_of_it_is_given_up() -> None:
    async with rig(scripted(held(asyncio.Event)), cancel_grace=0.05) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.heard("before")
        await editor.notify("session/cancel", {"sessionId": session})
        answer = await turn
        assert answer["stopReason"] == "cancelled"
        assert answer["_meta"]["interlingua"]["lost"] == ["upstream_may_still_run"]


@pytest.mark.parametrize("answers", ["cancelled", "allow", "nothing"])
async def test_a_cancel_while_a_question_is_open_closes_it_and_whatever_the_client_then_says_is_no_approval(
    answers: str,
) -> None:
    outcomes: list[Outcome] = []

    async def agent(context: RunContext) -> None:
        question = Interrupt(id="q", kind="permission", message="May I?", answer_schema={"type": "boolean"})
        outcomes.append((await context.ask(question)).outcome)
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        asked = await editor.next_asked()
        messages = [{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}]
        if answers == "cancelled":
            outcome = {"outcome": "cancelled"}
            messages.append({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}})
        elif answers == "allow":
            outcome = {"outcome": "selected", "optionId": asked["params"]["options"][0]["optionId"]}
            messages.append({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}})
        await editor.pipe.send([msgspec.json.encode(message) for message in messages])
        assert await turn == CANCELLED
        if answers == "nothing":
            assert [told["method"] for told in editor.told] == ["$/cancel_request"]
            assert editor.told[0]["params"] == {"requestId": asked["id"]}
    assert outcomes == [Outcome.CANCELLED]


async def test_a_cancel_while_the_agent_waits_for_the_next_prompt_as_its_answer_ends_the_run() -> None:
    async with rig(scripted(asking({"type": "string"}))) as gateway:
        editor, session = await gateway.opened()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        run_id = (await gateway.run(session)).id
        await editor.notify("session/cancel", {"sessionId": session})
        ended = None
        while ended is None or not ended.status.ended:
            ended = await gateway.engine.runs.get(run_id)
            await asyncio.sleep(0.001)
        assert ended.status is RunStatus.CANCELLED


async def test_a_cancel_counts_as_long_as_the_prompt_is_not_answered() -> None:
    async def agent(context: RunContext) -> None:
        for number in range(60):
            context.emit(e.ToolCallStarted(call=str(number), name="t", title="x" * 100_000))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened(limit=1000)
        editor.reads.clear()
        turn = await editor.start(session)
        ended = await gateway.engine.runs.wait((await gateway.run(session)).id)
        assert ended is not None and ended.status is RunStatus.SUCCESS
        await editor.notify("session/cancel", {"sessionId": session})
        editor.reads.set()
        assert await turn == CANCELLED
