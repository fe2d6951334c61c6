"""Agents of version 2 of the Agent Client Protocol behind every kind of client: nobody sees a difference."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.agent_client import (
    SDKS,
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_conversations,
    asked,
    errors,
    results,
    text,
    turns,
    updates,
)
from tests.support.agent_client_v2 import SDKS_V2, SdkV2, agent_command_v2, conversations_v2, messages, states
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.processes import Gateway

AGENTS = tuple(f"v2-{sdk}" for sdk in SDKS_V2)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Both SDKs' agents of version 2, and one of version 1 that is asked for 2."""
    folder = tmp_path_factory.mktemp("v2")
    commands = {f"v2-{sdk}": agent_command_v2(sdk) for sdk in SDKS_V2}
    commands["v1"] = agent_client_agent_command("ts-2")
    target = {"protocol": "agent_client", "cwd": str(folder), "v2": True, "start_timeout": 90}
    routes = [{"name": name, "target": {**target, "command": command}} for name, command in commands.items()]
    inbound = {"agent_client": {"v2": True}, "agent_connect": {}, "agent_protocol": {}}
    with Gateway(json.dumps({"inbound": inbound, "routes": routes}), folder) as running:
        yield running


# --- clients of version 1 --------------------------------------------------------------------------------------------

V1_UPDATES = {
    *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"),
    *("available_commands_update", "current_mode_update", "config_option_update", "session_info_update"),
    "usage_update",
}
SAID = "think plan commands usage title mode tool display plans whole rewrite clear strange picture link hello"
STORY = (
    *("--say", SAID),
    *("--permission", "allow", "--say", "perm"),
    *("--permission", "reject", "--say", "command"),
    *("--elicitation", '{"name": "Ada"}', "--say", "elicit"),
    *("--file", "x=FILE BODY", "--say", "fs"),
    *("--say", "ext blocks where"),
    *("--set-mode", "ask", "--set-option", "loud=true", "--say", "hello"),
    *("--say", "refuse", "--say", "reject", "--say", "fail"),
    *("--start", "slow", "--await", '"3 "', "--do", "cancel", "--finish"),
    *("--say", "later", "--say", "work", "--permission", "allow", "--say", "mind", "--say", "one"),
    *("--reconnect", "--do", "list", "--session", "@0", "--do", "load", "--say", "again", "--do", "close"),
)
PAIRS: list[tuple[Sdk, str]] = [("py", "v2-py"), ("ts-0", "v2-ts"), ("ts-2", "v2-py"), ("ts-2", "v2-ts")]
ORDER = (
    *("said", "perm", "command", "elicit", "fs", "ext", "loud", "refuse", "reject", "fail", "slow", "later", "work"),
    *("mind", "one", "loaded"),
)


@pytest.fixture(scope="module")
def stories(gateway: Gateway) -> dict[tuple[Sdk, str], list[Line]]:
    """What each client of version 1 saw of each agent: one process a client, all of them at once."""

    def tell(sdk: Sdk) -> list[list[Line]]:
        urls = [f"{gateway.url.replace('http', 'ws')}/agent-client/{agent}" for one, agent in PAIRS if one == sdk]
        return agent_client_conversations(sdk, *({"steps": STORY, "url": url} for url in urls))

    with ThreadPoolExecutor() as pool:
        said = dict(zip(SDKS, map(iter, pool.map(tell, SDKS)), strict=True))
        return {pair: next(said[pair[0]]) for pair in PAIRS}


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def told(stories: dict[tuple[Sdk, str], list[Line]], request: pytest.FixtureRequest) -> dict[str, list[Line]]:
    """One story, turn by turn."""
    lines = stories[request.param]
    return {"all": lines, **dict(zip(ORDER, turns(lines), strict=True))}


