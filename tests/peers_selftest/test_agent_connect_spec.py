"""The plain Agent Connect server answers every operation of the OpenAPI with a body that fits its schema."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema
import pytest

from tests.support.processes import ROOT, Process

SPEC = json.loads((ROOT / "tests/specs/agent-connect/openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in SPEC["paths"].items()
    for method, operation in methods.items()
    if "operationId" in operation
}
UNKNOWN = "00000000-0000-0000-0000-000000000000"


class Caller:
    """Calls operations by their id and checks each answer against what the operation promises."""

    def __init__(self, http: httpx2.Client) -> None:
        self.http = http
        self.called: set[str] = set()

    def __call__(self, name: str, body: Any = None, *, expect: int | None = None, **ids: str) -> Any:
        method, path, operation = OPERATIONS[name]
        done = next(code for code in operation["responses"] if code.startswith("2"))
        answer = self.http.request(method, path.format(**ids), json=body)
        assert answer.status_code == (expect or int(done)), answer.text
        self.called.add(name)
        media = operation["responses"][str(answer.status_code)].get("content", {})
        if answer.status_code == 204:
            return None
        kind = answer.headers["content-type"].split(";")[0]
        found = self.events(answer.text) if kind == "text/event-stream" else [answer.json()]
        for one in found:
            jsonschema.validate(one, {**media[kind]["schema"], "components": SPEC["components"]})
        return found if kind == "text/event-stream" else found[0]

    @staticmethod
    def events(text: str) -> list[Any]:
        frames = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in text.split("\n\n") if frame]
        return [{**frame, "data": json.loads(frame["data"])} for frame in frames]


@pytest.fixture
def call(agent_connect_agent: Process) -> Iterator[Caller]:
    with httpx2.Client(base_url=agent_connect_agent.url, timeout=30) as http:
        yield Caller(http)


def test_every_operation_answers_as_its_schema_says(call: Caller) -> None:
    def agent(name: str) -> str:
        return str(call("search_agents", {"name": name})[0]["agent_id"])

    def asked(name: str, message: str = "a b") -> dict[str, Any]:
        return {"agent_id": agent(name), "input": {"message": message}}

    call("get_agent_by_id", agent_id=agent("echo"))
    call("get_acp_descriptor_by_id", agent_id=agent("writer"))
    call("create_and_stream_stateless_run_output", {**asked("writer"), "stream_mode": ["values", "custom"]})
    call("create_and_stream_stateless_run_output", asked("failer"))
    asking = call("create_and_wait_for_stateless_run_output", asked("asker"))["run"]["run_id"]
    call("stream_stateless_run_output", run_id=asking)
    call("resume_stateless_run", {"approved": True}, run_id=asking)
    ended = call("wait_for_stateless_run_output", run_id=asking)
    assert ended["output"]["values"] == {"message": "approved: a b"}
    running = call("create_stateless_run", asked("slow", "60 seconds"))["run_id"]
    call("cancel_stateless_run", run_id=running)
    assert call("get_stateless_run", run_id=running)["status"] == "error"
    call("delete_stateless_run", run_id=running)
    call("get_stateless_run", run_id=running, expect=404)
    call("search_stateless_runs", {"status": "success"})

    thread = call("create_thread", {"metadata": {"spec": "all"}})["thread_id"]
    call("create_thread", {"thread_id": thread}, expect=409)
    call("create_and_wait_for_thread_run_output", asked("echo"), thread_id=thread)
    call("create_and_stream_thread_run_output", asked("echo"), thread_id=thread)
    busy = call("create_thread_run", asked("slow", "60 seconds"), thread_id=thread)["run_id"]
    assert call("get_thread", thread_id=thread)["status"] == "busy"
    call("create_thread_run", asked("echo"), thread_id=thread, expect=409)
    call("cancel_thread_run", thread_id=thread, run_id=busy)
    call("get_thread_run", thread_id=thread, run_id=busy)
    call("stream_thread_run_output", thread_id=thread, run_id=busy)
    call("delete_thread_run", thread_id=thread, run_id=busy)
    asking = call("create_thread_run", asked("asker"), thread_id=thread)["run_id"]
    assert call("wait_for_thread_run_output", thread_id=thread, run_id=asking)["output"]["type"] == "interrupt"
    call("resume_thread_run", {"approved": "maybe"}, thread_id=thread, run_id=asking, expect=422)
    call("resume_thread_run", {"approved": True}, thread_id=thread, run_id=asking)
    assert call("wait_for_thread_run_output", thread_id=thread, run_id=asking)["output"]["type"] == "result"
    call("list_thread_runs", thread_id=thread)
    assert len(call("get_thread_history", thread_id=thread)) == 3
    call("patch_thread", {"values": {"turns": 9}}, thread_id=thread)
    assert len(call("search_threads", {"values": {"turns": 9}})) == 1
    copy = call("copy_thread", thread_id=thread)["thread_id"]
    call("delete_thread", thread_id=thread)
    call("get_thread", thread_id=thread, expect=404)
    call("get_thread", thread_id=copy)

    assert call.called == OPERATIONS.keys()


def test_a_run_outlives_the_connection_that_created_it_only_where_it_was_asked_to(call: Caller) -> None:
    (slow,) = call("search_agents", {"name": "slow"})
    ends = {}
    for policy, seconds in (("cancel", 60), ("continue", 0.4)):  # the server has time to see that nobody is there
        body = {"agent_id": slow["agent_id"], "input": {"message": f"{seconds} seconds"}, "on_disconnect": policy}
        with call.http.stream("POST", "/runs/stream", json=body) as stream:
            first = next(line for line in stream.iter_lines() if line.startswith("data:"))
        run_id = json.loads(first.removeprefix("data:"))["run_id"]
        ends[policy] = call("wait_for_stateless_run_output", run_id=run_id)["output"]
    assert ends["cancel"]["description"] == "cancelled"
    assert ends["continue"]["values"]["message"] == "tick 1 tick 2 tick 3 tick 4 done"


def test_a_stream_continues_after_the_event_that_was_seen_last(call: Caller) -> None:
    (echo,) = call("search_agents", {"name": "echo"})
    body = {"agent_id": echo["agent_id"], "input": {"message": "one two three"}}
    run_id = call("create_and_wait_for_stateless_run_output", body)["run"]["run_id"]
    answer = call.http.get(f"/runs/{run_id}/stream", headers={"last-event-id": "1"})
    assert [frame["id"] for frame in Caller.events(answer.text)] == ["2", "3"]
