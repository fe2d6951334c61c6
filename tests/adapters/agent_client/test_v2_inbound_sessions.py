"""Sessions of clients of version 2: resumed with and without what was, listed, closed, deleted; and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Interrupt, RunRequest, RunStatus, ThreadUpdate
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import asking, native, rig, scripted
from tests.adapters.agent_client.test_inbound_native_load import keeping
from tests.adapters.agent_client.v2_editor import RUNNING, START, WAITING, connect, idle, opened
from tests.support.aio import run
from tests.support.scripted import Script, echo, held

CHOICE = {"enum": ["red", "blue"]}


async def wordy(context: RunContext) -> None:
    """Several messages in many pieces, with a thought and a tool call between."""
    for number, kind in enumerate(("thought", "text", "text")):
        context.emit(e.MessageStarted(message=f"m{number}"))
        context.emit(e.PartStarted(part=f"p{number}", message=f"m{number}", kind=kind))
        for word in ("one ", "two ", "three"):
            context.emit(e.PartDelta(part=f"p{number}", delta=word))
            await context.drain()
        context.emit(e.PartEnded(part=f"p{number}"))
        context.emit(e.MessageEnded(message=f"m{number}"))
        if number == 1:
            context.emit(e.ToolCallStarted(call="c", name="look"))
            context.emit(e.ToolCallEnded(call="c", output="found"))
    context.emit(e.RunFinished())
    await context.drain()


# --- what was -----------------------------------------------------------------------------------------------------


async def test_a_session_that_is_resumed_from_its_start_is_told_in_whole_messages_before_the_answer() -> None:
    async with rig(scripted(wordy), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.turn(session, "one")
        await editor.turn(session, "two")
        again = await connect(gateway)
        assert await again.load(session) == {}
        each = ["user_message", "agent_thought", "agent_message"]
        each += ["tool_call_update", "tool_call_update", "agent_message"]
        assert again.kinds() == [*each, *each, "state_update"] and again.updates[-1] == idle(None)
        assert again.order.index("session/update") < again.order.index("session/resume")
        for kind in ("user_message", "agent_message", "agent_thought"):
            assert again.messages(kind) == editor.messages(kind), "the same messages by the same ids"
        assert await again.turn(session, "three") == idle()


async def test_a_session_of_an_agent_of_version_1_is_told_from_the_record_though_that_could_load_it() -> None:
    route, agent = keeping()
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.turn(session, "hello")
        again = await connect(gateway)
        await again.load(session)
        assert (again.heard_all("user_message"), again.heard_all()) == ("hello", "hello ")
        assert [method for method, *_ in agent.relayed] == ["session/new"]


async def test_a_session_that_is_resumed_without_replay_is_told_its_state_alone() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.turn(session, "one")
        for replay in ({}, {"replayFrom": None}):
            again = await connect(gateway)
            assert await again.resume(session, **replay) == {}
            assert again.updates == [idle(None)]
            assert again.order == ["initialize", "session/update", "session/resume"]
        assert await again.turn(session, "two") == idle()


async def test_a_place_to_replay_from_that_does_not_exist_is_refused() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        params = {"sessionId": session, "cwd": "/work", "replayFrom": {"type": "_acme_yesterday"}}
        error = await editor.refused("session/resume", params)
        assert (error.code, error.data["path"]) == (-32602, "/replayFrom/type")


@pytest.mark.parametrize("replay", [{}, {"replayFrom": START}], ids=["resumed", "replayed"])
async def test_a_run_in_progress_is_running_before_the_answer_and_followed_to_its_end(replay: dict[str, Any]) -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.heard("before")
        again = await connect(gateway)
        await again.resume(session, **replay)
        assert again.updates[-1] == RUNNING and again.order[-1] == "session/resume"
        assert again.heard_all() == ("before " if replay else "")
        go.set()
        assert await again.over() == idle()
        assert again.heard_all() == ("before after" if replay else "after")
        if replay:
            assert again.messages("user_message") == editor.messages("user_message")
        assert list(again.messages()) == list(editor.messages())


@pytest.mark.parametrize("replay", [{}, {"replayFrom": START}], ids=["resumed", "replayed"])
async def test_a_run_that_waits_is_waiting_before_the_answer_and_asks_again_after_it(replay: dict[str, Any]) -> None:
    async with rig(scripted(asking(CHOICE)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session)
        await editor.next_asked()
        again = await connect(gateway)
        await again.resume(session, **replay)
        assert again.updates[-1] == WAITING
        asked = await again.next_asked()
        assert again.order.index("session/resume") < again.order.index("session/request_permission")
        await again.choose(asked, asked["params"]["options"][0]["optionId"])
        assert await again.over() == idle() and await editor.over() == idle()
        assert again.states()[-3:] == ["requires_action", "running", "idle"]


async def test_a_session_may_be_resumed_again_where_it_is_open_while_it_works() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.prompt(session, "hi")
        await editor.heard("before")
        await editor.load(session)
        assert editor.heard_all("user_message") == "hi" and editor.updates[-1] == RUNNING
        go.set()
        assert await editor.over() == idle()
        assert editor.heard_all() == "before after"
        assert await editor.turn(session, "more") == idle()


async def test_a_prompt_may_come_on_a_connection_that_has_not_resumed_the_session() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, session = await opened(gateway)
        await editor.turn(session)
        again = await connect(gateway)
        assert await again.turn(session, "more") == idle()
        assert again.states() == ["running", "idle"], "no state but those of the work"


# --- a gateway that comes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [{}, {"replayFrom": START}], ids=["resumed", "replayed"])
def test_a_run_that_survives_the_gateway_goes_on_being_told(tmp_path: Path, replay: dict[str, Any]) -> None:
    """An agent that is found again goes on; the client resumes, and learns how it ends."""

    def agent(script: Script, again: Script) -> Any:
        route, found = scripted(script)
        found.attached = again
        return route, found

    async def starts(context: RunContext) -> None:
        await context.set_upstream({"id": "x"})
        context.emit(e.PartDelta(part="text", delta="before "))
        await context.drain()
        await asyncio.Event().wait()

    async def first() -> str:
        async with rig(agent(starts, starts), file=tmp_path / "runs.db", v2=True) as gateway:
            editor, session = await opened(gateway)
            await editor.prompt(session, "remember")
            await editor.heard("before")
            return session

    async def second(session: str) -> None:
        go = asyncio.Event()

        async def goes_on(context: RunContext) -> None:
            await go.wait()
            context.emit(e.PartReplaced(part="text", value="before after"))
            context.emit(e.RunFinished())
            await context.drain()

        async with rig(agent(starts, goes_on), file=tmp_path / "runs.db", v2=True) as gateway:
            editor = await connect(gateway)
            await editor.resume(session, **replay)
            assert editor.updates[-1] == RUNNING
            assert editor.heard_all("user_message") == ("remember" if replay else "")
            go.set()
            assert await editor.over() == idle()
            assert "after" in editor.heard_all()
            assert not replay or editor.heard_all() == "before after"

    session = run(first())
    run(second(session))


def test_a_run_that_did_not_survive_the_gateway_has_failed(tmp_path: Path) -> None:
    async def first() -> str:
        async with rig(scripted(held(asyncio.Event)), file=tmp_path / "runs.db", v2=True) as gateway:
            editor, session = await opened(gateway)
            await editor.prompt(session)
            await editor.heard("before")
            return session

    async def second(session: str) -> None:
        async with rig(scripted(echo), file=tmp_path / "runs.db", v2=True) as gateway:
            editor = await connect(gateway)
            await editor.load(session)
            await editor.until(lambda: editor.states()[-1:] == ["idle"])
            assert (await gateway.run(session)).status is RunStatus.ERROR
            assert editor.heard_all() == "before "
            assert await editor.turn(session, "again") == idle()

    run(second(run(first())))


# --- beside prompts -----------------------------------------------------------------------------------------------


async def test_sessions_are_listed_closed_and_deleted_by_whoever_has_them() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor = await connect(gateway)
        session = await editor.new(additionalDirectories=["/more"])
        await editor.turn(session, "a title")
        (listed,) = (await editor.request("session/list", {"cwd": "/work"}))["sessions"]
        assert (listed["sessionId"], listed["title"], listed["cwd"]) == (session, "a title", "/work")
        assert await editor.request("session/close", {"sessionId": session}) == {}
        assert (await editor.request("session/list", {}))["sessions"] == [listed]
        assert await editor.request("session/delete", {"sessionId": session}) == {}
        assert (await editor.request("session/list", {}))["sessions"] == []
        assert (await editor.refused("session/resume", {"sessionId": session, "cwd": "/work"})).code == -32002


@pytest.mark.parametrize("own", [True, False])
async def test_closing_a_session_tells_how_its_work_ended_before_it_is_answered(own: bool) -> None:
    go = asyncio.Event()

    async def verbose(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before "))
        await context.drain()
        await go.wait()
        for _ in range(3000):
            context.emit(e.PartDelta(part="text", delta="more than a client that does not read is told at once " * 40))
        context.emit(e.RunCancelled())
        await context.drain()

    route, agent = scripted(verbose)
    agent.on_cancel = go.set
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        if own:
            await editor.prompt(session)
        else:
            await gateway.engine.runs.start(
                RunRequest(agent="scripted", protocol="test", thread=session, input={"message": "x"})
            )
        await editor.heard("before")
        editor.reads.clear()
        closed = await editor.begin("session/close", {"sessionId": session})
        await gateway.engine.runs.wait((await gateway.run(session)).id)
        editor.reads.set()
        await closed
        assert editor.updates[-1] == idle("cancelled") and editor.order[-1] == "session/close"


async def test_what_an_agent_says_between_turns_is_told_with_a_message_of_its_own() -> None:
    runs: list[RunContext] = []

    async def agent(context: RunContext) -> None:
        runs.append(context)
        await echo(context)

    def later(text: str) -> None:
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        runs[-1].note(ThreadUpdate(protocol="agent_client", kind="output", data=chunk, kept=True))

    async with rig(native(agent), v2=True) as gateway:
        editor, other = await connect(gateway), await connect(gateway)
        session = await editor.new()
        await other.resume(session)
        await editor.turn(session)
        later("by the way")
        await editor.heard("by the way")
        await other.heard("by the way")
        assert editor.messages() == other.messages() and editor.states()[-1] == "idle"
        await editor.turn(session)
        later("once more")
        await editor.heard("once more")
        assert {"by the way", "once more"} < set(editor.messages().values()), "a turn is between them"
        again = await connect(gateway)
        await again.load(session)
        assert again.messages() == editor.messages()


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_only_the_agent_knows_is_taken_up_with_what_it_replays(method: str) -> None:
    def chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
        return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}

    route, agent = native(echo)

    def replays(context: Any, _: Any) -> dict[str, Any]:
        for user, answer in (("one", "1"), ("two", "2")):
            for update in (chunk(user, "user_message_chunk"), chunk(answer), chunk(answer)):
                context.note(ThreadUpdate(protocol="agent_client", kind="output", data=update, kept=True))
        return {}

    agent.answers[method] = replays if method == "session/load" else {}
    async with rig((route, agent), v2=True) as gateway:
        editor = await connect(gateway)
        await editor.resume("theirs", **({"replayFrom": START} if method == "session/load" else {}))
        (asked,) = [one for one, _, _ in agent.relayed]
        assert asked == method and editor.updates[-1] == idle(None) and editor.order[-1] == "session/resume"
        if method == "session/load":
            assert list(editor.messages("user_message").values()) == ["one", "two"]
            assert list(editor.messages().values()) == ["11", "22"], "each a message of its own"
        assert await editor.turn("theirs", "three") == idle()


def test_a_run_that_waits_is_found_waiting_after_the_gateway_has_come_back(tmp_path: Path) -> None:
    def agent(script: Script) -> Any:
        route, found = scripted(script)
        found.attached = script
        return route, found

    async def asks(context: RunContext) -> None:
        await context.set_upstream({"id": "x"})
        answer = await context.ask(Interrupt(id="q1", kind="input", message="Which?", answer_schema=CHOICE))
        context.emit(e.PartDelta(part="text", delta=f"{answer.value}"))
        context.emit(e.RunFinished())
        await context.drain()

    async def first() -> str:
        async with rig(agent(asks), file=tmp_path / "runs.db", v2=True) as gateway:
            editor, session = await opened(gateway)
            await editor.prompt(session)
            await editor.next_asked()
            return session

    async def second(session: str) -> None:
        async with rig(agent(asks), file=tmp_path / "runs.db", v2=True) as gateway:
            editor = await connect(gateway)
            await editor.load(session)
            assert editor.updates[-1] == WAITING
            asked = await editor.next_asked()
            assert (await editor.refused("session/prompt", said(session, "now?"))).code == -32600
            await editor.choose(asked, asked["params"]["options"][1]["optionId"])
            assert await editor.over() == idle()
            assert editor.heard_all() == "blue"

    run(second(run(first())))
