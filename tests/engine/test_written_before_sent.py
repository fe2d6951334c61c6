"""A run's creation is written before the agent hears of it, and on the disk before anybody is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.adapter import RunContext
from gateway.core import events as e
from gateway.core.types import RunStatus
from gateway.store.sqlite import hand
from tests.support import aio, scripted
from tests.support.scripted import Scripted, request, until

LONG = 30.0


class Stuck:
    """A disk on which no sync ends until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    def sync(self, descriptor: int) -> None:
        self.go.wait(LONG)
        os.fsync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    stuck = Stuck()
    monkeypatch.setattr(hand, "sync", stuck.sync)
    yield stuck
    stuck.go.set()


class Agent(Scripted):
    """Notes what another process would find of the run while the agent has it."""

    def __init__(self, file: Path) -> None:
        super().__init__(self.works)
        self.file = file
        self.found: list[tuple[str, ...]] = []

    async def works(self, context: RunContext) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            self.found += connection.execute("SELECT status FROM runs WHERE id = ?", (context.run.id,)).fetchall()
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"message": "done"}')))
        await context.drain()


def test_a_run_that_nobody_is_told_of_goes_out_when_it_is_written_and_ends_on_the_disk(
    tmp_path: Path, disk: Stuck
) -> None:
    async def story() -> None:
        file = tmp_path / "store.db"
        agent = Agent(file)
        async with scripted.engine((scripted.route(), agent), file=file) as engine:
            disk.go.clear()
            run = await engine.start(request(), told=False)
            await until(lambda: bool(agent.found))
            assert agent.found == [("running",)]
            waiting = asyncio.ensure_future(engine.wait(run.id))
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            disk.go.set()
            done = await asyncio.wait_for(waiting, LONG)
            assert done is not None and done.status is RunStatus.SUCCESS

    aio.run(story())


def test_a_run_that_somebody_is_told_of_goes_out_when_it_is_on_the_disk(tmp_path: Path, disk: Stuck) -> None:
    async def story() -> None:
        file = tmp_path / "store.db"
        agent = Agent(file)
        async with scripted.engine((scripted.route(), agent), file=file) as engine:
            disk.go.clear()
            starting = asyncio.ensure_future(engine.start(request()))
            await asyncio.wait([starting], timeout=0.05)
            assert not starting.done() and not agent.found
            disk.go.set()
            run = await asyncio.wait_for(starting, LONG)
            done = await engine.wait(run.id, LONG)
            assert done is not None and done.status is RunStatus.SUCCESS
            assert agent.found == [("running",)]

    aio.run(story())
