"""The client and the agent of each official SDK against each other: known good before a gateway stands between them.

On stdio alone: what each of them does over Streamable HTTP and WebSocket is held against what it does directly, or
against what it is to say, where our side has its part in it.
"""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.agent_client import (
    SDKS,
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_client,
    asked,
    errors,
    results,
    text,
    told,
    turns,
    updates,
)

UNKNOWN_SESSION = {"py": -32602, "ts-0": -32002, "ts-2": -32002}

SCRIPT = """
--file 'x=one\ntwo\n' --elicitation '{"name": "Bo"}' --say 'hello world'
--say 'think plan commands usage title mode option mirror tool' --say perm --say twoperm --say 'fs term termkill'
--say 'elicit eliciturl ext' --say 'picture link embed meta' --say 'where client'
--blocks '[{"type": "text", "text": "blocks"}, {"type": "resource_link", "uri": "a:b", "name": "b"}]'
--permission reject --say perm --permission cancelled --say perm --permission error --say perm
--permission never --start perm --await '"asked"' --do cancel --finish --elicitation decline --say elicit
--say refuse --say max --say turns --say fail
--start 'slow please' --await '"2 "' --say again --do cancel --finish
--set-mode code --set-mode fly --set-option model=large --set-option loud=true --set-option loud=maybe --say loud
--do list --do load --do resume --do close --do delete --say gone
--call '_rig/echo {"a": [1, null]}' --call '_rig/hello {}' --notify '_rig/x {"b": 2}' --await _rig/heard
"""
PROMPTS = [
    *["hello", "kinds", "allowed", "two", "files", "questions", "contents", "client", "blocks"],
    *["rejected", "cancelled", "failing", "given-up", "declined", "refuse", "max", "turns", "fail"],
    *["busy", "slow", "loud", "gone"],
]

Said = dict[str, list[Line]]


@pytest.fixture(scope="module")
def scripts() -> dict[Sdk, list[Line]]:
    """The whole script, as each client printed it; all clients at once."""
    steps = shlex.split(SCRIPT)
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda sdk: agent_client_client(sdk, *steps, command=agent_client_agent_command(sdk)), SDKS)
        return dict(zip(SDKS, found, strict=True))


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    kind: Sdk = request.param
    return kind


@pytest.fixture
def lines(scripts: dict[Sdk, list[Line]], sdk: Sdk) -> list[Line]:
    return scripts[sdk]


@pytest.fixture
def said(lines: list[Line]) -> Said:
    """The lines up to each prompt's answer, by the prompt's name."""
    return dict(zip(PROMPTS, turns(lines), strict=True))


def ended(lines: list[Line]) -> str:
    """A turn's stop reason."""
    (answer,) = results(lines, "session/prompt")
    reason: str = answer["stopReason"]
    return reason


def test_a_prompt_comes_back_word_by_word(said: Said) -> None:
    chunks = [one["content"]["text"] for one in updates(said["hello"])]
    assert (chunks, ended(said["hello"])) == (["hello ", "world "], "end_turn")


def test_the_agent_tells_its_modes_options_and_methods(lines: list[Line], said: Said) -> None:
    (initialized,), (made,) = results(said["hello"], "initialize"), results(said["hello"], "session/new")
    assert initialized["protocolVersion"] == 1 and initialized["agentCapabilities"]["loadSession"] is True
    assert set(initialized["agentCapabilities"]["sessionCapabilities"]) == {"list", "resume", "close", "delete"}
    assert made["modes"]["currentModeId"] == "ask"
    assert [(one["id"], one["currentValue"]) for one in made["configOptions"]] == [("model", "small"), ("loud", False)]


def test_every_kind_of_update_arrives_in_order(said: Said) -> None:
    kinds = [one["sessionUpdate"] for one in updates(said["kinds"])]
    assert kinds[:11] == [
        "agent_thought_chunk",
        "plan",
        "available_commands_update",
        "usage_update",
        "session_info_update",
        "current_mode_update",
        "config_option_update",
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
    ]
    assert [one["type"] for one in updates(said["kinds"], "tool_call_update")[1]["content"]] == ["content", "diff"]


def test_a_permission_is_answered_in_four_ways(said: Said) -> None:
    (question,) = asked(said["allowed"], "session/request_permission")
    assert [one["optionId"] for one in question["options"]] == ["ok", "no"]
    assert '"optionId":"ok"' in text(said["allowed"])
    assert [one["status"] for one in updates(said["allowed"], "tool_call_update")] == ["in_progress", "completed"]
    assert '"optionId":"no"' in text(said["rejected"])
    assert [one["status"] for one in updates(said["rejected"], "tool_call_update")] == ["failed"]
    assert (ended(said["cancelled"]), ended(said["given-up"])) == ("cancelled", "cancelled")
    assert "perm failed -32099" in text(said["failing"])


