"""An agent that speaks the protocol itself: the inbound half is a proxy that changes nothing it does not have to."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gateway.core.errors import Unavailable
from gateway.core.types import Thread, ThreadUpdate
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import LOAD, MODES, OPTIONS, chunk, native, note, rig, update
from tests.support.aio import run
from tests.support.scripted import echo

# --- the connection -----------------------------------------------------------------------------------------------


async def test_initialize_is_the_agents_own_answer_with_what_the_gateway_adds() -> None:
    async with rig(native(echo)) as gateway:
        editor = await gateway.raw()
        answer = await editor.initialize()
        can = answer["agentCapabilities"]
        assert can["promptCapabilities"]["image"] is True
        assert can["_meta"] == {"acme": 1}
        assert answer["agentInfo"] == {"name": "acme", "title": "Acme", "version": "3"}
        assert answer["authMethods"] == [{"id": "login", "name": "Log in"}]
        assert can["loadSession"] is True and {"list", "resume"} <= can["sessionCapabilities"].keys()


def test_an_agent_answers_each_client_by_what_that_can_do_and_is_as_it_was_described_where_it_cannot_be_had() -> None:
    async def main() -> None:
        route, agent = native(echo)
        pages = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": [{"id": "page", "name": "On a page"}]}
        async with rig((route, agent)) as gateway:
            for answer, way in ((pages, "page"), (Unavailable("gone"), "login")):
                agent.answers["initialize"] = answer
                editor = await gateway.raw(capabilities={"elicitation": {"url": {}}})
                assert [each["id"] for each in (await editor.initialize())["authMethods"]] == [way]
            callers = [context.caller for context in agent.greeted]
            assert [each.capabilities["elicitation"] for each in callers if each] == [{"url": {}}] * 2

    run(main())


async def test_authenticate_logout_and_extensions_are_passed_on_verbatim() -> None:
    route, agent = native(echo)
    agent.answers["_acme/ping"] = Raw(b'{"pong": 1, "odd": [null]}')
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        await editor.request("authenticate", {"methodId": "login", "_meta": {"a": 1}})
        await editor.request("logout", {})
        assert await editor.request("_acme/ping", {"x": [1, None]}) == {"pong": 1, "odd": [None]}
        relayed = [(method, msgspec.json.decode(params), thread) for method, params, thread in agent.relayed]
        assert relayed == [
            ("authenticate", {"methodId": "login", "_meta": {"a": 1}}, None),
            ("logout", {}, None),
            ("_acme/ping", {"x": [1, None]}, None),
        ]
        caller = agent.beside[0].caller
        assert caller is not None and caller.capabilities == editor.capabilities


async def test_an_extension_that_names_a_session_belongs_to_it() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.request("_acme/ping", {"sessionId": session})
        await editor.request("session/set_model", {"sessionId": session, "modelId": "big"})
        assert [(method, thread) for method, _, thread in agent.relayed[1:]] == [
            ("_acme/ping", session),
            ("session/set_model", session),
        ]


async def test_the_agents_own_errors_are_passed_on_as_they_are() -> None:
    route, agent = native(echo)
    agent.answers["_acme/ping"] = RpcError(-32042, "not today", {"why": ["rain"]})
    agent.answers["session/new"] = RpcError(-32000, "Authentication required")
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused("_acme/ping", {})
        assert (error.code, error.message, error.data) == (-32042, "not today", {"why": ["rain"]})
        error = await editor.refused("session/new", LOAD)
        assert (error.code, error.message) == (-32000, "Authentication required")
        assert (await editor.request("session/list", {}))["sessions"] == [], "nothing is left of it"


async def test_notifications_of_extensions_are_passed_on_in_order() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.notify("_acme/opened", {"path": "/a"})
        await editor.notify("_acme/closed", {"sessionId": session})
        await editor.prompt(session)
        assert [(method, thread) for method, _, thread in agent.forwarded] == [
            ("_acme/opened", None),
            ("_acme/closed", session),
        ]


async def test_a_relayed_request_can_be_cancelled() -> None:
    stopped = asyncio.Event

    began, ended = stopped(), stopped()

    async def hang(context: Any, params: Raw) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    route, agent = native(echo)
    agent.answers["_acme/slow"] = hang
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        future = await editor.begin("_acme/slow", {}, id="slow")
        await began.wait()
        await editor.notify("$/cancel_request", {"requestId": "slow"})
        with pytest.raises(Exception, match="-32800"):
            await future
        assert ended.is_set()


# --- sessions -----------------------------------------------------------------------------------------------------


async def test_a_new_session_is_the_agents_with_its_very_params_and_our_name() -> None:
    route, agent = native(echo)

    def start(context: Any, params: Raw) -> dict[str, Any]:
        return {"sessionId": context.thread.id, "modes": MODES, "_meta": {"acme": 2}}

    agent.answers["session/new"] = start
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        params = {"cwd": "/w", "mcpServers": [{"name": "x", "command": "y", "args": [], "env": []}], "more": [1]}
        answer = await editor.request("session/new", params)
        assert answer == {"sessionId": answer["sessionId"], "modes": MODES, "_meta": {"acme": 2}}
        ((method, given, thread),) = agent.relayed
        assert (method, msgspec.json.decode(given), thread) == ("session/new", params, answer["sessionId"])


async def test_what_the_agent_says_before_it_answers_session_new_is_told_after_it() -> None:
    route, agent = native(echo)
    commands = update("available_commands_update", availableCommands=[{"name": "x", "description": "y"}])

    async def start(context: Any, params: Raw) -> dict[str, Any]:
        note(context, commands)
        for _ in range(20):
            await asyncio.sleep(0)
        return {"sessionId": context.thread.id}

    agent.answers["session/new"] = start
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        await editor.new()
        await editor.until(lambda: bool(editor.updates))
        assert editor.order == ["initialize", "session/new", "session/update"]
        assert editor.updates == [commands]


async def test_updates_between_turns_are_told_as_they_are() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        await editor.prompt(await editor.new(), "one")
        odd = update("session_info_update", title="A title", _meta={"tags": [1]})
        note(agent.beside[0], odd)
        note(agent.beside[0], chunk("by the way"), kept=True)
        await editor.heard("one by the way")
        assert editor.updates[-2] == odd


async def test_updates_between_turns_are_part_of_what_is_replayed() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        commands = update("available_commands_update", availableCommands=[])
        note(agent.beside[0], chunk("welcome "), kept=True)
        await editor.prompt(session, "one")
        context = agent.contexts[0]
        note(context, chunk("by the way "), kept=True)
        note(context, commands)
        await editor.prompt(session, "two")
        await gateway.engine.conversations.settled()
        await editor.load(session)
        assert editor.text() == "welcome one by the way two "
        assert editor.updates[-1] == commands


async def test_a_loaded_session_says_modes_and_options_as_they_are_now() -> None:
    route, agent = native(echo)

    def start(context: Any, params: Raw) -> dict[str, Any]:
        context.note(ThreadUpdate(protocol="agent_client", kind="modes", data=MODES))
        context.note(ThreadUpdate(protocol="agent_client", kind="config_options", data=OPTIONS))
        return {"sessionId": context.thread.id, "modes": MODES, "configOptions": OPTIONS}

    agent.answers["session/new"] = start
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        note(agent.beside[0], update("current_mode_update", currentModeId="code"))
        await gateway.engine.conversations.settled()
        answer = await editor.load(session)
        assert answer == {"modes": {**MODES, "currentModeId": "code"}, "configOptions": OPTIONS}


async def test_modes_and_options_are_set_at_the_agent_and_other_clients_hear_of_it() -> None:
    route, agent = native(echo)
    agent.answers["session/set_config_option"] = {"configOptions": OPTIONS, "_meta": {"acme": 1}}
    async with rig((route, agent)) as gateway:
        one, two = await gateway.connect(), await gateway.connect()
        session = await one.new()
        await two.load(session)
        assert await one.request("session/set_mode", {"sessionId": session, "modeId": "code"}) == {}
        params = {"sessionId": session, "configId": "m", "value": "a"}
        answer = await one.request("session/set_config_option", params)
        assert answer == {"configOptions": OPTIONS, "_meta": {"acme": 1}}
        await two.until(lambda: len(two.updates) == 2)
        assert two.updates == [
            update("current_mode_update", currentModeId="code"),
            update("config_option_update", configOptions=OPTIONS),
        ]
        assert one.updates == []


async def test_a_session_that_only_the_agent_knows_is_loaded_from_it_and_known_from_then_on() -> None:
    seen: list[int] = []
    route, agent = native(echo)

    async def load(context: Any, params: Raw) -> dict[str, Any]:
        for number in range(100):
            note(context, chunk(f"{number} "), kept=True)
            await asyncio.sleep(0)
        return {"modes": MODES}

    agent.answers["session/load"] = load
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        future = await editor.begin("session/load", {"sessionId": "theirs", **LOAD})
        future.add_done_callback(lambda _: seen.append(len(editor.text().split())))
        async with asyncio.timeout(30):
            assert await future == {"modes": MODES}
        await asyncio.sleep(0)
        assert seen == [100], "everything was replayed before the answer"
        assert agent.relayed[0][2] == "theirs"
        assert await editor.prompt("theirs", "hi") == {"stopReason": "end_turn"}
        await gateway.engine.conversations.settled()
        again = await gateway.connect()
        await again.load("theirs")
        assert again.text().split() == [str(number) for number in range(100)] + ["hi"]
        assert len(agent.relayed) == 1


@pytest.mark.parametrize("agent_of_the_record", ["agent", "another"])
async def test_a_session_that_another_process_has_recorded_during_its_load_is_had(
    agent_of_the_record: str,
) -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:

        async def load(context: Any, params: Raw) -> dict[str, Any]:
            note(context, chunk("before "), kept=True)
            name = route.name if agent_of_the_record == "agent" else agent_of_the_record
            other = Thread(id="theirs", created_at=0, updated_at=0, protocol="agent_client", agent=name)
            await gateway.engine.store.create_thread(other)
            return {"modes": MODES}

        agent.answers["session/load"] = load
        editor = await gateway.connect()
        if agent_of_the_record == "another":
            assert "exists" in str(await editor.refused("session/load", {"sessionId": "theirs", **LOAD}))
            return
        assert await editor.request("session/load", {"sessionId": "theirs", **LOAD}) == {"modes": MODES}
        assert editor.text() == "before "
        assert await editor.prompt("theirs", "hi") == {"stopReason": "end_turn"}


async def test_what_an_agent_replays_comes_before_the_answer_to_a_client_that_reads_slowly_too() -> None:
    route, agent = native(echo)
    told, large = asyncio.Event(), "x" * 50_000

    def load(context: Any, params: Raw) -> dict[str, Any]:
        for number in range(100):
            note(context, chunk(f"{number}{large} "), kept=True)
        told.set()
        return {}

    agent.answers["session/load"] = load
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect(limit=2000)
        editor.reads.clear()
        future = await editor.begin("session/load", {"sessionId": "theirs", **LOAD})
        await told.wait()
        editor.reads.set()
        async with asyncio.timeout(30):
            await future
        assert editor.text().split() == [f"{number}{large}" for number in range(100)]
        assert editor.order[-1] == "session/load"


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_nobody_knows_is_the_agents_error_and_leaves_nothing(method: str) -> None:
    route, agent = native(echo)
    agent.answers["session/load"] = agent.answers["session/resume"] = RpcError(-32002, "Not found", {"uri": "nope"})
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused(method, {"sessionId": "nope", **LOAD})
        assert (error.code, error.data) == (-32002, {"uri": "nope"})
        assert (await editor.request("session/list", {}))["sessions"] == []
        assert (await editor.refused("session/prompt", said("nope", "hi"))).code == -32002


async def test_the_agents_own_list_is_passed_on_and_what_is_known_here_has_its_name_here() -> None:
    from msgspec.structs import replace

    route, agent = native(echo)
    hello = {**agent.agent.extra["agent_client"]}
    hello["agentCapabilities"] = {"sessionCapabilities": {"list": {}, "delete": {}}}
    agent.agent = replace(agent.agent, extra={"agent_client": hello})

    async def start(context: Any, params: Raw) -> dict[str, Any]:
        await context.set_thread({"session": "theirs"})
        return {"sessionId": context.thread.id}

    agent.answers["session/new"] = start
    listed = [{"sessionId": "theirs", "cwd": "/a", "_meta": {"n": 1}}, {"sessionId": "other", "cwd": "/b"}]
    agent.answers["session/list"] = {"sessions": listed, "nextCursor": "more"}
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        answer = await editor.request("session/list", {"cwd": "/a"})
        assert answer == {"sessions": [{**listed[0], "sessionId": session}, listed[1]], "nextCursor": "more"}
        assert agent.relayed[-1] == ("session/list", b'{"cwd":"/a"}', None)
        await editor.request("session/delete", {"sessionId": "other"})
        assert agent.relayed[-1] == ("session/delete", b'{"sessionId":"other"}', None)
        await editor.request("session/delete", {"sessionId": session})
        assert agent.relayed[-1][2] == session


async def test_close_is_passed_on_to_an_agent_that_offers_it() -> None:
    route, agent = native(echo)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.request("session/close", {"sessionId": session})
        assert agent.relayed[-1][0] == "session/close"
        again = await editor.new()
        count = len(agent.relayed)
        await editor.request("session/delete", {"sessionId": again})
        assert len(agent.relayed) == count, "it does not offer that"


async def test_a_forked_session_is_known_at_once() -> None:
    route, agent = native(echo)
    agent.answers["session/fork"] = {"sessionId": "fork"}
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        answer = await editor.request("session/fork", {"sessionId": session, **LOAD})
        assert answer == {"sessionId": "fork"}
        assert await editor.prompt("fork", "hi") == {"stopReason": "end_turn"}