def test_a_client_of_version_1_speaks_version_1(told: dict[str, list[Line]]) -> None:
    hello = results(told["all"], "initialize")[0]
    assert hello["protocolVersion"] == 1 and hello["agentCapabilities"]["loadSession"] is True
    assert {each["sessionUpdate"] for each in updates(told["all"])} <= V1_UPDATES
    (new,) = results(told["all"], "session/new")
    assert [option["id"] for option in new["configOptions"]] == ["how", "model", "loud"]
    assert new["modes"]["currentModeId"] == "ask"


def test_it_is_told_all_that_version_1_has_words_for(told: dict[str, list[Line]]) -> None:
    said = told["said"]
    kinds = {each["sessionUpdate"] for each in updates(said)}
    assert kinds >= {"agent_thought_chunk", "plan", "available_commands_update", "usage_update", "tool_call"}
    assert "said at once" in text(said) and "rewritten and more" in text(said) and text(said).endswith("hello ")
    pieces = [each for each in updates(said, "tool_call_update") if each["toolCallId"] == "call_1"]
    assert "file " in json.dumps(pieces[-2]["content"]) and pieces[-1]["status"] == "completed"
    (answer,) = results(said, "session/prompt")
    assert answer["stopReason"] == "end_turn"
    assert set(answer["_meta"]["interlingua"]["lost"]) == {"deletion", "rewrite", "unknown_update"}


def test_it_is_shown_what_a_terminal_of_the_agents_shows(told: dict[str, list[Line]]) -> None:
    shown = [each for each in updates(told["said"], "tool_call_update") if "console" in json.dumps(each)]
    assert re.search(
        r"```console\n/\S+ \$ echo hi\n.*\[exit code 0\]\n```", shown[-1]["content"][0]["content"]["text"], re.DOTALL
    )
    assert "\ufffd" not in json.dumps(shown, ensure_ascii=False), "though a character is cut in two on its way"


def test_it_is_asked_in_its_own_words(told: dict[str, list[Line]]) -> None:
    (question,) = asked(told["perm"], "session/request_permission")
    assert question["toolCall"]["toolCallId"] == "call_1" and "May I?" in json.dumps(question)
    assert '"ok"' in text(told["perm"])
    (question,) = asked(told["command"], "session/request_permission")
    assert "cargo test" in json.dumps(question["toolCall"]) and '"no"' in text(told["command"])
    assert asked(told["elicit"], "elicitation/create") and "Ada" in text(told["elicit"])
    assert "fs failed -32601" in text(told["fs"]), "version 2 has no files of a client's"
    assert "ext " in text(told["ext"])


def test_its_mode_and_options_are_set(told: dict[str, list[Line]]) -> None:
    assert not errors(told["loud"], "session/set_mode") and not errors(told["loud"], "session/set_config_option")
    assert text(told["loud"]).split() == ["HELLO"]


def test_its_prompts_end_with_the_answer(told: dict[str, list[Line]]) -> None:
    assert results(told["refuse"], "session/prompt")[0]["stopReason"] == "refusal"
    assert [error["code"] for error in errors(told["reject"], "session/prompt")] == [-32602]
    assert errors(told["fail"], "session/prompt")
    assert results(told["slow"], "session/prompt")[0]["stopReason"] == "cancelled"
    for word in ("later", "work", "mind", "one"):
        assert results(told[word], "session/prompt")[0]["stopReason"] == "end_turn"


def test_work_of_the_agents_own_is_told_and_ends_no_prompt(told: dict[str, list[Line]]) -> None:
    lines = [line for word in ("later", "work", "mind", "one") for line in told[word]]
    said = text(lines)
    assert all(words in said for words in ("LATER", "by the way", "WORK", "of its own", "MIND", "a thought", "ONE"))
    (question,) = asked(lines, "session/request_permission")
    assert question["toolCall"]["title"] == "cargo test" and '"ok"' in said


