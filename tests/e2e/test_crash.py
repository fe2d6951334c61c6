"""What a `kill -9` of the gateway leaves: no run hangs, none is sent twice, and a watcher misses nothing."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import routes
from tests.support import peers
from tests.support.processes import Gateway, Process
from tests.support.processes import start as start_program

PATIENCE = 60.0
WATCHED = "5 seconds"
"""What the agent is told whose run is watched: a tick each tenth of a second."""
SLOW = "agent: slow, reconnect_timeout: 0.1"
"""A target that is not looked for when it has gone."""


def start(client: httpx2.Client, agent: str, message: str) -> str:
    body = {"agent_id": agent, "input": {"message": message}, "on_disconnect": "continue"}
    answer = client.post("/runs", json=body)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def watch(client: httpx2.Client, run_id: str, after: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    headers = {"last-event-id": after} if after else {}
    with client.stream("GET", f"/runs/{run_id}/stream", headers=headers) as response:
        assert response.status_code == 200
        number = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])


def ticks(event: dict[str, Any]) -> int:
    return str(event["values"].get("message", "")).count("tick")


def settled(client: httpx2.Client, run_id: str) -> dict[str, Any]:
    answer = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


@dataclass(frozen=True)
class Crash:
    """A gateway that was killed while one run was watched, one asked and one was in a step, and that runs again.

    `answered` is what the client of one more was told in the moment before.
    """

    client: httpx2.Client
    agent: Process
    watched: str
    seen: list[tuple[str, dict[str, Any]]]
    asking: str
    asked: dict[str, Any]
    stepping: str
    answered: dict[str, Any]


@pytest.fixture(scope="module")
def crash(agent_protocol_server: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crash]:
    with (
        peers.agent_connect_agent() as agent,
        Gateway(routes(agent_protocol_server, agent), tmp_path_factory.mktemp("crash")) as gateway,
        httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE) as client,
    ):
        asking = start(client, "asker", "please")
        asked = settled(client, asking)
        stepping = start(client, "writer", "slow 3")
        deadline = time.monotonic() + PATIENCE
        while not _has_task(gateway, stepping):
            assert time.monotonic() < deadline
        watched = start(client, "slow", WATCHED)
        seen: list[tuple[str, dict[str, Any]]] = []
        answered: dict[str, Any] = {}
        with contextlib.suppress(httpx2.TransportError):
            for event in watch(client, watched):
                seen.append(event)
                if ticks(event[1]) >= 8 and not answered:  # what the gateway reads at once it tells at once
                    body = {"agent_id": "echo", "input": {"message": "hello"}}
                    answered = client.post("/runs/wait", json=body).json()
                    gateway.kill9()
        gateway.restart()
        yield Crash(client, agent, watched, seen, asking, asked, stepping, answered)


def _has_task(gateway: Gateway, run_id: str) -> bool:
    """Whether the run's record on disk knows its task at the agent."""
    with contextlib.closing(sqlite3.connect(gateway.file.parent / "interlingua.db")) as db:
        rows = db.execute("select * from runs").fetchall()
    return any(run_id in str(row) and "task_id" in str(row) for row in rows)


def test_a_background_run_is_taken_up_again_and_its_watcher_misses_and_repeats_nothing(crash: Crash) -> None:
    seen = crash.seen
    assert seen, "nothing was streamed before the kill"
    again = list(watch(crash.client, crash.watched, after=seen[-1][0]))
    whole = settled(crash.client, crash.watched)
    assert whole["run"]["status"] == "success", whole
    expected = " ".join(f"tick {n}" for n in range(1, 51)) + " done"
    assert whole["output"]["values"]["message"] == expected
    assert again[-1][1]["values"]["message"] == expected and again[-1][1]["status"] == "success"
    numbers = [int(number) for number, _ in [*seen, *again]]
    assert numbers == sorted(set(numbers)), "an event id came twice or out of order"
    counts = [ticks(event) for _, event in [*seen, *again]]
    assert counts == sorted(counts), "a snapshot went back"
    posts = [r for r in httpx2.get(f"{crash.agent.url}/_seen").json() if r["method"] == "POST" and "/runs" in r["path"]]
    assert len([r for r in posts if WATCHED in r["body"]]) == 1, "the run was sent twice"


def test_a_run_whose_client_had_its_answer_in_the_moment_before_is_known(crash: Crash) -> None:
    known = crash.client.get(f"/runs/{crash.answered['run']['run_id']}")
    assert known.status_code == 200 and known.json() == crash.answered["run"], known.text
    assert settled(crash.client, known.json()["run_id"])["output"] == crash.answered["output"]


def test_a_step_in_flight_at_an_agent_protocol_agent_is_waited_for_and_the_task_goes_on(crash: Crash) -> None:
    whole = settled(crash.client, crash.stepping)
    assert whole["run"]["status"] == "success", whole
    said = "\n\n".join(f"step {number} of 3: slow 3" for number in (1, 2, 3))
    assert whole["output"]["values"]["message"] == said, "each step once, and in order"


