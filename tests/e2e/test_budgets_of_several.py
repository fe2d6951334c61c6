"""A budget of several gateways on one store, and of several workers: it is that of all together."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.governance.audit import logs
from tests.governance.conformance.room import agent
from tests.governance.support import OPERATOR, governance, manifest, policy, with_, write
from tests.support.processes import Gateway

TOOL = "count-it"
ALLOWED, CALLS = 5, 12
PATIENCE = 60.0


def documents(folder: Path) -> Path:
    """A posture in which a tool may be called so many times a day, and is asked about then."""
    counted = policy(folder, "counted", match={"subject": TOOL}, autonomy=3, budget={"max_per_day": ALLOWED})
    governance(folder, policies=[counted], autonomy={"level": 2})
    own = with_(OPERATOR, id="clerk", tools=[TOOL], governance={"audit_log": "audit:main", "autonomy": "autonomous"})
    write(folder / "operators/clerk/OPERATOR.md", own)
    return manifest(folder / "bridge", {"tier": "governance-aware", "operator": "ws://operators/clerk"}, kind="bridge")


@dataclass
class Site:
    """Gateways with one store and one folder of audit logs."""

    folder: Path
    gateways: Sequence[Gateway]

    def call(self, times: int) -> Counter[str]:
        """What became of runs that call the tool once each, begun at all gateways in turn and at once."""
        with ThreadPoolExecutor(times) as pool:
            ways = itertools.islice(itertools.cycle(self.gateways), times)
            return Counter(pool.map(_called, [gateway.url for gateway in ways]))

    def counted(self) -> int:
        """How many calls the logs say that the budget was used for. Each is written before its client is told."""
        texts = [file.read_text() for files in logs([self.folder]).values() for file in files]
        whole = [line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return sum(_record(json.loads(line)).get("budgets") == ["counted"] for line in whole)


def _record(line: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = line["metadata"].get("aip44", {}).get("audit", {})
    return found


def _called(url: str) -> str:
    """A connection of its own, so that any worker may get it."""
    body = {"agent_id": "clerk", "input": {"message": f"sneak {TOOL}"}}
    answer = httpx2.post(f"{url}/agent-connect/runs/wait", json=body, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["run"]["status"])


@pytest.fixture(params=["two gateways, sqlite", "two gateways, postgresql", "two workers"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    route = {"name": "clerk", "target": {"protocol": "agent_client", "command": agent()}}
    url, folder = f"sqlite:///{tmp_path}/shared.db", tmp_path / "documents"
    with contextlib.ExitStack() as stack:
        if "postgresql" in request.param:
            url = request.getfixturevalue("postgres").database()
        table = json.dumps(
            {
                "inbound": {"agent_connect": {}},
                "routes": [{**route, "manifest": str(documents(folder))}],
                "store": {"url": url},
            }
        )
        args = ["--workers", "2"] if "workers" in request.param else []
        names = ("one",) if args else ("one", "two")
        for name in names:
            (tmp_path / name).mkdir()
        yield Site(folder, [stack.enter_context(Gateway(table, tmp_path / name, args=args)) for name in names])


def test_all_together_allow_what_the_budget_says_and_one_that_was_killed_begins_with_what_is_left(site: Site) -> None:
    half = site.call(ALLOWED - 2)
    assert half == {"success": ALLOWED - 2}
    if len(site.gateways) > 1:
        site.gateways[0].kill9()
        site.gateways[0].restart()
    assert site.call(CALLS) == {"success": 2, "interrupted": CALLS - 2}
    assert site.counted() == ALLOWED
