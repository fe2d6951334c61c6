"""Requests about one session that come at once: editors that are back send what they have without waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_client.inbound.updates import SessionUpdates
from gateway.core.errors import Unavailable
from tests.adapters.agent_client.editor import Editor, Refused, said
from tests.adapters.agent_client.inbound_rig import Rig, native, rig, scripted
from tests.support.scripted import echo, held, until

CANCELLED = {"stopReason": "cancelled"}


def params(method: str, session: str) -> dict[str, Any]:
    if method == "session/prompt":
        return said(session, "two")
    return {"sessionId": session, "cwd": "/work", "mcpServers": [], "modeId": "m"}


async def answers(editor: Editor, session: str, *methods: str) -> list[Any]:
    """Of these requests, all sent before any is answered."""
    async with asyncio.timeout(30):
        sent = [await editor.begin(method, params(method, session)) for method in methods]
        return list(await asyncio.gather(*sent, return_exceptions=True))


async def before(gateway: Rig) -> tuple[str, Editor]:
    """A session with a turn, and a client that has not opened it."""
    first, session = await gateway.opened()
    await first.prompt(session, "one")
    return session, await gateway.connect()


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_is_opened_twice_at_once_is_told_once_from_then_on(method: str) -> None:
    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        assert await answers(editor, session, method, method) == [{}, {}]
        assert len(gateway.connections(session)) == 2, "as each of the two clients has it open"
        editor.updates.clear()
        await editor.prompt(session, "two")
        assert editor.text() == "two "


@pytest.mark.parametrize("first", ["session/load", "session/resume", "session/set_mode", "_acme/look"])
async def test_a_prompt_right_behind_what_opens_its_session_is_told_once(first: str) -> None:
    async with rig(native(echo)) as gateway:
        session, editor = await before(gateway)
        answer, ended = await answers(editor, session, first, "session/prompt")
        assert isinstance(answer, dict) and ended == {"stopReason": "end_turn"}
        assert editor.text() == ("one two " if first == "session/load" else "two ")
        assert len(gateway.connections(session)) == 2


@pytest.mark.parametrize("second", ["session/load", "session/resume", "session/prompt"])
async def test_a_session_that_its_first_prompt_opens_is_busy_for_what_comes_right_behind(second: str) -> None:
    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        ended, refused = await answers(editor, session, "session/prompt", second)
        assert ended == {"stopReason": "end_turn"}
        assert isinstance(refused, Refused) and refused.code == -32600
        assert editor.text() == "two "


async def test_of_a_client_that_opened_a_session_twice_at_once_nothing_is_left_when_it_goes() -> None:
    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        await answers(editor, session, "session/load", "session/load", "session/resume")
        await editor.pipe.aclose()
        await until(lambda: len(gateway.connections(session)) == 1)


async def test_a_session_may_be_deleted_twice_at_once() -> None:
    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        await editor.load(session)
        assert await answers(editor, session, "session/delete", "session/delete") == [{}, {}]


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_cancel_right_behind_a_prompt_that_opens_its_session_is_not_lost(by_id: bool) -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        session = await (await gateway.connect()).new()
        editor = await gateway.connect()
        turn = await editor.start(session, id="turn")
        if by_id:
            await editor.notify("$/cancel_request", {"requestId": "turn"})
        else:
            await editor.notify("session/cancel", {"sessionId": session})
        async with asyncio.timeout(30):
            assert await turn == CANCELLED


async def test_a_client_that_has_not_opened_a_session_can_cancel_its_turn() -> None:
    go = asyncio.Event()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        first, session = await gateway.opened()
        turn = await first.start(session)
        await first.heard("before")
        other = await gateway.connect()
        await other.notify("session/cancel", {"sessionId": session})
        await other.notify("session/cancel", {"sessionId": "nobodys"})
        async with asyncio.timeout(30):
            assert await turn == CANCELLED


async def test_a_cancel_while_a_client_is_told_what_was_ends_what_goes_on() -> None:
    go = asyncio.Event()
    go.set()
    route, agent = scripted(held(lambda: go))
    agent.on_cancel = go.set
    async with rig((route, agent)) as gateway:
        first, session = await gateway.opened()
        for _ in range(20):
            await first.prompt(session)
        go.clear()
        turn = await first.start(session)
        await until(lambda: first.text().count("before") == 21)
        other = await gateway.connect()
        loading = await other.begin("session/load", params("session/load", session))
        await other.until(lambda: bool(other.updates))
        await other.notify("session/cancel", {"sessionId": session})
        async with asyncio.timeout(30):
            assert await turn == CANCELLED
            assert await loading == {}


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancel_of_a_session_whose_opening_hangs_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def hangs(_: SessionUpdates) -> None:
        began.set()
        await go.wait()
        if fails:
            raise Unavailable("the disk is full")

    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        with monkeypatch.context() as patched:
            patched.setattr(SessionUpdates, "prepare", hangs)
            loading = await editor.begin("session/load", params("session/load", session))
            await began.wait()
            await editor.notify("session/cancel", {"sessionId": session})
            assert await editor.prompt(await editor.new(), "other") == {"stopReason": "end_turn"}
            go.set()
            async with asyncio.timeout(30):
                await asyncio.wait([loading])
        assert isinstance(loading.exception(), Refused) if fails else loading.result() == {}
        assert await editor.load(session) == {}


async def test_a_cancel_is_of_the_prompts_that_wait_for_their_session_and_of_none_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def hangs(_: SessionUpdates) -> None:
        began.set()
        await go.wait()

    async with rig(scripted(echo)) as gateway:
        session, editor = await before(gateway)
        monkeypatch.setattr(SessionUpdates, "prepare", hangs)
        given_up = await editor.begin("session/prompt", said(session, "two"))
        await began.wait()
        await editor.notify("session/cancel", {"sessionId": session})
        resumed = await editor.begin("session/set_mode", {"sessionId": session, "modeId": "m"})
        await editor.new()
        go.set()
        async with asyncio.timeout(30):
            assert await given_up == CANCELLED
            await asyncio.wait([resumed])
        assert await editor.prompt(session, "three") == {"stopReason": "end_turn"}
        assert editor.text() == "three ", "nothing was begun for the one that was given up"


async def test_options_that_are_set_at_once_are_all_set_whichever_client_sets_them() -> None:
    values = {"enum": ["low", "high"]}
    schema = {"type": "object", "properties": {"tone": values, "speed": values, "length": values}}
    async with rig(scripted(echo, config_schema=schema)) as gateway:
        first, session = await gateway.opened()
        other = await gateway.connect()
        await other.load(session)
        setting = [
            await editor.begin("session/set_config_option", {"sessionId": session, "configId": option, "value": "high"})
            for editor, option in ((first, "tone"), (first, "speed"), (other, "length"))
        ]
        async with asyncio.timeout(30):
            await asyncio.gather(*setting)
        await first.prompt(session)
        assert (await gateway.run(session)).request.config == dict.fromkeys(("tone", "speed", "length"), "high")
