"""Sessions that are loaded and resumed: what was is told again, what goes on is followed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import ChatMessage, Role, RunRequest, RunStatus, Thread
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import asking, rig, scripted
from tests.support.aio import run
from tests.support.scripted import echo, held, until


async def test_a_loaded_session_replays_the_conversation_before_it_answers() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        await editor.prompt(session, "two")
        again = await gateway.connect()
        assert await again.load(session) == {}
        told = [(update["sessionUpdate"], update["content"]["text"]) for update in again.updates]
        assert told == [
            ("user_message_chunk", "one"),
            ("agent_message_chunk", "one "),
            ("user_message_chunk", "two"),
            ("agent_message_chunk", "two "),
        ]
        assert set(again.sessions) == {session}
        assert await again.prompt(session, "three") == {"stopReason": "end_turn"}


def test_a_session_survives_the_gateway(tmp_path: Path) -> None:
    async def first() -> str:
        async with rig(scripted(echo), file=tmp_path / "runs.db") as gateway:
            editor, session = await gateway.opened()
            await editor.prompt(session, "remember me")
            return session

    async def second(session: str) -> None:
        async with rig(scripted(echo), file=tmp_path / "runs.db") as gateway:
            editor = await gateway.connect()
            await editor.load(session)
            assert editor.text("user_message_chunk") == "remember me"
            assert editor.text() == "remember me "
            assert await editor.prompt(session) == {"stopReason": "end_turn"}

    run(second(run(first())))


async def test_a_resumed_session_replays_nothing_and_goes_on() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        again = await gateway.connect()
        assert await again.load(session, "session/resume") == {}
        assert again.updates == []
        await again.prompt(session, "two")
        assert again.text() == "two "


@pytest.mark.parametrize("gone", [True, False])
async def test_a_turn_in_progress_is_replayed_and_followed_on_another_connection(gone: bool) -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session, "please")
        await editor.heard("before")
        if gone:
            editor.pipe.cut()
        again = await gateway.connect()
        await again.load(session)
        assert again.text("user_message_chunk") == "please"
        assert again.text() == "before "
        go.set()
        await again.heard("before after")
        if not gone:
            assert await turn == {"stopReason": "end_turn"}
            assert editor.text() == "before after"


async def test_a_turn_in_progress_is_followed_from_now_on_after_resume() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session, "please")
        await editor.heard("before")
        again = await gateway.connect()
        await again.load(session, "session/resume")
        assert again.updates == []
        go.set()
        await again.heard("after")
        assert again.text() == "after"


async def test_an_open_question_is_asked_again_on_the_connection_that_loads_the_session() -> None:
    async with rig(scripted(asking({"enum": ["red", "blue"]}))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session)
        await editor.next_asked()
        editor.pipe.cut()
        again = await gateway.connect()
        await again.load(session)
        asked = await again.next_asked()
        assert asked["method"] == "session/request_permission"
        assert asked["params"]["sessionId"] == session
        await again.choose(asked, asked["params"]["options"][1]["optionId"])
        await again.heard("answered blue.")


async def test_the_question_comes_after_the_answer_of_load() -> None:
    async with rig(scripted(asking({"enum": ["red", "blue"]}))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session)
        await editor.next_asked()
        again = await gateway.connect()
        await again.load(session)
        await again.next_asked()
        assert again.order[-2:] == ["session/load", "session/request_permission"]


async def test_a_prompt_may_come_on_a_new_connection_without_loading_the_session() -> None:
    async with rig(scripted(echo)) as gateway:
        session = await (await gateway.connect()).new()
        other = await gateway.connect()
        assert await other.prompt(session, "here I am") == {"stopReason": "end_turn"}
        assert other.text() == "here I am "


async def test_history_that_the_gateway_has_only_messages_of_is_replayed_too() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        copy = await gateway.engine.threads.copy(session)
        await editor.load(copy.id)
        assert editor.text("user_message_chunk") == "one"
        assert editor.text() == "one "


async def test_a_thread_of_another_protocol_can_be_loaded() -> None:
    async with rig(scripted(echo)) as gateway:
        now = time.time()
        await gateway.engine.threads.create(Thread(id="t1", created_at=now, updated_at=now, protocol="other"))
        request = RunRequest(agent="scripted", protocol="other", thread="t1", input={"message": "from there"})
        await gateway.engine.runs.wait((await gateway.engine.runs.start(request)).id)
        editor = await gateway.connect()
        await editor.load("t1")
        assert editor.text("user_message_chunk") == "from there"
        assert await editor.prompt("t1") == {"stopReason": "end_turn"}


async def test_a_session_of_another_agent_is_not_found() -> None:
    async with rig(scripted(echo, "one"), scripted(echo, "two")) as gateway:
        session = await (await gateway.connect("one")).new()
        editor = await gateway.connect("two")
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        assert (await editor.refused("session/load", params)).code == -32002
        assert (await editor.refused("session/prompt", said(session, "hi"))).code == -32002
        assert (await editor.request("session/list", {}))["sessions"] == []
        assert await editor.request("session/delete", {"sessionId": session}) == {}
        assert await gateway.engine.threads.get(session)


async def test_a_session_may_be_loaded_again_where_it_is_open() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        await editor.load(session)
        assert editor.text() == "one "
        await editor.prompt(session, "two")
        assert editor.text() == "one two "
        assert len(gateway.connections(session)) == 1


async def test_a_session_is_not_loaded_again_while_its_prompt_is_not_answered() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.heard("before")
        error = await editor.refused("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert error.code == -32600
        go.set()
        assert await turn == {"stopReason": "end_turn"}


async def test_loading_can_be_cancelled() -> None:
    chunk = "x" * 100_000

    async def agent(context: RunContext) -> None:
        for number in range(60):
            context.emit(e.ToolCallStarted(call=str(number), name="t", title=chunk))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session)
        again = await gateway.connect(limit=1000)
        again.reads.clear()
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        future = await again.begin("session/load", params, id="load")
        await until(lambda: len(gateway.connections(session)) == 2)
        await again.notify("$/cancel_request", {"requestId": "load"})
        await until(lambda: len(gateway.connections(session)) == 1)
        again.reads.set()
        with pytest.raises(Exception, match="32800"):
            await future


async def test_messages_that_another_protocol_put_into_the_history_are_replayed() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        messages = (
            ChatMessage(role=Role.USER, content="Hi"),
            ChatMessage(role=Role.ASSISTANT, content="Hello"),
            ChatMessage(role=Role.ASSISTANT, content=""),
        )
        await gateway.engine.threads.patch(session, messages=messages[1:])
        await gateway.engine.threads.patch(session, messages=messages)
        await editor.prompt(session, "and now")
        await editor.load(session)
        assert editor.text("user_message_chunk") == "Hiand now"
        assert editor.text() == "Helloand now "


async def test_a_client_that_goes_away_while_its_prompt_is_taken_leaves_no_half_started_run() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        began, go = asyncio.Event(), asyncio.Event()
        create = gateway.engine.store.create_run

        async def slowly(*args: Any, **options: Any) -> bool:
            began.set()
            await go.wait()
            return await create(*args, **options)

        gateway.engine.store.create_run = slowly  # type: ignore[method-assign]
        await editor.start(session, "hello")
        await began.wait()
        editor.pipe.cut()
        await until(lambda: not gateway.inbound.clients.connections)
        go.set()
        ended = await gateway.engine.runs.wait((await gateway.run(session)).id)
        assert ended is not None and ended.status is RunStatus.SUCCESS
        again = await gateway.connect()
        await again.load(session)
        assert again.text() == "hello "
        assert await again.prompt(session, "more") == {"stopReason": "end_turn"}


async def test_a_run_that_begins_while_the_session_is_loaded_is_told_once() -> None:
    async with rig(scripted(echo)) as gateway:
        _, session = await gateway.opened()
        listed = gateway.engine.runs.list

        async def meanwhile(query: Any) -> Any:
            gateway.engine.runs.list = listed  # type: ignore[method-assign]
            request = RunRequest(agent="scripted", protocol="other", thread=session, input={"message": "just now"})
            await gateway.engine.runs.wait((await gateway.engine.runs.start(request)).id)
            return await listed(query)

        again = await gateway.connect()
        gateway.engine.runs.list = meanwhile  # type: ignore[method-assign]
        await again.load(session)
        await again.prompt(session, "next")
        assert again.text() == "just now next "
