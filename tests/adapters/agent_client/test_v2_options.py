"""Options of a session of which version 1 has no type, between two ends of version 2 and before one of version 1."""

from __future__ import annotations

from typing import Any

from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.test_v2_both import both
from tests.adapters.agent_client.v2_agent import Agent
from tests.adapters.agent_client.v2_editor import connect, idle, opened

ASK = {"value": "ask", "name": "Ask"}
DO = {"value": "do", "name": "Do"}
SLIDER: dict[str, Any] = {
    "configId": "heat",
    "name": "Heat",
    "category": "mode",
    "type": "_slider",
    "min": 0,
    "range": {"currentValue": 0.5, "id": "x"},
    "_meta": {"a": None},
}
LOST = {"lost": ["unknown_option"]}


def options(heat: float, mode: str = "ask") -> list[Any]:
    """All that the agent says of them: the unknown one between two that are known."""
    chosen = {"type": "select", "currentValue": mode, "options": [ASK, DO]}
    fast = {"configId": "fast", "name": "Fast", "type": "boolean", "currentValue": True}
    return [fast, {**SLIDER, "value": heat}, {"configId": "m", "name": "Mode", "category": "mode", **chosen}]


def ids(found: list[Any]) -> list[Any]:
    return [each.get("configId", each.get("id")) for each in found]


async def test_an_option_of_a_type_of_its_own_is_said_verbatim_in_every_answer_and_set_as_it_is() -> None:
    async with both() as (gateway, out):
        out.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": options(0.1)}
        out.handlers["session/set_config_option"] = lambda _: {"configOptions": options(0.2)}
        editor = await connect(gateway)
        made = await editor.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert made["configOptions"] == options(0.1)
        session = made["sessionId"]
        asked = {"sessionId": session, "configId": "heat", "type": "_slider", "value": {"to": [0.2, None]}}
        assert (await editor.request("session/set_config_option", asked))["configOptions"] == options(0.2)
        assert out.wire.sent("session/set_config_option")[0] == {**asked, "sessionId": "s1"}
        for params in ({}, {"replayFrom": {"type": "start"}}):
            other = await connect(gateway)
            assert (await other.resume(session, **params))["configOptions"] == options(0.2)


async def test_a_client_of_version_1_is_told_in_every_answer_and_update_that_an_option_is_left_out() -> None:
    async with both() as (gateway, out):
        out.handlers["session/new"] = lambda _: {
            "sessionId": "s1",
            "configOptions": options(0.1),
            "_meta": {"interlingua": {"other": 1}, "x": 2},
        }
        out.handlers["session/set_config_option"] = lambda _: {"configOptions": options(0.2, "do")}
        old = await gateway.connect()
        made = await old.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert ids(made["configOptions"]) == ["fast", "m"]
        assert made["_meta"] == {"interlingua": {"other": 1, **LOST}, "x": 2}
        session = made["sessionId"]
        asked = {"sessionId": session, "configId": "m", "value": "do"}
        answers = [await old.request("session/set_config_option", asked)]
        for method in ("session/load", "session/resume"):
            answers.append(await (await gateway.connect()).load(session, method))
        for answer in answers:
            assert ids(answer["configOptions"]) == ["fast", "m"]
            assert answer["_meta"] == {"interlingua": LOST}
            assert "_slider" not in str(answer)

        prompting = await old.start(session)
        prompt = await out.wire.prompt()
        agent = Agent(out.wire)
        agent.accept(prompt, messageId="u1")
        agent.user()
        agent.update("config_option_update", configOptions=options(0.3))
        agent.idle()
        assert (await prompting)["_meta"]["interlingua"] == LOST
        agent.update("config_option_update", configOptions=options(0.4))
        await old.until(lambda: len(old.of("config_option_update")) == 2)
        for update in old.of("config_option_update"):
            assert ids(update["configOptions"]) == ["fast", "m"]
            assert update["_meta"] == {"interlingua": LOST}
            assert "agent_client" not in str(update)


async def test_updates_of_options_are_verbatim_for_a_client_of_version_2_and_remembered_for_the_next() -> None:
    async with both() as (gateway, out):
        out.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": options(0.1)}
        editor, session = await opened(gateway)
        await editor.begin("session/prompt", said(session, "go"))
        prompt = await out.wire.prompt()
        agent = Agent(out.wire)
        agent.accept(prompt, messageId="u1")
        agent.user()
        agent.update("config_option_update", configOptions=options(0.3))
        agent.idle()
        await editor.until(lambda: editor.updates[-1:] == [idle()])
        assert editor.of("config_option_update")[0]["configOptions"] == options(0.3)
        agent.update("config_option_update", configOptions=options(0.4))
        await editor.until(lambda: len(editor.of("config_option_update")) == 2)
        assert editor.of("config_option_update")[1]["configOptions"] == options(0.4)
        assert (await (await connect(gateway)).resume(session))["configOptions"] == options(0.4)
