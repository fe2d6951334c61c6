"""Agents of `programs/`, and a way to find every process that came of one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.transport.pipe import Unreadable
from gateway.transport.stdio import Grace, StdioPipe, spawn

PROGRAMS = Path(__file__).parent / "programs"
STUBBORN = ["sh", str(PROGRAMS / "stubborn.sh")]
STUBBORN_SAYS = 3
MARK = "INTERLINGUA_TEST_MARK"
QUICK = Grace(eof=0.2, term=0.2)
PATIENT = Grace(eof=20, term=20)


def agent(habit: str, *arguments: object) -> list[str]:
    """The command of one of the agents."""
    return [sys.executable, "-I", "-S", str(PROGRAMS / "agent.py"), habit, *map(str, arguments)]


_started: list[StdioPipe] = []


async def start(command: Sequence[str], *, name: str = "agent", grace: Grace = PATIENT, **options: object) -> StdioPipe:
    """`spawn`; an agent that leaves only when it is made to shows in a test by its time."""
    pipe = await spawn(command, name=name, grace=grace, **options)  # type: ignore[arg-type]
    _started.append(pipe)
    return pipe


async def closing(scene: Coroutine[Any, Any, None]) -> None:
    """Run a scene, then close what it started and left open."""
    try:
        await scene
    finally:
        pipes, _started[:] = list(_started), []
        await asyncio.gather(*(pipe.aclose() for pipe in pipes))


async def receive(pipe: StdioPipe, count: int) -> list[bytes | Unreadable]:
    """The next `count` messages or more."""
    lines: list[bytes | Unreadable] = []
    while len(lines) < count:
        more = await pipe.receive()
        assert more, f"ended after {lines}"
        lines += more
    return lines


class Marked:
    """All processes that have a mark in their environment, wherever they went."""

    def __init__(self) -> None:
        self.env = {MARK: uuid.uuid4().hex}
        self._wanted = f"{MARK}={self.env[MARK]}".encode()

    def pids(self) -> list[int]:
        """Those that live; a process that has ended and waits to be reaped has no environment."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]

    def _has(self, pid: int) -> bool:
        try:
            return self._wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def wait_gone(self, within: float) -> None:
        """Returns when none is left."""
        until(lambda: not self.pids(), within)


@contextmanager
def marked() -> Iterator[Marked]:
    """A new mark; what bears it at the end is a failure, and is ended."""
    mark = Marked()
    try:
        yield mark
        mark.wait_gone(30)
    finally:
        for pid in mark.pids():
            os.kill(pid, 9)


def until(true: Callable[[], bool], within: float) -> None:
    """Returns when `true()`; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, f"not within {within:g} s"
        time.sleep(0.01)


async def until_async(true: Callable[[], bool], within: float) -> None:
    """`until` while the loop runs."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - nothing tells of what happens outside
            await asyncio.sleep(0.01)
