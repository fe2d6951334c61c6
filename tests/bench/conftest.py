"""Benchmarks of tiny sizes, in this process, whose gateways are forked off one that has imported what they need."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.stage import ROOT, Child
from tests.support.processes import PROGRAM, launch

Benchmark = Callable[[str], tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Gateways of this version start at once: most of what tiny sizes cost is what each imports."""

    def start(argv: list[str], **how: Any) -> Any:
        if argv[: len(PROGRAM)] != PROGRAM or how["cwd"] != ROOT:
            return subprocess.Popen(argv, **how)
        with Path("/dev/null").open("rb") as nothing:
            return launch(argv, nothing, how["stderr"], how["stderr"], env=how["env"], cwd=ROOT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "launch", staticmethod(start))
        yield


@pytest.fixture(scope="module")
def benchmark(forked: None, tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """Runs a part of it. Returns the JSON and the text."""

    def run(part: str) -> tuple[dict[str, Any], str]:
        file = tmp_path_factory.mktemp("bench") / "figures.json"
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main(["--sizes", "tiny", "--only", part, "--json", str(file)]) == 0
        return json.loads(file.read_text()), told.getvalue()

    return run


def tell(agent: subprocess.Popen[bytes], method: str, id: int | None = None, **params: Any) -> None:
    """Write a message to an agent on pipes."""
    assert agent.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
    agent.stdin.write(json.dumps(message).encode() + b"\n")
    agent.stdin.flush()


def heard(agent: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Its next message."""
    assert agent.stdout is not None
    message: dict[str, Any] = json.loads(agent.stdout.readline())
    return message


def ask(agent: subprocess.Popen[bytes], id: int, method: str, **params: Any) -> dict[str, Any]:
    """A request, and what comes next."""
    tell(agent, method, id, **params)
    return heard(agent)
