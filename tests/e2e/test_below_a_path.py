"""A gateway that its clients reach below a path of another host's, which a proxy passes on or takes off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.admin.test_console import EXAMPLES, seen
from tests.support.agent_communication import client, results
from tests.support.processes import PROGRAM, ROOT, Gateway, environment

TABLE = """
public_url: http://127.0.0.1:{port}/at/the/gateway
operators: {{clients: [{{name: olga, token: of-olga}}]}}
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{python}", "{agent}"], permissions: {{allow: [edit]}}}}
"""
PREFIX = "/at/the/gateway"


class Below(Gateway):
    """host: where its port is. At its `url` the prefix is passed on."""

    def __init__(self, directory: Path) -> None:
        super().__init__("", directory)
        self.host = self.url
        self.url += PREFIX
        self.file.write_text(TABLE.format(port=self.port, python=sys.executable, agent=EXAMPLES / "gardener.py"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Below]:
    with Below(tmp_path_factory.mktemp("below")) as running:
        yield running


@pytest.fixture(params=["passed on", "taken off"])
def url(gateway: Below, request: pytest.FixtureRequest) -> str:
    return gateway.url if request.param == "passed on" else gateway.host


def test_links_lead_back_through_the_proxy(gateway: Below, url: str) -> None:
    with httpx2.Client(trust_env=False, timeout=60) as http:
        front = http.get(f"{url}/").json()
        doors = {door["protocol"]: door["url"] for door in front["protocols"]}
        assert doors["agent_connect"] == f"{gateway.url}/agent-connect"
        assert all(http.get(f"{gateway.host}{page}").status_code != 404 for page in front["pages"]), front["pages"]
        body = {"agent_id": "gardener", "input": {"message": "a rose"}}
        begun = http.post(f"{url}/agent-connect/runs", json=body)
        told = http.get(f"{gateway.host}{begun.headers['content-location']}")
        assert begun.headers["content-location"].startswith(f"{PREFIX}/agent-connect/runs/")
        assert told.json()["run_id"] == begun.json()["run_id"]


@pytest.mark.parametrize(("kind", "door"), [("py", "sse"), ("mcp-1", "sse"), ("mcp-1", "mcp"), ("ts", "ws")])
def test_a_client_of_mcp_talks_to_an_agent(kind: Any, door: str, url: str) -> None:
    base = url.replace("http", "ws") if door == "ws" else url
    steps = ["--do", "list", "--run", f"gardener {json.dumps({'message': 'a rose'})}"]
    lines = client(kind, *steps, url=f"{base}/agent-communication/{door}")
    assert "It grows." in json.dumps(results(lines, "agents/run")[0]["output"])


def test_the_command_line_runs_an_agent(url: str) -> None:
    argv = [*PROGRAM, "run", "gardener", "a rose", "--gateway", url]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "It grows." in done.stdout, done


def test_the_console_is_found_without_its_last_slash(url: str) -> None:
    found = httpx2.get(f"{url}/ui", trust_env=False, follow_redirects=True)
    assert found.status_code == 200 and found.url == f"{url}/ui/", found.url


def test_the_console_asks_for_nothing_outside_of_its_path(gateway: Below) -> None:
    protocols = ["agent_client", "agent_communication", "agent_connect", "agent_context", "agent_protocol"]
    turns = [{"agent": "gardener", "say": "a rose", "operator": "of-olga", "protocol": name} for name in protocols]
    for turn in seen(gateway, "talk", json.dumps(turns))["seen"]:
        assert "It grows." in turn["said"], turn
