"""What clients send that does not fit, and that every operation of the specification is served."""

from __future__ import annotations

import uuid
from typing import Any

import httpx2
import pytest

from adapters.agent_connect import wire
from adapters.agent_connect.codec import read
from gateway.core.errors import Invalid
from tests.adapters.agent_connect.api import EXTRA, Api, openapi
from tests.adapters.agent_connect.inbound_server import serve
from tests.adapters.agent_connect.test_inbound_runs import create

OPERATIONS = [
    (method.upper(), path)
    for path, methods in openapi()["paths"].items()
    for method in methods
    if method != "parameters"
] + [("GET", path) for path in EXTRA]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_is_served_and_answers_in_the_specifications_terms(api: Api, method: str, path: str) -> None:
    filled = path
    for name in ("agent_id", "thread_id", "run_id"):
        filled = filled.replace(f"{{{name}}}", str(uuid.uuid4()))
    answer = api.raw(method, filled, {} if method in ("POST", "PATCH") else None)
    assert answer.status_code in (200, 404), answer.text
    api.checked(method, filled, answer)


@pytest.mark.parametrize("path", [*openapi()["paths"], *EXTRA])
def test_a_method_that_a_path_does_not_have_is_405_with_all_that_it_has(api: Api, path: str) -> None:
    declared = {method for method, known in OPERATIONS if known == path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - declared:
        answer = api.raw(method, path.replace("{", "").replace("}", ""), None)
        assert answer.status_code == 405, f"{method}: {answer.text}"
        assert set(answer.headers["allow"].split(", ")) == declared
        assert method in answer.json()


@pytest.mark.parametrize("path", ["/agents/search", "/runs/search", "/threads/search"])
def test_an_integer_may_be_written_with_a_point_and_an_offset_beyond_the_end_finds_nothing(api: Api, path: str) -> None:
    assert api("POST", path, {"offset": 0.0, "limit": 2.0}) == api("POST", path, {"offset": 0, "limit": 2})
    assert api("POST", path, {"offset": 1e30}) == []
    assert api("POST", path, {"offset": 0.5}, status=422).startswith("/offset: ")


def test_a_run_takes_its_integers_with_a_point_too(api: Api) -> None:
    body = create("echo", after_seconds=0.0, config={"recursion_limit": 25.0})
    assert api("POST", "/runs/wait", body)["run"]["status"] == "success"


@pytest.mark.parametrize(("method", "path"), [o for o in OPERATIONS if "_id}" in o[1] and "{agent_id}" not in o[1]])
def test_an_id_that_is_no_uuid_is_422(api: Api, method: str, path: str) -> None:
    filled = path.replace("{thread_id}", "not-a-uuid").replace("{run_id}", "not-a-uuid")
    body = create("echo") if method in ("POST", "PATCH") else None
    assert "not-a-uuid" in api(method, filled, body, status=422)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nothing",
        b'{"agent_id": "\xff"}',
        b'{"input": NaN}',
        b'{"input": {"x": Infinity}}',
        b'{"input": {"x": 1e400}}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("path", ["/runs", "/runs/wait", "/runs/stream"])
def test_a_body_that_is_no_json_is_422(api: Api, path: str, content: bytes) -> None:
    api("POST", path, status=422, content=content)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"agent_id": 5}, "/agent_id"),
        ({"metadata": []}, "/metadata"),
        ({"config": "x"}, "/config"),
        ({"config": {"tags": [1]}}, "/config/tags/0"),
        ({"config": {"recursion_limit": "5"}}, "/config/recursion_limit"),
        ({"config": {"configurable": 5}}, "/config/configurable"),
        ({"webhook": "ftp://example.com"}, "/webhook"),
        ({"webhook": "example"}, "/webhook"),
        ({"webhook": ""}, "/webhook"),
        ({"callback": {"POST": "/x"}}, "/callback"),
        ({"stream_mode": "all"}, "/stream_mode"),
        ({"stream_mode": ["values", 1]}, "/stream_mode"),
        ({"on_disconnect": "stop"}, "/on_disconnect"),
        ({"multitask_strategy": "wait"}, "/multitask_strategy"),
        ({"after_seconds": 0.5}, "/after_seconds"),
        ({"after_seconds": -1}, "/after_seconds"),
        ({"after_seconds": 10**400}, "/after_seconds"),
        ({"on_completion": "forget"}, "/on_completion"),
        ({"input": {}}, "/input"),
        ({"input": {"message": 5}}, "/input/message"),
        ({"input": ["hello"]}, "/input"),
    ],
)
def test_a_wrong_value_is_422_with_the_path_to_it(api: Api, change: dict[str, Any], path: str) -> None:
    assert path in api("POST", "/runs/wait", create("echo") | change, status=422)


