"""The state of a thread of an Agent Connect agent: it is the agent's own, read, patched and copied there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from tests.adapters.agent_connect.api import Api
from tests.adapters.agent_connect.outbound_calls import forget, seen
from tests.support.peers import agent_connect_agent
from tests.support.processes import Gateway, Process

Stage = tuple[Api, Process]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway before a server of its own."""
    with ExitStack() as stack:
        server = stack.enter_context(agent_connect_agent())
        there = {"protocol": "agent_connect", "url": server.url, "request_timeout": 60}
        routes = {"routes": [{"name": name, "target": {**there, "agent": name}} for name in ("echo", "chat")]}
        gateway = stack.enter_context(Gateway(json.dumps(routes), tmp_path_factory.mktemp("remote-state")))
        client = stack.enter_context(httpx2.Client(timeout=60))
        yield Api(f"{gateway.url}/agent-connect", client), server


def spoken(api: Api, *words: str) -> str:
    thread = str(api("POST", "/threads", {})["thread_id"])
    for word in words:
        api("POST", f"/threads/{thread}/runs/wait", {"agent_id": "echo", "input": {"message": word}})
    return thread


def changes(server: Process) -> list[str]:
    asked = [one for one in seen(server) if "/threads" in one["path"] and one["method"] != "GET"]
    return [f"{one['method']} {one['path'].rpartition('/')[2] or one['path']}" for one in asked]


def test_values_and_history_are_those_of_the_agent(stage: Stage) -> None:
    api, _ = stage
    thread = spoken(api, "one", "two")
    told = api("GET", f"/threads/{thread}")
    assert told["values"] == {"turns": 2, "last": "two"} and told["thread_id"] == thread
    assert [one["content"] for one in told["messages"]] == ["one", "one", "two", "two"]
    newest, oldest = api("GET", f"/threads/{thread}/history")
    assert (newest["values"], oldest["values"]) == ({"turns": 2, "last": "two"}, {"turns": 1, "last": "one"})
    before = newest["checkpoint"]["checkpoint_id"]
    assert api("GET", f"/threads/{thread}/history?limit=5&before={before}") == [oldest]
    (found,) = api("POST", "/threads/search", {"limit": 1})
    assert found["thread_id"] == thread and "values" not in found, "a search asks no agent"


def test_a_patch_is_the_agent_s_and_starts_from_its_checkpoint(stage: Stage) -> None:
    api, server = stage
    thread = spoken(api, "one", "two")
    first = api("GET", f"/threads/{thread}/history")[-1]["checkpoint"]
    forget(server)
    told = api("PATCH", f"/threads/{thread}", {"checkpoint": first, "values": {"last": "sea"}, "metadata": {"k": 1}})
    assert (told["values"], told["metadata"]) == ({"turns": 1, "last": "sea"}, {"k": 1})
    assert len(changes(server)) == 1
    ended = api("POST", f"/threads/{thread}/runs/wait", {"agent_id": "echo", "input": {"message": "again"}})
    assert ended["output"]["values"] == {"message": "sea"}, "the agent goes on from there"
    unknown = {"checkpoint_id": "00000000-0000-4000-8000-000000000000"}
    api("PATCH", f"/threads/{thread}", {"checkpoint": unknown, "values": {}}, status=404)


def test_a_copy_is_made_at_the_agent_and_nothing_is_written_to_it(stage: Stage) -> None:
    api, server = stage
    thread = spoken(api, "one")
    forget(server)
    copy = api("POST", f"/threads/{thread}/copy")
    assert copy["thread_id"] != thread and copy["values"] == {"turns": 1, "last": "one"}
    ended = api("POST", f"/threads/{copy['thread_id']}/runs/wait", {"agent_id": "echo", "input": {"message": "again"}})
    assert ended["output"]["values"] == {"message": "one"}, "nothing is replayed into the prompt"
    assert changes(server) == ["POST copy", "POST stream"]
    assert api("GET", f"/threads/{thread}")["values"] == {"turns": 1, "last": "one"}


def test_what_was_patched_before_the_first_run_is_carried_once(stage: Stage) -> None:
    api, server = stage
    thread = str(api("POST", "/threads", {})["thread_id"])
    said: list[Any] = [{"role": "user", "content": "my name is Ada"}]
    assert api("PATCH", f"/threads/{thread}", {"values": {"messages": said}})["values"] == {"messages": said}
    forget(server)
    for _ in range(2):
        given = {"agent_id": "chat", "input": {"message": "my name?"}}
        ended = api("POST", f"/threads/{thread}/runs/wait", given)
        assert ended["output"]["values"] == {"message": "Yes, your name is Ada"}
    assert [one.split()[0] for one in changes(server)] == ["POST", "PATCH", "POST", "POST"]


def test_an_agent_that_is_down_leaves_the_thread_without_values_and_says_why(stage: Stage) -> None:
    api, server = stage
    thread = spoken(api, "one")
    api("PATCH", f"/threads/{thread}", {"metadata": {"k": 1}})
    server.kill9()
    told = api("GET", f"/threads/{thread}")
    assert "values" not in told and [one["content"] for one in told["messages"]] == ["one", "one"]
    assert told["metadata"].keys() == {"k", "interlingua.state"}
    api("PATCH", f"/threads/{thread}", {"metadata": {**told["metadata"], "k": 2}})
    (found,) = api("POST", "/threads/search", {"limit": 1})
    assert (found["thread_id"], found["metadata"]) == (thread, {"k": 2})
    api("GET", f"/threads/{thread}/history", status=502)
    api("POST", f"/threads/{thread}/copy", status=502)
