"""Holds back appends and saves for a moment, by run, so that entries share rows and a run's end takes them along.

Deltas of streaming text are held longest: there are many of them, and if a crash loses the last moments, the agent's
final result still has the whole. When too much is held, all of it is released.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from gateway.core.types import Run
from gateway.store import LogEntry

SECONDS = 0.05
"""How long a record, or an event that is not a delta, is held."""
SOON_SECONDS = 0.005
"""How long a record is held without which its run could not be found again after a crash: a run that is over by then
need not be written twice.
"""
DELTA_SECONDS = 0.25
"""How long a delta is held."""
SHARED_SECONDS = 0.025
"""Whatever is due within this time is written with what is due now: one transaction for many runs."""
MOST_BYTES = 128 * 1024
"""The most bytes of entries to hold, over all runs."""


class WriteBehind:
    """Pending writes of one run: entries of its log (and their size), its newest record."""

    __slots__ = ("due", "entries", "patience", "record", "run", "size")

    def __init__(self, run: str) -> None:
        self.run = run
        self.entries: list[LogEntry] = []
        self.size = 0
        self.record: Run | None = None
        self.due = self.patience = math.inf

    def add(self, entries: Sequence[LogEntry], size: int) -> None:
        self.entries += entries
        self.size += size

    def replace(self, record: Run) -> None:
        self.record = record

    def hurry(self, patience: float) -> float:
        """Make it due after so many seconds at the latest. Returns when it is due."""
        self.patience = patience
        self.due = min(self.due, asyncio.get_running_loop().time() + patience)
        return self.due


class HeldWrites:
    """The held writes of all runs. Used on the event loop. `ripe` is called with those that are due."""

    def __init__(self, ripe: Callable[[list[WriteBehind]], Any]) -> None:
        self._ripe = ripe
        self._runs: dict[str, WriteBehind] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._rings = math.inf
        self._size = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: object) -> bool:
        return run in self._runs

    def append(self, run: str, entries: Sequence[LogEntry]) -> int:
        """Hold entries of a run's log. Returns their size."""
        size = 0
        patience = DELTA_SECONDS
        for entry in entries:
            size += len(entry.data)
            if not entry.delta:
                patience = SECONDS
        held = self._runs.get(run)
        if held is None or patience < held.patience:
            held = self._hold(run, patience)
        held.add(entries, size)
        self._size += size
        if self._size > MOST_BYTES:
            self._ripe(self.take_all())
        return size

    def save(self, record: Run, *, soon: bool) -> None:
        """Hold a run's record, with `soon` for a shorter while; it replaces one that is held."""
        self._hold(record.id, SOON_SECONDS if soon else SECONDS).replace(record)

    def take(self, run: str) -> WriteBehind | None:
        """Release what is held for a run."""
        held = self._runs.pop(run, None)
        if held is not None:
            self._size -= held.size
        return held

    def take_all(self) -> list[WriteBehind]:
        """Release everything, the oldest first."""
        held = list(self._runs.values())
        self._runs.clear()
        self._size = 0
        return held

    def _hold(self, run: str, patience: float) -> WriteBehind:
        held = self._runs.get(run)
        if held is None:
            held = self._runs[run] = WriteBehind(run)
        if patience < held.patience:
            self._ring(held.hurry(patience))
        return held

    def _ring(self, due: float) -> None:
        """Set the alarm to ring then, unless it rings earlier."""
        if due >= self._rings:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._rings = due
        self._alarm = asyncio.get_running_loop().call_at(due, self._rang)

    def _rang(self) -> None:
        """Release what is due. Much of it may have been taken by then."""
        self._alarm, self._rings = None, math.inf
        until = asyncio.get_running_loop().time() + SHARED_SECONDS
        ripe = [held for held in self._runs.values() if held.due <= until]
        for held in ripe:
            self.take(held.run)
        if self._runs:
            self._ring(min([held.due for held in self._runs.values()]))
        if ripe:
            self._ripe(ripe)
