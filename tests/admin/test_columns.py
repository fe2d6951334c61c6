"""A recorded run in a real browser: three columns, and the question, the cancel and the losses where they are."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.admin.test_console import EXAMPLES, HOSTILE, seen
from tests.support.agent_client import agent_client_agent_command
from tests.support.processes import Gateway

GARDENER = str(EXAMPLES / "gardener.py")
SLIPS = f"""
source = open({GARDENER!r}).read()
call = 'update(session, "tool_call", **call)'
assert call in source
exec(compile(source.replace(call, 'update(session, 7); ' + call), {GARDENER!r}, "exec"))
"""
"""The gardener, which says something that cannot be read before it calls its tool."""


def table() -> str:
    """Agents that are recorded, and one that is not."""
    return f"""
routes:
  - name: gardener
    record: wire
    target: {{protocol: agent_client, command: {json.dumps([sys.executable, "-c", SLIPS])}}}
  - name: flood
    record: wire
    target: {{protocol: agent_client, command: {json.dumps(agent_client_agent_command("py"))}}}
  - name: plain
    target: {{protocol: agent_client, command: {json.dumps([sys.executable, GARDENER])}}}
"""


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Gateway]:
    """A gateway with these agents."""
    with Gateway(table(), folder) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with recorded(tmp_path_factory.mktemp("columns")) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as client:
        yield client


class Streaming:
    """A client of Agent Connect that streams a run of the gardener's to its end, answered by somebody else."""

    def __init__(self, gateway: Gateway, message: str) -> None:
        self.lines: list[str] = []
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(gateway.url, message))

    def _run(self, url: str, message: str) -> None:
        body = {"agent_id": "gardener", "input": {"message": message}, "stream_mode": "values"}
        with httpx2.Client(base_url=url, trust_env=False, timeout=120) as http:
            run = http.post("/agent-connect/runs", json=body).json()["run_id"]
            while True:
                with http.stream("GET", f"/agent-connect/runs/{run}/stream") as stream:
                    self.lines += stream.iter_lines()
                if http.get(f"/agent-connect/runs/{run}").json()["status"] != "interrupted":
                    return
                self._asked.set()
                http.get(f"/admin/runs/{run}/events", headers={"accept": "text/event-stream"})

    def __enter__(self) -> Streaming:
        self._thread.start()
        assert self._asked.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)


def newest(http: httpx2.Client, agent: str) -> str:
    return str(http.get("/admin/runs", params={"agent": agent, "limit": 1}).json()["runs"][0]["id"])


def test_a_run_is_read_as_three_columns_and_its_question_answered_there(gateway: Gateway, http: httpx2.Client) -> None:
    with Streaming(gateway, "a rose"):
        run = newest(http, "gardener")
        found = seen(gateway, "columns", run, "Plant it")
    assert http.get(f"/admin/runs/{run}").json()["status"] == "success"
    assert [head.strip() for head in found["heads"]] == ["time", "client", "events", "agent"]
    rows = found["rows"]
    assert all(sum(bool(cell) for cell in row[1:]) == 1 for row in rows), "each row has one thing to say"

    def place(column: int, text: str, after: int = -1) -> int:
        return next(at for at, row in enumerate(rows) if at > after and text in row[column])

    asked = place(1, "→ POST /agent-connect/runs")
    prompted = place(3, "→ session/prompt", asked)
    planned = place(3, "← session/update", prompted)
    lost = place(2, "lost: unreadable", planned)
    assert rows[lost - 1][3].startswith("← session/update")
    tool = place(2, "tool Plant a rose", lost)
    question = place(3, "← session/request_permission", tool)
    waits = place(2, "asks:", question)
    answered = place(2, "answered", waits)
    told = place(3, "→ answer to session/request_permission", answered)
    done = place(2, "done", told)
    end = place(2, "run finished", place(3, "← answer to session/prompt", done))
    assert place(1, "← id:", end) > end and len(found["asked"]) < len(rows)
    assert found["lists"][0] == ["· Choose a place", "· Dig", "· Water"]
    assert found["lists"][-1] == ["✓ Choose a place", "✓ Dig", "✓ Water"]
    assert ":" in rows[0][0] and all(row[0] == "" or row[0].startswith("+") for row in rows[1:])
    assert rows[planned][0].endswith("ms") or rows[planned][0].endswith(" s")
    whole, height, scrolled = found["box"]
    assert whole > height and scrolled + height >= whole - 1 and found["moved"] == 0, "it follows the end; heads stay"
    assert (
        '"message": "a rose"' in "\n".join(found["opened"]) and "content-type: application/json" in found["opened"][0]
    )


