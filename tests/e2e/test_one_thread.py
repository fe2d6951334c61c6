"""Agent Connect's walk-through ("Hello, my name is John"): one thread, two agents, its state, and a crash before the
last prompt. The client is the official SDK; so are the BeeAI agents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.agent_communication import agents_server
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.processes import Gateway, Process

Lines = list[dict[str, Any]]

HELLO, NAME, AGAIN = "Hello, my name is John", "Can you remind me of it?", "And once more?"
YES = "Yes, your name is John"
STORIES = {
    "connect": ("chat", "pal", "chat"),
    "bee": ("bee", "hive", "bee"),
    "bee first": ("bee", "chat", "bee"),
    "connect first": ("chat", "bee", "chat"),
    "unaware": ("lone", "lone", "lone"),
}
"""By story, the agents of its three prompts."""


def prompt(agent: str, message: str, *more: str) -> list[str]:
    chat = json.dumps({"messages": [{"role": "user", "content": message}]})
    given = ["--message", message] if agent in ("chat", "pal", "echo") else ["--input", chat]
    return ["say", "--name", agent, *given, *more]


@pytest.fixture(scope="module")
def said(agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Lines]]]:
    """By story, what the SDK made of each prompt; and of `copied`, `refused`, `descriptors`, `task`."""
    with ExitStack() as stack:
        bee = stack.enter_context(agents_server("py"))
        there = {"protocol": "agent_connect", "url": agent_connect_agent.url}
        chat = {"protocol": "agent_communication", "url": f"{bee.url}/sse", "agent": "chat"}
        routes = [{"name": name, "target": {**there, "agent": name}} for name in ("chat", "pal", "echo")]
        routes += [{"name": name, "target": chat} for name in ("bee", "hive")]
        routes += [{"name": "lone", "target": chat, "memory": {"mode": "none"}}]
        gateway = stack.enter_context(Gateway(json.dumps({"routes": routes}), tmp_path_factory.mktemp("one-thread")))
        url = f"{gateway.url}/agent-connect"
        first = [one for a, b, _ in STORIES.values() for one in (prompt(a, HELLO), prompt(b, NAME, "--thread", "-"))]
        beside = [
            prompt("chat", HELLO),
            prompt("echo", NAME, "--thread", "-"),
            ["copy", "--thread", "-"],
            prompt("pal", NAME, "--thread", "-"),
            *(["descriptor", "--name", name] for name in ("chat", "bee", "lone")),
        ]
        before = agent_connect_conversations(url, *first, *beside)
        stories, (_, refused, copied, after_copy, *descriptors) = before[: len(first)], before[len(first) :]
        threads = [results(lines, "create_thread")[0]["thread_id"] for lines in stories[::2]]
        tasks = [agent_protocol_client("steps", f"{gateway.url}/agent-protocol/lone", "--input", HELLO)]
        task = results(tasks[0], "create_agent_task")[0]["task_id"]
        tasks += [agent_protocol_client("steps", f"{gateway.url}/agent-protocol/lone", "--task", task) for _ in "12"]
        gateway.kill9()
        gateway.restart()
        last = [
            prompt(c, AGAIN if c in ("bee", "lone") else NAME, "--thread", thread)
            for (_, _, c), thread in zip(STORIES.values(), threads, strict=True)
        ]
        after = agent_connect_conversations(url, *last)
        told = {name: [*stories[2 * at : 2 * at + 2], after[at]] for at, name in enumerate(STORIES)}
        yield {**told, "refused": [refused], "copied": [copied, after_copy], "descriptors": descriptors, "task": tasks}


def results(lines: Lines, op: str) -> list[Any]:
    found = [line["result"] for line in lines if line["op"] == op and "result" in line]
    assert found, lines
    return found


def answer(lines: Lines) -> str:
    values = results(lines, "wait_for_thread_run_output")[0]["output"]["values"]
    return str(values.get("message") or values.get("text"))


def state(lines: Lines) -> list[str]:
    """The contents of the messages of the thread's state, which must be the same as in its history."""
    messages = results(lines, "get_thread")[0]["values"]["messages"]
    newest = results(lines, "get_thread_history")[0][0]
    assert newest["values"]["messages"] == messages
    return [one["content"] for one in messages]


