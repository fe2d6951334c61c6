"""Streams over a real socket: order, ids, resuming, ends, silence."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx2
import pytest

from tests.adapters.agent_connect.api import Api, Event
from tests.adapters.agent_connect.inbound_server import Server, serve
from tests.adapters.agent_connect.test_inbound_runs import create, gate, gated


def values(events: list[Event]) -> list[Any]:
    return [event.data["values"] for event in events if event.data["type"] == "values"]


def updates(events: list[Event]) -> list[Any]:
    return [event.data["update"] for event in events if event.data["type"] == "custom"]


def test_values_are_snapshots_that_grow_and_the_last_one_says_success(api: Api, server: Server) -> None:
    name = gate()
    with api.streaming("POST", "/runs/stream", gated(name, stream_mode="values")) as stream:
        events = [next(stream)]
        server.open(name)
        events += stream
    assert values(events) == [{"message": "one"}, {"message": "one two"}, {"message": "one two"}]
    assert [event.data["status"] for event in events] == ["pending", "pending", "success"]
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert len({event.data["run_id"] for event in events}) == 1


def test_a_text_that_was_said_at_once_is_shown_at_once(api: Api) -> None:
    events = api.stream("POST", "/runs/stream", create("echo", "one two three", stream_mode="values"))
    assert values(events)[-1] == {"message": "one two three "}
    assert len(events) < 4


@pytest.mark.parametrize("mode", [None, [], ["values"], "absent"])
def test_values_are_what_a_client_gets_that_asks_for_nothing_else(api: Api, mode: Any) -> None:
    body = create("thinker") if mode == "absent" else create("thinker", stream_mode=mode)
    events = api.stream("POST", "/runs/stream", body)
    assert {event.data["type"] for event in events} == {"values"}
    assert values(events)[-1] == {"message": "done"}


def test_custom_is_everything_but_the_output_with_the_events_name_as_type(api: Api) -> None:
    events = api.stream("POST", "/runs/stream", create("thinker", stream_mode="custom"))
    told = updates(events)
    assert [update.get("type") for update in told] == [
        "part_started",
        "part_delta",
        "part_delta",
        "tool_call_started",
        "tool_call_ended",
        "plan_updated",
        "usage_reported",
        None,
        "custom",
        "part_ended",
    ]
    assert told[0]["kind"] == "thought"
    assert "".join(update["delta"] for update in told[1:3]) == "hm, yes"
    assert told[3] == {"type": "tool_call_started", "call": "c", "name": "look", "input": {"at": 1}}
    assert told[5]["entries"] == [{"content": "think", "status": "completed"}]
    assert told[7] == {"words": 1}, "an Agent Connect agent's own update is sent on as it came"
    assert told[8] == {"type": "custom", "name": "other", "data": [1, 2]}
    assert events[-1].data["type"] == "values" and events[-1].data["status"] == "success"
    assert values(events) == [{"message": "done"}]


def test_both_modes_are_sent_in_the_order_of_events(api: Api) -> None:
    events = api.stream("POST", "/runs/stream", create("thinker", stream_mode=["custom", "values"]))
    assert values(events) == [{"message": "do"}, {"message": "done"}, {"message": "done"}]
    assert len(updates(events)) == 10
    assert len({event.id for event in events}) == len(events)
    assert [event.number for event in events] == sorted(event.number for event in events)


def test_a_file_is_an_update_and_a_message_of_the_last_values(api: Api) -> None:
    events = api.stream("POST", "/runs/stream", create("filer", stream_mode=["values", "custom"]))
    (added,) = updates(events)
    assert added["type"] == "artifact_added"
    assert (added["artifact"]["name"], added["artifact"]["size"]) == ("notes.txt", 5)
    (message,) = events[-1].data["messages"]
    assert message["content"] == "see the file"
    assert message["metadata"]["artifacts"][0]["url"] == added["artifact"]["url"]


def test_a_failure_is_an_error_event_after_what_was_said(api: Api) -> None:
    said, failed = api.stream("POST", "/runs/stream", create("failer"))
    assert said.data["values"] == {"message": "so far"}
    run_id = said.data["run_id"]
    assert failed.data == {
        "type": "error",
        "run_id": run_id,
        "errcode": 502,
        "description": "it failed on purpose",
        "status": "error",
        "transient": False,
    }


def test_an_interrupt_ends_the_stream_and_the_next_one_goes_on_from_there(api: Api) -> None:
    said, asked = api.stream("POST", "/runs/stream", create("asker"))
    assert said.data["values"] == {"message": "well: "}
    assert asked.data["interrupt"] == {"approval": {"question": "Is it right?"}}
    assert asked.data["status"] == "interrupted"
    run_id = asked.data["run_id"]
    api("POST", f"/runs/{run_id}", {"approved": True})
    rest = api.stream("GET", f"/runs/{run_id}/stream", headers={"last-event-id": asked.id})
    assert values(rest)[-1] == {"message": 'well: {"approved":true}'}
    assert min(event.number for event in rest) > asked.number


def test_an_interrupt_that_was_answered_does_not_end_a_stream_from_the_beginning(api: Api) -> None:
    run_id = api.stream("POST", "/runs/stream", create("asker"))[0].data["run_id"]
    api("POST", f"/runs/{run_id}", {"approved": True})
    api("GET", f"/runs/{run_id}/wait")
    events = api.stream("GET", f"/runs/{run_id}/stream", headers={"last-event-id": "0"})
    assert {event.data["type"] for event in events} == {"values"}
    assert values(events)[-1] == {"message": 'well: {"approved":true}'}


# --- joining and resuming ---


def test_who_joins_gets_the_state_as_it_is_and_what_comes_after(api: Api, server: Server) -> None:
    name = gate()
    run_id = api("POST", "/runs", gated(name))["run_id"]
    with api.streaming("GET", f"/runs/{run_id}/stream") as events:
        assert next(events).data["values"] == {"message": "one"}
        server.open(name)
        rest = list(events)
    assert values(rest) == [{"message": "one two"}, {"message": "one two"}]


def test_who_joins_a_waiting_run_gets_its_question(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("asker"))["run"]["run_id"]
    events = api.stream("GET", f"/runs/{run_id}/stream")
    assert events[-1].data["interrupt"] == {"approval": {"question": "Is it right?"}}


@pytest.mark.parametrize("agent", ["echo", "failer"])
def test_who_joins_an_ended_run_gets_its_end(api: Api, agent: str) -> None:
    waited = api("POST", "/runs/wait", create(agent))
    events = api.stream("GET", f"/runs/{waited['run']['run_id']}/stream")
    assert events[-1].data["status"] == waited["run"]["status"]
    assert len([event for event in events if event.data["status"] != "pending"]) == 1


@pytest.mark.parametrize("mode", ["values", "custom", ["values", "custom"]])
def test_a_stream_is_resumed_after_every_one_of_its_events_without_gap_or_repeat(api: Api, mode: Any) -> None:
    whole = api.stream("POST", "/runs/stream", create("thinker", stream_mode=mode))
    run_id = whole[0].data["run_id"]
    for at, event in enumerate(whole):
        rest = api.stream("GET", f"/runs/{run_id}/stream", headers={"last-event-id": event.id})
        assert [(e.id, e.data) for e in rest] == [(e.id, e.data) for e in whole[at + 1 :]]
    again = api.stream("GET", f"/runs/{run_id}/stream", headers={"last-event-id": "0"})
    assert [(e.id, e.data) for e in again] == [(e.id, e.data) for e in whole]


def test_a_stream_is_resumed_while_the_run_goes_on(api: Api, server: Server) -> None:
    name = gate()
    with api.streaming("POST", "/runs/stream", gated(name, on_disconnect="continue")) as events:
        first = next(events)
    run_id = first.data["run_id"]
    headers = {"last-event-id": first.id}
    with api.streaming("GET", f"/runs/{run_id}/stream", headers=headers) as events:
        server.open(name)
        assert values(list(events)) == [{"message": "one two"}, {"message": "one two"}]


@pytest.mark.parametrize("ident", ["x", "1.2.3", "-1", "9" * 40])
def test_an_event_id_of_no_stream_is_refused(api: Api, ident: str) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    api("GET", f"/runs/{run_id}/stream", status=422, headers={"last-event-id": ident})


# --- before the first byte ---


def test_what_is_wrong_before_the_first_event_is_a_status(api: Api) -> None:
    api("POST", "/runs/stream", create("echo", input={"message": 5}), status=422)
    api("POST", "/runs/stream", create("echo", stream_mode=["values", "debug"]), status=422)
    api("GET", f"/runs/{uuid.uuid4()}/stream", status=404)
    api("GET", "/runs/no-uuid/stream", status=422)


def test_the_accept_header_is_not_asked_for(api: Api) -> None:
    headers = {"accept": "application/json"}
    assert values(api.stream("POST", "/runs/stream", create("echo", "hi"), headers=headers))[-1] == {"message": "hi "}


def test_the_answer_says_where_the_run_is(api: Api) -> None:
    with api.client.stream("POST", f"{api.base}/runs/stream", json=create("echo")) as answer:
        assert answer.headers["cache-control"].startswith("no-cache")
        where = answer.headers["content-location"].removeprefix("/agent-connect")
        list(answer.iter_bytes())
    assert api("GET", where)["status"] == "success"


# --- what the wire must look like ---


def test_silence_is_filled_with_comments_that_are_no_events() -> None:
    with serve(keep_alive=0.05) as server, httpx2.Client(timeout=60) as client:
        api, name = Api(server.url, client), gate()
        with client.stream("POST", f"{server.url}/runs/stream", json=gated(name)) as answer:
            chunks, kept = answer.iter_bytes(), b""
            while kept.count(b": keep-alive") < 2:
                kept += next(chunks)
            server.open(name)
            kept += b"".join(chunks)
        assert api.base == server.url
    blocks = [block for block in kept.split(b"\n\n") if block]
    assert all(b"data: " in block for block in blocks), "a blank line after a comment is an empty event to the SDK"


def test_a_long_answer_is_sent_in_far_fewer_bytes_than_all_its_snapshots(api: Api) -> None:
    size = 400_000
    with api.client.stream("POST", f"{api.base}/runs/stream", json=create("writer", str(size))) as answer:
        raw = b"".join(answer.iter_bytes())
    assert len(raw) < 120 * size
    last = json.loads(raw.rstrip().rpartition(b"data: ")[2])
    assert last["status"] == "success"
    assert len(last["values"]["message"]) == size


@pytest.mark.parametrize("agent", ["echo", "failer"])
def test_the_last_event_tells_what_was_lost(api: Api, agent: str) -> None:
    first, *_, last = api.stream("POST", "/runs/stream", create(agent, "one two", config={"tags": ["red"]}))
    assert last.data["losses"] == {"tags": 1} and "losses" not in first.data
    assert "losses" not in api.stream("POST", "/runs/stream", create(agent, "one two"))[-1].data
