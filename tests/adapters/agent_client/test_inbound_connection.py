"""Shaking hands, and what a connection makes of bad input."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import re
import sys
from typing import Any

import pytest
from msgspec import Raw

from adapters.agent_client.inbound import connection
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from gateway import tracing
from gateway.config import Route
from gateway.contract import ThreadContext
from gateway.core.types import Agent
from gateway.transport.pipe import Unreadable
from gateway.transport.rpc import Peer
from tests.adapters.agent_client.editor import Refused, said
from tests.adapters.agent_client.inbound_rig import Native, Rig, native, rig, scripted
from tests.adapters.agent_client.outbound_house import PROGRAM
from tests.support.aio import Clock, later, on, run
from tests.support.pipes import pair
from tests.support.scripted import echo, held, until

# --- initialize ---------------------------------------------------------------------------------------------------


async def test_initialize_says_what_the_gateway_can_do_for_any_agent() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        answer = await editor.initialize(clientInfo={"name": "test", "version": "1"})
        assert answer["protocolVersion"] == 1
        can = answer["agentCapabilities"]
        assert can["loadSession"] is True
        assert {"list", "resume", "close", "delete"} <= can["sessionCapabilities"].keys()
        assert can["promptCapabilities"] == {"image": True, "audio": True, "embeddedContext": True}
        assert answer["agentInfo"]["name"] == "scripted"


def silent(start_timeout: float) -> contextlib.AbstractAsyncContextManager[Rig]:
    """The gateway with a program that never answers `initialize`."""
    command = (sys.executable, str(PROGRAM), "mute")
    target = AgentClientTarget.model_validate(
        {"protocol": "agent_client", "command": command, "start_timeout": start_timeout, "stop_timeout": 0.3}
    )
    return rig((Route(name="scripted", target=target), AgentClientOutbound(target)))  # type: ignore[arg-type]


async def test_an_agent_that_hangs_in_initialize_does_not_hold_up_its_editors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.1)
    async with silent(start_timeout=3600) as gateway:
        editor = await gateway.raw()
        async with asyncio.timeout(30):
            assert (await editor.initialize())["agentInfo"]["name"] == "scripted"


async def test_session_new_says_that_the_agent_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.1)
    async with silent(start_timeout=1) as gateway:
        editor = await gateway.connect()
        async with asyncio.timeout(30):
            refused = await editor.refused("session/new", {"cwd": "/work", "mcpServers": []})
        assert "scripted was not ready within 1 s" in refused.message


async def test_an_agent_that_hangs_for_what_one_editor_can_do_answers_as_it_was_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(Native):
        async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
            if method == "initialize":
                await asyncio.Event().wait()
            return await super().relay(context, method, params)

    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.1)
    where, _ = native(echo)
    async with rig((where, Hanging(echo))) as gateway:
        editor = await gateway.raw()
        async with asyncio.timeout(30):
            answer = await editor.initialize()
        assert answer["agentInfo"]["name"] == "acme" and answer["authMethods"]


@on(Clock)
async def test_an_agent_that_starts_slowly_twice_holds_up_its_editor_for_one_time_in_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    class Slow(Native):
        asked = greeting = False

        async def describe(self) -> Agent:
            self.asked = True
            await asyncio.sleep(connection.ANSWER_SECONDS - 1)
            return await super().describe()

        async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
            self.greeting = method == "initialize"
            return await asyncio.Event().wait()  # type: ignore[return-value]

    slow = Slow(echo)
    async with rig((native(echo)[0], slow)) as gateway:
        asked = await (await gateway.raw()).begin("initialize", {"protocolVersion": 1})
        await until(lambda: slow.asked)
        await later(connection.ANSWER_SECONDS - 1)
        await until(lambda: slow.greeting)
        await later(2)
        await until(asked.done, 5)
        assert (await asked)["agentInfo"]["name"] == "acme"
        assert "scripted has not answered initialize within 10 s" in caplog.text


@pytest.mark.parametrize("version", [0, 1, 2, 99])
async def test_whatever_version_a_client_asks_for_it_is_offered_the_first(version: int) -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        assert (await editor.request("initialize", {"protocolVersion": version}))["protocolVersion"] == 1


async def test_a_client_that_says_capabilities_is_understood() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        await editor.request("initialize", {"protocolVersion": 1, "capabilities": {"terminal": True}})
        (connection,) = gateway.connections(await editor.new())
        assert connection.capabilities == {"terminal": True}


async def test_initialize_may_come_twice() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        await editor.initialize()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}


@pytest.mark.parametrize("method", ["session/new", "session/prompt", "session/list", "_acme/ping", "nonsense"])
async def test_any_request_before_initialize_is_refused(method: str) -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        error = await editor.refused(method, {"cwd": "/", "mcpServers": []})
        assert error.code == -32600 and "initialize" in error.message
        await editor.notify("session/cancel", {"sessionId": "x"})
        await editor.initialize()
        assert await editor.new()


async def test_requests_that_come_while_initialize_is_answered_wait_for_it() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        first = await editor.begin("initialize", {"protocolVersion": 1})
        second = await editor.begin("session/new", {"cwd": "/", "mcpServers": []})
        async with asyncio.timeout(30):
            await first
            assert (await second)["sessionId"]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        ("this is no JSON", -32700),
        ('{"jsonrpc": "2.0", "id": 1, "method": ', -32700),
        ('"just a string"', -32600),
        ("{}", -32600),
        ('{"jsonrpc": "2.0", "method": 7}', -32600),
        ("[]", -32600),
        ('[{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}]', -32600),
    ],
)
async def test_what_is_no_message_is_answered_and_the_connection_lives_on(garbage: str, code: int) -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        await editor.raw(garbage)
        await editor.until(lambda: bool(editor.garbage))
        assert editor.garbage[0]["code"] == code
        assert await editor.prompt(await editor.new()) == {"stopReason": "end_turn"}


HALF = "\ud800"
SESSION = "here"
"""Stands for the session that is open."""
UNSTORABLE: dict[str, tuple[str, Any, str]] = {
    "a session's id": ("session/prompt", {"sessionId": HALF, "prompt": []}, "/sessionId"),
    "a folder": ("session/new", {"cwd": f"/{HALF}", "mcpServers": []}, "/cwd"),
    "a prompt": (
        "session/prompt",
        {"sessionId": SESSION, "prompt": [{"type": "text", "text": HALF}]},
        "/prompt/0/text",
    ),
    "a name": ("session/new", {"cwd": "/", "mcpServers": [{"name": HALF}]}, "/mcpServers/0/name"),
    "a key": ("session/new", {"cwd": "/", "mcpServers": [], "_meta": {HALF: 1}}, "/_meta"),
    "a capability": ("initialize", {"protocolVersion": 1, "clientCapabilities": {"x": HALF}}, "/clientCapabilities/x"),
    "an extension": ("_acme/x", {"sessionId": HALF}, "/sessionId"),
    "a session to delete": ("session/delete", {"sessionId": HALF}, "/sessionId"),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_cannot_be_stored_is_refused_with_its_place_and_told_in_one_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    method, params, path = UNSTORABLE[name]

    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with rig(scripted(echo)) as gateway:
            editor, session = await gateway.opened()
            given = {key: session if value == SESSION else value for key, value in params.items()}
            caplog.clear()
            error = await editor.refused(method, given)
            assert (error.code, error.data["code"], error.data["path"]) == (-32602, "invalid", path)
            assert [(record.levelname, method in record.getMessage()) for record in caplog.records] == [("INFO", True)]
            await editor.notify("session/cancel", {"sessionId": HALF})
            assert await editor.prompt(session) == {"stopReason": "end_turn"}

    run(main())
    assert all(record.levelno < logging.WARNING for record in caplog.records)


@pytest.mark.parametrize(
    ("number", "code"), [("NaN", -32700), ("-Infinity", -32700), ("1e400", -32602), ("9" * 5000, -32602)]
)
def test_a_number_that_is_none_is_refused(number: str, code: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with rig(scripted(echo)) as gateway:
            editor = await gateway.connect()
            params = f'{{"cwd":"/","mcpServers":[],"_meta":{{"x":[{number}]}}}}'
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            editor._waiting[70] = ("session/new", future)
            await editor.raw(f'{{"jsonrpc":"2.0","id":70,"method":"session/new","params":{params}}}')
            async with asyncio.timeout(30):
                with pytest.raises(Refused) as refused:
                    await future
            assert refused.value.code == code
            if code == -32602:
                assert refused.value.data["path"] == "/_meta/x/0"

    run(main())
    assert all(record.levelno < logging.WARNING for record in caplog.records)


async def test_a_message_over_the_limit_is_answered_under_its_id() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        start = b'{"jsonrpc":"2.0","id":70,"method":"session/prompt","params":{"sessionId":"'
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        editor._waiting[70] = ("session/prompt", future)
        editor.pipe.inject(Unreadable(reason="longer than 10 bytes", start=start, size=100_000_000))
        async with asyncio.timeout(30):
            with pytest.raises(Exception, match="longer than 10 bytes"):
                await future
        assert await editor.prompt(await editor.new()) == {"stopReason": "end_turn"}


@pytest.mark.parametrize("method", ["session/wish", "toString", "_acme/ping", ""])
async def test_an_unknown_method_is_said_to_be_unknown(method: str) -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused(method, {"a": 1})
        assert error.code == -32601
        assert error.data == {"method": method}


async def test_an_unknown_notification_is_passed_over() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        await editor.notify("_acme/opened", {"path": "/x"})
        await editor.notify("session/cancel", {"sessionId": 7})
        await editor.notify("session/cancel", {"sessionId": "nobody's"})
        await editor.notify("$/cancel_request", {"requestId": "unknown"})
        await editor.notify("$/cancel_request", [])
        assert await editor.prompt(await editor.new()) == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("initialize", {"protocolVersion": "one"}, "/protocolVersion"),
        ("session/new", {"mcpServers": []}, "/cwd"),
        ("session/new", {"cwd": 7, "mcpServers": []}, "/cwd"),
        ("session/new", {"cwd": "/", "mcpServers": [1]}, "/mcpServers/0"),
        (
            "session/new",
            {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/a", None]},
            "/additionalDirectories/1",
        ),
        ("session/new", None, "/cwd"),
        ("session/new", ["/"], ""),
        ("session/load", {"cwd": "/", "mcpServers": []}, "/sessionId"),
        ("session/resume", {"sessionId": ["x"], "cwd": "/", "mcpServers": []}, "/sessionId"),
        ("session/prompt", {"sessionId": "SESSION"}, "/prompt"),
        ("session/prompt", {"sessionId": "SESSION", "prompt": "hello"}, "/prompt"),
        ("session/prompt", {"prompt": []}, "/sessionId"),
        ("session/set_mode", {"sessionId": "SESSION"}, "/modeId"),
        ("session/set_config_option", {"sessionId": "SESSION", "configId": "a"}, "/value"),
        ("session/set_config_option", {"sessionId": "SESSION", "configId": "a", "value": 3}, "/value"),
        ("session/close", {}, "/sessionId"),
        ("session/delete", {"sessionId": None}, "/sessionId"),
        ("session/list", {"cursor": 7}, "/cursor"),
        ("session/list", {"cursor": "no cursor of ours"}, "/cursor"),
        ("authenticate", {}, "/methodId"),
    ],
)
async def test_wrong_params_are_refused_with_the_place_of_the_mistake(method: str, params: Any, path: str) -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        error = await editor.refused(method, json.loads(json.dumps(params).replace("SESSION", session)))
        assert error.code == -32602, error.message
        assert error.data["path"] == path, error.message
        assert await editor.prompt(session) == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/prompt", said("nope", "hi")),
        ("session/load", {"sessionId": "nope", "cwd": "/", "mcpServers": []}),
        ("session/resume", {"sessionId": "nope", "cwd": "/", "mcpServers": []}),
        ("session/set_mode", {"sessionId": "nope", "modeId": "x"}),
        ("session/set_config_option", {"sessionId": "nope", "configId": "x", "value": "y"}),
        ("session/close", {"sessionId": "nope"}),
    ],
)
async def test_an_unknown_session_is_not_found(method: str, params: Any) -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused(method, params)
        assert error.code == -32002
        assert "nope" in error.message


async def test_ids_are_echoed_as_they_are() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        for id in (0, "0", "a-uuid", 7):
            await editor.request("session/list", {}, id=id)


# --- authentication -----------------------------------------------------------------------------------------------


async def test_there_is_nothing_to_authenticate_with_for_agents_of_other_protocols() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.raw()
        assert (await editor.initialize())["authMethods"] == []
        error = await editor.refused("authenticate", {"methodId": "login"})
        assert error.code == -32602 and error.data["path"] == "/methodId"
        assert (await editor.refused("logout", {})).code == -32601


# --- life ---------------------------------------------------------------------------------------------------------


async def test_an_agent_that_there_is_not_is_refused() -> None:
    async with rig(scripted(echo)) as gateway:
        ours, theirs = pair()
        with pytest.raises(Exception, match="no agent nobody; there are scripted"):
            await gateway.inbound.converse(theirs, "nobody")
        assert await ours.receive() == []


async def test_one_client_too_many_is_refused() -> None:
    async with rig(scripted(echo), max_connections=1) as gateway:
        first = await gateway.connect()
        ours, theirs = pair()
        with pytest.raises(Exception, match="too many clients"):
            await gateway.inbound.converse(theirs, "scripted")
        assert await ours.receive() == []
        await first.pipe.aclose()
        await until(lambda: not gateway.inbound.clients.connections)
        assert await (await gateway.connect()).new()


async def test_one_session_too_many_is_refused_until_another_is_closed() -> None:
    async with rig(scripted(echo), max_sessions=2) as gateway:
        editor = await gateway.connect()
        first, _ = await editor.new(), await editor.new()
        error = await editor.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert "close some" in error.message and error.data["retryable"] is True
        assert len(await gateway.engine.threads.list(_all())) == 2
        await editor.request("session/close", {"sessionId": first})
        assert await editor.new()


async def test_a_client_that_has_said_its_last_is_still_answered() -> None:
    async with rig(scripted(echo)) as gateway:
        gateway.inbound.linger = 30.0
        editor = await gateway.raw()
        first = await editor.begin("initialize", {"protocolVersion": 1})
        second = await editor.begin("session/new", {"cwd": "/", "mcpServers": []})
        editor.pipe.half_close()
        async with asyncio.timeout(30):
            assert (await first)["protocolVersion"] == 1
            assert (await second)["sessionId"]
        await editor.until(lambda: editor.ended)


async def test_nothing_is_left_of_a_client_that_has_gone() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session)
        await editor.heard("before")
        editor.pipe.cut()
        await until(lambda: not gateway.inbound.clients.connections)
        assert gateway.connections(session) == []
        assert gateway.engine.conversations.watchers.callers(session) == []
        assert not [task for task in asyncio.all_tasks() if session in task.get_name()]
        go.set()


def _all() -> Any:
    from gateway.core.types import ThreadQuery

    return ThreadQuery()


async def test_a_request_too_many_is_counted_as_the_error_that_it_is_answered_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counted() -> int:
        found = re.findall(
            r'^interlingua_requests_total\{protocol="agent_client",status="-32603"\} (\d+)',
            tracing.metrics.render(None),
            re.MULTILINE,
        )
        return int(found[0]) if found else 0

    monkeypatch.setattr(connection, "Peer", functools.partial(Peer, concurrency=1))
    going = asyncio.Event()
    async with rig(scripted(held(lambda: going))) as gateway:
        editor, session = await gateway.opened()
        before = counted()
        turn = await editor.begin("session/prompt", said(session, "hi"))
        error = await editor.refused("session/list", {})
        assert error.code == -32603 and "too many requests" in error.message
        assert counted() == before + 1
        going.set()
        assert (await turn)["stopReason"] == "end_turn"
