"""A governed route with several workers: each has an audit log, and what one leaves that is killed another ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, Gateway

WITHIN = 60.0
TABLE = {
    "store": {"url": "sqlite:///store.db"},
    "limits": {"shutdown": "1s"},
    "routes": [
        {
            "name": "gardener",
            "target": {"protocol": "agent_client", "command": ["python3", "examples/agents/gardener.py"]},
            "manifest": "examples/governed/gardener/ACP.md",
        }
    ],
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("audit-log*"))
    with Gateway(json.dumps(TABLE), tmp_path, args=["--workers", "2"]) as running:
        running.process.wait_until(lambda: "2 workers" in running.process.stdout(), "greeted", WITHIN)
        yield running


def logs(gateway: Gateway) -> dict[int, Path]:
    """By process, the log that it writes."""
    folder = gateway.file.parent / "examples/governed/gardener"
    return {int(lock.read_text()): lock.with_suffix(".jsonl") for lock in folder.glob("audit-log*.lock")}


def actions(log: Path) -> list[str]:
    return [json.loads(line)["action"] for line in log.read_text().splitlines()]


def verified(gateway: Gateway) -> tuple[int, str]:
    done = interlingua(
        "audit", "verify", "examples/governed/gardener", "--store", "sqlite:///store.db", cwd=gateway.file.parent
    )
    return done.returncode, done.stdout + done.stderr


class Garden:
    """A client of Agent Connect, each of whose requests is by chance at any worker."""

    def __init__(self, gateway: Gateway) -> None:
        self._url = f"{gateway.url}/agent-connect/runs"

    def _ask(self, method: str, path: str, body: Any = None, also: int = 200) -> Any:
        """503 is to be tried again: who is asked may have died, or not have taken the run over yet. So is what a worker
        that was killed had accepted.
        """
        until = time.monotonic() + WITHIN
        while True:
            try:
                with httpx2.Client(trust_env=False, timeout=30) as client:
                    answer = client.request(method, f"{self._url}{path}", json=body)
            except httpx2.TransportError:
                assert time.monotonic() < until
                continue
            if answer.status_code != 503 or time.monotonic() > until:
                break
            threading.Event().wait(float(answer.headers["retry-after"]))
        assert answer.status_code in (200, also), answer.text
        return answer.json()

    def asked(self) -> str:
        """A run that waits for a word."""
        run = self._ask("POST", "", {"agent_id": "gardener", "input": {"message": "a rose"}})["run_id"]
        self.until(run, "interrupted")
        return str(run)

    def until(self, run: str, *statuses: str) -> str:
        until = time.monotonic() + WITHIN
        while time.monotonic() < until:
            waited = self._ask("GET", f"/{run}/wait?block_timeout=1") if "interrupted" not in statuses else None
            status = str((waited or {}).get("run", {}).get("status") or self._ask("GET", f"/{run}")["status"])
            if status in statuses:
                return status
        raise AssertionError(f"{run} does not become {statuses}")

    def plant(self, run: str) -> str:
        """Answer it. It may have ended meanwhile, with its worker."""
        self._ask("POST", f"/{run}", {"outcome": "selected", "optionId": "plant"}, also=409)
        return self.until(run, "success", "error")


def test_each_worker_has_a_log_and_all_are_verified_together(gateway: Gateway) -> None:
    garden = Garden(gateway)
    found, runs = logs(gateway), 0
    while runs < 40 and not all("tool.result" in actions(log) for log in found.values()):
        assert garden.plant(garden.asked()) == "success"
        runs += 1
    assert {log.name for log in found.values()} == {"audit-log.jsonl", "audit-log-2.jsonl"}
    told = [actions(log) for log in found.values()]
    assert sum(each.count("tool.result") for each in told) == runs and all("tool.result" in each for each in told)
    assert gateway.process.terminate(WITHIN) == 0
    code, said = verified(gateway)
    assert code == 0 and said.count("no mistakes") == 2, said
    second = gateway.file.parent / "examples/governed/gardener/audit-log-2.jsonl"
    second.write_text("".join(second.read_text().splitlines(keepends=True)[:-1]))
    code, said = verified(gateway)
    assert code == 1 and "audit-log-2.jsonl#L" in said and "chain.truncated" in said
    second.unlink()
    code, said = verified(gateway)
    assert code == 1 and "log 2 is not there" in said
    done = interlingua("serve", "--port", "0", "--workers", "2", cwd=gateway.file.parent, fresh=True)
    assert done.returncode == 2 and "audit-log-2.jsonl: it ends with nothing" in done.stderr


def test_what_a_killed_worker_left_is_ended_by_whoever_takes_its_runs_over(gateway: Gateway) -> None:
    garden = Garden(gateway)
    runs = [garden.asked() for _ in range(6)]
    before = {pid: (log, actions(log)) for pid, log in logs(gateway).items()}
    killed, (log, told) = next((pid, each) for pid, each in before.items() if each[1])
    waiting = told.count("approval.requested")
    os.kill(killed, signal.SIGKILL)
    ended = [garden.plant(run) for run in runs]
    assert ended.count("error") <= waiting

    def over() -> bool:
        """In its log; where the worker in its place has that by then, in that of the worker that has its runs."""
        said = [actions(each) for each in log.parent.glob("audit-log*.jsonl")]
        return sum(each.count("operator.interrupted") for each in said) == waiting

    gateway.process.wait_until(over, "what it left is over", WITHIN)
    gateway.process.wait_until(lambda: gateway.process.stderr().count("is up in place of") == 1, "replaced", WITHIN)
    assert garden.plant(garden.asked()) == "success"
    assert gateway.process.terminate(WITHIN) == 0
    said = [action for each in log.parent.glob("audit-log*.jsonl") for action in actions(each)]
    assert said.count("tool.call") == said.count("tool.result") + said.count("tool.refused"), "each call has an end"
    code, told_of = verified(gateway)
    assert code == 0, told_of