def test_a_session_is_loaded_on_another_connection(told: dict[str, list[Line]]) -> None:
    loaded = told["loaded"]
    session = results(told["all"], "session/new")[0]["sessionId"]
    assert session in [each["sessionId"] for each in results(loaded, "session/list")[0]["sessions"]]
    replayed = [update["content"]["text"] for update in updates(loaded, "user_message_chunk")]
    assert replayed[0] == SAID and replayed[-1] == "one"
    assert text(loaded).endswith("AGAIN ") and not errors(loaded, "session/load")


# --- clients of version 2 ---------------------------------------------------------------------------------------------

STORY_V2 = (
    *("--say", f"{SAID} option"),
    *("--permission", "allow", "--say", "perm"),
    *("--permission", "reject", "--say", "command bare"),
    *("--elicitation", '{"name": "Ada"}', "--say", "elicit ext blocks where"),
    *("--set-option", "how=code", "--set-option", "loud=true", "--say", "hello"),
    *("--say", "refuse", "--say", "reject", "--say", "fail"),
    *("--start", "slow", "--await", '"3 "', "--do", "cancel", "--idle"),
    *("--say", "later", "--await", "by the way", "--say", "work", "--await", "of its own"),
    *("--await", '"idle"', "--say", "one", "--permission", "allow", "--say", "mind", "--await", "permission {"),
    *("--await", '"idle"', "--say", "two"),
    *("--do", "close"),
)
STORY_V1 = ("--say", "think tool hello", "--permission", "allow", "--say", "perm", "--say", "refuse", "--say", "fail")
OTHER: dict[SdkV2, SdkV2] = {"py": "ts", "ts": "py"}


@pytest.fixture(scope="module")
def mixed(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[SdkV2, str], list[Line]]:
    """What each client of version 2 saw of its own SDK's agent, directly and through the gateway, and of the others."""
    root = tmp_path_factory.mktemp("mixed")

    def tell(sdk: SdkV2) -> list[list[Line]]:
        (root / sdk).mkdir()
        steps = ("--root", str(root / sdk), *STORY_V2)
        socket = f"{gateway.url.replace('http', 'ws')}/agent-client"
        return conversations_v2(
            sdk,
            {"steps": steps, "command": agent_command_v2(sdk)},
            *({"steps": steps, "url": f"{socket}/v2-{agent}"} for agent in (sdk, OTHER[sdk])),
            {"steps": STORY_V1, "url": f"{socket}/v1"},
        )

    with ThreadPoolExecutor() as pool:
        said = zip(SDKS_V2, pool.map(tell, SDKS_V2), strict=True)
        ways = ("direct", "through", "other", "v1")
        return {(sdk, way): lines for sdk, found in said for way, lines in zip(ways, found, strict=True)}


def _said(lines: list[Line]) -> list[str]:
    """One string for each thing that was said, to be read easily.

    Names are numbered as they come, pieces of a message that stand together are one. Left out are answers of prompts,
    notifications that are no updates, and states, which come beside the rest; and what is a matter of time.
    """
    told = json.dumps(lines)
    for answer in results(lines, "session/new"):
        told = told.replace(answer["sessionId"], "SESSION")
    names: dict[str, str] = {}
    told = re.sub(r"(msg|user|th)_[0-9a-f]{8}", lambda it: names.setdefault(it[0], f"{it[1]}{len(names)}"), told)
    found: list[dict[str, Any]] = []
    for line in json.loads(told):
        update = (line.get("params") or {}).get("update") or {}
        kind, content = update.get("sessionUpdate"), update.get("content") or {}
        if line["op"] in ("initialize", "exit", "session/prompt") or "told" in line or kind == "state_update":
            continue
        if kind == "agent_message_chunk" and content["type"] == "text":
            if content["text"].strip().isdigit():
                continue
            before = found[-1]["params"]["update"] if found and "params" in found[-1] else {}
            if before.get("messageId") == update["messageId"] and "text" in before.get("content", ()):
                before["content"]["text"] += content["text"]
                continue
        found.append(line)
    return [json.dumps(line, sort_keys=True) for line in found]