def test_two_agents_of_one_state_share_the_thread(said: dict[str, list[Lines]]) -> None:
    one, two, three = said["connect"]
    assert [answer(lines) for lines in (one, two, three)] == ["Hello John, how can I help?", YES, YES]
    four = [HELLO, answer(one), NAME, YES]
    assert [state(lines) for lines in (one, two, three)] == [four[:2], four, [*four, NAME, YES]]


def test_the_gateway_keeps_the_state_of_agents_that_keep_none(said: dict[str, list[Lines]]) -> None:
    one, two, three = said["bee"]
    assert answer(one) == f"1 (user: {HELLO})"
    assert answer(two) == f"3 (user: {HELLO} / assistant: {answer(one)} / user: {NAME})"
    six = [HELLO, answer(one), NAME, answer(two), AGAIN, answer(three)]
    assert [state(lines) for lines in (one, two, three)] == [six[:2], six[:4], six]
    history = results(three, "get_thread_history")[0]
    assert [len(point["values"]["messages"]) for point in history] == [6, 4, 2], "as it was then"


def test_a_state_of_the_gateways_schema_goes_to_an_agent_that_keeps_it_itself(said: dict[str, list[Lines]]) -> None:
    one, two, three = said["bee first"]
    assert answer(two) == YES
    assert state(two) == [HELLO, answer(one), NAME, YES]
    said_before = f"user: {HELLO} / assistant: {answer(one)} / user: {NAME} / assistant: {YES}"
    assert answer(three) == f"5 ({said_before} / user: {AGAIN})"
    assert state(three) == [HELLO, answer(one), NAME, YES, AGAIN, answer(three)]


def test_and_back(said: dict[str, list[Lines]]) -> None:
    one, two, three = said["connect first"]
    assert answer(two) == f"3 (user: {HELLO} / assistant: {answer(one)} / user: {NAME})"
    assert answer(three) == YES, "its own state was given what it had missed, and nothing else"
    assert state(three) == [HELLO, answer(one), NAME, answer(two), NAME, YES]


def test_an_agent_of_another_state_is_refused_with_the_reason(said: dict[str, list[Lines]]) -> None:
    (error,) = [line["error"] for line in said["refused"][0] if line["op"] == "create_thread_run"]
    assert error["status"] == 422
    assert "echo" in error["body"] and "agent chat" in error["body"] and "different schemas" in error["body"]


def test_a_copy_is_made_at_the_agent_and_goes_its_own_way(said: dict[str, list[Lines]]) -> None:
    copied, after = said["copied"]
    for made in (*results(copied, "copy_thread"), *results(copied, "get_thread")):
        assert [one["content"] for one in made["values"]["messages"]] == [HELLO, "Hello John, how can I help?"]
    assert answer(after) == YES


def test_turns_that_an_agent_is_not_told_of_are_said_once_in_a_header(said: dict[str, list[Lines]]) -> None:
    told = [results(lines, "headers")[0].get("x-interlingua-losses") for lines in said["unaware"]]
    assert told == [None, "earlier_turns=1", None]
    assert answer(said["unaware"][1]) == f"1 (user: {NAME})"


def test_an_agent_protocol_client_is_told_of_them_with_the_step(said: dict[str, list[Lines]]) -> None:
    steps = [results(lines, "execute_agent_task_step")[-1] for lines in said["task"]]
    assert all(step["is_last"] for step in steps)
    told = [(step["additional_output"] or {}).get("losses") for step in steps]
    assert told == [None, {"earlier_turns": 1}, None]


def test_descriptors_publish_the_state(said: dict[str, list[Lines]]) -> None:
    chat, bee, lone = (results(lines, "get_acp_descriptor_by_id")[0]["specs"] for lines in said["descriptors"])
    items = [one["thread_state"]["properties"]["messages"]["items"]["required"] for one in (chat, bee)]
    assert items == [["role", "content"]] * 2
    assert bee["capabilities"]["threads"] is True and list(bee["thread_state"]["properties"]) == ["messages"]
    assert lone["capabilities"]["threads"] is False and lone.get("thread_state") is None
