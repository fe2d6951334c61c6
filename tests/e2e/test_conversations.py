"""Conversations of real editors with real agents: three prompts each, and a crash before the last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.doors import way
from tests.support import agent_client
from tests.support.agent_client import agent_client_agent_command, agent_client_conversations
from tests.support.agent_communication import agents_server
from tests.support.processes import Gateway, Process

Lines = list[dict[str, Any]]

BEFORE = "This conversation so far:\n\n"
NEXT = "\n\nThe next message:\n\n"
FIRST = "user: one alpha\n\nassistant: "
AGENTS = ("chat", "text", "task", "keeper", "forgetful")


@pytest.fixture(scope="module")
def said(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[Lines]]]:
    """By agent, the lines of each of three turns: two in one go, then one after the gateway was killed."""
    folder = tmp_path_factory.mktemp("conversations")
    with ExitStack() as stack:
        bee = stack.enter_context(agents_server("py"))
        targets: dict[str, dict[str, Any]] = {
            "chat": {"protocol": "agent_communication", "url": f"{bee.url}/sse", "agent": "chat"},
            "text": {"protocol": "agent_communication", "url": f"{bee.url}/sse", "agent": "echo"},
            "task": {"protocol": "agent_protocol", "url": agent_protocol_server.url},
            "keeper": {"protocol": "agent_connect", "url": agent_connect_agent.url, "agent": "echo"},
            "forgetful": {
                "protocol": "agent_client",
                "command": agent_client_agent_command("py", "--without", "load,resume"),
            },
        }
        routes = [{"name": name, "target": target} for name, target in targets.items()]
        gateway = stack.enter_context(Gateway(json.dumps({"routes": routes}), folder))
        first = ("--say", "one alpha", "--say", "one beta")
        before = agent_client_conversations("py", *({"steps": first, **way(gateway, "ws", agent)} for agent in AGENTS))
        assert all(agent_client.results(lines, "session/new") for lines in before), before
        gateway.kill9()
        gateway.restart()
        sessions = [agent_client.results(lines, "session/new")[0]["sessionId"] for lines in before]
        loads = [("--bare", "--do", "initialize", "--session", one, "--do", "load") for one in sessions]
        after = agent_client_conversations(
            "py",
            *(
                {"steps": (*load, "--say", "again" if agent == "keeper" else "one gamma"), **way(gateway, "ws", agent)}
                for agent, load in zip(AGENTS, loads, strict=True)
            ),
        )
        for lines in (*before, *after):
            assert not agent_client.errors(lines, "session/prompt"), lines
        yield {
            agent: [*agent_client.turns(one), _last(other)]
            for agent, one, other in zip(AGENTS, before, after, strict=True)
        }


def _last(lines: Lines) -> Lines:
    """The turn behind what was replayed by the load."""
    loaded = next(at for at, line in enumerate(lines) if line["op"] == "session/load" and "result" in line)
    return lines[loaded + 1 :]


def texts(said: dict[str, list[Lines]], agent: str) -> list[str]:
    return [agent_client.text(turn).strip() for turn in said[agent]]


def test_an_agent_with_a_list_of_messages_gets_the_conversation_there(said: dict[str, list[Lines]]) -> None:
    one, two, three = texts(said, "chat")
    assert one == "1 (user: one alpha)"
    assert two == f"3 (user: one alpha / assistant: {one} / user: one beta)"
    assert three == f"5 (user: one alpha / assistant: {one} / user: one beta / assistant: {two} / user: one gamma)"


def test_an_agent_with_one_text_gets_the_conversation_before_the_prompt(said: dict[str, list[Lines]]) -> None:
    one, two, three = texts(said, "text")
    assert one == "one alpha"
    assert two == f"{BEFORE}{FIRST}one alpha{NEXT}one beta"
    assert three == f"{BEFORE}{FIRST}one alpha\n\nuser: one beta\n\nassistant: {two}{NEXT}one gamma"


def test_a_follow_up_on_a_task_that_has_ended_is_a_task_that_knows_of_it(said: dict[str, list[Lines]]) -> None:
    one, two, three = texts(said, "task")
    assert one == "step 1 of 1: one alpha"
    assert two.startswith(f"step 1 of 1: {BEFORE}{FIRST}{one}\n[file output.txt: http://")
    assert two.endswith(f"{NEXT}one beta"), "with a link to the file that the first task made"
    assert three.endswith(f"{NEXT}one gamma") and "user: one beta" in three


def test_an_agent_that_keeps_threads_is_told_nothing_twice(said: dict[str, list[Lines]]) -> None:
    assert texts(said, "keeper") == ["one alpha", "one beta", "one beta"], "it remembers the turn before by itself"


def test_an_agent_that_forgot_its_session_in_the_crash_is_told_all_of_it(said: dict[str, list[Lines]]) -> None:
    one, two, three = texts(said, "forgetful")
    assert (one, two) == ("one alpha", "one beta")
    words = f"{BEFORE}{FIRST}one alpha \n\nuser: one beta\n\nassistant: one beta {NEXT}one gamma"
    assert three.split() == words.split()
