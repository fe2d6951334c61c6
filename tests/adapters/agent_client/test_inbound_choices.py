"""What a client may choose: the agent, and the settings of agents of other protocols."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from tests.adapters.agent_client.inbound_rig import native, rig, scripted
from tests.support.scripted import echo, held

CONFIG: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tone": {"enum": ["warm", "cold"], "default": "warm", "title": "Tone"},
        "fast": {"type": "boolean", "default": False},
        "seed": {"type": "integer"},
    },
}
BOOLEANS = {"session": {"configOptions": {"boolean": {}}}}


async def tells(context: RunContext) -> None:
    """An agent that says its name and its configuration."""
    context.emit(e.PartDelta(part="text", delta=f"{context.agent.name} {context.run.request.config}"))
    context.emit(e.RunFinished())
    await context.drain()


def option(options: list[dict[str, Any]], id: str) -> dict[str, Any]:
    return next(each for each in options if each["id"] == id)


async def set_option(editor: Any, session: str, id: str, value: Any) -> list[dict[str, Any]]:
    params = {"sessionId": session, "configId": id, "value": value}
    if isinstance(value, bool):
        params["type"] = "boolean"
    result = await editor.request("session/set_config_option", params)
    options: list[dict[str, Any]] = result["configOptions"]
    return options


# --- settings -----------------------------------------------------------------------------------------------------


async def test_an_agents_configuration_is_offered_as_options_and_goes_into_the_run() -> None:
    async with rig(scripted(tells, config_schema=CONFIG)) as gateway:
        editor = await gateway.connect(capabilities=BOOLEANS)
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": []})
        session, options = result["sessionId"], result["configOptions"]
        assert [each["id"] for each in options] == ["tone", "fast"]
        assert option(options, "tone")["currentValue"] == "warm"
        assert option(options, "fast")["type"] == "boolean"
        options = await set_option(editor, session, "tone", "cold")
        assert option(options, "tone")["currentValue"] == "cold"
        options = await set_option(editor, session, "fast", True)
        assert option(options, "fast")["currentValue"] is True
        await editor.prompt(session)
        assert editor.text() == "scripted {'tone': 'cold', 'fast': True}"


async def test_a_client_that_knows_no_booleans_is_offered_lists() -> None:
    async with rig(scripted(tells, config_schema=CONFIG)) as gateway:
        editor = await gateway.connect()
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": []})
        assert {each["type"] for each in result["configOptions"]} == {"select"}
        values = [each["value"] for each in option(result["configOptions"], "fast")["options"]]
        await set_option(editor, result["sessionId"], "fast", values[0])


@pytest.mark.parametrize(
    ("id", "value", "path"), [("nope", "x", "/configId"), ("tone", "lukewarm", "/value"), ("seed", "1", "/configId")]
)
async def test_an_option_or_a_value_that_there_is_not_is_refused(id: str, value: str, path: str) -> None:
    async with rig(scripted(tells, config_schema=CONFIG)) as gateway:
        editor, session = await gateway.opened()
        params = {"sessionId": session, "configId": id, "value": value}
        error = await editor.refused("session/set_config_option", params)
        assert (error.code, error.data["path"]) == (-32602, path)


async def test_what_was_set_is_there_when_the_session_is_loaded() -> None:
    async with rig(scripted(tells, config_schema=CONFIG)) as gateway:
        editor, session = await gateway.opened()
        await set_option(editor, session, "tone", "cold")
        again = await gateway.connect()
        result = await again.load(session)
        assert option(result["configOptions"], "tone")["currentValue"] == "cold"
        await again.prompt(session)
        assert "cold" in again.text()


async def test_other_clients_of_the_session_are_told_what_was_set() -> None:
    async with rig(scripted(tells, config_schema=CONFIG)) as gateway:
        one, two = await gateway.connect(), await gateway.connect()
        session = await one.new()
        await two.load(session)
        await set_option(one, session, "tone", "cold")
        await two.until(lambda: bool(two.of("config_option_update")))
        assert option(two.updates[-1]["configOptions"], "tone")["currentValue"] == "cold"
        assert one.updates == []
        await two.prompt(session)
        assert "cold" in two.text()


async def test_an_agent_without_modes_has_none_to_set() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        error = await editor.refused("session/set_mode", {"sessionId": session, "modeId": "code"})
        assert (error.code, error.data["path"]) == (-32602, "/modeId")


async def test_servers_that_an_agent_cannot_be_given_are_said_to_be_lost() -> None:
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": [server]})
        assert result["_meta"]["interlingua"]["lost"] == ["mcp_servers"]
        assert "_meta" not in await editor.request("session/new", {"cwd": "/", "mcpServers": []})


# --- the agent ----------------------------------------------------------------------------------------------------


async def test_without_an_agent_in_the_path_the_agents_are_an_option_and_the_first_is_the_default() -> None:
    async with rig(scripted(tells, "one"), scripted(tells, "two", config_schema=CONFIG)) as gateway:
        editor = await gateway.raw(None)
        assert (await editor.initialize())["agentCapabilities"]["loadSession"] is True
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": []})
        session = result["sessionId"]
        (agents,) = result["configOptions"]
        assert agents["id"] == "agent" and agents["currentValue"] == "one"
        assert [each["value"] for each in agents["options"]] == ["one", "two"]
        await editor.prompt(session)
        assert editor.text() == "one {}"
        options = await set_option(editor, session, "agent", "two")
        assert [each["id"] for each in options] == ["agent", "tone", "fast"]
        assert options[0]["currentValue"] == "two"
        await set_option(editor, session, "tone", "cold")
        await editor.prompt(session)
        assert editor.text() == "one {}two {'tone': 'cold'}"


async def test_an_agent_with_another_state_than_the_sessions_is_refused_with_the_reason() -> None:
    async def keeps(context: RunContext) -> None:
        await context.set_upstream({"run": 1}, thread={"thread": context.agent.name})
        await tells(context)

    def of(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "string"}}}

    one, two = (scripted(keeps, name, thread_schema=of(name)) for name in ("one", "two"))
    async with rig(one, two) as gateway:
        editor, session = await gateway.opened(None)
        await editor.prompt(session)
        await set_option(editor, session, "agent", "two")
        asked = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        error = await editor.refused("session/prompt", asked)
        assert "agent two cannot go on with a thread of agent one" in error.message
        await set_option(editor, session, "agent", "one")
        await editor.prompt(session)


async def test_where_there_is_one_agent_there_is_nothing_to_choose() -> None:
    async with rig(scripted(tells)) as gateway:
        editor = await gateway.connect(None)
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": []})
        assert "configOptions" not in result


async def test_the_chosen_agent_is_there_when_the_session_is_loaded_and_only_it_may_have_it() -> None:
    async with rig(scripted(tells, "one"), scripted(tells, "two")) as gateway:
        editor, session = await gateway.opened(None)
        await set_option(editor, session, "agent", "two")
        again = await gateway.connect(None)
        result = await again.load(session)
        assert result["configOptions"][0]["currentValue"] == "two"
        await again.prompt(session)
        assert again.text() == "two {}"
        await (await gateway.connect("two")).load(session)
        wrong = await gateway.connect("one")
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        assert (await wrong.refused("session/load", params)).code == -32002


async def test_an_agent_that_there_is_not_cannot_be_chosen() -> None:
    async with rig(scripted(tells, "one"), scripted(tells, "two")) as gateway:
        editor, session = await gateway.opened(None)
        params = {"sessionId": session, "configId": "agent", "value": "three"}
        error = await editor.refused("session/set_config_option", params)
        assert (error.code, error.data["path"]) == (-32602, "/value")
        assert "one, two" in error.message


async def test_the_agent_cannot_be_changed_in_mid_turn() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go), "one"), scripted(tells, "two")) as gateway:
        editor, session = await gateway.opened(None)
        turn = await editor.start(session)
        await editor.heard("before")
        params = {"sessionId": session, "configId": "agent", "value": "two"}
        assert (await editor.refused("session/set_config_option", params)).code == -32600
        go.set()
        await turn
        assert (await set_option(editor, session, "agent", "two"))[0]["currentValue"] == "two"


async def test_an_agent_of_this_protocol_can_be_chosen_and_its_options_come_with_it() -> None:
    theirs = {"id": "model", "name": "Model", "type": "select", "currentValue": "big"}
    theirs["options"] = [{"value": "big", "name": "Big"}]  # type: ignore[assignment]
    route, agent = native(tells, "two")
    from gateway.core.types import ThreadUpdate

    def start(context: Any, params: Any) -> dict[str, Any]:
        context.note(ThreadUpdate(protocol="agent_client", kind="config_options", data=[theirs]))
        return {"sessionId": context.thread.id, "configOptions": [theirs]}

    agent.answers["session/new"] = start
    async with rig(scripted(tells, "one"), (route, agent)) as gateway:
        editor = await gateway.connect(None)
        session = await editor.new(cwd="/there")
        options = await set_option(editor, session, "agent", "two")
        assert [each["id"] for each in options] == ["agent", "model"]
        (method, params, thread) = agent.relayed[0]
        assert (method, thread) == ("session/new", session) and b"/there" in params


async def test_an_agent_that_refuses_the_session_is_not_chosen_and_other_clients_hear_of_one_that_takes_it() -> None:
    route, agent = native(tells, "two")
    async with rig(scripted(tells, "one"), (route, agent)) as gateway:
        one, other = await gateway.connect(None), await gateway.connect(None)
        session = await one.new()
        await other.load(session)
        agent.answers["session/new"] = Unavailable("it is not there")
        chosen = {"sessionId": session, "configId": "agent", "value": "two"}
        assert "it is not there" in (await one.refused("session/set_config_option", chosen)).message
        await one.prompt(session)
        assert one.text().startswith("one ")
        del agent.answers["session/new"]
        await one.request("session/set_config_option", chosen)
        await other.until(lambda: bool(other.of("config_option_update")))
        (update,) = other.of("config_option_update")
        assert option(update["configOptions"], "agent")["currentValue"] == "two"
        await other.prompt(session)
        assert other.text().endswith("two {}"), "it knows whom its session is with"


async def test_what_an_agent_says_of_its_options_still_offers_the_choice_of_the_agent() -> None:
    async def agent(context: RunContext) -> None:
        from gateway.core.types import ThreadUpdate

        data = {"sessionUpdate": "config_option_update", "configOptions": []}
        context.note(ThreadUpdate(protocol="agent_client", kind="config_option_update", data=data))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(native(agent, "one"), scripted(tells, "two")) as gateway:
        editor = await gateway.connect(None)
        await editor.prompt(await editor.new())
        (update,) = editor.of("config_option_update")
        assert [each["id"] for each in update["configOptions"]] == ["agent"]