def test_an_open_question_survives_the_kill_and_its_answer_ends_the_run(crash: Crash) -> None:
    assert crash.asked["output"]["type"] == "interrupt", crash.asked
    assert settled(crash.client, crash.asking)["output"] == crash.asked["output"]
    answer = crash.client.post(f"/runs/{crash.asking}", json={"approved": True, "reason": "after the crash"})
    assert answer.status_code == 200, answer.text
    whole = settled(crash.client, crash.asking)
    assert whole["run"]["status"] == "success", whole
    assert "after the crash" in json.dumps(whole["output"]["values"])


def test_who_waits_for_a_run_of_a_gateway_that_stops_is_told_in_the_protocols_words_and_the_run_goes_on(
    agent_protocol_server: Process, tmp_path: Path
) -> None:
    with (
        peers.agent_connect_agent() as agent,
        Gateway(routes(agent_protocol_server, agent) + "limits: {shutdown: 1s}\n", tmp_path) as gateway,
        httpx2.Client(base_url=gateway.url, timeout=PATIENCE) as client,
        contextlib.ExitStack() as stack,
    ):

        def started(peer: str, program: str, *args: str) -> Process:
            argv = [str(peers.peer_python(peer)), "-P", str(peers.PEERS / program), *args]
            return stack.enter_context(start_program(argv))

        def under_way() -> int:
            runs = client.get("/admin/runs").json()["runs"]
            return sum(run["agent"] == "slow" and run["status"] == "running" for run in runs)

        url = f"{gateway.url}/agent-connect"
        said = ["--message", WATCHED]
        waits = started("agntcy-acp", "agent_connect_client.py", "wait", "--url", url, "--name", "slow", *said)
        steps = ["steps", "--url", f"{gateway.url}/agent-protocol/slow", "--input", WATCHED, "--limit", "1"]
        executes = started("e2b-client", "agent_protocol_client.py", *steps)
        gateway.process.wait_until(lambda: under_way() == 2, "working for both", PATIENCE)
        known = {run["id"] for run in client.get("/admin/runs?agent=slow").json()["runs"]}
        gateway.process.signal(signal.SIGTERM)
        told = set()
        for refused in (peers.lines_of(waits)[-1]["error"], peers.lines_of(executes)[-1]["error"]):
            said = re.search("run (.+) goes on at its next start", json.dumps(json.loads(refused["body"])))
            assert refused["status"] == 503 and said is not None
            told.add(said[1])
        assert told == known
        assert gateway.process.wait(PATIENCE) == 0
        gateway.restart()
        gateway.process.wait_until(lambda: under_way() == 0, "over with both", PATIENCE)
        assert [run["status"] for run in client.get("/admin/runs?agent=slow").json()["runs"]] == ["success"] * 2


def test_a_run_that_ends_while_the_disk_is_full_fails_and_its_thread_goes_on_when_it_is_not(
    agent_protocol_server: Process, tmp_path: Path
) -> None:
    with (
        peers.agent_connect_agent() as agent,
        Gateway(routes(agent_protocol_server, agent).replace("agent: slow", SLOW), tmp_path) as gateway,
        httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE) as client,
    ):
        before = client.post("/runs/wait", json={"agent_id": "writer", "input": {"message": "before"}}).json()["run"]
        runs = f"/threads/{client.post('/threads', json={}).json()['thread_id']}/runs"
        first = client.post(runs, json={"agent_id": "slow", "input": {"message": f"{PATIENCE:g} seconds"}})
        whole = f"{runs}/{first.json()['run_id']}"
        again = {"agent_id": "writer", "input": {"message": "again"}}
        with client.stream("GET", f"{whole}/stream") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            next(lines)
            limit_files(gateway.process, 1)
            agent.kill9()
            assert json.loads([*lines][-1][6:])["status"] == "error"
        refused = client.post(f"{runs}/wait", json=again)
        assert refused.status_code == 503 and "the store failed" in refused.text
        assert client.get(f"{whole}/wait").json()["run"]["status"] == "error"
        read = client.get(f"/runs/{before['run_id']}")
        assert read.status_code == 200 and read.json() == before, "nothing of it waits to be written"
        limit_files(gateway.process, resource.RLIM_INFINITY)
        answer = client.post(f"{runs}/wait", json=again)
        assert answer.status_code == 200 and answer.json()["run"]["status"] == "success", answer.text
        found = {run["run_id"]: run["status"] for run in client.get(runs).json()}
        assert found == {first.json()["run_id"]: "error", answer.json()["run"]["run_id"]: "success"}


def limit_files(process: Process, size: int) -> None:
    """From now on no file of the process may grow beyond so many bytes: to it the disk is full."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
