"""Agents that are started with the gateway, before a client has come: `warm`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import Gateway
from tests.transport.stdio_support import until

ROOT = Path(__file__).parent.parent
EDITORS = [sys.executable, str(ROOT / "adapters" / "agent_client" / "outbound_program.py")]
CALLED = [sys.executable, "-m", "bench.agent_communication.agent"]


def route(protocol: str, command: list[str], pids: Path, **options: object) -> str:
    """An agent that notes each start."""
    noted = ["sh", "-c", f'echo $$ >> "{pids}"; exec "$@"', "sh", *command]
    target = {"protocol": protocol, "command": noted, "cwd": str(ROOT.parent), **options}
    return f"  - {{name: {protocol}, target: {json.dumps(target)}}}\n"


def noted(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_agents_run_before_the_first_client_comes_and_again_after_they_died(tmp_path: Path) -> None:
    editors, called, cold = (tmp_path / name for name in ("editors", "called", "cold"))
    table = "routes:\n" + route("agent_client", EDITORS, editors, warm=3)
    table += route("agent_communication", CALLED, called, warm=1, agent="text")
    table += route("agent_client", EDITORS, cold).replace("name: agent_client", "name: cold")
    with Gateway(table, tmp_path) as gateway:
        until(lambda: len(noted(editors)) == 3 and len(noted(called)) == 1, 60)
        for pid in (*noted(editors), *noted(called)):
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(noted(editors)) == 6 and len(noted(called)) == 2, 60)
        asked = {"agent_id": "agent_client", "input": {"message": "pid"}}
        run = httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=asked, trust_env=False, timeout=60).json()
        assert int(run["output"]["values"]["message"]) in noted(editors)[3:]
        assert noted(cold) == []
    for pid in (*noted(editors), *noted(called)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("{protocol: agent_client, command: [x], warm: 33}", "warm: should be"),
        ("{protocol: agent_client, url: 'ws://127.0.0.1:9', warm: 1}", "warm is for an agent with a command"),
        ("{protocol: agent_communication, command: [x], warm: 2}", "warm: should be"),
        ("{protocol: agent_context, url: 'http://127.0.0.1:9', warm: 1}", "warm is for a server with a command"),
    ],
)
def test_what_cannot_be_kept_warm_is_a_mistake(target: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(f"routes:\n  - name: a\n    target: {target}\n")
    checked = interlingua("check", str(file))
    assert checked.returncode == 1
    assert told in checked.stdout + checked.stderr