def test_several_mistakes_are_told_at_once(api: Api) -> None:
    told = api("POST", "/runs", create("echo") | {"metadata": 1, "webhook": 2, "after_seconds": "x"}, status=422)
    assert "/metadata" in told and "/webhook" in told and "/after_seconds" in told


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/threads", {"thread_id": "x"}),
        ("/threads", {"if_exists": "replace"}),
        ("/threads", {"metadata": 1}),
        ("/threads/search", {"status": "running"}),
        ("/threads/search", {"limit": 0}),
        ("/threads/search", {"values": []}),
        ("/runs/search", {"status": "running"}),
        ("/runs/search", {"offset": -1}),
        ("/runs/search", {"metadata": "x"}),
    ],
)
def test_thread_and_search_bodies_are_validated(api: Api, path: str, body: dict[str, Any]) -> None:
    assert f"/{next(iter(body))}" in api("POST", path, body, status=422)


def test_a_patch_is_validated(api: Api) -> None:
    thread = api("POST", "/threads", {})["thread_id"]
    bodies: list[dict[str, Any]] = [
        {"metadata": 1},
        {"checkpoint": {}},
        {"messages": [{"content": "x"}]},
        {"messages": "x"},
        {"messages": [{"role": "user", "content": "x", "metadata": [1]}]},
        {"messages": [{"role": "user", "content": "x", "id": 7}]},
    ]
    for body in bodies:
        assert f"/{next(iter(body))}" in api("PATCH", f"/threads/{thread}", body, status=422)


def test_numbers_of_any_size_are_kept(api: Api) -> None:
    run = api("POST", "/runs", create("echo", metadata={"x": 2**70, "y": -(2**70), "z": 0.1}))
    assert api("GET", f"/runs/{run['run_id']}")["creation"]["metadata"] == {"x": 2**70, "y": -(2**70), "z": 0.1}


def test_a_string_that_looks_like_no_json_number_is_fine(api: Api) -> None:
    run = api("POST", "/runs/wait", create("echo", "NaN Infinity"))
    assert run["output"]["values"] == {"message": "NaN Infinity "}


def test_a_body_over_the_limit_is_413_announced_or_not() -> None:
    with serve(max_body=1000) as server, httpx2.Client(timeout=60) as client:
        api = Api(server.url, client)
        api("POST", "/runs", create("echo", "x" * 2000), status=413)
        content = b'{"input": "' + b"x" * 2000 + b'"}'
        api("POST", "/runs", status=413, content=iter([content[:500], content[500:]]))
        api("POST", "/runs/wait", create("echo"))


def test_a_body_that_is_compressed_is_said_to_be_so(api: Api) -> None:
    told = api("POST", "/runs", create("echo"), status=422, headers={"Content-Encoding": "gzip"})
    assert told == "Content-Encoding: a body that is encoded (gzip) is not taken"


def test_uuids_are_taken_in_upper_case(api: Api) -> None:
    run_id = api("POST", "/runs/wait", create("echo"))["run"]["run_id"]
    assert api("GET", f"/runs/{run_id.upper()}")["run_id"] == run_id
    thread = api("POST", "/threads", {})["thread_id"]
    for value in (1, 2):
        api("PATCH", f"/threads/{thread}", {"values": {"at": value}})
    newest, oldest = api("GET", f"/threads/{thread}/history")
    before = newest["checkpoint"]["checkpoint_id"].upper()
    assert api("GET", f"/threads/{thread}/history?before={before}") == [oldest]


def test_a_pointer_in_an_error_is_escaped() -> None:
    with pytest.raises(Invalid, match="/config/tags/0"):
        read(wire.stateless, b'{"config": {"tags": [null]}}')
