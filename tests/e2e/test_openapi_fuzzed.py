"""Schemathesis reads the OpenAPI of the REST protocols and of the operator's API, makes requests of it, and finds
nothing wrong with the answers.

Each operation is asked what its schema allows and what it does not, every path for methods that it does not have.
`DEVIATIONS` are where the gateway means to differ; each adapter's README says why.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.peers import peer_python
from tests.support.processes import ROOT, Gateway, Process

ROUTES = """\
routes:
  - name: echo
    lossy: allow
    target: {{protocol: agent_connect, url: "{url}", agent: echo}}
"""
SPECS = ROOT / "tests" / "specs"
# CPython 3.11: what a collection has to report is parsed, too, and spoils the tree that Hypothesis makes just then.
RUN = "import gc, sys; gc.disable(); from schemathesis.cli import schemathesis; sys.argv[0] = 'st'; schemathesis()"
STATEFUL = r"POST .*/runs(/wait|/stream)?$|POST .*/cancel$|(DELETE|PATCH) /threads/\{thread_id\}$"
"""Operations that may refuse what is valid, since the agent cannot do it or the thread is busy."""
SETTINGS = f"""\
[[operations]]
include-name-regex = '{STATEFUL}'
checks.positive_data_acceptance.enabled = false

[[operations]]
include-name = "POST /ap/v1/agent/tasks/{{task_id}}/artifacts"
checks.negative_data_rejection.enabled = false

[[operations]]
include-name = "GET /ap/v1/agent/tasks/{{task_id}}/artifacts/{{artifact_id}}"
checks.content_type_conformance.enabled = false
"""
"""A field of a form is text, whatever it was made of; a file is of its own type."""
BOUNDS = (
    *("--phases", "fuzzing", "--max-examples", "3", "--seed", "1", "--generation-deterministic"),
    *("--no-shrink", "--continue-on-failure", "--warnings", "off", "--workers", "2"),
)


def agent_connect(spec: dict[str, Any]) -> None:
    schemas = spec["components"]["schemas"]
    schemas["InputSchema"] = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    schemas["RunCreate"]["required"] = ["input"]
    schemas["RunCreate"]["properties"]["after_seconds"]["maximum"] = 0  # nobody here waits
    schemas["ConfigSchema"] = {"type": "object"}
    schemas["ThreadStateSchema"] = {"description": "anything: what is both an integer and a number is no `oneOf`"}
    del schemas["RunSearchRequest"]["properties"]["agent_id"]["format"]
    for name, schema in schemas.items():
        if name.startswith("RunCreate") or name in ("ThreadCreate", "ThreadPatch") or name.endswith("SearchRequest"):
            for part in [schema, *schema.get("allOf", [])]:
                nullable(part)
    nullable(schemas["RunCreate"]["properties"]["config"]["anyOf"][0])
    nullable(schemas["Message"])
    for path in ("/threads/{thread_id}/runs", "/threads/{thread_id}/history"):
        for parameter in spec["paths"][path]["get"]["parameters"]:
            parameter["schema"] |= {"limit": {"minimum": 1}, "offset": {"minimum": 0}}.get(parameter["name"], {})
    for operations in spec["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values() if "responses" in operation else ():
                answer.get("content", {}).pop("text/event-stream", None)  # its schema is of the JSON in an event


def nullable(schema: dict[str, Any]) -> None:
    """Let members that need not be there be null."""
    for name, member in schema.get("properties", {}).items():
        if name not in schema.get("required", ()):
            schema["properties"][name] = {"anyOf": [member, {"type": "null"}]}


def agent_protocol(spec: dict[str, Any]) -> None:
    for name in ("TaskRequestBody", "StepRequestBody"):
        schema = spec["components"]["schemas"][name]
        schema["nullable"] = schema["properties"]["additional_input"]["nullable"] = True
    spec["paths"]["/ap/v1/agent/tasks/{task_id}/artifacts"]["post"]["requestBody"]["required"] = True


def as_it_is(spec: dict[str, Any]) -> None:
    """The gateway's own."""


DEVIATIONS: dict[str, tuple[Path, str, Callable[[dict[str, Any]], None]]] = {
    "agent-connect": (SPECS / "agent-connect" / "openapi.json", "/agent-connect", agent_connect),
    "agent-protocol": (SPECS / "agent-protocol" / "openapi.yml", "/agent-protocol/echo", agent_protocol),
    "admin": (ROOT / "gateway" / "admin" / "openapi.json", "", as_it_is),
}
"""By folder of the specification: its file, the path it is served below, and what is changed in it."""


@pytest.fixture(scope="module")
def gateway(agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(ROUTES.format(url=agent_connect_agent.url), tmp_path_factory.mktemp("fuzzed")) as running:
        yield running


@pytest.mark.parametrize("protocol", DEVIATIONS)
def test_no_request_that_schemathesis_makes_is_answered_against_the_specification(
    protocol: str, gateway: Gateway, tmp_path: Path
) -> None:
    file, path, deviate = DEVIATIONS[protocol]
    spec = yaml.safe_load(file.read_text())
    deviate(spec)
    changed = tmp_path / "openapi.json"
    changed.write_text(json.dumps(spec))
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    argv = [
        str(peer_python("schemathesis")),
        "-c",
        RUN,
        "--config-file",
        str(settings),
        "run",
        str(changed),
        "--url",
        f"{gateway.url}{path}",
        *BOUNDS,
    ]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in gateway.process.describe()
