"""The real Agent Connect client against the plain server and the replay: known good before a gateway is between."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support import peers
from tests.support.peers import agent_connect_conversations
from tests.support.processes import Process

Line = dict[str, Any]
KEY = "test-key"


def results(lines: list[Line], op: str) -> list[Any]:
    return [line["result"] for line in lines if line["op"] == op and "result" in line]


def result(lines: list[Line], op: str) -> Any:
    (only,) = results(lines, op)
    return only


def events(lines: list[Line]) -> list[Any]:
    return [line["event"]["data"] for line in lines if "event" in line]


def statuses(lines: list[Line], op: str) -> list[int]:
    return [line["error"]["status"] for line in lines if line["op"] == op and "error" in line]


ANSWER = '{"approved": false, "reason": "no"}'
CONVERSATIONS = {
    "search": ["search"],
    "descriptor": ["descriptor", "--name", "asker"],
    "background": ["background", "--name", "echo", "--metadata", '{"k": "v"}'],
    "stream": ["stream", "--name", "echo"],
    "stream-async": ["stream-async", "--name", "failer"],
    "wait-async": ["wait-async", "--name", "failer"],
    "both modes": ["stream", "--name", "writer", "--stream-mode", "values", "--stream-mode", "custom"],
    "join": ["join", "--name", "slow", "--message", "0.3 seconds"],
    "thread": ["thread", "--name", "echo", "--second", "again"],
    "resume": ["resume", "--name", "asker", "--message", "ask twice", "--answer", ANSWER],
    "cancel": ["cancel", "--name", "slow", "--message", "60 seconds"],
    "delete": ["delete", "--name", "echo"],
    "errors": ["errors", "--name", "echo"],
}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LOCKED = {"refused": ["search"], "allowed": ["wait", "--traceparent", TRACE, "--api-key", KEY]}
MESSAGES = ["--name", "org.agntcy.rig_agent", "--message"]
REPLAYED = {
    "replayed stream": ["stream", *MESSAGES, "interrupt me"],
    "replayed resume": ["resume", *MESSAGES, "interrupt me", "--answer", '{"message": "blue"}'],
    "replayed thread": ["thread", *MESSAGES, "hello"],
    "replayed cancel": ["cancel", *MESSAGES, "slow"],
}
Said = dict[str, list[Line]]


@pytest.fixture(scope="module")
def locked() -> Iterator[Process]:
    """A server that wants a key."""
    with peers.agent_connect_agent("--api-key", KEY) as server:
        yield server


@pytest.fixture(scope="module")
def said(agent_connect_agent: Process, agent_connect_replay: Process, locked: Process) -> Said:
    """What the real client printed in each of the conversations; all in one process, which takes long to start."""
    everything = dict(CONVERSATIONS)
    everything |= {name: [*words, "--url", locked.url] for name, words in LOCKED.items()}
    everything |= {name: [*words, "--url", agent_connect_replay.url] for name, words in REPLAYED.items()}
    lines = agent_connect_conversations(agent_connect_agent.url, *everything.values())
    return dict(zip(everything, lines, strict=True))


def test_a_search_without_a_name_finds_every_agent(said: Said) -> None:
    lines = said["search"]
    names = [agent["metadata"]["ref"]["name"] for agent in result(lines, "search_agents")]
    assert names == ["echo", "slow", "asker", "failer", "writer", "chat", "pal"]
    assert result(lines, "get_agent_by_id")["metadata"]["ref"]["name"] == "echo"


def test_the_descriptor_of_an_agent_that_asks_tells_its_interrupt(said: Said) -> None:
    specs = result(said["descriptor"], "get_acp_descriptor_by_id")["specs"]
    assert specs["capabilities"]["interrupts"] is True
    assert [one["interrupt_type"] for one in specs["interrupts"]] == ["approval"]


def test_a_background_run_is_polled_to_its_end_and_found_again(said: Said) -> None:
    lines = said["background"]
    created = result(lines, "create_stateless_run")
    assert created["status"] == "pending" and created["creation"]["metadata"] == {"k": "v"}
    waited = result(lines, "wait_for_stateless_run_output")
    assert waited["run"]["status"] == "success"
    assert waited["output"] == {"type": "result", "values": {"message": "red green blue"}}
    assert created["run_id"] in [run["run_id"] for run in result(lines, "search_stateless_runs")]


def test_a_stream_grows_word_by_word_and_ends_with_success(said: Said) -> None:
    seen = events(said["stream"])
    assert [one["values"]["message"] for one in seen] == ["red", "red green", "red green blue"]
    assert [one["status"] for one in seen] == ["pending", "pending", "success"]


def test_the_async_client_sees_a_failure_after_what_came_before_it(said: Said) -> None:
    before, failed = events(said["stream-async"])
    assert before["values"] == {"message": "so far"}
    assert (failed["type"], failed["errcode"], failed["description"]) == ("error", 7, "it failed on purpose")


def test_the_async_client_waits_for_a_failed_run(said: Said) -> None:
    lines = said["wait-async"]
    waited = result(lines, "create_and_wait_for_stateless_run_output [async]")
    assert waited["run"]["status"] == "error" and waited["output"]["errcode"] == 7


def test_values_and_custom_updates_come_to_who_asks_for_both(said: Said) -> None:
    seen = events(said["both modes"])
    assert {one["type"] for one in seen} == {"values", "custom"}
    assert [one["update"]["words"] for one in seen if one["type"] == "custom"] == list(range(1, 16))
    assert [part["heading"] for part in seen[-1]["values"]["sections"]] == ["Beginning", "Middle", "End"]


def test_a_stream_that_is_joined_late_begins_with_the_latest_snapshot(said: Said) -> None:
    lines = said["join"]
    shown = [one["values"]["message"] for one in events(lines)]
    assert shown[-1] == "tick 1 tick 2 tick 3 done"
    assert shown == sorted(shown, key=len)
    assert result(lines, "wait_for_stateless_run_output")["output"]["values"]["message"] == shown[-1]


def test_a_thread_remembers_its_runs_and_can_be_copied_changed_and_deleted(said: Said) -> None:
    lines = said["thread"]
    assert events(lines)[2]["values"] == {"message": "red green blue"}
    thread, copy = results(lines, "get_thread")
    assert thread["values"] == {"turns": 3, "last": "red green blue"} == copy["values"]
    assert [state["values"]["turns"] for state in result(lines, "get_thread_history")] == [3, 2, 1]
    assert len(result(lines, "list_thread_runs")) == 3
    assert result(lines, "patch_thread")["metadata"] == {"team": "red", "colour": "blue"}
    assert [one["thread_id"] for one in result(lines, "search_threads")] == [thread["thread_id"]]
    assert result(lines, "copy_thread")["thread_id"] == copy["thread_id"] != thread["thread_id"]
    assert statuses(lines, "get_thread") == [404]


def test_a_run_that_asks_twice_is_resumed_twice(said: Said) -> None:
    lines = said["resume"]
    first = result(lines, "create_and_wait_for_stateless_run_output")
    assert first["run"]["status"] == "interrupted"
    question = {"interrupt_type": "approval", "question": "Is it right?", "text": "ask twice"}
    assert first["output"] == {"type": "interrupt", "interrupt": question}
    second, last = results(lines, "wait_for_stateless_run_output")
    assert second["output"]["interrupt"]["question"] == "Really?"
    assert last["output"]["values"]["message"] == "declined (no) and declined (no): ask twice"


def test_a_cancelled_run_ends_and_a_deleted_one_is_gone(said: Said) -> None:
    lines = said["cancel"]
    assert results(lines, "cancel_stateless_run") == [None]
    assert result(lines, "wait_for_stateless_run_output")["output"]["description"] == "cancelled"
    lines = said["delete"]
    assert results(lines, "delete_stateless_run") == [None]
    assert statuses(lines, "get_stateless_run") == [404]


def test_unknown_ids_and_bad_input_are_refused_with_a_sentence(said: Said) -> None:
    lines = said["errors"]
    refused = [line["error"] for line in lines if "error" in line]
    assert [one["status"] for one in refused] == [404, 404, 404, 422, 422, 422, *[404] * 8]
    assert all(isinstance(json.loads(one["body"]), str) for one in refused)
    assert json.loads(refused[3]["body"]) == "input/message: 5 is not of type 'string'"


def test_the_key_is_asked_for_and_what_was_sent_can_be_seen(said: Said, locked: Process) -> None:
    (refused,) = said["refused"]
    assert refused["error"]["status"] == 401
    assert result(said["allowed"], "create_and_wait_for_stateless_run_output")["run"]["status"] == "success"
    seen = httpx2.get(f"{locked.url}/_seen").json()
    assert [one["path"] for one in seen] == ["/agents/search", "/agents/search", "/runs/wait"]
    assert seen[2]["headers"]["x-api-key"] == KEY and seen[2]["headers"]["traceparent"] == TRACE
    sent = json.loads(seen[2]["body"])
    always = {"on_disconnect": "cancel", "multitask_strategy": "reject", "on_completion": "delete"}
    assert always.items() <= sent.items()


def test_of_the_replay_the_client_learns_the_truth_about_an_interrupt_by_waiting(said: Said) -> None:
    assert [line["event"]["data"]["type"] for line in said["replayed stream"] if "event" in line] == ["values"]
    waited = [line["result"] for line in said["replayed resume"] if "wait" in line["op"]]
    assert waited[0]["output"]["interrupt"] == {"__interrupt__": {"interrupt_message": "How can I help you?"}}
    assert waited[1]["output"]["values"]["message"] == "resumed with {'message': 'blue'}"


def test_its_threads_work_but_for_their_streams_and_background_runs(said: Said) -> None:
    broken = {line["op"] for line in said["replayed thread"] if line.get("error", {}).get("status") == 500}
    assert broken == {"create_and_stream_thread_run_output", "create_thread_run"}
    found = {line["op"]: line["result"] for line in said["replayed thread"] if "result" in line}
    assert len(found["get_thread_history"]) == 4
    assert found["patch_thread"]["metadata"] == {"colour": "blue"}
    assert found["get_thread"]["status"] == "idle"


def test_its_runs_can_neither_be_cancelled_nor_deleted(said: Said, agent_connect_replay: Process) -> None:
    (refused,) = [line["error"] for line in said["replayed cancel"] if line["op"] == "cancel_stateless_run"]
    assert (refused["status"], json.loads(refused["body"])) == (500, {"detail": "Not implemented"})
    waited = said["replayed cancel"][-1]["result"]
    assert waited["output"]["values"]["message"] == "echo: slow"
    assert httpx2.delete(f"{agent_connect_replay.url}/runs/{waited['run']['run_id']}").status_code == 500
