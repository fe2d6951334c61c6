"""One valid request of every operation of the REST doors: what the fuzzer changes. The paths are the OpenAPIs' own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

SPECS = Path(__file__).parents[1] / "specs"
METHODS = ("get", "post", "put", "patch", "delete")


class Form(NamedTuple):
    """A body of `multipart/form-data`."""

    name: str
    file: bytes
    fields: dict[str, str]


class Operation(NamedTuple):
    """`path` has its parameters in braces; `query` are the names of its query parameters; `body` is JSON or a Form."""

    id: str
    method: str
    path: str
    query: tuple[str, ...]
    body: Any


RUN = {
    "agent_id": "echo",
    "input": {"message": "hello"},
    "metadata": {"a": {"b": [1, 2.5, None]}},
    "config": {"tags": ["t"], "recursion_limit": 10, "configurable": {"pace": 0}},
    "stream_mode": ["values", "custom"],
    "on_disconnect": "continue",
}
STATEFUL = {**RUN, "multitask_strategy": "reject", "if_not_exists": "create", "stream_subgraphs": False}
SEARCH = {"metadata": {"a": "b"}, "limit": 10, "offset": 0}
CONNECT_BODIES: Mapping[str, Any] = {
    "search_agents": {"name": "echo", "version": "1", "limit": 5, "offset": 0},
    "create_thread": {
        "thread_id": "5f3c4c3e-6b1a-4b8e-9d5b-1f8c2a7e6d10",
        "metadata": {"a": 1},
        "if_exists": "do_nothing",
    },
    "search_threads": {**SEARCH, "values": {"x": 1}, "status": "idle"},
    "patch_thread": {"metadata": {"b": [1, "x"]}, "values": {"message": "m"}, "messages": []},
    "create_thread_run": STATEFUL,
    "create_and_stream_thread_run_output": STATEFUL,
    "create_and_wait_for_thread_run_output": STATEFUL,
    "resume_thread_run": {"approved": True, "text": "yes"},
    "create_stateless_run": {**RUN, "agent_id": "asker", "on_completion": "keep"},
    "search_stateless_runs": {**SEARCH, "agent_id": "echo", "status": "success"},
    "create_and_stream_stateless_run_output": RUN,
    "create_and_wait_for_stateless_run_output": RUN,
    "resume_stateless_run": {"approved": True, "text": "yes"},
}
PROTOCOL_BODIES: Mapping[str, Any] = {
    "createAgentTask": {"input": "hello", "additional_input": {"config": {"x": 1}, "metadata": {"a": [1]}}},
    "executeAgentTaskStep": {"input": "go on", "additional_input": {"x": {"y": 1}}},
    "uploadAgentTaskArtifacts": Form("a.txt", b"text", {"relative_path": "some/where"}),
}
NO_BODY = {"copy_thread", "cancel_thread_run", "cancel_stateless_run"}
"""POSTs without a body."""


def agent_connect() -> list[Operation]:
    found = json.loads((SPECS / "agent-connect" / "openapi.json").read_text(encoding="utf-8"))
    return list(_operations(found, "/agent-connect", CONNECT_BODIES))


def agent_protocol() -> list[Operation]:
    found = yaml.safe_load((SPECS / "agent-protocol" / "openapi.yml").read_text(encoding="utf-8"))
    return list(_operations(found, "/agent-protocol/{agent}", PROTOCOL_BODIES))


def _operations(document: Any, root: str, bodies: Mapping[str, Any]) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if (said := item.get(method)) is not None:
                parameters = [each for each in said.get("parameters", []) if each["in"] == "query"]
                query = tuple(each["name"] for each in parameters)
                name = said["operationId"]
                assert (name in bodies) == (method in ("post", "patch") and name not in NO_BODY), name
                yield Operation(name, method.upper(), root + path, query, bodies.get(name))
