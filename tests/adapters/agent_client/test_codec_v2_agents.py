"""`initialize` in version 2, and what it makes of agents and clients of both versions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from adapters.agent_client.codec import agents as v1
from adapters.agent_client.codec.v2 import agents
from gateway.core.errors import AgentBroken
from tests.adapters.agent_client.codec_cases import FOREIGN, NATIVE
from tests.adapters.agent_client.codec_cases import valid as valid_v1
from tests.adapters.agent_client.codec_v2_cases import NEWER, valid

ANSWER: dict[str, Any] = {
    "protocolVersion": 2,
    "info": {"name": "coder", "title": "Coder", "version": "3"},
    "capabilities": {
        "session": {
            "prompt": {"image": {}, "audio": None, "embeddedContext": {"_meta": {}}},
            "mcp": {"stdio": {}, "http": {}},
            "delete": {},
            "additionalDirectories": None,
        },
        "_meta": {"a": 1},
        "nes": {},
    },
    "authMethods": [
        {"type": "agent", "methodId": "login", "name": "Log in"},
        {"type": "terminal", "methodId": "tty", "name": "In a terminal", "args": ["--login"]},
        {"type": "_magic", "methodId": "x", "name": "?"},
    ],
    "_meta": {"b": 2},
}


def test_an_agent_of_version_2_is_described_in_words_of_version_1_and_keeps_its_own() -> None:
    agent = agents.agent_of(valid("InitializeResponse", ANSWER), "here")
    assert (agent.name, agent.version, agent.description) == ("coder", "3", "Coder")
    assert agent.extra["agent_client.v2"] == ANSWER and agents.speaks_v2(agent)
    assert valid_v1("InitializeResponse", agent.extra["agent_client"]) == {
        "protocolVersion": 1,
        "agentInfo": ANSWER["info"],
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            "auth": {"logout": {}},
            "_meta": {"a": 1},
            "nes": {},
        },
        "authMethods": [
            {"id": "login", "name": "Log in"},
            {"type": "terminal", "id": "tty", "name": "In a terminal", "args": ["--login"]},
        ],
        "_meta": {"b": 2},
    }


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"protocolVersion": 3},
        {"protocolVersion": True},
        {"protocolVersion": 2},
        {**ANSWER, "capabilities": {}},
    ],
)
def test_what_nobody_could_prompt_is_a_broken_agent(answer: Any) -> None:
    with pytest.raises(AgentBroken, match="here"):
        agents.agent_of(answer, "here")


@pytest.mark.parametrize("agent", [None, FOREIGN, NATIVE, NEWER, agents.agent_of(ANSWER, "here")])
def test_a_client_is_answered_in_version_2_whatever_the_agent_is(agent: Any) -> None:
    answer = valid("InitializeResponse", agents.initialized(agent, v1.initialize_result(agent)))
    assert answer["protocolVersion"] == 2 and answer["capabilities"]["session"]["delete"] == {}
    assert answer["info"]["name"] == ("interlingua" if agent is None else agent.name)


def test_an_agent_of_version_2_answers_for_itself() -> None:
    agent = agents.agent_of(ANSWER, "here")
    assert agents.initialized(agent, v1.initialize_result(agent)) == ANSWER


def test_an_agent_of_version_1_answers_in_words_of_version_2() -> None:
    agent = v1.agent_of(
        {
            "protocolVersion": 1,
            "agentCapabilities": {
                "promptCapabilities": {"image": True, "audio": False},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {"list": {}, "additionalDirectories": {}, "fork": None},
                "auth": {"logout": {}},
            },
            "authMethods": [{"id": "login", "name": "Log in"}],
        },
        "here",
    )
    assert valid("InitializeResponse", agents.initialized(agent, v1.initialize_result(agent))) == {
        "protocolVersion": 2,
        "info": {"name": "agent", "version": "0.0.0"},
        "capabilities": {
            "session": {
                "prompt": {"image": {}},
                "mcp": {"stdio": {}, "http": {}},
                "delete": {},
                "additionalDirectories": {},
            }
        },
        "authMethods": [{"type": "agent", "methodId": "login", "name": "Log in"}],
    }


def test_servers_over_the_connection_are_declared_as_each_version_does() -> None:
    answer = {**ANSWER, "capabilities": {"session": {"mcp": {"acp": {}, "_meta": {"a": 1}}}}}
    agent = agents.agent_of(answer, "here")
    servers = {"acp": True, "_meta": {"a": 1}, "http": False, "sse": False}
    assert agent.extra["agent_client"]["agentCapabilities"]["mcpCapabilities"] == servers
    plain = v1.agent_of({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": servers}}, "here")
    told = agents.initialized(plain, v1.initialize_result(plain))["capabilities"]["session"]["mcp"]
    assert told == {"stdio": {}, "acp": {}, "_meta": {"a": 1}}
    for each in (plain, agents.agent_of(ANSWER, "here")):
        bridged = replace(each, extra={**each.extra, v1.BRIDGED: True})
        assert agents.initialized(bridged, v1.initialize_result(bridged))["capabilities"]["session"]["mcp"]["acp"] == {}


def test_what_a_client_can_do_is_the_same_there_and_back() -> None:
    capabilities = {"auth": {"terminal": {}}, "elicitation": {"form": {}, "url": {}}, "_meta": {"a": 1}, "x": 1}
    asked = {"protocolVersion": 2, "info": {"name": "ide", "version": "1"}, "capabilities": capabilities}
    declared = agents.capabilities_v1(valid("InitializeRequest", asked)["capabilities"])
    assert agents.capabilities_v2(valid_v1("ClientCapabilities", declared)) == capabilities
