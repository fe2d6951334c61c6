"""The program that shows the gateway's memory works, and what it is to show holds: ended runs leave nothing behind."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from bench import idle, memory
from gateway.core.types import Thread
from tests.runs.test_runs import ended
from tests.support.scripted import Scripted, echo, engine, request, route

RUNS = 300


def test_memory_is_told_after_each_step(forked: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["--runs", "0", "20", "--threads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["0", "runs:"], ["20", "runs:"]]


def test_what_idle_websockets_take_is_told_beside_servers_that_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert idle.main(["--connections", "30"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["tcp:", "websockets:", "uvicorn:", "gateway:", "session:"]


async def test_runs_that_have_ended_leave_nothing_behind(tmp_path: Path) -> None:
    scripted = Scripted(echo)
    async with engine((route(), scripted), file=tmp_path / "s.db") as gateway:

        async def blocks(prefix: str) -> int:
            for number in range(RUNS):
                made = await gateway.threads.create(Thread(id=f"{prefix}{number}", created_at=1.0, updated_at=1.0))
                await ended(gateway, (await gateway.runs.start(request(thread=made.id))).id)
                scripted.contexts.clear()
            gc.collect()
            return sys.getallocatedblocks()

        first = await blocks("a")
        then = [await blocks(prefix) for prefix in "bcde"]  # it sways by some hundreds, whatever is done
        assert then[-1] - first < len(then) * RUNS, "less than a block for each run"
