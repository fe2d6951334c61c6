"""Sessions that are listed, closed and deleted, and that two clients have open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.types import RunQuery, RunStatus
from tests.adapters.agent_client.editor import Editor, said
from tests.adapters.agent_client.inbound_rig import asking, rig, scripted
from tests.support.scripted import echo, held, until

# --- two connections ----------------------------------------------------------------------------------------------


async def both(gateway: Any) -> tuple[Editor, Editor, str]:
    """Two clients that have the same session open."""
    one, two = await gateway.connect(), await gateway.connect()
    session = await one.new()
    await two.load(session)
    return one, two, session


async def test_what_one_client_asks_the_other_sees_with_the_answer() -> None:
    async with rig(scripted(echo)) as gateway:
        one, two, session = await both(gateway)
        await one.prompt(session, "hello")
        await two.heard("hello ")
        assert two.text("user_message_chunk") == "hello"
        assert one.text("user_message_chunk") == "", "it knows what it said"


async def test_the_first_answer_counts_and_the_other_client_is_told_that_it_is_not_asked_any_more() -> None:
    async with rig(scripted(asking({"enum": ["red", "blue"]}))) as gateway:
        one, two, session = await both(gateway)
        turn = await one.start(session)
        asked, also = await one.next_asked(), await two.next_asked()
        await two.choose(also, also["params"]["options"][0]["optionId"])
        assert await turn == {"stopReason": "end_turn"}
        await one.until(lambda: bool(one.told))
        assert one.told == [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}}]
        await one.choose(asked, asked["params"]["options"][1]["optionId"])  # too late, and harmless
        assert one.text() == "Let me see. answered red."
        await two.until(lambda: two.text() == one.text())
        assert two.told == []


async def test_either_client_can_cancel_the_turn() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        one, two, session = await both(gateway)
        turn = await one.start(session)
        await two.heard("before")
        await two.notify("session/cancel", {"sessionId": session})
        await until(lambda: _cancelled(gateway, session))
        go.set()
        assert await turn == {"stopReason": "cancelled"}


def _cancelled(gateway: Any, session: str) -> bool:
    return any(live.cancelled for live in gateway.engine.live.values() if live.run.thread == session)


async def test_a_prompt_while_the_other_client_has_one_is_refused() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        one, two, session = await both(gateway)
        turn = await one.start(session)
        await two.heard("before")
        assert (await two.refused("session/prompt", said(session, "me too"))).code == -32600
        go.set()
        assert await turn == {"stopReason": "end_turn"}


# --- list ---------------------------------------------------------------------------------------------------------


async def test_sessions_are_listed_newest_first_with_folder_title_and_time() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        one = await editor.new(cwd="/one")
        two = await editor.new(cwd="/two", additionalDirectories=["/lib"])
        await editor.prompt(one, "Explain   this\nto me " + "x" * 200)
        listed = (await editor.request("session/list", {}))["sessions"]
        assert [each["sessionId"] for each in listed] == [two, one]
        assert [each["cwd"] for each in listed] == ["/two", "/one"]
        assert listed[0]["additionalDirectories"] == ["/lib"]
        assert listed[1]["title"].startswith("Explain this to me xxx") and len(listed[1]["title"]) == 80
        assert "title" not in listed[0]
        assert listed[0]["updatedAt"].endswith("+00:00")


async def test_sessions_are_listed_by_folder() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        one, _ = await editor.new(cwd="/one"), await editor.new(cwd="/two")
        listed = await editor.request("session/list", {"cwd": "/one", "cursor": None})
        assert [each["sessionId"] for each in listed["sessions"]] == [one]
        assert (await editor.request("session/list", {"cwd": "/three"})) == {"sessions": []}


async def test_long_lists_come_in_pages() -> None:
    async with rig(scripted(echo), scripted(echo, "other")) as gateway:
        editor, other = await gateway.connect(), await gateway.connect("other")
        made = []
        for number in range(60):
            made.append(await editor.new())
            if number % 2:
                await other.new()
        first = await editor.request("session/list", {})
        assert len(first["sessions"]) == 50
        second = await editor.request("session/list", {"cursor": first["nextCursor"]})
        listed = [each["sessionId"] for each in first["sessions"] + second["sessions"]]
        assert listed == made[::-1]
        assert "nextCursor" not in second


# --- close and delete ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_closing_a_session_cancels_its_turn(method: str) -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        turn = await editor.start(session)
        await editor.heard("before")
        assert await editor.request(method, {"sessionId": session}) == {}
        assert await turn == {"stopReason": "cancelled"}
        (record,) = await gateway.engine.runs.list(RunQuery())
        assert record.status is RunStatus.CANCELLED
        assert gateway.connections(session) == []


async def test_a_closed_session_can_be_loaded_again() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, "one")
        await editor.request("session/close", {"sessionId": session})
        await editor.load(session)
        assert editor.text() == "one "


async def test_a_deleted_session_is_gone_for_everybody() -> None:
    async with rig(scripted(echo)) as gateway:
        one, two, session = await both(gateway)
        assert await one.request("session/delete", {"sessionId": session}) == {}
        assert await one.request("session/delete", {"sessionId": session}) == {}, "what is not there is deleted"
        for editor in (one, two):
            assert (await editor.refused("session/prompt", said(session, "hi"))).code == -32002
            assert (await editor.request("session/list", {}))["sessions"] == []
