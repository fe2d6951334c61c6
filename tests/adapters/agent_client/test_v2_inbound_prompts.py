"""Prompts of clients of version 2: answered when they are taken; what becomes of them is told by states."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import AgentFailed, NotFound
from gateway.core.types import RunRequest, RunStatus, StopReason
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import native, rig, scripted
from tests.adapters.agent_client.v2_editor import RUNNING, connect, idle, opened
from tests.support.scripted import AGENT, echo, held

# --- the order ----------------------------------------------------------------------------------------------------


async def test_a_prompt_is_answered_at_once_and_then_told_from_its_message_to_its_end() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        editor, session = await opened(gateway)
        answer = await editor.request("session/prompt", said(session, "hello"))
        await editor.heard("before")
        go.set()
        assert await editor.over() == idle()
        first, running, *chunks, last = editor.updates
        assert first == {
            "sessionUpdate": "user_message",
            "messageId": answer["messageId"],
            "content": [{"type": "text", "text": "hello"}],
        }
        assert running == RUNNING and last == idle()
        assert {chunk["sessionUpdate"] for chunk in chunks} == {"agent_message_chunk"}
        assert editor.heard_all() == "before after" and len(editor.messages()) == 1
        assert editor.order.index("session/prompt") < editor.order.index("session/update")


async def test_the_next_prompt_can_come_as_soon_as_the_session_is_idle() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        for text in ("one", "two", "three"):
            assert await editor.turn(session, text) == idle()
        assert editor.states() == ["running", "idle"] * 3
        assert list(editor.messages("user_message").values()) == ["one", "two", "three"]
        assert list(editor.messages().values()) == ["one ", "two ", "three "]


@pytest.mark.parametrize("reason", list(StopReason))
async def test_the_agents_stop_reason_is_that_of_the_idle_state(reason: StopReason) -> None:
    async def stops(context: RunContext) -> None:
        context.emit(e.RunFinished(stop_reason=reason))
        await context.drain()

    async with rig(native(stops), v2=True) as gateway:
        editor = await connect(gateway)
        assert (await editor.turn(await editor.new()))["stopReason"] == reason.value


async def test_a_prompt_of_a_busy_session_is_refused_and_says_nothing() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        editor, other = await connect(gateway), await connect(gateway)
        session = await editor.new()
        await editor.prompt(session)
        await editor.heard("before")
        await other.resume(session)
        seen = list(editor.updates)
        for each in (editor, other):
            assert (await each.refused("session/prompt", said(session, "more"))).code == -32600
        assert editor.updates == seen
        go.set()
        await editor.over()
        await other.over()
        assert len(await gateway.runs(session)) == 1
        assert await editor.turn(session, "again") == idle()


async def test_content_that_the_agent_cannot_take_is_refused_and_never_was_said() -> None:
    async with rig(scripted(echo, capabilities=replace(AGENT.capabilities, files=())), v2=True) as gateway:
        editor, session = await opened(gateway)
        image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
        error = await editor.refused("session/prompt", {"sessionId": session, "prompt": [image]})
        assert (error.code, error.data["path"]) == (-32602, "/prompt/0")
        assert editor.updates == [] and await gateway.runs(session) == []
        assert await editor.turn(session) == idle()


# --- how it ends --------------------------------------------------------------------------------------------------


async def test_an_agent_that_fails_leaves_the_session_idle_and_says_what_failed() -> None:
    async def fails(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="well "))
        await context.drain()
        raise AgentFailed("the model is down")

    async with rig(scripted(fails), v2=True) as gateway:
        editor, other = await connect(gateway), await connect(gateway)
        session = await editor.new()
        await other.resume(session)
        end = await editor.turn(session)
        assert end["stopReason"] == "error"
        assert end["error"]["code"] == -32603 and end["error"]["message"] == "the model is down"
        assert await other.over(1) == end, "whoever else has the session open is told the same"
        again = await connect(gateway)
        await again.load(session)
        assert again.heard_all() == "well " and again.states() == ["idle"]
        assert (await editor.turn(session))["stopReason"] == "error", "it can be prompted again"


async def test_a_cancelled_turn_ends_idle_after_all_that_the_agent_still_said() -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.heard("before")
        await editor.notify("session/cancel", {"sessionId": session})
        assert await editor.over() == idle("cancelled")
        assert editor.heard_all() == "before after" and editor.updates[-1] == idle("cancelled")
        assert (await gateway.run(session)).status is RunStatus.CANCELLED
        go.clear()
        agent.on_cancel = lambda: None
        await editor.notify("session/cancel", {"sessionId": session})
        go.set()
        assert await editor.turn(session) == idle(), "a cancel of an idle session changes nothing"


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request"])
async def test_a_cancel_before_the_answer_is_not_lost(how: str) -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        params = {"sessionId": session} if how == "session/cancel" else {"requestId": 50}
        prompt = {"jsonrpc": "2.0", "id": 50, "method": "session/prompt", "params": said(session, "go")}
        cancel = {"jsonrpc": "2.0", "method": how, "params": params}
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        editor._waiting[50] = ("session/prompt", answer)
        await editor.pipe.send([msgspec.json.encode(prompt), msgspec.json.encode(cancel)])
        assert await editor.over() == idle("cancelled")
        assert list(editor.messages("user_message")) == [(await answer)["messageId"]]
        assert editor.order[-1] == "session/update" and editor.order.count("session/prompt") == 1
        go.set()
        assert await editor.turn(session) == idle()


async def test_a_request_that_is_answered_cannot_be_cancelled_any_more() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.request("session/prompt", said(session, "go"), id="it")
        await editor.notify("$/cancel_request", {"requestId": "it"})
        await editor.request("session/list", {})
        go.set()
        assert await editor.over() == idle()


async def test_a_run_that_cannot_be_told_is_said_to_have_failed_and_the_session_goes_on() -> None:
    def breaks(run_id: str) -> Any:
        raise NotFound("the store has lost it")

    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        watch, gateway.engine.runs.watch = gateway.engine.runs.watch, breaks  # type: ignore[method-assign,assignment]
        end = await editor.turn(session, "one")
        assert (end["stopReason"], end["error"]["message"]) == ("error", "the store has lost it")
        gateway.engine.runs.watch = watch  # type: ignore[method-assign]
        await gateway.engine.runs.wait((await gateway.run(session)).id)
        assert await editor.turn(session, "two") == idle()


async def test_what_could_not_be_said_is_named_when_the_session_is_idle() -> None:
    async def odd(context: RunContext) -> None:
        context.emit(e.Custom(name="theirs", data=1))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(odd), v2=True) as gateway:
        editor = await connect(gateway)
        end = await editor.turn(await editor.new())
        assert end["_meta"] == {"interlingua": {"lost": ["custom"]}}


# --- several clients ----------------------------------------------------------------------------------------------


async def test_clients_of_both_versions_follow_one_session_each_in_its_own_words() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        new, old, third = await connect(gateway), await gateway.connect(), await connect(gateway)
        session = await new.new()
        await old.load(session, "session/resume")
        await third.resume(session)
        assert third.updates == [idle(None)]
        answer = await new.request("session/prompt", said(session, "hi"))
        await old.heard("before")
        go.set()
        assert await new.over() == await third.over(1) == idle()
        assert third.updates[1:3] == new.updates[:2], "the message has one id for all"
        assert new.updates[0]["messageId"] == answer["messageId"]
        assert third.messages() == new.messages()
        await old.until(lambda: old.text() == "before after")
        assert set(old.kinds()) == {"user_message_chunk", "agent_message_chunk"}
        go.clear()
        turn = await old.start(session, "and you?")
        await third.until(lambda: third.heard_all().count("before") == 2)
        assert third.states() == ["idle", "running", "idle", "running"]
        go.set()
        assert await turn == {"stopReason": "end_turn"}
        assert await third.over(len(third.updates) - 1) == idle()


async def test_a_run_of_another_protocol_is_told_with_what_was_asked_and_its_states() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        request = RunRequest(agent="scripted", protocol="test", thread=session, input={"message": "from elsewhere"})
        await gateway.engine.runs.start(request)
        assert await editor.over() == idle()
        assert editor.heard_all("user_message") == "from elsewhere" and editor.heard_all() == "from elsewhere "
        assert editor.states() == ["running", "idle"]


async def test_a_slow_client_holds_bounded_memory_and_misses_nothing() -> None:
    async def floods(context: RunContext) -> None:
        for number in range(20_000):
            context.emit(e.PartDelta(part="text", delta=f"{number} "))
            if number % 100 == 0:
                await context.drain()
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(floods), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        editor.reads.clear()
        (connection,) = gateway.connections(session)
        run_ = await gateway.run(session)
        async with gateway.engine.runs.watch(run_.id) as watch:
            while await next_batch(watch) is not None:
                assert connection._peer.queued < 8 * 1024 * 1024
        editor.reads.set()
        assert await editor.over() == idle()
        assert editor.heard_all() == "".join(f"{number} " for number in range(20_000))
        assert len(editor.updates) < 20_000, "what waits is joined"
