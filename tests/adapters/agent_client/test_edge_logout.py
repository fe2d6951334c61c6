"""`logout` while a session is being opened: nobody follows it after that, whoever logs in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_client.inbound.updates import SessionUpdates
from adapters.agent_client.inbound.updates_v2 import V2SessionUpdates
from adapters.agent_client.inbound.visitor import Visitor
from tests.adapters.agent_client import v2_editor
from tests.adapters.agent_client.authentication_rig import ANA, AUTHENTICATION, BOB, METHOD, NOT_FOUND, UNKNOWN
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.inbound_rig import Rig, native, rig
from tests.support.scripted import echo, until

LOGIN = {1: "authenticate", 2: "auth/login"}
LOGOUT = {1: "logout", 2: "auth/logout"}
VOICES: dict[int, Any] = {1: SessionUpdates, 2: V2SessionUpdates}


async def ana(gateway: Rig, version: int) -> Editor:
    visitor = Visitor(gateway.inbound.clients.people)
    editor = await (gateway.raw if version == 1 else v2_connect(gateway))(visitor=visitor)
    await editor.initialize()
    await log_in(editor, version, ANA)
    return editor


def v2_connect(gateway: Rig) -> Any:
    async def raw(visitor: Visitor) -> Editor:
        editor = await v2_editor.raw(gateway, visitor=visitor)
        editor.free = True
        return editor

    return raw


async def log_in(editor: Editor, version: int, token: str) -> None:
    await editor.request(LOGIN[version], {"methodId": METHOD, "_meta": {"token": token}})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", ["session/resume", "session/set_config_option"])
@pytest.mark.parametrize("then", ["", BOB, ANA])
async def test_a_session_that_is_being_opened_at_the_logout_is_not_followed(
    version: int, method: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`then`: who logs in while it is still being opened."""
    async with rig(native(echo), authentication=AUTHENTICATION, v2=True) as gateway:
        first = await ana(gateway, version)
        session = await first.new()
        await first.pipe.aclose()
        editor = await ana(gateway, version)
        began, go = asyncio.Event(), asyncio.Event()

        async def hangs(_: Any) -> None:
            began.set()
            await go.wait()

        monkeypatch.setattr(VOICES[version], "prepare", hangs)
        params = {"sessionId": session, "cwd": "/work", "mcpServers": [], "configId": "x", "value": "y"}
        opening = await editor.begin(method, params)
        await began.wait()
        await editor.request(LOGOUT[version], {})
        if then:
            await log_in(editor, version, then)
        go.set()
        async with asyncio.timeout(30):
            await asyncio.wait([opening])
        assert isinstance(error := opening.exception(), Refused)
        assert error.code in (UNKNOWN, NOT_FOUND, -32603), error
        assert not [each for each in gateway.connections(session) if each.visitor.name != "ana"]
        assert all(each.alive for each in gateway.inbound.clients.open(session))


@pytest.mark.parametrize("version", [1, 2])
async def test_a_logout_that_is_given_up_leaves_its_sessions_all_the_same(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(native(echo), authentication=AUTHENTICATION, v2=True) as gateway:
        editor = await ana(gateway, version)
        session = await editor.new()
        forget = Visitor.forget

        def and_given_up(visitor: Visitor) -> None:
            forget(visitor)
            if (task := asyncio.current_task()) is not None:
                task.cancel()  # as `$/cancel_request` does, from its next step on

        monkeypatch.setattr(Visitor, "forget", and_given_up)
        assert (await editor.refused(LOGOUT[version], {})).code == -32800
        await until(lambda: not gateway.connections(session))
