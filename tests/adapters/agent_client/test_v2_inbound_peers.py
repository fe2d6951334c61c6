"""The official SDKs' clients of version 2, by every way to a gateway, with agents of both versions behind it."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.adapters.agent_client.v2_editor import METHODS, EditorV2, check
from tests.e2e.doors import way
from tests.support.agent_client import Line, agent_client_agent_command, asked, errors, results, updates
from tests.support.agent_client_v2 import SDKS_V2, SdkV2, agent_command_v2, conversations_v2, messages, states
from tests.support.processes import Gateway

WAYS: dict[SdkV2, Sequence[tuple[str, str]]] = {
    "py": (("ws", "v1-ts"), ("http", "v2-ts"), ("stdio", "v1-py")),
    "ts": (("http", "v1-py"), ("ws", "v2-py"), ("pipe", "v2-ts")),
}
"""By which door each client comes to which agent."""
ALL = [(sdk, number) for sdk in SDKS_V2 for number in range(len(WAYS[sdk]))]
STORY = (
    *("--say", "think tool hello"),
    *("--permission", "allow", "--say", "perm"),
    *("--permission", "reject", "--say", "perm"),
    *("--permission", "never", "--start", "perm", "--await", '"asked"', "--do", "cancel", "--idle"),
    *("--elicitation", '{"name": "Ada"}', "--say", "elicit"),
    *("--start", "slow", "--start", "me too", "--await", '"3 "', "--do", "cancel", "--idle"),
    *("--say", "fail", "--say", "ext"),
    *("--reconnect", "--session", "@0", "--do", "replay", "--say", "again", "--do", "resume", "--do", "list"),
    *("--do", "close", "--do", "delete", "--do", "resume"),
)
TURNS = ("hello", "allowed", "rejected", "waits", "form", "slow", "fails", "ext", "again")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Agents of both versions, made with both SDKs."""
    folder = tmp_path_factory.mktemp("v2")
    commands = {f"v2-{sdk}": agent_command_v2(sdk) for sdk in SDKS_V2}
    commands |= {
        "v1-py": agent_client_agent_command("py", "--state", str(folder / "v1-py")),
        "v1-ts": agent_client_agent_command("ts-2"),
    }
    routes = [
        {"name": name, "target": {"protocol": "agent_client", "cwd": str(folder), "v2": True, "command": command}}
        for name, command in commands.items()
    ]
    with Gateway(json.dumps({"inbound": {"agent_client": {"v2": True}}, "routes": routes}), folder) as running:
        yield running


@pytest.fixture(scope="module")
def stories(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[SdkV2, int], list[Line]]:
    """What each client saw by each way: one process a client, both at once."""
    folder = tmp_path_factory.mktemp("wires")

    def tell(sdk: SdkV2) -> list[list[Line]]:
        told = []
        for number, (door, agent) in enumerate(WAYS[sdk]):
            steps = ["--wire", str(folder / f"{sdk}-{number}"), *STORY]
            told.append({"steps": steps, **way(gateway, door, agent)})
        return conversations_v2(sdk, *told)

    with ThreadPoolExecutor() as pool:
        found = dict(zip(SDKS_V2, pool.map(tell, SDKS_V2), strict=True))
    for sdk, number in ALL:
        _check(folder / f"{sdk}-{number}")
    return {(sdk, number): lines for sdk, each in found.items() for number, lines in enumerate(each)}


def _check(wire: Any) -> None:
    """Whatever the gateway said is of the schema.

    An answer may be written down before its request, which one SDK does only when that is sent; and another connection
    numbers its requests anew. So the n-th answer of an id is that of its n-th request.
    """
    lines = [json.loads(line) for line in wire.read_text().splitlines()]
    methods: defaultdict[Any, deque[str]] = defaultdict(deque)
    for line in lines:
        if line["to"] == "agent" and {"method", "id"} <= line["message"].keys():
            methods[line["message"]["id"]].append(line["message"]["method"])
    for line in lines:
        said, towards = line["message"], line["to"]
        if towards == "client" and "method" in said:
            assert said["method"] in {*EditorV2.params, "_rig/ask", "_rig/note"}, said
            if said["method"] in EditorV2.params:
                check(EditorV2.params[said["method"]], said["params"])
        elif towards == "client" and (method := methods[said["id"]].popleft()) in METHODS and "result" in said:
            check(f"{METHODS[method]}Response", said["result"])


Told = dict[str, list[Line]]


