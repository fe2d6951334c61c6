"""The replay server says what was recorded, to the word, and has the recorded server's quirks."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.peers import capture
from tests.support.peers import PEERS
from tests.support.processes import Process

TAPE = capture.read(PEERS / "captures" / "agntcy-sdk152_workflow-srv.txt")
CHANGES = {"run_id", "thread_id", "created_at", "updated_at", "checkpoint_id"}


def steady(body: Any) -> Any:
    """A body without what differs from one run to the next."""
    if isinstance(body, dict):
        return {key: steady(value) for key, value in body.items() if key not in CHANGES}
    return [steady(one) for one in body] if isinstance(body, list) else body


def replayable(one: capture.Exchange) -> bool:
    """Requests that need no earlier one, and end; streams are looked at below."""
    return (
        one.status != 0 and one.method == "POST" and one.path in ("/agents/search", "/runs", "/runs/wait", "/threads")
    )


@pytest.fixture
def http(agent_connect_replay: Process) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=agent_connect_replay.url, timeout=30) as client:
        yield client


def test_the_capture_is_read_whole() -> None:
    assert len(TAPE) == 49
    assert [one.path for one in TAPE if one.status == 0] == [TAPE[39].path]
    assert [len(one.events) for one in TAPE if one.path == "/runs/stream" and one.status == 200] == [2, 3, 1, 2]


@pytest.mark.parametrize(
    "one", [*filter(replayable, TAPE)], ids=lambda one: f"{one.path} {json.dumps(one.asked)[-70:]}"
)
def test_a_recorded_request_gets_the_recorded_answer(one: capture.Exchange, http: httpx2.Client) -> None:
    answer = http.request(one.method, one.path, json=one.asked)
    assert answer.status_code == one.status
    assert steady(answer.json()) == steady(one.json)


@pytest.mark.parametrize("one", [one for one in TAPE if one.path == "/runs/stream" and one.events])
def test_a_recorded_stream_comes_again_event_by_event(one: capture.Exchange, http: httpx2.Client) -> None:
    with http.stream("POST", "/runs/stream", json=one.asked) as answer:
        text = ""
        for part in answer.iter_text():
            text += part
            if text.count("data: ") == len(one.events) and text.endswith("\n\n"):
                break
    again = capture.Exchange("", "", None, 200, text).events
    assert [fields["id"] for fields in again] == [fields["id"] for fields in one.events]
    assert [steady(json.loads(fields["data"])) for fields in again] == [
        steady(json.loads(fields["data"])) for fields in one.events
    ]


def test_after_an_error_the_stream_never_ends_but_only_comments_come(http: httpx2.Client) -> None:
    asked = {"agent_id": TAPE[1].json[0]["agent_id"], "input": {"message": "fail"}}
    text = ""
    with http.stream("POST", "/runs/stream", json=asked) as answer:
        for part in answer.iter_text():
            text += part
            if text.count("\n:\n") >= 3:
                break
    assert text.count('"type": "error"') == 3
    assert set(text.split("\n\n")[3:]) == {":", ""}


@pytest.mark.parametrize("mode", ["values", ["values"], "custom"])
def test_any_stream_mode_is_refused_with_the_mode_in_the_answer(mode: Any, http: httpx2.Client) -> None:
    asked = {"agent_id": TAPE[1].json[0]["agent_id"], "input": {"message": "x"}, "stream_mode": mode}
    answer = http.post("/runs/stream", json=asked)
    (recorded,) = {
        one.answer for one in TAPE if one.asked and one.asked.get("stream_mode") == mode and one.events == []
    }
    assert (answer.status_code, answer.json()) == (422, json.loads(recorded))
