"""Which version is agreed on, what each has and has not, and what an agent offers in the words of version 2."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import ThreadUpdate
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import native, rig, scripted
from tests.adapters.agent_client.v2_editor import connect, idle, opened, raw
from tests.support.scripted import echo, held, until

MODES: dict[str, Any] = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
OPTIONS: list[Any] = [
    {"id": "m", "name": "M", "type": "select", "currentValue": "a", "options": [{"value": "a", "name": "A"}]}
]
MODE_OPTION = {
    "configId": "mode",
    "name": "Mode",
    "category": "mode",
    "type": "select",
    "currentValue": "ask",
    "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
}
SETTINGS = {"type": "object", "properties": {"tone": {"enum": ["dry", "warm"], "default": "dry"}}}


def now(mode: str) -> list[dict[str, Any]]:
    """The options of an agent with MODES and OPTIONS."""
    return [{**MODE_OPTION, "currentValue": mode}, {**OPTIONS[0], "configId": "m"}]


def plain(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what only version 1 calls them."""
    return [{key: value for key, value in option.items() if key != "id"} for option in options]


# --- which version ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "served", "agreed"), [(2, True, 2), (3, True, 2), (1, True, 1), (2, False, 1)])
async def test_a_client_that_asks_for_version_2_gets_it_where_it_is_served(
    asked: int, served: bool, agreed: int
) -> None:
    async with rig(scripted(echo), v2=served) as gateway:
        editor = await (raw(gateway) if agreed == 2 else gateway.raw())
        answer = await editor.initialize(protocolVersion=asked)
        assert answer["protocolVersion"] == agreed
        assert ("info" in answer, "agentInfo" in answer) == (agreed == 2, agreed == 1)


async def test_what_is_agreed_on_stays() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, old = await connect(gateway), await gateway.connect()
        assert (await editor.initialize())["protocolVersion"] == 2
        assert (await editor.refused("initialize", {"protocolVersion": 1, "info": {"name": "x", "version": "1"}})
                ).code == -32600  # fmt: skip
        assert await editor.turn(await editor.new()) == idle()
        assert (await old.initialize(protocolVersion=2))["protocolVersion"] == 1


@pytest.mark.parametrize("method", ["authenticate", "logout", "session/load", "session/set_mode"])
async def test_a_method_of_version_1_is_unknown_in_version_2_whatever_the_agent_knows(method: str) -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        before = len(agent.relayed)
        params = {"sessionId": session, "cwd": "/work", "methodId": "login", "modeId": "ask", "mcpServers": []}
        assert (await editor.refused(method, params)).code == -32601
        assert len(agent.relayed) == before


@pytest.mark.parametrize("method", ["auth/login", "auth/logout"])
async def test_a_method_of_version_2_is_unknown_in_version_1(method: str) -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor = await gateway.connect()
        assert (await editor.refused(method, {"methodId": "login"})).code == -32601
        assert agent.relayed == []


async def test_a_client_that_has_said_its_last_is_told_what_came_of_its_prompt() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), v2=True) as gateway:
        gateway.inbound.linger = 60.0
        editor, session = await opened(gateway)
        assert "messageId" in await editor.request("session/prompt", said(session, "go"))
        editor.pipe.half_close()
        await until(lambda: gateway.connections(session)[0]._peer.gone is not None)
        go.set()
        await editor.until(lambda: editor.ended)
        assert editor.updates[-1] == idle()
        await until(lambda: not gateway.inbound.clients.connections)


async def test_several_requests_may_come_in_one_message() -> None:
    async with rig(scripted(echo), v2=True) as gateway:
        editor, old = await connect(gateway), await gateway.connect()
        session = await editor.new()
        lists = [{"jsonrpc": "2.0", "id": f"b{n}", "method": "session/list", "params": {}} for n in (1, 2)]
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        took: list[Any] = []
        editor.take_batch = took.append
        await editor.raw(msgspec.json.encode([lists[0], cancel, lists[1]]))
        await editor.until(lambda: bool(took))
        assert sorted(answer["id"] for answer in took[0]) == ["b1", "b2"]
        await old.raw(msgspec.json.encode(lists))
        await old.until(lambda: bool(old.garbage))
        assert old.garbage[0]["code"] == -32600


# --- what an agent offers -----------------------------------------------------------------------------------------


async def test_an_agent_of_version_1_is_described_in_the_words_of_version_2() -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor = await raw(gateway)
        answer = await editor.initialize()
        assert answer["info"] == {"name": "acme", "title": "Acme", "version": "3"}
        session = answer["capabilities"]["session"]
        assert session["prompt"] == {"image": {}} and session["delete"] == {} and "stdio" in session["mcp"]
        assert answer["capabilities"]["_meta"] == {"acme": 1}
        assert answer["authMethods"] == [{"methodId": "login", "name": "Log in", "type": "agent"}]
        await editor.request("auth/login", {"methodId": "login", "_meta": {"a": 1}})
        await editor.request("auth/logout", {})
        asked = [(method, msgspec.json.decode(params)) for method, params, _ in agent.relayed]
        assert asked == [("authenticate", {"methodId": "login", "_meta": {"a": 1}}), ("logout", {})]


async def test_what_a_client_declares_is_told_agents_in_the_words_of_version_1() -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor = await connect(gateway, capabilities={"elicitation": {"form": {}}, "_meta": {"acme": 1}})
        await editor.request("_acme/ping", {})
        caller = agent.beside[0].caller
        assert caller is not None
        assert caller.capabilities["elicitation"] == {"form": {}} and caller.capabilities["_meta"] == {"acme": 1}
        assert not {"fs", "terminal"} & caller.capabilities.keys()
        for method in ("fs/read_text_file", "terminal/create"):
            with pytest.raises(RpcError, match="Method not found"):
                await caller.ask(method, msgspec.Raw(b"{}"))
        assert editor.asked == [], "an agent that asks all the same does not reach the client"


