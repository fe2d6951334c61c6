"""The real Agent Protocol client against the real server: known good before a gateway stands between them."""

import json
from typing import Any

import httpx2
import pytest

from tests.support.peers import agent_protocol_client
from tests.support.processes import Process

Line = dict[str, Any]


def results(lines: list[Line], op: str) -> list[Any]:
    return [line["result"] for line in lines if line["op"] == op and "result" in line]


def errors(lines: list[Line], op: str) -> list[Any]:
    return [line["error"] for line in lines if line["op"] == op and "error" in line]


@pytest.fixture(scope="module")
def conversation(agent_protocol_server: Process) -> list[Line]:
    return agent_protocol_client("all", agent_protocol_server.url, "--input", "hello world")


def test_a_task_takes_three_steps_and_the_third_is_the_last(conversation: list[Line]) -> None:
    steps = results(conversation, "execute_agent_task_step")
    assert [step["output"] for step in steps] == [f"step {n} of 3: hello world" for n in (1, 2, 3)]
    assert [step["is_last"] for step in steps] == [False, False, True]
    assert {step["status"] for step in steps} == {"completed"}


def test_the_first_step_leaves_an_artifact_that_can_be_downloaded(conversation: list[Line]) -> None:
    first = results(conversation, "execute_agent_task_step")[0]
    assert [one["file_name"] for one in first["artifacts"]] == ["output.txt"]
    assert results(conversation, "download_agent_task_artifact") == ["hello world", "uploaded"]


def test_an_upload_keeps_its_name_and_relative_path(conversation: list[Line]) -> None:
    (artifact,) = results(conversation, "upload_agent_task_artifacts")
    assert (artifact["file_name"], artifact["relative_path"]) == ("up.txt", "sub/dir")
    assert artifact["agent_created"] is False


def test_steps_are_listed_one_a_page(conversation: list[Line]) -> None:
    pages = results(conversation, "list_agent_task_steps")
    assert [page["pagination"]["current_page"] for page in pages] == [1, 2, 3]
    assert [len(page["steps"]) for page in pages] == [1, 1, 1]


def test_unknown_ids_are_404_with_a_message(conversation: list[Line]) -> None:
    unknown = [line for line in conversation if line["op"].endswith("(unknown)")]
    assert len(unknown) == 6
    assert {line["error"]["status"] for line in unknown} == {404}
    assert all("message" in json.loads(line["error"]["body"]) for line in unknown)


def test_the_server_s_own_quirks_are_the_recorded_ones(conversation: list[Line]) -> None:
    assert results(conversation, "create_agent_task")[0]["additional_input"] == {}
    (refused,) = errors(conversation, "list_agent_task_artifacts")
    assert refused["type"] == "ValidationError" and "not list" in refused["body"]
    ids = [step["step_id"] for step in results(conversation, "execute_agent_task_step")]
    assert [step["step_id"] for step in results(conversation, "get_agent_task_step")] == [ids[0]] * 3


def test_words_in_the_input_choose_failure_a_question_or_a_single_step(agent_protocol_server: Process) -> None:
    with httpx2.Client(base_url=f"{agent_protocol_server.url}/ap/v1/agent") as http:

        def steps(words: str, *said: str) -> list[httpx2.Response]:
            task = http.post("/tasks", json={"input": words}).json()["task_id"]
            return [http.post(f"/tasks/{task}/steps", json={"input": text}) for text in said or ("",)]

        (failed,) = steps("fail please")
        assert (failed.status_code, failed.text) == (500, "Internal Server Error")
        asked = [one.json() for one in steps("ask me", "hello", "blue")]
        assert [(one["output"], one["is_last"]) for one in asked] == [
            ("Which colour?", False),
            ("You said: blue", True),
        ]
        only = steps("one slow 0.1 thing")[0].json()
        assert (only["output"], only["is_last"]) == ("step 1 of 1: one slow 0.1 thing", True)
