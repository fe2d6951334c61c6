"""Runs: start, look, wait, answer, cancel, delete, search. Effects are seen by a second request."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.agent_connect.inbound import runs
from gateway.core.types import Run, RunQuery, agent_id
from tests.adapters.agent_connect.api import Api
from tests.adapters.agent_connect.inbound_server import Server

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def create(agent: str, message: str = "hello there", **more: Any) -> dict[str, Any]:
    """A request as the SDK writes it."""
    sdk = {"on_disconnect": "cancel", "multitask_strategy": "reject", "on_completion": "delete"}
    return {"agent_id": agent_id(agent), "input": {"message": message}, **sdk, **more}


def gate() -> str:
    return uuid.uuid4().hex


def gated(name: str, **more: Any) -> dict[str, Any]:
    return create("gated", config={"configurable": {"gate": name}}, **more)


def test_a_run_is_started_waited_for_and_looked_at(api: Api) -> None:
    body = create(
        "echo", metadata={"k": "v"}, config={"tags": ["t"], "recursion_limit": 3, "configurable": {"pace": 0}}
    )
    body["x-own"] = {"anything": [None]}
    run = api("POST", "/runs", body)
    assert run["creation"] == body
    assert run["agent_id"] == agent_id("echo")
    assert run["status"] == "pending"
    waited = api("GET", f"/runs/{run['run_id']}/wait")
    assert waited["output"] == {"type": "result", "values": {"message": "hello there "}}
    assert waited["run"] == api("GET", f"/runs/{run['run_id']}")
    assert waited["run"]["status"] == "success"
    assert "thread_id" not in waited["run"]


def test_tags_are_a_loss_where_the_agent_cannot_have_them(api: Api) -> None:
    for config, losses in (({"tags": ["t"]}, "tags=1"), ({"recursion_limit": 3}, "tags=1"), ({"tags": []}, None)):
        run = api("POST", "/runs", create("echo", config=config))
        api("GET", f"/runs/{run['run_id']}/wait")
        told = api.raw("GET", f"/runs/{run['run_id']}")
        assert told.headers.get("x-interlingua-losses") == losses


def test_a_wait_for_an_existing_run_also_gives_the_bare_output_of_the_prose(api: Api) -> None:
    run = api("POST", "/runs", create("echo", "hi"))
    waited = api("GET", f"/runs/{run['run_id']}/wait")
    assert (waited["type"], waited["result"]) == ("result", {"message": "hi "})


def test_wait_starts_and_answers_in_one_request(api: Api) -> None:
    waited = api("POST", "/runs/wait", create("echo", "héllo \U0001f600"))
    assert waited["output"]["values"] == {"message": "héllo \U0001f600 "}
    assert "result" not in waited


def test_the_agent_may_be_named_instead_of_its_id(api: Api) -> None:
    assert api("POST", "/runs/wait", create("echo") | {"agent_id": "echo"})["run"]["agent_id"] == agent_id("echo")


def test_where_there_are_several_agents_one_must_be_named(api: Api) -> None:
    body = create("echo")
    del body["agent_id"]
    assert "echo, gated" in api("POST", "/runs", body, status=404)


def test_an_unknown_agent_is_404(api: Api) -> None:
    for path in ("/runs", "/runs/wait", "/runs/stream"):
        api("POST", path, create("echo") | {"agent_id": UNKNOWN}, status=404)


def test_nulls_for_what_was_left_out_are_taken(api: Api) -> None:
    body = create("echo", metadata=None, config=None, webhook=None, stream_mode=None, after_seconds=None)
    run = api("POST", "/runs", body)
    assert run["creation"] == create("echo", stream_mode=None)


def test_a_failed_run_is_an_error_output_and_private_detail_is_not_told(api: Api) -> None:
    waited = api("POST", "/runs/wait", create("failer"))
    assert waited["run"]["status"] == "error"
    assert waited["output"] == {
        "type": "error",
        "run_id": waited["run"]["run_id"],
        "errcode": 502,
        "description": "it failed on purpose",
        "transient": False,
    }
    again = api("GET", f"/runs/{waited['run']['run_id']}/wait")
    assert (again["type"], again["errcode"]) == ("error", 502)
    assert "secret" not in str(again)


def test_files_are_links_in_a_messages_metadata(api: Api) -> None:
    output = api("POST", "/runs/wait", create("filer"))["output"]
    (message,) = output["messages"]
    assert (message["role"], message["content"]) == ("assistant", "see the file")
    (file,) = message["metadata"]["artifacts"]
    assert (file["name"], file["media_type"], file["size"]) == ("notes.txt", "text/plain", 5)
    assert "/artifacts/" in file["url"]


def test_an_agent_that_says_nothing_ends_with_an_empty_text(api: Api) -> None:
    assert api("POST", "/runs/wait", create("silent"))["output"]["values"] == {"message": ""}


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_wait_with_a_timeout_gives_204_and_the_run_goes_on(api: Api, server: Server) -> None:
    name = gate()
    run = api("POST", "/runs", gated(name))
    before = time.monotonic()
    api("GET", f"/runs/{run['run_id']}/wait?timeout=0.05", status=204)
    assert time.monotonic() - before < 30
    assert api("GET", f"/runs/{run['run_id']}")["status"] == "pending"
    server.open(name)
    assert api("GET", f"/runs/{run['run_id']}/wait?timeout=30")["output"]["values"] == {"message": "one two"}


def test_a_run_created_by_a_wait_that_timed_out_is_told_by_location_and_goes_on(api: Api, server: Server) -> None:
    name = gate()
    answer = api.raw("POST", "/runs/wait?timeout=0", gated(name))
    assert (answer.status_code, answer.content) == (204, b"")
    path = urlsplit(answer.headers["location"]).path.removeprefix(urlsplit(api.base).path)
    assert api("GET", path)["status"] == "pending"
    server.open(name)
    assert api("GET", f"{path}/wait")["run"]["status"] == "success"


@pytest.mark.parametrize("timeout", ["soon", "-1", "nan", "inf"])
def test_a_timeout_that_is_no_time_is_refused(api: Api, timeout: str) -> None:
    assert "timeout" in api("GET", f"/runs/{UNKNOWN}/wait?timeout={timeout}", status=422)


# --- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {"approved": True},
        {"approval": {"approved": True}},
        {"interrupt_type": "approval", "resume_payload": {"approved": True}},
        {"resume_payload": {"approved": True}},
    ],
)
def test_an_interrupt_is_shown_and_answered_in_every_form(api: Api, answer: Any) -> None:
    waited = api("POST", "/runs/wait", create("asker"))
    run_id = waited["run"]["run_id"]
    assert waited["run"]["status"] == "interrupted"
    assert waited["output"] == {"type": "interrupt", "interrupt": {"approval": {"question": "Is it right?"}}}
    bare = api("GET", f"/runs/{run_id}/wait")
    assert (bare["interrupt_type"], bare["interrupt_payload"]) == ("approval", {"question": "Is it right?"})
    resumed = api("POST", f"/runs/{run_id}", answer)
    assert resumed["status"] == "pending"
    done = api("GET", f"/runs/{run_id}/wait")
    assert done["output"]["values"] == {"message": 'well: {"approved":true}'}


def test_a_question_without_payload_is_its_message(api: Api) -> None:
    waited = api("POST", "/runs/wait", create("asker", "input please"))
    assert waited["output"]["interrupt"] == {"input": {"message": "What is your name?"}}
    api("POST", f"/runs/{waited['run']['run_id']}", "Ada")
    done = api("GET", f"/runs/{waited['run']['run_id']}/wait")
    assert done["output"]["values"] == {"message": 'well: "Ada"'}


def test_of_two_open_questions_the_oldest_is_shown_and_either_can_be_answered(api: Api, server: Server) -> None:
    run_id = api("POST", "/runs/wait", create("asker", "twice"))["run"]["run_id"]
    server.until(lambda: len(server.engine.live[run_id].run.interrupts) == 2)
    assert api("POST", f"/runs/{run_id}", {"input": "Ada"})["status"] == "interrupted"
    assert api("GET", f"/runs/{run_id}/wait")["output"]["interrupt"] == {"approval": {"question": "Is it right?"}}
    api("POST", f"/runs/{run_id}", {"approved": False})
    done = api("GET", f"/runs/{run_id}/wait")
    assert done["output"]["values"] == {"message": 'well: {"approved":false} and "Ada"'}


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("asker"))["run"]["run_id"]
    assert "/approved" in api("POST", f"/runs/{run_id}", {"approved": "yes"}, status=422)
    api("POST", f"/runs/{run_id}", {"interrupt_type": "other", "resume_payload": {}}, status=422)
    assert api.raw("POST", f"/runs/{run_id}", content=b"null").status_code == 422
    assert api.raw("POST", f"/runs/{run_id}", content=b"").status_code == 422
    assert api("GET", f"/runs/{run_id}")["status"] == "interrupted"
    api("POST", f"/runs/{run_id}", {"approved": True})
    assert api("GET", f"/runs/{run_id}/wait")["run"]["status"] == "success"


def test_a_run_that_does_not_ask_cannot_be_resumed(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    api("POST", f"/runs/{run_id}", {"approved": True}, status=409)


# --- cancel and delete -----------------------------------------------------------------------------------------------


def test_a_cancelled_run_ends_as_an_error_that_says_so(api: Api, server: Server) -> None:
    run_id = api("POST", "/runs", gated(gate()))["run_id"]
    server.until(lambda: bool(server.agents["gated"].contexts))
    api("POST", f"/runs/{run_id}/cancel?wait=true&action=interrupt", status=204)
    waited = api("GET", f"/runs/{run_id}/wait")
    assert (waited["run"]["status"], waited["output"]["type"]) == ("error", "error")
    assert waited["output"]["description"].startswith("cancelled")
    assert waited["output"]["errcode"] == 499


def test_cancelling_a_run_that_has_ended_changes_nothing(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    api("POST", f"/runs/{run_id}/cancel", status=204)
    assert api("GET", f"/runs/{run_id}")["status"] == "success"


def test_rollback_is_refused_unless_the_agent_can(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    assert "roll back" in api("POST", f"/runs/{run_id}/cancel?action=rollback", status=422)
    api("GET", f"/runs/{run_id}")
    run_id = api("POST", "/runs/wait", create("keeper"))["run"]["run_id"]
    api("POST", f"/runs/{run_id}/cancel?action=rollback", status=204)
    api("GET", f"/runs/{run_id}", status=404)


@pytest.mark.parametrize("query", ["action=undo", "wait=perhaps"])
def test_a_cancel_with_a_bad_parameter_is_refused(api: Api, query: str) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    api("POST", f"/runs/{run_id}/cancel?{query}", status=422)


def test_a_deleted_run_is_gone(api: Api) -> None:
    run_id = api("POST", "/runs", gated(gate()))["run_id"]
    api("DELETE", f"/runs/{run_id}", status=204)
    api("GET", f"/runs/{run_id}", status=404)
    api("DELETE", f"/runs/{run_id}", status=404)


# --- search ----------------------------------------------------------------------------------------------------------


def test_search_finds_stateless_runs_newest_first_by_agent_status_and_metadata(api: Api) -> None:
    mark = {"mark": uuid.uuid4().hex}
    ids = [api("POST", "/runs/wait", create("echo", metadata=mark))["run"]["run_id"] for _ in range(3)]
    failed = api("POST", "/runs/wait", create("failer", metadata=mark))["run"]["run_id"]
    kept = api("POST", "/runs/wait", create("echo", metadata=mark, on_completion="keep"))["run"]["run_id"]
    thread = api("POST", "/threads", {})["thread_id"]
    api("POST", f"/threads/{thread}/runs/wait", create("echo", metadata=mark))

    def found(**query: Any) -> list[str]:
        return [run["run_id"] for run in api("POST", "/runs/search", {"metadata": mark, **query})]

    assert found() == [kept, failed, *ids[::-1]]
    assert found(agent_id=agent_id("failer")) == [failed]
    assert found(status="error") == [failed]
    assert found(status="pending") == []
    assert found(limit=2, offset=1) == [failed, ids[2]]
    assert found(agent_id=UNKNOWN) == []


def test_a_stateless_run_behind_many_on_a_thread_is_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PAGE", 1)
    monkeypatch.setattr("gateway.contract.gateway.LONGEST_PAGE", 3)
    mark = {"mark": uuid.uuid4().hex}
    ids = [api("POST", "/runs/wait", create("echo", metadata=mark))["run"]["run_id"] for _ in range(2)]
    thread = api("POST", "/threads", {})["thread_id"]
    for _ in range(9):
        api("POST", f"/threads/{thread}/runs/wait", create("echo", metadata=mark))
    newest = api("POST", "/runs/wait", create("echo", metadata=mark))["run"]["run_id"]
    found = [run["run_id"] for run in api("POST", "/runs/search", {"metadata": mark})]
    assert found == [newest, *ids[::-1]]


def test_a_running_run_is_searched_as_pending_and_a_cancelled_one_as_error(api: Api) -> None:
    mark = {"mark": uuid.uuid4().hex}
    run_id = api("POST", "/runs", gated(gate(), metadata=mark))["run_id"]
    query = {"metadata": mark}
    assert [r["run_id"] for r in api("POST", "/runs/search", {**query, "status": "pending"})] == [run_id]
    api("POST", f"/runs/{run_id}/cancel?wait=true", status=204)
    assert [r["run_id"] for r in api("POST", "/runs/search", {**query, "status": "error"})] == [run_id]


# --- options of a run ---


def test_keep_keeps_a_thread_and_delete_makes_none(api: Api) -> None:
    kept = api("POST", "/runs/wait", create("echo", on_completion="keep"))["run"]
    assert api("GET", f"/threads/{kept['thread_id']}")["values"]["messages"][1]["content"] == "hello there "
    assert "thread_id" not in api("POST", "/runs/wait", create("echo"))["run"]


def test_a_refused_run_leaves_no_thread_behind(api: Api) -> None:
    mine = uuid.uuid4().hex
    count = len(api("POST", "/threads/search", {"limit": 1000}))
    api("POST", "/runs", create("echo", on_completion="keep", input={"message": 5}, x=mine), status=422)
    assert len(api("POST", "/threads/search", {"limit": 1000})) == count


def test_a_run_can_be_scheduled(api: Api) -> None:
    run = api("POST", "/runs", create("echo", after_seconds=1))
    assert run["status"] == "pending"
    assert run["creation"]["after_seconds"] == 1
    waited = api("GET", f"/runs/{run['run_id']}/wait?timeout=30")["run"]
    assert waited["status"] == "success"
    made, done = (datetime.fromisoformat(waited[key]) for key in ("created_at", "updated_at"))
    assert done - made > timedelta(seconds=0.9)


def test_config_reaches_the_agents_schema(api: Api) -> None:
    bad = create("echo", config={"configurable": {"pace": -1}})
    assert "/config/configurable/pace" in api("POST", "/runs", bad, status=422)


@pytest.mark.parametrize("name", ["webhook", "callback"])
def test_a_webhook_is_kept_on_the_run(api: Api, server: Server, name: str) -> None:
    run_id = api("POST", "/runs", create("echo", **{name: "https://client.example/hook"}))["run_id"]
    hook = server.on_loop(lambda: server.engine.runs.get(run_id)).request.webhook
    assert hook is not None and (hook.url, hook.protocol) == ("https://client.example/hook", "agent_connect")


def test_the_callers_trace_context_is_kept_on_the_run(api: Api, server: Server) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = api.raw("POST", "/runs", create("echo"), headers={"traceparent": parent})
    run = server.on_loop(lambda: server.engine.runs.get(answer.json()["run_id"]))
    assert run.request.traceparent == parent


# --- the client goes ---


def leave(api: Api, path: str, body: dict[str, Any], wait: Callable[[], None]) -> None:
    """Send a request, and close the connection once `wait()` has returned."""
    address = urlsplit(api.base)
    content = json.dumps(body).encode()
    head = f"POST {address.path}{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection((str(address.hostname), address.port or 0), 10) as connection:
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        wait()


def one_more(server: Server) -> Callable[[], None]:
    """Waits until the gated agent has been given one more run than now."""
    contexts = server.agents["gated"].contexts
    before = len(contexts)
    return lambda: server.until(lambda: len(contexts) > before)


def the_run(server: Server, mark: dict[str, str]) -> Run:
    (run,) = server.on_loop(lambda: server.engine.runs.list(RunQuery(metadata=mark)))
    return server.on_loop(lambda: server.engine.runs.get(run.id))


@pytest.mark.parametrize("path", ["/runs/wait", "/runs/stream"])
def test_a_client_that_goes_cancels_the_run_it_created(api: Api, server: Server, path: str) -> None:
    mark = {"mark": uuid.uuid4().hex}
    before = len(server.agents["gated"].contexts)
    leave(
        api,
        path,
        gated(gate(), metadata=mark),
        lambda: server.until(lambda: len(server.agents["gated"].contexts) > before),
    )
    run = the_run(server, mark)
    ended = server.on_loop(lambda: server.engine.runs.wait(run.id, 30))
    assert ended is not None and (ended.status, ended.cancel_reason) == ("cancelled", "the client has gone")


@pytest.mark.parametrize("path", ["/runs/wait", "/runs/stream"])
def test_on_disconnect_continue_lets_the_run_go_on(api: Api, server: Server, path: str) -> None:
    mark, name = {"mark": uuid.uuid4().hex}, gate()
    began = one_more(server)
    leave(api, path, gated(name, metadata=mark, on_disconnect="continue"), began)
    run = the_run(server, mark)
    server.open(name)
    ended = server.on_loop(lambda: server.engine.runs.wait(run.id, 30))
    assert ended is not None and ended.status == "success"


def test_a_client_that_only_looks_on_cancels_nothing_when_it_goes(api: Api, server: Server) -> None:
    name = gate()
    run_id = api("POST", "/runs", gated(name))["run_id"]
    with api.streaming("GET", f"/runs/{run_id}/stream") as events:
        next(events)
    server.open(name)
    assert api("GET", f"/runs/{run_id}/wait")["run"]["status"] == "success"


def test_an_interrupt_ends_the_binding_to_the_connection(api: Api) -> None:
    events = api.stream("POST", "/runs/stream", create("asker"))
    assert events[-1].data["type"] == "interrupt"
    run_id = events[-1].data["run_id"]
    assert api("GET", f"/runs/{run_id}")["status"] == "interrupted"
    api("POST", f"/runs/{run_id}", {"approved": True})
    assert api("GET", f"/runs/{run_id}/wait")["run"]["status"] == "success"
