"""Threads, and runs on them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.adapters.agent_connect.api import Api
from tests.adapters.agent_connect.inbound_server import Server
from tests.adapters.agent_connect.test_inbound_runs import UNKNOWN, create, gate, gated


def says(state: Any) -> list[tuple[str, str]]:
    """The messages of a state in the gateway's own schema."""
    return [(one["role"], one["content"]) for one in state["messages"]]


def turns(*words: str) -> list[tuple[str, str]]:
    return [one for word in words for one in (("user", word), ("assistant", f"{word} "))]


def on(api: Api, thread: str, message: str, agent: str = "echo") -> Any:
    return api("POST", f"/threads/{thread}/runs/wait", create(agent, message))


@pytest.fixture
def thread(api: Api) -> str:
    return str(api("POST", "/threads", {})["thread_id"])


def test_a_thread_is_created_with_the_id_that_the_client_chose(api: Api) -> None:
    ident = str(uuid.uuid4())
    made = api("POST", "/threads", {"thread_id": ident, "metadata": {"a": 1}})
    assert (made["thread_id"], made["metadata"], made["status"]) == (ident, {"a": 1}, "idle")
    assert api("GET", f"/threads/{ident}") == made


def test_a_thread_that_exists_is_409_unless_nothing_shall_be_done(api: Api) -> None:
    made = api("POST", "/threads", {"metadata": {"a": 1}})
    ident = made["thread_id"]
    api("POST", "/threads", {"thread_id": ident, "metadata": {"b": 2}}, status=409)
    api("POST", "/threads", {"thread_id": ident, "if_exists": "raise"}, status=409)
    assert api("POST", "/threads", {"thread_id": ident, "metadata": {"b": 2}, "if_exists": "do_nothing"}) == made


def test_runs_on_a_thread_leave_its_state_messages_and_history(api: Api, thread: str) -> None:
    first, second = on(api, thread, "one"), on(api, thread, "two")
    assert first["run"]["thread_id"] == thread
    now = api("GET", f"/threads/{thread}")
    assert says(now["values"]) == says(now) == turns("one", "two")
    history = api("GET", f"/threads/{thread}/history")
    assert [says(state["values"]) for state in history] == [turns("one", "two"), turns("one")]
    assert [len(state["messages"]) for state in history] == [4, 2]
    assert history[0]["metadata"]["run_id"] == second["run"]["run_id"]


def test_history_is_limited_and_begins_below_a_checkpoint(api: Api, thread: str) -> None:
    for word in ("one", "two", "three"):
        on(api, thread, word)
    newest = api("GET", f"/threads/{thread}/history?limit=1")
    assert [says(state["values"]) for state in newest] == [turns("one", "two", "three")]
    before = newest[0]["checkpoint"]["checkpoint_id"]
    older = api("GET", f"/threads/{thread}/history?before={before}")
    assert [says(state["values"]) for state in older] == [turns("one", "two"), turns("one")]
    assert [len(state["messages"]) for state in older] == [4, 2]
    api("GET", f"/threads/{thread}/history?before={UNKNOWN}", status=404)
    api("GET", f"/threads/{thread}/history?limit=0", status=422)
    assert api("GET", f"/threads/{thread}/history?limit=99999") == api("GET", f"/threads/{thread}/history?limit=1000")


def test_a_threads_runs_are_listed_newest_first(api: Api, thread: str) -> None:
    ids = [on(api, thread, word)["run"]["run_id"] for word in ("one", "two", "three")]
    listed = api("GET", f"/threads/{thread}/runs")
    assert [run["run_id"] for run in listed] == ids[::-1]
    assert [run["run_id"] for run in api("GET", f"/threads/{thread}/runs?limit=1&offset=1")] == [ids[1]]
    api("GET", f"/threads/{thread}/runs?limit=x", status=422)


def test_every_run_operation_exists_under_the_thread(api: Api, thread: str) -> None:
    base = f"/threads/{thread}/runs"
    run_id = api("POST", base, create("asker"))["run_id"]
    assert api("GET", f"{base}/{run_id}/wait")["output"]["type"] == "interrupt"
    assert api("GET", f"/threads/{thread}")["status"] == "interrupted"
    api("POST", f"{base}/{run_id}", {"approved": True})
    assert api("GET", f"{base}/{run_id}/wait")["run"]["status"] == "success"
    assert api("GET", f"{base}/{run_id}")["thread_id"] == thread
    assert api.stream("GET", f"{base}/{run_id}/stream")[-1].data["status"] == "success"
    assert api.stream("POST", f"{base}/stream", create("echo", "hi"))[-1].data["values"] == {"message": "hi "}
    api("POST", f"{base}/{run_id}/cancel", status=204)
    api("DELETE", f"{base}/{run_id}", status=204)
    api("GET", f"{base}/{run_id}", status=404)


