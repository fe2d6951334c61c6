"""Requests, options and states: version 1's words to version 2's and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from adapters.agent_client.codec import updates_out_v1 as updates_out
from adapters.agent_client.codec.v2 import conversions, updates, version
from adapters.agent_client.codec.v2.version import V2
from gateway.core import delta
from gateway.core.types import ThreadUpdate
from gateway.wire import jsonrpc
from tests.adapters.agent_client import codec_v2_cases as cases
from tests.adapters.agent_client.codec_cases import unhurried
from tests.adapters.agent_client.codec_cases import valid as valid_v1
from tests.adapters.agent_client.codec_v2_cases import valid

STDIO = {"type": "stdio", "name": "files", "command": "/bin/mcp", "args": ["x"], "env": []}
SETUP = {"cwd": "/w", "mcpServers": [STDIO, {"type": "http", "name": "h", "url": "http://x", "headers": []}]}
SELECT: dict[str, Any] = {
    "configId": "m",
    "name": "Mode",
    "category": "mode",
    "type": "select",
    "currentValue": "ask",
    "options": [{"groupId": "g", "name": "All", "options": [{"value": "ask", "name": "Ask", "description": "first"}]}],
}


def from_client(method: str, params: Any) -> tuple[str, Any]:
    name, said = V2.from_client(method, jsonrpc.raw(params))
    return name, jsonrpc.unpack(said)


def client_answer(method: str, result: Any, modes: Any = None) -> Any:
    """`modes`: the session's as they are then."""
    return V2.client_answer(method, jsonrpc.raw({"sessionId": "s"}), result, lambda session, said: modes)


@pytest.mark.parametrize(
    ("asked", "method", "types"),
    [
        (("auth/login", {"methodId": "a", "_meta": {"t": 1}}), "authenticate", ("LoginAuth", "Authenticate")),
        (("auth/logout", {}), "logout", ("LogoutAuth", "Logout")),
        (("session/new", {**SETUP, "additionalDirectories": ["/x"]}), "session/new", ("NewSession", "NewSession")),
        (("session/resume", {**SETUP, "sessionId": "s"}), "session/resume", ("ResumeSession", "ResumeSession")),
        (
            ("session/resume", {**SETUP, "sessionId": "s", "replayFrom": {"type": "start"}}),
            "session/load",
            ("ResumeSession", "LoadSession"),
        ),
        (
            ("session/resume", {**SETUP, "sessionId": "s", "replayFrom": {"type": "start", "_meta": {"a": 1}}}),
            "session/load",
            ("ResumeSession", "LoadSession"),
        ),
        (
            ("session/set_config_option", {"sessionId": "s", "configId": "c", "type": "id", "value": "v"}),
            "session/set_config_option",
            ("SetSessionConfigOption", "SetSessionConfigOption"),
        ),
        (
            ("session/set_config_option", {"sessionId": "s", "configId": "c", "type": "boolean", "value": True}),
            "session/set_config_option",
            ("SetSessionConfigOption", "SetSessionConfigOption"),
        ),
        (("session/prompt", {"sessionId": "s", "prompt": []}), "session/prompt", ("Prompt", "Prompt")),
        (("session/list", {"cwd": "/w"}), "session/list", ("ListSessions", "ListSessions")),
        (("session/close", {"sessionId": "s"}), "session/close", ("CloseSession", "CloseSession")),
    ],
)
def test_a_request_is_the_same_there_and_back(asked: tuple[str, Any], method: str, types: tuple[str, str]) -> None:
    valid(f"{types[0]}Request", asked[1])
    name, params = from_client(*asked)
    assert name == method
    valid_v1(f"{types[1]}Request", params)
    assert V2.to_agent(name, params, lambda session: None) == asked
    assert (asked[0] in version.CHANGED) or (name, params) == asked


def test_what_version_2_may_leave_out_of_a_session_is_there_in_version_1() -> None:
    servers = [{"type": "stdio", "name": "a", "command": "/a"}, {"type": "http", "name": "b", "url": "http://b"}]
    _, params = from_client("session/new", valid("NewSessionRequest", {"cwd": "/w", "mcpServers": servers}))
    valid_v1("NewSessionRequest", params)
    valid_v1("NewSessionRequest", from_client("session/new", {"cwd": "/w"})[1])
    assert "type" not in params["mcpServers"][0]


def test_servers_of_a_kind_that_is_not_known_are_passed_on() -> None:
    odd = [{"type": "acp", "name": "x", "serverId": "1"}, {"type": "_pigeon"}, "?"]
    assert conversions.servers_to_v1(odd) == odd == conversions.servers_to_v2(odd)


def test_the_options_of_a_session_are_told_in_the_words_of_either_version() -> None:
    slider = {"type": "_slider", "configId": "x", "name": "X"}
    result = valid("NewSessionResponse", {"sessionId": "s", "configOptions": [SELECT, slider]})
    between = jsonrpc.unpack(V2.agent_answer("session/new", jsonrpc.raw(result)))
    told, lossy = updates_out.told(between)
    valid_v1("NewSessionResponse", told)
    assert lossy and told["_meta"] == {"interlingua": {"lost": ["unknown_option"]}}
    assert told["modes"] == {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask", "description": "first"}],
    }
    assert client_answer("session/new", between) == result


def test_the_modes_of_an_agent_of_version_1_are_an_option_unless_it_has_one() -> None:
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
    boolean = {"id": "b", "name": "B", "type": "boolean", "currentValue": True}
    told = client_answer("session/new", {"sessionId": "s", "modes": modes, "configOptions": [boolean]})
    assert [option["configId"] for option in valid("NewSessionResponse", told)["configOptions"]] == ["mode", "b"]
    assert "modes" not in told
    same = client_answer("session/new", {"modes": modes, "configOptions": conversions.options_to_v1([SELECT])})
    assert same == {"configOptions": [SELECT]}
    again = client_answer("session/set_config_option", {"configOptions": [boolean]}, modes)
    assert len(valid("SetSessionConfigOptionResponse", again)["configOptions"]) == 2
    assert client_answer("session/resume", {}) == {} and client_answer("session/prompt", None) is None


@unhurried
@given(cases.STATES)
def test_a_state_is_told_to_clients_of_either_version(update: Any) -> None:
    first, *more = updates.thread_updates(update)
    valid_v1("SessionUpdate", updates_out.told(first.data)[0])
    assert delta.same(updates.told(first), update)
    assert all(updates.told(each) is None for each in more)


def note(kind: str, **data: Any) -> ThreadUpdate:
    return ThreadUpdate(protocol="agent_client", kind=kind, data={"sessionUpdate": kind, **data})


def test_a_change_of_the_mode_is_one_of_the_options() -> None:
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "do", "name": "Do"}]}
    told = updates.told(note("current_mode_update", currentModeId="do"), options=[], modes=modes)
    assert told is not None
    assert valid("SessionUpdate", told)["configOptions"][0]["currentValue"] == "do"
    assert updates.told(note("current_mode_update", currentModeId="do")) is None
    kept = updates.told(note("config_option_update", configOptions=[]), modes=modes)
    assert kept is not None and [option["configId"] for option in kept["configOptions"]] == ["mode"]


def test_notes_that_are_no_updates_and_those_of_others_are_not_told() -> None:
    modes = ThreadUpdate(protocol="agent_client", kind="modes", data={"currentModeId": "x"})
    other = ThreadUpdate(protocol="x", kind="output", data={"sessionUpdate": "agent_message"})
    assert updates.told(modes) is None and updates.told(other) is None