@pytest.mark.parametrize("sdk", SDKS_V2)
def test_a_proxy_changes_nothing_that_a_client_of_version_2_sees(
    mixed: dict[tuple[SdkV2, str], list[Line]], sdk: SdkV2
) -> None:
    direct, through = _said(mixed[sdk, "direct"]), _said(mixed[sdk, "through"])
    assert through[: len(direct)] == direct


@pytest.mark.parametrize(("sdk", "way"), list(itertools.product(SDKS_V2, ("through", "other"))))
def test_a_client_of_version_2_speaks_it_with_every_agent_of_version_2(
    mixed: dict[tuple[SdkV2, str], list[Line]], sdk: SdkV2, way: str
) -> None:
    lines = mixed[sdk, way]
    assert [answer["protocolVersion"] for answer in results(lines, "initialize")] == [2]
    kinds = {each["sessionUpdate"] for each in updates(lines)}
    assert kinds >= {"user_message", "agent_message", "tool_call_content_chunk", "terminal_output_chunk", "plan_update"}
    assert "_rig_thing" in kinds and "tool_call" not in kinds
    said = messages(lines)
    assert (
        "rewritten and more " in said.values() and "said at once " in said.values() and "a slip " not in said.values()
    )
    assert [state for state in states(lines) if state.startswith("idle ")][:4] == ["idle end_turn"] * 4
    assert set(states(lines)) >= {"running", "requires_action", "idle refusal", "idle error", "idle cancelled"}
    assert [error["code"] for error in errors(lines, "session/prompt")] == [-32602]
    assert "of its own " in said.values() and "by the way " in said.values()
    assert [len(asked(lines, op)) for op in ("session/request_permission", "elicitation/create")] == [4, 1]


@pytest.mark.parametrize("sdk", SDKS_V2)
def test_a_client_of_version_2_speaks_it_with_an_agent_of_version_1(
    mixed: dict[tuple[SdkV2, str], list[Line]], sdk: SdkV2
) -> None:
    lines = mixed[sdk, "v1"]
    assert [answer["protocolVersion"] for answer in results(lines, "initialize")] == [2]
    assert [state for state in states(lines) if state.startswith("idle ")][-1] == "idle error"
    assert {"idle end_turn", "idle refusal", "running", "requires_action"} <= set(states(lines))
    (question,) = asked(lines, "session/request_permission")
    assert question["subject"]["toolCall"]["toolCallId"] == "call_1"
    said = messages(lines)
    assert any(each.split()[-1:] == ["hello"] for each in said.values())
    assert any('"ok"' in each for each in said.values())


# --- clients of other protocols --------------------------------------------------------------------------------------

EVERY = (*AGENTS, "v1")


@pytest.fixture(scope="module")
def streamed(gateway: Gateway) -> dict[str, list[Line]]:
    """What the agntcy client was streamed by each agent; in one process, since importing it takes seconds."""
    each = [("stream", "--name", agent, "--message", "think tool hello my friend") for agent in EVERY]
    return dict(zip(EVERY, agent_connect_conversations(f"{gateway.url}/agent-connect", *each), strict=True))


@pytest.mark.parametrize("agent", EVERY)
def test_the_agntcy_client_gets_values_that_grow_to_the_whole(streamed: dict[str, list[Line]], agent: str) -> None:
    events = {line["event"]["id"]: line["event"] for line in streamed[agent] if "event" in line}
    said = [event["data"]["values"]["message"] for event in events.values() if event["data"]["type"] == "values"]
    assert said and said[-1].split() == ["think", "tool", "hello", "my", "friend"]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_e2b_client_gets_a_task_with_its_output(gateway: Gateway, agent: str) -> None:
    base = f"{gateway.url}/agent-protocol/{agent}"
    lines: list[dict[str, Any]] = agent_protocol_client("steps", base, "--input", "hello rewrite")
    steps = [line["result"] for line in lines if line["op"].endswith("step") and "result" in line]
    assert steps[-1]["is_last"] and "rewritten and more" in steps[-1]["output"]