def test_a_run_of_another_thread_is_not_found_under_this_one(api: Api, thread: str) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    for method, path in [("GET", ""), ("GET", "/wait"), ("POST", "/cancel"), ("DELETE", "")]:
        api(method, f"/threads/{thread}/runs/{run_id}{path}", status=404)
    assert api("GET", f"/runs/{run_id}")["run_id"] == run_id


def test_a_busy_thread_refuses_a_second_run_or_queues_it(api: Api, server: Server, thread: str) -> None:
    name = gate()
    running = api("POST", f"/threads/{thread}/runs", gated(name))["run_id"]
    assert api("GET", f"/threads/{thread}")["status"] == "busy"
    api("POST", f"/threads/{thread}/runs", create("echo"), status=409)
    queued = api("POST", f"/threads/{thread}/runs", create("echo", multitask_strategy="enqueue"))["run_id"]
    api("DELETE", f"/threads/{thread}", status=422)
    server.open(name)
    assert api("GET", f"/runs/{running}/wait")["run"]["status"] == "success"
    assert api("GET", f"/runs/{queued}/wait")["run"]["status"] == "success"


def test_a_run_may_interrupt_the_one_before_it(api: Api, thread: str) -> None:
    running = api("POST", f"/threads/{thread}/runs", gated(gate()))["run_id"]
    newer = api("POST", f"/threads/{thread}/runs/wait", create("echo", multitask_strategy="interrupt"))
    assert newer["run"]["status"] == "success"
    assert api("GET", f"/runs/{running}")["status"] == "error"


def test_a_rollback_is_refused_by_an_agent_that_cannot(api: Api, thread: str) -> None:
    api("POST", f"/threads/{thread}/runs", create("echo", multitask_strategy="rollback"), status=422)


def test_a_missing_thread_is_404_unless_it_shall_be_created(api: Api) -> None:
    ident = str(uuid.uuid4())
    api("POST", f"/threads/{ident}/runs", create("echo"), status=404)
    api("POST", f"/threads/{ident}/runs", create("echo", if_not_exists="reject"), status=404)
    api("GET", f"/threads/{ident}", status=404)
    run = api("POST", f"/threads/{ident}/runs/wait", create("echo", if_not_exists="create"))["run"]
    assert run["thread_id"] == ident
    assert says(api("GET", f"/threads/{ident}")["values"]) == turns("hello there")
    api("POST", f"/threads/{ident}/runs/wait", create("echo", if_not_exists="create"))


def test_a_refused_run_does_not_take_a_thread_that_was_there_with_it(api: Api, thread: str) -> None:
    api("POST", f"/threads/{thread}/runs", create("echo", if_not_exists="create") | {"agent_id": UNKNOWN}, status=404)
    api("GET", f"/threads/{thread}")
    fresh = str(uuid.uuid4())
    api("POST", f"/threads/{fresh}/runs", create("echo", if_not_exists="create") | {"agent_id": UNKNOWN}, status=404)
    api("GET", f"/threads/{fresh}", status=404)


def test_search_finds_threads_by_metadata_values_and_status(api: Api) -> None:
    mark = {"mark": uuid.uuid4().hex}
    ids = [api("POST", "/threads", {"metadata": mark})["thread_id"] for _ in range(2)]
    on(api, ids[0], "one")
    api("POST", f"/threads/{ids[1]}/runs/wait", create("asker"))

    def found(**query: Any) -> set[str]:
        return {thread["thread_id"] for thread in api("POST", "/threads/search", {"metadata": mark, **query})}

    assert found() == set(ids)
    assert found(status="interrupted") == {ids[1]}
    api("PATCH", f"/threads/{ids[0]}", {"values": {"colour": "blue"}})
    assert found(values={"colour": "blue"}) == {ids[0]} and not found(values={"colour": "red"})
    assert found(values={"messages": api("GET", f"/threads/{ids[0]}")["messages"]}) == {ids[0]}
    assert len(found(limit=1)) == 1
    assert found(limit=1) | found(limit=1, offset=1) == set(ids)
    mark["mark"] = uuid.uuid4().hex
    blue = {api("POST", "/threads", {"metadata": mark})["thread_id"] for _ in range(3)}
    for ident in blue:
        api("PATCH", f"/threads/{ident}", {"values": {"colour": "blue"}})
    first, rest = found(values={"colour": "blue"}, limit=2), found(values={"colour": "blue"}, limit=2, offset=2)
    assert (len(first), len(rest)) == (2, 1) and first | rest == blue


