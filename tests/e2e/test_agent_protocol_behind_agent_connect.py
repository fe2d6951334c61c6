"""The main job: an agent written with the real agent-protocol SDK, reached by the real agntcy-acp SDK."""

from __future__ import annotations

import itertools
import json
import urllib.request
from typing import Any

import pytest

from tests.support.peers import agent_connect_conversations
from tests.support.processes import Gateway

ASKED = "write a haiku"
STEPS = [f"step {n} of 3: {ASKED}" for n in (1, 2, 3)]
WHOLE = "\n\n".join(STEPS)


CONVERSATIONS: dict[str, tuple[str, ...]] = {
    "search": ("search",),
    "descriptor": ("descriptor",),
    "wait": ("wait",),
    "background": ("background",),
    "stream": ("stream", "--stream-mode", "values", "--tag", "red"),
    "stream-async": ("stream-async", "--stream-mode", "values"),
    "join": ("join",),
    "delete": ("delete",),
    "errors": ("errors",),
    "thread": ("thread", "--second", "four five"),
    "fail": ("wait", "--message", "fail 2"),
    "resume": ("resume", "--name", "stepwise", "--answer", '{"message": "and now?"}'),
}
REFUSED = {"thread": ["get_thread"], "delete": ["get_stateless_run"]}
"""Operations that are to be refused: a thread and a run are asked for once more when they are deleted."""

Line = dict[str, Any]


@pytest.fixture(scope="module")
def said(gateway: Gateway) -> dict[str, list[Line]]:
    """What the SDK made of each conversation; all in one process, since importing it takes seconds."""
    each = [(kind, "--name", "writer", "--message", ASKED, *more) for kind, *more in CONVERSATIONS.values()]
    lines = agent_connect_conversations(f"{gateway.url}/agent-connect", *each)
    found = dict(zip(CONVERSATIONS, lines, strict=True))
    for name, told in found.items():
        wrong = [line for line in told if "error" in line]
        assert name == "errors" or [line["op"] for line in wrong] == REFUSED.get(name, []), wrong
    return found


def results(lines: list[Line], op: str) -> list[Any]:
    found = [line["result"] for line in lines if line.get("op") == op and "result" in line]
    assert found, f"no {op} in {[line.get('op') for line in lines]}"
    return found


def streamed(lines: list[Line], op: str) -> list[Any]:
    """Each event once: the SDK gives earlier ones again with every chunk that arrives."""
    events = {line["event"]["id"]: line["event"] for line in lines if line.get("op") == op and "event" in line}
    return list(events.values())


def test_it_finds_the_agent_and_reads_its_descriptor(said: dict[str, list[Line]]) -> None:
    (found,) = results(said["search"], "search_agents")
    assert [agent["metadata"]["ref"]["name"] for agent in found] == ["writer"]
    descriptor = next(line["result"] for line in said["descriptor"] if "specs" in (line.get("result") or {}))
    specs = descriptor["specs"]
    assert specs["capabilities"]["threads"] and specs["capabilities"]["callbacks"]
    assert specs["capabilities"]["streaming"]["values"]
    assert specs["input"]["required"] == ["message"]


def test_it_runs_the_agent_and_waits(said: dict[str, list[Line]]) -> None:
    answer = results(said["wait"], "create_and_wait_for_stateless_run_output")[0]
    assert answer["run"]["status"] == "success"
    assert answer["output"]["values"]["message"] == WHOLE


def test_it_gets_the_artifact_the_agent_wrote(gateway: Gateway, said: dict[str, list[Line]]) -> None:
    answer = results(said["wait"], "create_and_wait_for_stateless_run_output")[0]
    (file,) = answer["output"]["values"]["artifacts"]
    assert file["name"] == "output.txt"
    assert file["url"].startswith(gateway.url)
    with urllib.request.urlopen(file["url"], timeout=60) as response:
        assert response.read().decode() == ASKED
        assert response.headers["x-content-type-options"] == "nosniff"


def test_it_starts_in_the_background_polls_and_waits(said: dict[str, list[Line]]) -> None:
    lines = said["background"]
    created = results(lines, "create_stateless_run")[0]
    polled = results(lines, "get_stateless_run")
    waited = results(lines, "wait_for_stateless_run_output")[0]
    assert polled[-1]["run_id"] == created["run_id"] and polled[-1]["status"] == "success"
    assert waited["output"]["values"]["message"] == WHOLE


@pytest.mark.parametrize("command", ["stream", "stream-async"])
def test_it_streams_values_that_grow_to_the_whole(said: dict[str, list[Line]], command: str) -> None:
    op = "create_and_stream_stateless_run_output" + (" [async]" if command == "stream-async" else "")
    events = streamed(said[command], op)
    texts = [event["data"]["values"]["message"] for event in events]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert STEPS[0] in texts and texts[-1] == WHOLE
    assert [event["data"]["status"] for event in events][-1] == "success"
    numbers = [int(event["id"]) for event in events]
    assert numbers == sorted(set(numbers))


def test_it_joins_a_stream_to_its_end(said: dict[str, list[Line]]) -> None:
    assert streamed(said["join"], "stream_stateless_run_output")[-1]["data"]["values"]["message"] == WHOLE


def test_it_talks_to_the_agent_over_a_thread(said: dict[str, list[Line]]) -> None:
    lines = said["thread"]
    thread = results(lines, "create_thread")[0]
    first = results(lines, "create_and_wait_for_thread_run_output")[0]
    assert first["run"]["thread_id"] == thread["thread_id"]
    assert first["output"]["values"]["message"] == WHOLE
    second = streamed(lines, "create_and_stream_thread_run_output")[-1]
    assert second["data"]["values"]["message"].endswith("\n\nfour five")
    history = results(lines, "get_thread_history")[0]
    assert len(history) >= 2
    assert [one["content"] for one in history[-1]["values"]["messages"]] == [ASKED, WHOLE]
    patched = results(lines, "patch_thread")[0]
    assert patched["metadata"]["colour"] == "blue"
    assert results(lines, "copy_thread")[0]["thread_id"] != thread["thread_id"]


def test_unknown_ids_and_bad_input_are_refused_with_a_sentence(said: dict[str, list[Line]]) -> None:
    refused = [line["error"] for line in said["errors"] if "error" in line]
    assert [one["status"] for one in refused] == [404, 404, 404, 422, 422, 422, *[404] * 8]
    assert all(isinstance(json.loads(one["body"]), str) for one in refused)


def test_a_step_that_fails_is_a_failed_run_with_what_was_said_before(said: dict[str, list[Line]]) -> None:
    answer = results(said["fail"], "create_and_wait_for_stateless_run_output")[0]
    assert answer["run"]["status"] == "error"
    assert answer["output"]["type"] == "error" and "500" in answer["output"]["description"]


def test_steps_driven_one_at_a_time_are_interrupts_that_the_client_resumes(said: dict[str, list[Line]]) -> None:
    last = results(said["resume"], "wait_for_stateless_run_output")[-1]
    assert last["run"]["status"] == "success"
    assert "step 2 of 3: and now?" in last["output"]["values"]["message"]
