"""The real program as a subprocess, and the example agents for it to run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest

from tests.support.processes import PROGRAM, ROOT, Gateway, environment, free_port, launch, start

WITHIN = 150.0


def interlingua(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, without a terminal; `fresh` as `launch` has it."""
    argv = [*PROGRAM, *arguments]
    with contextlib.ExitStack() as stack:
        given, said, complained = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        process = launch(argv, given, said, complained, env=environment(env), cwd=cwd or ROOT, fresh=fresh)
        code = process.wait(WITHIN)
        said.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(argv, code, said.read().decode(), complained.read().decode())


def statuses(gateway: str, prompt: str) -> list[str]:
    """What has become of the runs of that prompt: an error, once one was cancelled."""
    with httpx2.Client(base_url=f"{gateway}/agent-connect", trust_env=False, timeout=30) as client:
        found = client.post("/runs/search", json={"limit": 1000}).json()
    return [run["status"] for run in found if run["creation"]["input"] in (prompt, {"message": prompt})]


@pytest.fixture(scope="session")
def agents() -> Iterator[dict[str, str]]:
    """The example agents on ports of their own: the variables that routes.yaml reads."""
    urls = {}
    with contextlib.ExitStack() as stack:
        for name in ("mailcomposer", "reporter"):
            port = free_port()
            script = ROOT / "examples" / "agents" / f"{name}.py"
            process = stack.enter_context(start([sys.executable, str(script), "--port", str(port)], port=port))
            urls[f"{name.upper()}_URL"] = process.url
        yield urls


TABLE = """
routes:
  - {{name: mailcomposer, target: {{protocol: agent_connect, url: "{MAILCOMPOSER_URL}"}}}}
  - {{name: reporter, target: {{protocol: agent_protocol, url: "{REPORTER_URL}"}}}}
  - {{name: gone, target: {{protocol: agent_connect, url: "http://127.0.0.1:1"}}}}
"""


@pytest.fixture(scope="session")
def table(agents: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A route table of those agents, and of one that is down."""
    path = tmp_path_factory.mktemp("table") / "routes.yaml"
    path.write_text(TABLE.format(**agents))
    return path


@pytest.fixture(scope="session")
def gateway(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway on that table."""
    with Gateway(table.read_text(encoding="utf-8"), tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(params=["routes", "gateway"])
def where(request: pytest.FixtureRequest) -> list[str]:
    """The two ways to reach an agent; a test that takes this runs both."""
    if request.param == "routes":
        return ["--routes", str(request.getfixturevalue("table"))]
    return ["--gateway", request.getfixturevalue("gateway").url]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests is not the tests' business."""
    for name in [name for name in os.environ if name.startswith("OTEL_") or name.endswith("COMPOSER_URL")]:
        monkeypatch.delenv(name)
