"""`initialize`, and the options of a session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.agent_client.codec import agents
from adapters.agent_client.wire import declares
from gateway.core.errors import AgentBroken, Invalid
from gateway.core.types import Agent
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, NATIVE, unhurried, valid

INIT = {
    "protocolVersion": 1,
    "agentCapabilities": {
        "loadSession": False,
        "promptCapabilities": {"image": True, "_meta": {"x": 1}},
        "sessionCapabilities": {"list": None, "fork": {}, "resume": {"x": 1}},
        "x-own": True,
    },
    "authMethods": [{"id": "login", "name": "Log in"}],
    "agentInfo": {"name": "rig-py-agent", "title": "Rig", "version": "0.1"},
    "_meta": {"y": 2},
}


def test_an_agent_is_published_with_what_it_said_of_itself() -> None:
    agent = agents.agent_of(INIT, "the target")
    assert (agent.name, agent.version, agent.description) == ("rig-py-agent", "0.1", "Rig")
    assert agent.extra == {"agent_client": INIT} and agents.native(agent) == INIT
    assert (agent.text_input, agent.text_output) == ("/message", "/message")
    assert {spec.kind for spec in agent.interrupts} == {"permission", "elicitation"}


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"protocolVersion": 2}, {"protocolVersion": "1"}, {"protocolVersion": True}]
)
def test_an_agent_of_another_version_is_refused(answer: Any) -> None:
    with pytest.raises(AgentBroken, match="the target"):
        agents.agent_of(answer, "the target")


@unhurried
@given(st.dictionaries(st.sampled_from(["agentInfo", "agentCapabilities", "authMethods"]), ANY))
def test_whatever_else_an_agent_says_of_itself_is_kept(more: Any) -> None:
    agent = agents.agent_of({**more, "protocolVersion": 1}, "x")
    assert agents.native(agent) == {**more, "protocolVersion": 1}
    agents.initialize_result(agent)
    agents.prompt_capabilities(agent)


def test_a_client_is_answered_as_the_agent_did_with_what_the_gateway_adds() -> None:
    answer = agents.initialize_result(agents.agent_of(INIT, "x"))
    assert {key: answer[key] for key in answer if key != "agentCapabilities"} == {
        key: INIT[key] for key in INIT if key != "agentCapabilities"
    }
    assert answer["agentCapabilities"] == {
        "loadSession": True,
        "promptCapabilities": {"image": True, "_meta": {"x": 1}},
        "sessionCapabilities": {"fork": {}, "list": {}, "resume": {"x": 1}, "close": {}, "delete": {}},
        "x-own": True,
    }
    valid("InitializeResponse", answer)
    assert agents.prompt_capabilities(agents.agent_of(INIT, "x"))["image"] is True


@pytest.mark.parametrize("agent", [None, FOREIGN])
def test_for_any_other_agent_the_gateway_answers(agent: Agent | None) -> None:
    answer = valid("InitializeResponse", agents.initialize_result(agent))
    assert answer["protocolVersion"] == 1 and answer["agentCapabilities"]["loadSession"] is True
    assert answer["agentInfo"]["name"] == ("writer" if agent else "interlingua")
    assert answer["agentCapabilities"]["promptCapabilities"] == agents.prompt_capabilities(agent)
    assert agents.native(agent) is None


# --- options -----------------------------------------------------------------------------------------------------

CONFIG = {
    "type": "object",
    "properties": {
        "model": {"title": "Model", "description": "Which one", "enum": ["small", "large"], "default": "large"},
        "depth": {"oneOf": [{"const": 1, "title": "shallow"}, {"const": 2}]},
        "brave": {"type": "boolean", "default": True},
        "tone": {"type": "string"},
        "agent": {"enum": ["taken"]},
    },
}
TUNED = replace(FOREIGN, config_schema=CONFIG)


def options(config: Any, *, booleans: bool) -> dict[str, Any]:
    found = agents.config_options(TUNED, config, booleans=booleans)
    return {option["id"]: valid("SessionConfigOption", option) for option in found}


def test_lists_of_values_and_booleans_are_options() -> None:
    found = options({}, booleans=True)
    assert list(found) == ["model", "depth", "brave"]
    assert found["model"] == {
        "id": "model",
        "name": "Model",
        "description": "Which one",
        "type": "select",
        "currentValue": "large",
        "options": [{"value": "small", "name": "small"}, {"value": "large", "name": "large"}],
    }
    assert found["depth"]["currentValue"] == "default"
    assert [each["name"] for each in found["depth"]["options"]] == ["Default", "shallow", "2"]
    assert found["brave"] == {"id": "brave", "name": "brave", "type": "boolean", "currentValue": True}


def test_a_boolean_is_a_list_for_clients_that_know_no_booleans() -> None:
    brave = options({"brave": False}, booleans=False)["brave"]
    assert (brave["type"], brave["currentValue"]) == ("select", "false")
    assert [each["value"] for each in brave["options"]] == ["true", "false"]


def test_an_option_is_set_in_the_agents_own_values() -> None:
    config = agents.set_option(TUNED, {}, "depth", "2")
    config = agents.set_option(TUNED, config, "brave", False)
    config = agents.set_option(TUNED, config, "model", "small")
    assert config == {"depth": 2, "brave": False, "model": "small"}
    assert [option["currentValue"] for option in options(config, booleans=True).values()] == ["small", "2", False]
    assert agents.set_option(TUNED, config, "depth", "default") == {"brave": False, "model": "small"}
    assert agents.set_option(TUNED, config, "brave", "true")["brave"] is True


@pytest.mark.parametrize(
    ("option", "value", "path"),
    [
        ("tone", "x", "/configId"),
        ("nope", "x", "/configId"),
        ("model", "huge", "/value"),
        ("model", True, "/value"),
        ("model", "default", "/value"),
    ],
)
def test_what_is_no_option_or_no_value_of_it_is_refused(option: str, value: Any, path: str) -> None:
    with pytest.raises(Invalid) as raised:
        agents.set_option(TUNED, {}, option, value)
    assert raised.value.path == path


@unhurried
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.fixed_dictionaries({"enum": st.lists(ANY, max_size=4)}, optional={"default": ANY}),
        max_size=3,
    ),
    st.booleans(),
)
def test_every_value_that_is_offered_can_be_set_and_is_then_the_current_one(properties: Any, booleans: bool) -> None:
    agent = replace(FOREIGN, config_schema={"type": "object", "properties": properties})
    for option in agents.config_options(agent, {}, booleans=booleans):
        valid("SessionConfigOption", option)
        for value in [each["value"] for each in option.get("options", [])] or [True, False]:
            if option["type"] == "boolean" and value not in [
                v for v in properties[option["id"]]["enum"] if isinstance(v, bool)
            ]:
                continue
            config = agents.set_option(agent, {}, option["id"], value)
            again = {each["id"]: each for each in agents.config_options(agent, config, booleans=booleans)}
            assert again[option["id"]]["currentValue"] == value


def test_the_agent_is_chosen_by_an_option() -> None:
    option = valid("SessionConfigOption", agents.agent_option({"a": "The A", "b": "b"}, "b"))
    assert (option["id"], option["currentValue"]) == (agents.AGENT_OPTION, "b")


def test_a_capability_is_declared_by_an_object() -> None:
    assert declares({"session": {"configOptions": {"boolean": {}}}}, "session", "configOptions", "boolean")
    undeclared: list[Any] = [
        {},
        {"session": None},
        {"session": {"configOptions": {}}},
        {"session": {"configOptions": {"boolean": None}}},
    ]
    for declared in undeclared:
        assert not declares(declared, "session", "configOptions", "boolean")


def test_an_agent_of_this_protocol_has_its_own_options() -> None:
    assert agents.config_options(NATIVE, {}, booleans=True) == []
