"""`initialize`, and the options of a session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.agent_client.codec import agents
from gateway.core.errors import Invalid
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, unhurried, valid

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


@unhurried
@given(st.dictionaries(st.sampled_from(["agentInfo", "agentCapabilities", "authMethods"]), ANY))
def test_whatever_else_an_agent_says_of_itself_is_kept(more: Any) -> None:
    agent = agents.agent_of({**more, "protocolVersion": 1}, "x")
    assert agents.native(agent) == {**more, "protocolVersion": 1}
    agents.initialize_result(agent)
    agents.prompt_capabilities(agent)


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
