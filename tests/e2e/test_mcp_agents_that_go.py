"""Agents born in MCP as processes, and a gateway that is killed while they work."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from tests.support.agent_communication import agents_command, waited_for
from tests.support.processes import Gateway
from tests.transport.stdio_support import marked

WRAPPER = Path(__file__).parent / "wrapper.sh"
PATIENCE = 60.0


def test_two_hundred_runs_use_one_process_and_after_a_kill_none_is_left_and_no_run_is_sent_twice(
    tmp_path: Path,
) -> None:
    heard = tmp_path / "heard"
    listening = ["sh", "-c", f"tee -a '{heard}' | \"$@\"", "sh"]
    command = ["sh", str(WRAPPER), *listening, *agents_command("ts")]
    routes = [
        {"name": name, "target": {"protocol": "agent_communication", "command": command, "agent": name}}
        for name in ("echo", "slow")
    ]
    with marked() as mark, Gateway(json.dumps({"routes": routes}), tmp_path, env=mark.env) as gateway:
        with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE) as client:

            def said(number: int) -> Any:
                request = {"agent_id": "echo", "input": {"prompt": f"hello {number}"}}
                return client.post("/runs/wait", json=request).json()["output"]["values"]["text"]

            with ThreadPoolExecutor(20) as callers:
                assert list(callers.map(said, range(200))) == [f"hello {number}" for number in range(200)]
            assert len(mark.pids()) < 20, "one agent serves all runs"
            run = client.post("/runs", json={"agent_id": "slow", "input": {"prompt": "once only"}}).json()["run_id"]
            waited_for(heard, "once only", gateway.process)
        gateway.kill9()
        mark.wait_gone(30)
        gateway.restart()
        with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE) as client:
            ended = client.get(f"/runs/{run}/wait", params={"timeout": PATIENCE}).json()["output"]
            assert ended["type"] == "error" and "outcome unknown" in ended["description"]
        assert heard.read_text(encoding="utf-8").count("once only") == 1