def test_a_copy_has_the_state_and_history_and_goes_its_own_way(api: Api, thread: str) -> None:
    on(api, thread, "one")
    copy = api("POST", f"/threads/{thread}/copy")
    assert copy["thread_id"] != thread
    assert says(copy["values"]) == turns("one")
    on(api, copy["thread_id"], "two")
    assert len(api("GET", f"/threads/{copy['thread_id']}/history")) == 2
    assert len(api("GET", f"/threads/{thread}/history")) == 1


def test_a_patch_merges_metadata(api: Api) -> None:
    ident = api("POST", "/threads", {"metadata": {"a": 1, "b": 1}})["thread_id"]
    assert api("PATCH", f"/threads/{ident}", {"metadata": {"b": 2}})["metadata"] == {"a": 1, "b": 2}
    assert api("GET", f"/threads/{ident}")["metadata"] == {"a": 1, "b": 2}
    assert api("GET", f"/threads/{ident}/history") == []
    api("PATCH", f"/threads/{ident}", {})


def test_a_patch_of_values_and_messages_is_a_new_state(api: Api, thread: str) -> None:
    on(api, thread, "one")
    message = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "url": "u"}], "id": "m"}
    told = api("PATCH", f"/threads/{thread}", {"values": {"message": "x"}, "messages": [message]})
    assert {**told["values"], "messages": []} == {"message": "x", "messages": []}
    assert told["messages"] == told["values"]["messages"]
    assert told["messages"] == [
        {"role": "user", "content": "Hi", "id": "m", "metadata": {"content": message["content"]}}
    ]
    assert api("GET", f"/threads/{thread}")["values"] == told["values"]
    assert [len(state["messages"]) for state in api("GET", f"/threads/{thread}/history")] == [1, 2]
    kept = api("GET", f"/threads/{thread}")["messages"]
    more = api("PATCH", f"/threads/{thread}", {"messages": [*kept, {"role": "assistant", "content": "Ho"}]})
    assert [m["content"] for m in more["messages"]] == ["Hi", "Ho"]
    api("PATCH", f"/threads/{thread}", {"values": {"messages": [{"role": "user", "content": "Only"}]}})
    assert says(api("GET", f"/threads/{thread}")) == [("user", "Only")]
    assert "/values/messages" in api("PATCH", f"/threads/{thread}", {"values": {"messages": ["text"]}}, status=422)
    on(api, thread, "next")
    assert [len(state["messages"]) for state in api("GET", f"/threads/{thread}/history")] == [3, 1, 2, 1, 2]


def test_a_patch_branches_from_an_older_checkpoint(api: Api, thread: str) -> None:
    on(api, thread, "one")
    first = api("GET", f"/threads/{thread}/history")[0]["checkpoint"]
    on(api, thread, "two")
    told = api("PATCH", f"/threads/{thread}", {"checkpoint": first})
    assert says(told["values"]) == turns("one")
    assert [m["content"] for m in told["messages"]] == ["one", "one "]
    assert len(api("GET", f"/threads/{thread}/history")) == 3
    unknown = {"checkpoint": {"checkpoint_id": UNKNOWN}, "values": {}}
    assert "/checkpoint/checkpoint_id" in api("PATCH", f"/threads/{thread}", unknown, status=404)


def test_a_state_that_the_agent_keeps_cannot_be_patched(api: Api, thread: str) -> None:
    on(api, thread, "one", "keeper")
    api("PATCH", f"/threads/{thread}", {"values": {"message": "x"}}, status=422)
    assert says(api("GET", f"/threads/{thread}")["values"]) == turns("one")
    api("PATCH", f"/threads/{thread}", {"metadata": {"a": 1}})


def test_a_deleted_thread_is_gone(api: Api, thread: str) -> None:
    api("DELETE", f"/threads/{thread}", status=204)
    requests: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "", {"metadata": {}}),
        ("POST", "/copy", None),
        ("GET", "/history", None),
        ("GET", "/runs", None),
    ]
    for method, path, body in requests:
        api(method, f"/threads/{thread}{path}", body, status=404)
