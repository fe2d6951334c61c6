"""The other direction: the real agent-protocol-client reaches an Agent Connect agent through the gateway."""

from __future__ import annotations

import json
from typing import Any

from tests.support.peers import run_program
from tests.support.processes import Gateway


def client(gateway: Gateway, agent: str, *args: str) -> list[dict[str, Any]]:
    url = f"{gateway.url}/agent-protocol/{agent}"
    return run_program("e2b-client", "agent_protocol_client.py", "--url", url, *args)


def results(lines: list[dict[str, Any]], op: str) -> list[Any]:
    found = [line["result"] for line in lines if line.get("op") == op and "result" in line]
    assert found, f"no {op} in {[line.get('op') for line in lines]}"
    return found


def errors(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {line["op"]: line["error"] for line in lines if "error" in line}


def test_a_task_is_a_thread_and_its_step_a_run(gateway: Gateway) -> None:
    lines = client(gateway, "echo", "--input", "hello my friend", "steps")
    assert not errors(lines)
    task = results(lines, "create_agent_task")[0]
    (step,) = results(lines, "execute_agent_task_step")
    assert step["task_id"] == task["task_id"]
    assert (step["output"], step["status"], step["is_last"]) == ("hello my friend", "completed", True)


def test_a_question_is_a_step_that_is_not_the_last_and_the_next_step_answers_it(gateway: Gateway) -> None:
    answer = '{"approved": true, "reason": "fine"}'
    lines = client(gateway, "asker", "--input", "do it", "--step-input", "do it", "--step-input", answer, "steps")
    assert not errors(lines)
    asked, done = results(lines, "execute_agent_task_step")
    assert asked["status"] == "completed" and not asked["is_last"] and asked["output"]
    assert done["is_last"] and "fine" in done["output"]


def test_a_run_that_fails_is_a_completed_last_step_that_says_why(gateway: Gateway) -> None:
    lines = client(gateway, "failer", "--input", "x", "steps")
    (step,) = results(lines, "execute_agent_task_step")
    assert step["status"] == "completed" and step["is_last"]
    assert "it failed on purpose" in str(step["additional_output"])


def test_every_operation_of_the_client_works_and_unknown_ids_are_404(gateway: Gateway) -> None:
    lines = client(gateway, "writer", "--input", "write a haiku", "all")
    failed = errors(lines)
    assert set(failed) == {line["op"] for line in lines if "(unknown)" in line["op"]}, failed
    assert all(error.get("status") == 404 for error in failed.values()), failed
    (upload,) = results(lines, "upload_agent_task_artifacts")
    assert (upload["file_name"], upload["relative_path"], upload["agent_created"]) == ("up.txt", "sub/dir", False)
    downloads = results(lines, "download_agent_task_artifact")
    assert len(downloads) == 2
    pages = results(lines, "list_agent_task_steps")
    assert pages[0]["pagination"]["total_items"] == len(pages) == pages[0]["pagination"]["total_pages"]


def test_an_upload_for_an_agent_that_takes_no_files_is_refused_and_the_task_goes_on(gateway: Gateway) -> None:
    (task,) = results(client(gateway, "echo", "--input", "hello", "create"), "create_agent_task")
    refused = errors(client(gateway, "echo", "--task", task["task_id"], "upload"))["upload_agent_task_artifacts"]
    assert refused["status"] == 422 and "takes no files; with `lossy: allow`" in json.loads(refused["body"])["message"]
    (step,) = results(client(gateway, "echo", "--task", task["task_id"], "steps"), "execute_agent_task_step")
    assert (step["output"], step["is_last"]) == ("hello", True)


def test_where_the_route_allows_losses_an_upload_is_taken_kept_and_counted(gateway: Gateway) -> None:
    (task,) = results(client(gateway, "lossy", "--input", "hello", "create"), "create_agent_task")
    (kept,) = results(client(gateway, "lossy", "--task", task["task_id"], "upload"), "upload_agent_task_artifacts")
    assert kept["file_name"] == "up.txt"
    (step,) = results(client(gateway, "lossy", "--task", task["task_id"], "steps"), "execute_agent_task_step")
    assert (step["output"], step["is_last"]) == ("hello", True)
    assert step["additional_output"]["losses"] == {"uploads": 1}


def test_through_the_gateway_and_back_nothing_of_the_protocol_is_lost(gateway: Gateway) -> None:
    lines = client(gateway, "stepwise", "--input", "write a haiku", "steps")
    steps = results(lines, "execute_agent_task_step")
    assert [step["output"] for step in steps] == [f"step {n} of 3: write a haiku" for n in (1, 2, 3)]
    assert [step["is_last"] for step in steps] == [False, False, True]
    assert [a["file_name"] for a in steps[0]["artifacts"]] == ["output.txt"]