def test_what_is_said_on_the_wire_is_text(gateway: Gateway, http: httpx2.Client) -> None:
    with Streaming(gateway, HOSTILE):
        run = newest(http, "gardener")
        found = seen(gateway, "hostile", run)
        http.post(f"/admin/runs/{run}/cancel", json={})
    assert found["elements"] == 0
    assert found["text"].count("<script>alert(2)</script>") > 3 and "\\u202etxt.exe" in found["text"]
    assert "\u202e" not in found["text"] and "\x1b" not in found["text"]


def test_an_operator_has_the_next_runs_of_an_agent_recorded(gateway: Gateway, http: httpx2.Client) -> None:
    def ran() -> str:
        body = {"agent_id": "plain", "input": {"message": "a rose"}}
        run = str(http.post("/agent-connect/runs", json=body).json()["run_id"])
        http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
        return run

    first = ran()
    assert seen(gateway, "record", first) == {"columns": 0}
    assert http.get("/admin/recording").json()["agents"]["plain"] is True
    second = ran()
    assert [http.get(f"/admin/runs/{run}").json()["recorded"] for run in (first, second)] == [False, True]
    http.post("/admin/recording", json={"agent": "plain", "record": False})
    for run in (first, second):
        http.post(f"/admin/runs/{run}/cancel", json={})


def test_a_run_whose_route_is_gone_is_watched_over_a_reload_of_the_page_and_answered(tmp_path: Path) -> None:
    text = table()
    with (
        Gateway(text, tmp_path, args=["--no-watch"]) as gateway,
        httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as http,
    ):
        body = {"agent_id": "gardener", "input": {"message": "a rose"}}
        run = str(http.post("/agent-connect/runs", json=body).json()["run_id"])
        http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
        gateway.rewrite(text[: text.index("  - name: gardener")] + text[text.index("  - name: flood") :])
        found = seen(gateway, "departed", run, "Plant it")
        assert found["agents"] == 2 and found["before"] == found["after"] and len(found["before"]) > 20
        assert http.get(f"/admin/runs/{run}").json()["status"] == "success"


@pytest.fixture(scope="module")
def flooded(gateway: Gateway) -> str:
    """The id of a run of many more events than a page holds."""
    body: dict[str, Any] = {"agent_id": "flood", "input": {"message": "flood 6000"}}
    with httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as http:
        assert http.post("/agent-connect/runs/wait", json=body).json()["output"]["type"] == "result"
        return newest(http, "flood")


def test_a_page_that_nobody_looks_at_holds_as_little(gateway: Gateway, flooded: str) -> None:
    found = seen(gateway, "asleep", flooded)
    assert 0 < found["rows"] <= 1100 and found["heap"] < 100e6, json.dumps(found)


def test_who_follows_a_flood_asleep_misses_the_middle_and_costs_no_memory(
    gateway: Gateway, http: httpx2.Client
) -> None:
    started = http.post("/agent-connect/runs", json={"agent_id": "flood", "input": {"message": "flood 24000"}}).json()
    run = started["run_id"]
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as sleeper:
        head = f"GET /admin/runs/{run}/wire HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: close\r\n"
        sleeper.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
        http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
        assert http.get(f"/admin/runs/{run}").json()["status"] == "success"
        received = b""
        while piece := sleeper.recv(1 << 20):
            received += piece
    numbers = [int(number) for number in re.findall(rb"id: (\d+)\r?\n", received)]
    limits = http.get("/admin/recording").json()["limits"]
    assert numbers == sorted(numbers) and numbers[0] == 1 and b"event: over" in received
    assert numbers[-1] > 24_000 and len(numbers) < numbers[-1], "what came while it slept is missing, and known to be"
    assert sum(len(line) for line in received.splitlines()) < 4 * limits["run_bytes"]


def test_a_flood_is_held_in_few_rows_and_little_memory(gateway: Gateway, http: httpx2.Client, flooded: str) -> None:
    found = seen(gateway, "long", flooded)
    assert min(found["seconds"]) < 5 and found["rows"] <= 1100 and found["heap"] < 100e6, json.dumps(found)
    kept = http.get("/admin/recording").json()
    assert kept["bytes"] < 2 * kept["limits"]["run_bytes"] * kept["runs"] and kept["bytes"] <= kept["limits"]["bytes"]