async def test_what_a_session_is_opened_with_reaches_an_agent_of_version_1_in_its_words() -> None:
    route, agent = native(echo)
    async with rig((route, agent), v2=True) as gateway:
        editor = await connect(gateway)
        server = {"type": "stdio", "name": "files", "command": "/bin/files"}
        await editor.new(mcpServers=[server], _meta={"acme": 2})
        await editor.new()
        first, second = (msgspec.json.decode(params) for method, params, _ in agent.relayed)
        assert first["mcpServers"] == [{"name": "files", "command": "/bin/files", "args": [], "env": []}]
        assert first["_meta"] == {"acme": 2} and second["mcpServers"] == []


# --- modes and options --------------------------------------------------------------------------------------------


async def test_the_modes_of_an_agent_of_version_1_are_an_option() -> None:
    route, agent = native(echo)
    settings: dict[str, Any] = {"modes": MODES, "configOptions": OPTIONS}
    agent.answers["session/new"] = lambda context, _: {"sessionId": context.thread.id, **settings}
    async with rig((route, agent), v2=True) as gateway:
        editor, old = await connect(gateway), await gateway.connect()
        made = await editor.request("session/new", {"cwd": "/work"})
        session = made["sessionId"]
        assert "modes" not in made and plain(made["configOptions"]) == plain(now("ask"))
        agent.beside[0].note(ThreadUpdate(protocol="agent_client", kind="modes", data=MODES))
        agent.beside[0].note(ThreadUpdate(protocol="agent_client", kind="config_options", data=OPTIONS))
        await old.load(session, "session/resume")
        third = await connect(gateway)
        resumed = await third.resume(session)
        assert plain(resumed["configOptions"]) == plain(now("ask"))
        choice = {"sessionId": session, "configId": "mode", "type": "id", "value": "code"}
        answer = await editor.request("session/set_config_option", choice)
        assert plain(answer["configOptions"]) == plain(now("code"))
        asked = [(method, msgspec.json.decode(params)) for method, params, _ in agent.relayed][-1]
        assert asked == ("session/set_mode", {"sessionId": session, "modeId": "code"})
        await old.until(lambda: bool(old.of("current_mode_update")))
        await third.until(lambda: bool(third.of("config_option_update")))
        assert plain(third.of("config_option_update")[0]["configOptions"]) == plain(now("code"))
        await old.request("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await editor.until(lambda: bool(editor.of("config_option_update")))
        assert plain(editor.of("config_option_update")[-1]["configOptions"]) == plain(now("ask"))
        assert not editor.of("current_mode_update") and not old.of("config_option_update")


async def test_a_mode_that_changes_in_a_turn_is_an_option_that_does() -> None:
    async def changes(context: RunContext) -> None:
        data: dict[str, Any] = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
        context.note(ThreadUpdate(protocol="agent_client", kind="current_mode_update", data=data))
        commands: list[Any] = [{"name": "go", "description": "Go", "input": {"hint": "where"}}]
        data = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        context.note(ThreadUpdate(protocol="agent_client", kind="available_commands_update", data=data))
        context.emit(e.PartDelta(part="text", delta="changed"))
        context.emit(e.RunFinished())
        await context.drain()

    route, agent = native(changes)
    agent.answers["session/new"] = lambda context, _: {"sessionId": context.thread.id, "modes": MODES}
    async with rig((route, agent), v2=True) as gateway:
        editor, session = await opened(gateway)
        assert await editor.turn(session) == idle()
        (options,) = editor.of("config_option_update")
        assert options["configOptions"] == [{**MODE_OPTION, "currentValue": "code"}]
        (commands,) = editor.of("available_commands_update")
        assert commands["availableCommands"][0]["input"] == {"type": "text", "hint": "where"}
        again = await connect(gateway)
        await again.load(session)
        assert again.of("available_commands_update") == [commands]


async def test_settings_of_other_agents_are_options_and_whoever_has_the_session_is_told() -> None:
    async with rig(scripted(echo, config_schema=SETTINGS), v2=True) as gateway:
        editor, other, old = await connect(gateway), await connect(gateway), await gateway.connect()
        made = await editor.request("session/new", {"cwd": "/work"})
        session = made["sessionId"]
        assert made["configOptions"][0]["configId"] == "tone"
        await other.resume(session)
        await old.load(session, "session/resume")
        choice = {"sessionId": session, "configId": "tone", "type": "id", "value": "warm"}
        answer = await editor.request("session/set_config_option", choice)
        assert answer["configOptions"][0]["currentValue"] == "warm"
        await other.until(lambda: bool(other.of("config_option_update")))
        await old.until(lambda: bool(old.of("config_option_update")))
        assert other.of("config_option_update")[0]["configOptions"] == answer["configOptions"]
        assert old.of("config_option_update")[0]["configOptions"][0]["id"] == "tone"
        wrong = {**choice, "value": "wet"}
        assert (await editor.refused("session/set_config_option", wrong)).code == -32602


async def test_the_agent_is_an_option_where_the_client_may_choose_it() -> None:
    async with rig(scripted(echo, "one"), native(echo, "two"), v2=True) as gateway:
        editor = await connect(gateway, None)
        made = await editor.request("session/new", {"cwd": "/work"})
        assert made["configOptions"][0]["configId"] == "agent"
        session = made["sessionId"]
        choice = {"sessionId": session, "configId": "agent", "type": "id", "value": "two"}
        answer = await editor.request("session/set_config_option", choice)
        assert answer["configOptions"][0]["currentValue"] == "two"
        assert await editor.turn(session) == idle()