def test_two_permissions_are_open_at_once(said: Said) -> None:
    lines = [line for line in said["two"] if line["op"] == "session/request_permission"]
    assert sorted(line["asked"]["toolCall"]["toolCallId"] for line in lines if "asked" in line) == ["call_2", "call_3"]
    assert text(said["two"]).count('"optionId":"ok"') == 2


def test_files_and_terminals_are_the_client_s(said: Said) -> None:
    shown = text(said["files"])
    assert shown.startswith("read one\ntwo\n")
    assert "term 0 hi\n" in shown and "killed true" in shown.lower()
    methods = [line["op"] for line in said["files"] if "asked" in line]
    assert methods[:2] == ["fs/read_text_file", "fs/write_text_file"]
    assert methods[2:6] == ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"]


def test_elicitation_and_extensions_go_both_ways(lines: list[Line], said: Said) -> None:
    shown = text(said["questions"])
    assert '"name":"Bo"' in shown and '{"action":"accept"}' in shown and '"answer":42' in shown
    assert told(lines, "elicitation/complete") == [{"elicitationId": "el_1"}]
    assert told(lines, "_rig/note")[0]["note"] == [1, None]
    assert '"action":"decline"' in text(said["declined"])
    assert results(lines, "_rig/echo") == [{"echo": {"a": [1, None]}}]
    assert [one["code"] for one in errors(lines, "_rig/hello")] == [-32601]
    assert told(lines, "_rig/heard") == [{"method": "_rig/x", "params": {"b": 2}}]


def test_contents_other_than_text_and_metadata_arrive(said: Said) -> None:
    chunks = updates(said["contents"], "agent_message_chunk")
    assert [one["content"]["type"] for one in chunks[:4]] == ["image", "resource_link", "resource", "text"]
    assert chunks[3]["content"]["_meta"] == {"rig/content": 1} and chunks[3]["_meta"] == {"rig/update": 2}
    assert any(line.get("params", {}).get("_meta") == {"rig/params": 3} for line in said["contents"])
    assert text(said["blocks"]).startswith("blocks text,resource_link ")


def test_the_agent_knows_what_the_client_declared(said: Said) -> None:
    shown = text(said["client"])
    declared = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])
    assert declared["capabilities"]["fs"] == {"readTextFile": True, "writeTextFile": True}
    assert declared["capabilities"]["elicitation"] == {"form": {}, "url": {}}
    assert declared["info"]["title"] == "Rig"


def test_a_turn_ends_with_every_reason_there_is_and_with_an_error(said: Said) -> None:
    reasons = [ended(said[name]) for name in ("refuse", "max", "turns", "slow")]
    assert reasons == ["refusal", "max_tokens", "max_turn_requests", "cancelled"]
    (error,) = errors(said["fail"], "session/prompt")
    assert (error["code"], error["data"]) == (-32603, {"details": "boom"})


def test_a_second_prompt_in_a_busy_session_is_refused(said: Said) -> None:
    assert [one["code"] for one in errors(said["busy"], "session/prompt")] == [-32600]


def test_modes_and_options_are_set_and_wrong_ones_refused(lines: list[Line], said: Said) -> None:
    assert results(lines, "session/set_mode") == [{}]
    assert [one["code"] for one in errors(lines, "session/set_mode")] == [-32602]
    model, loud = results(lines, "session/set_config_option")
    assert [one["currentValue"] for one in model["configOptions"]] == ["large", False]
    assert [one["currentValue"] for one in loud["configOptions"]] == ["large", True]
    assert [one["code"] for one in errors(lines, "session/set_config_option")] == [-32602]
    assert text(said["loud"]) == "LOUD "


def test_a_session_is_listed_loaded_resumed_closed_and_deleted(sdk: Sdk, lines: list[Line], said: Said) -> None:
    made = results(lines, "session/new")[0]
    (listed,) = results(lines, "session/list")
    assert made["sessionId"] in [one["sessionId"] for one in listed["sessions"]] or "nextCursor" in listed
    assert "hello world" in text(said["gone"], "user_message_chunk") and "hello world" in text(said["gone"])
    for method in ("load", "resume"):
        assert results(lines, f"session/{method}")[0]["modes"]["currentModeId"] == "code"
    assert results(lines, "session/close") == results(lines, "session/delete") == [{}]
    assert [one["code"] for one in errors(said["gone"], "session/prompt")] == [UNKNOWN_SESSION[sdk]]
