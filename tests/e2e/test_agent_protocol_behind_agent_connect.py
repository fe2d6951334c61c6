"""The main job: an agent written with the real agent-protocol SDK, reached by the real agntcy-acp SDK."""

from __future__ import annotations

import itertools
import urllib.request
from typing import Any

import pytest

from tests.support.peers import run_program
from tests.support.processes import Gateway

ASKED = "write a haiku"
STEPS = [f"step {n} of 3: {ASKED}" for n in (1, 2, 3)]
WHOLE = "\n\n".join(STEPS)


def client(gateway: Gateway, *args: str, expected: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What the SDK made of the conversation. `expected`: operations that may be refused."""
    url = f"{gateway.url}/agent-connect"
    lines = run_program("agntcy-acp", "agent_connect_client.py", "--url", url, "--message", ASKED, *args)
    wrong = [line for line in lines if "error" in line and line["op"] not in expected]
    assert not wrong, wrong
    return lines


def results(lines: list[dict[str, Any]], op: str) -> list[Any]:
    found = [line["result"] for line in lines if line.get("op") == op and "result" in line]
    assert found, f"no {op} in {[line.get('op') for line in lines]}"
    return found


def streamed(lines: list[dict[str, Any]], op: str) -> list[Any]:
    """Each event once: the SDK gives earlier ones again with every chunk that arrives."""
    events = {line["event"]["id"]: line["event"] for line in lines if line.get("op") == op and "event" in line}
    return list(events.values())


def test_it_finds_the_agent_and_reads_its_descriptor(gateway: Gateway) -> None:
    lines = client(gateway, "--name", "writer", "search")
    (found,) = results(lines, "search_agents")
    assert [agent["metadata"]["ref"]["name"] for agent in found] == ["writer"]
    lines = client(gateway, "--name", "writer", "descriptor")
    descriptor = next(line["result"] for line in lines if "specs" in (line.get("result") or {}))
    specs = descriptor["specs"]
    assert specs["capabilities"]["threads"] and specs["capabilities"]["callbacks"]
    assert specs["capabilities"]["streaming"]["values"]
    assert specs["input"]["required"] == ["message"]


def test_it_runs_the_agent_and_waits(gateway: Gateway) -> None:
    lines = client(gateway, "--name", "writer", "wait")
    answer = results(lines, "create_and_wait_for_stateless_run_output")[0]
    assert answer["run"]["status"] == "success"
    assert answer["output"]["values"]["message"] == WHOLE


def test_it_gets_the_artifact_the_agent_wrote(gateway: Gateway) -> None:
    lines = client(gateway, "--name", "writer", "wait")
    answer = results(lines, "create_and_wait_for_stateless_run_output")[0]
    (file,) = answer["output"]["values"]["artifacts"]
    assert file["name"] == "output.txt"
    assert file["url"].startswith(gateway.url)
    with urllib.request.urlopen(file["url"], timeout=5) as response:
        assert response.read().decode() == ASKED
        assert response.headers["x-content-type-options"] == "nosniff"


def test_it_starts_in_the_background_polls_and_waits(gateway: Gateway) -> None:
    lines = client(gateway, "--name", "writer", "background")
    created = results(lines, "create_stateless_run")[0]
    polled = results(lines, "get_stateless_run")
    waited = results(lines, "wait_for_stateless_run_output")[0]
    assert polled[-1]["run_id"] == created["run_id"] and polled[-1]["status"] == "success"
    assert waited["output"]["values"]["message"] == WHOLE


@pytest.mark.parametrize("command", ["stream", "stream-async"])
def test_it_streams_values_that_grow_to_the_whole(gateway: Gateway, command: str) -> None:
    lines = client(gateway, "--name", "writer", "--stream-mode", "values", command)
    op = "create_and_stream_stateless_run_output" + (" [async]" if command == "stream-async" else "")
    events = streamed(lines, op)
    texts = [event["data"]["values"]["message"] for event in events]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert STEPS[0] in texts and texts[-1] == WHOLE
    assert [event["data"]["status"] for event in events][-1] == "success"
    numbers = [int(event["id"]) for event in events]
    assert numbers == sorted(set(numbers))


def test_it_talks_to_the_agent_over_a_thread(gateway: Gateway) -> None:
    lines = client(
        gateway, "--name", "writer", "--second", "four five", "thread", expected=("get_thread",)
    )  # asked for once more, deleted
    thread = results(lines, "create_thread")[0]
    first = results(lines, "create_and_wait_for_thread_run_output")[0]
    assert first["run"]["thread_id"] == thread["thread_id"]
    assert first["output"]["values"]["message"] == WHOLE
    second = streamed(lines, "create_and_stream_thread_run_output")[-1]
    assert second["data"]["values"]["message"].endswith("step 3 of 3: four five")
    history = results(lines, "get_thread_history")[0]
    assert len(history) >= 2
    assert history[-1]["values"]["message"] == WHOLE
    patched = results(lines, "patch_thread")[0]
    assert patched["metadata"]["colour"] == "blue"
    assert results(lines, "copy_thread")[0]["thread_id"] != thread["thread_id"]


def test_a_step_that_fails_is_a_failed_run_with_what_was_said_before(gateway: Gateway) -> None:
    url = f"{gateway.url}/agent-connect"
    args = ["--url", url, "--name", "writer", "--message", "fail 2"]
    lines = run_program("agntcy-acp", "agent_connect_client.py", *args, "wait")
    answer = results(lines, "create_and_wait_for_stateless_run_output")[0]
    assert answer["run"]["status"] == "error"
    assert answer["output"]["type"] == "error" and "500" in answer["output"]["description"]


def test_steps_driven_one_at_a_time_are_interrupts_that_the_client_resumes(gateway: Gateway) -> None:
    answer = '{"message": "and now?"}'
    lines = client(gateway, "--name", "stepwise", "--answer", answer, "resume")
    last = results(lines, "wait_for_stateless_run_output")[-1]
    assert last["run"]["status"] == "success"
    assert "step 2 of 3: and now?" in last["output"]["values"]["message"]
