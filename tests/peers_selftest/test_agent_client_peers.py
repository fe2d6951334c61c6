"""The client and the agent of each official SDK against each other: known good before a gateway stands between them."""

import functools
import json
import shlex
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_client import (
    SDKS,
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_agent_server,
    agent_client_conversations,
    asked,
    errors,
    example_agent_command,
    results,
    text,
    told,
    turns,
    updates,
)

UNKNOWN_SESSION = {"py": -32602, "ts-0": -32002, "ts-2": -32002}
TRANSPORTS = ("stdio", "http", "ws")

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
AGAIN = "--do new --say before --reconnect --do load --say after"
"""What comes after it with a server, which one connection leaves and another finds the session in."""
PROMPTS = [
    *["hello", "kinds", "allowed", "two", "files", "questions", "contents", "client", "blocks"],
    *["rejected", "cancelled", "failing", "given-up", "declined", "refuse", "max", "turns", "fail"],
    *["busy", "slow", "loud", "gone", "before", "after"],
]

Said = dict[str, list[Line]]


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    kind: Sdk = request.param
    return kind


def once(work: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the work once for the same arguments; it gives, or raises, the same ever after."""

    @functools.cache
    def outcome(*given: Any) -> Future[Any]:
        found: Future[Any] = Future()
        try:
            found.set_result(work(*given))
        except BaseException as error:
            found.set_exception(error)
        return found

    return lambda *given: outcome(*given).result()


@once
def all_scripts(sdk: Sdk) -> dict[str, list[Line]]:
    """The whole script with one agent, over each transport; and what is said where none answers. Run once for all."""
    steps, again = shlex.split(SCRIPT), shlex.split(AGAIN)
    wanted: dict[str, dict[str, Any]] = {"stdio": {"steps": steps, "command": agent_client_agent_command(sdk)}}
    with agent_client_agent_server(sdk) as server:
        for scheme in ("http", "ws"):
            wanted[scheme] = {"steps": [*steps, *again], "url": f"{scheme}://127.0.0.1:{server.port}/agent"}
            nowhere = f"{scheme}://127.0.0.1:9/agent"
            wanted[f"no {scheme}"] = {"steps": ["--within", "10", "--do", "list"], "url": nowhere}
        return dict(zip(wanted, agent_client_conversations(sdk, *wanted.values()), strict=True))


@pytest.fixture
def scripts(sdk: Sdk) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = all_scripts(sdk)
    return found


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def lines(scripts: dict[str, list[Line]], transport: str) -> list[Line]:
    """The whole script over one transport."""
    return scripts[transport]


@pytest.fixture
def said(lines: list[Line]) -> Said:
    """The lines up to each prompt's answer, by the prompt's name."""
    found = turns(lines)
    return dict(zip(PROMPTS[: len(found)], found, strict=True))


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


def test_a_session_is_loaded_on_another_connection(transport: str, said: Said) -> None:
    assert ("after" in said) == (transport != "stdio")
    if "after" in said:
        assert (text(said["before"]), text(said["after"])) == ("before ", "beforeafter ")
        assert text(said["after"], "user_message_chunk") == "before"


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_client_that_finds_no_server_says_so(scripts: dict[str, list[Line]], scheme: str) -> None:
    lines = scripts[f"no {scheme}"]
    assert next(line["op"] for line in lines if "error" in line) in ("connect", "initialize")
    assert not any("result" in line for line in lines)


STATE = """
--say first --say exit --reconnect --do load --say meta --say again
"""
ODD = """
--authenticate wrong --authenticate key --do new
--say noise --say stray --await 'stray ' --await 'stray ' --say 'big 100000' --say 'flood 300' --do load
--within 0.5 --start stuck --await nothing --do cancel --finish --within 20 --do logout --do new
"""


@once
def all_special(sdk: Sdk, folder: Path) -> list[list[Line]]:
    """An agent that keeps its sessions; one that wants a key, can do little, and does it badly when told to; and
    the SDK's own example.
    """
    kept = ["--state", str(folder / f"{sdk} state"), "--wire", str(folder / f"{sdk} agent")]
    odd = ["--auth", "--early", "--banner", "--without", "load,modes,options"]
    return agent_client_conversations(
        sdk,
        {
            "steps": ["--wire", str(folder / f"{sdk} client"), *shlex.split(STATE)],
            "command": agent_client_agent_command(sdk, *kept),
        },
        {"steps": shlex.split(ODD), "command": agent_client_agent_command(sdk, *odd)},
        {"steps": ["--say", "hello"], "command": example_agent_command(sdk)},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def odd(sdk: Sdk, folder: Path) -> list[Line]:
    lines: list[Line] = all_special(sdk, folder)[1]
    return lines


def test_a_session_outlives_the_process_and_what_was_on_the_wire_is_kept(sdk: Sdk, folder: Path) -> None:
    lines = all_special(sdk, folder)[0]
    assert [line["code"] for line in lines if line["op"] == "exit"] == [3, 0]
    assert text(lines, "user_message_chunk") == "first" and text(lines).endswith("again ")
    (failed,) = errors(lines, "session/prompt")
    assert failed["code"] is None
    for side in ("agent", "client"):
        kept = [json.loads(line) for line in (folder / f"{sdk} {side}").read_text().splitlines()]
        methods = [one["message"]["method"] for one in kept if one["to"] == "agent" and "method" in one["message"]]
        assert methods == [
            *["initialize", "session/new", "session/prompt", "session/prompt"],
            *["initialize", "session/load", "session/prompt", "session/prompt"],
        ]
        assert any(one["message"].get("params", {}).get("_meta") == {"rig/params": 3} for one in kept)


def test_authentication_is_asked_for_and_ended(odd: list[Line]) -> None:
    assert [one["id"] for one in results(odd, "initialize")[0]["authMethods"]] == ["key"]
    assert [one["code"] for one in errors(odd, "session/new")] == [-32000, -32000]
    assert (len(results(odd, "authenticate")), len(results(odd, "session/new"))) == (1, 1)


def test_what_an_agent_does_badly_it_does_when_told_to(odd: list[Line]) -> None:
    early = next(n for n, line in enumerate(odd) if line["op"] == "session/update")
    answer = next(n for n, line in enumerate(odd) if line["op"] == "session/new" and "result" in line)
    assert early < answer
    assert updates(odd)[0]["availableCommands"][0]["name"] == "early"
    assert set(odd[answer]["result"]) == {"sessionId"}
    assert "x" * 100000 in text(odd) and "298 299 " in text(odd)
    after = [line["op"] for line in turns(odd)[2]]
    assert after[0] == "session/update"
    assert [one["code"] for one in errors(odd, "session/load")] == [-32601]


def test_a_wait_that_is_in_vain_is_reported_in_time(odd: list[Line]) -> None:
    assert [one["type"] for one in errors(odd, "await")] == ["TimeoutError"]
    assert [one["type"] for one in errors(odd, "session/prompt")] == ["TimeoutError"]


def test_our_client_drives_the_sdk_s_own_example_agent(sdk: Sdk, folder: Path) -> None:
    lines = all_special(sdk, folder)[2]
    assert results(lines, "session/prompt") == [{"stopReason": "end_turn"}]
    assert text(lines) == "Client sent:hello" or text(lines).endswith("The changes have been applied.")