@pytest.fixture(params=ALL, ids=lambda param: "-".join((param[0], *WAYS[param[0]][param[1]])))
def told(request: pytest.FixtureRequest, stories: dict[tuple[SdkV2, int], list[Line]]) -> Told:
    """One story: what came of each prompt by its name, of resuming as `replayed` and `rest`; `all` of it."""
    lines = stories[request.param]
    again = [number for number, line in enumerate(lines) if line["op"] == "initialize"][1]
    resumed = next(n for n, line in enumerate(lines[again:], again) if line["op"] == "session/resume")
    said = [number for number, line in enumerate(lines) if _is_said(line) and not again < number < resumed]
    found = {
        "all": lines,
        "before": lines[:again],
        "replayed": lines[again : resumed + 1],
        "rest": lines[resumed + 1 :],
    }
    for name, (start, end) in zip(TURNS, itertools.pairwise([*said, len(lines)]), strict=True):
        found[name] = lines[start : again if start < again < end else end]
    return found


def _is_said(line: Line) -> bool:
    return bool(line["op"] == "session/update" and line["params"]["update"]["sessionUpdate"] == "user_message")


def went(lines: Sequence[Line]) -> list[str]:
    """The states that were told, each once in a row: agents may repeat theirs."""
    return [state for state, _ in itertools.groupby(states(lines))]


DONE = ["running", "idle end_turn"]
ASKED = ["running", "requires_action", "running", "idle end_turn"]


def test_all_that_was_waited_for_came_and_every_message_is_of_the_schema(told: Told) -> None:
    assert not any(errors(told["all"], op) for op in ("connect", "initialize", "session/new", "idle", "await"))
    assert [answer["protocolVersion"] for answer in results(told["all"], "initialize")] == [2, 2]


def test_a_prompt_is_answered_with_the_id_of_its_message(told: Told) -> None:
    answers = [answer["messageId"] for answer in results(told["all"], "session/prompt")]
    assert answers == list(messages(told["before"], "user_message")) + list(messages(told["again"], "user_message"))
    assert len(answers) == len(TURNS)


def test_a_turn_is_told_from_running_to_idle(told: Told) -> None:
    assert went(told["hello"]) == DONE
    assert "".join(messages(told["hello"]).values()).split() == ["think", "tool", "hello"]
    assert messages(told["hello"], "agent_thought") and updates(told["hello"], "tool_call_update")
    assert not {"tool_call", "plan", "current_mode_update"} & {one["sessionUpdate"] for one in updates(told["all"])}


def test_permissions_and_forms_are_asked_while_the_session_requires_action(told: Told) -> None:
    for name, option in (("allowed", "ok"), ("rejected", "no")):
        (question,) = asked(told[name], "session/request_permission")
        assert question["title"] and question["subject"]["toolCall"]["toolCallId"] == "call_1"
        assert went(told[name]) == ASKED
        assert f'"{option}"' in "".join(messages(told[name]).values())
    assert went(told["form"]) == ASKED and "Ada" in "".join(messages(told["form"]).values())
    assert not {line["op"] for line in told["all"] if "asked" in line} - {
        *("session/request_permission", "elicitation/create", "_rig/ask")
    }


def test_a_cancelled_turn_ends_idle_and_cancelled(told: Told) -> None:
    assert went(told["waits"])[:2] == ASKED[:2] and went(told["waits"])[-1] == "idle cancelled"
    assert went(told["slow"]) == ["running", "idle cancelled"]


def test_a_prompt_of_a_busy_session_is_refused(told: Told) -> None:
    (error,) = errors(told["all"], "session/prompt")
    assert error["code"] == -32600


def test_a_failure_is_the_reason_for_being_idle(told: Told) -> None:
    assert went(told["fails"]) == ["running", "idle error"]


def test_extensions_reach_the_client(told: Told) -> None:
    assert asked(told["ext"], "_rig/ask") and "42" in "".join(messages(told["ext"]).values())


def test_a_session_is_replayed_in_whole_messages_before_the_answer(told: Told) -> None:
    """By the agent itself where it speaks the client's version: that keeps of its messages what was said last."""
    lines, own = told["replayed"], "rig-v2" in str(results(told["all"], "initialize")[0])
    for kind in ("user_message", "agent_message", "agent_thought"):
        said, now = messages(told["before"], kind), messages(lines, kind)
        if kind == "user_message" or not own:
            assert now == said
        else:
            assert all(said[name].strip().endswith(words) for name, words in now.items())
        assert bool(now) == (kind != "agent_thought" or not own)
        assert not updates(lines, f"{kind}_chunk")
    assert went(lines) == ["idle"] and went(told["again"])[:2] == DONE


def test_a_session_is_resumed_listed_closed_and_deleted(told: Told) -> None:
    lines = told["rest"]
    assert went(lines) == [*DONE, "idle"]
    (listed,) = results(lines, "session/list")
    (made,) = results(told["all"], "session/new")
    assert made["sessionId"] in [each["sessionId"] for each in listed["sessions"]]
    assert len(results(lines, "session/close")) == len(results(lines, "session/delete")) == 1
    (gone,) = errors(lines, "session/resume")
    assert gone["code"] in (-32002, -32602), "which is the agent's to say"
