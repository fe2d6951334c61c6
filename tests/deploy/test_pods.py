"""The pods of deploy/ run here: probed, used by a real client, told to stop in the middle of a run, and run again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.deploy.pod import PROBES, Manifest, Pod
from tests.support.peers import agent_connect_client
from tests.support.processes import ROOT, Process, free_port, start

WORDS = "word " * 30
PATIENCE = 150.0


@pytest.fixture(scope="module")
def agent() -> Iterator[Process]:
    port = free_port()
    script = ROOT / "examples" / "agents" / "mailcomposer.py"
    with start([sys.executable, str(script), "--port", str(port)], port=port) as process:
        yield process


@pytest.mark.parametrize("name", ["sidecar", "gateway"])
def test_a_pod_that_is_stopped_in_the_middle_of_a_run_has_it_when_it_is_started_again(
    name: str, agent: Process, tmp_path: Path
) -> None:
    pod = Pod(Manifest(name), tmp_path, agent.url)
    token = pod.manifest.secrets.get("CLIENT_TOKEN", "none is asked for")
    door = f"{pod.url}/agent-connect"
    with (
        pod.run() as gateway,
        httpx2.Client(trust_env=False, timeout=PATIENCE, headers={"authorization": f"Bearer {token}"}) as client,
    ):
        for probe in PROBES:
            gateway.wait_until(pod.probe(probe), probe)
        *_, waited = agent_connect_client("wait", door, "--name", "mailcomposer", "--bearer", token)
        assert waited["result"]["output"]["type"] == "result", waited
        body = {"agent_id": "mailcomposer", "input": {"message": WORDS}, "on_disconnect": "continue"}
        with client.stream("POST", f"{door}/runs/stream", json=body) as stream:
            first = next(line for line in stream.iter_lines() if line.startswith("data:"))
            gateway.signal(signal.SIGTERM)
            run = json.loads(first.removeprefix("data:"))["run_id"]
        assert gateway.wait(PATIENCE) == 0
        logged = [json.loads(line) for line in gateway.stderr().splitlines()]
        assert logged[-1]["message"] == "stopped"
    with (
        pod.run(),
        httpx2.Client(trust_env=False, timeout=PATIENCE, headers={"authorization": f"Bearer {token}"}) as client,
    ):
        ended = client.get(f"{door}/runs/{run}/wait").json()
        assert ended["run"]["status"] == "success", ended
        assert ended["output"]["values"]["message"].count("ord") == len(WORDS.split())
    assert pod.written() == []


def test_the_agent_in_the_sidecars_pod_is_ready_when_it_listens(agent: Process) -> None:
    manifest = Manifest("sidecar")
    (container,) = manifest.pod["containers"]
    (_, program, text) = container["readinessProbe"]["exec"]["command"]
    assert container["args"][-2:] == ["--port", "9001"]

    def ready(port: int) -> bool:
        command = [sys.executable, program, text.replace("9001", str(port))]
        return subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE).returncode == 0

    assert agent.port is not None
    assert ready(agent.port)
    assert not ready(free_port())
