"""What nobody waits for, by run: held back a moment, so that more of it shares a row and a run's end takes it along.

Text that streams is held longest: there is much of it, and who loses its last moments in a crash has the agent's word
for the whole. Where much is held, all of it is let go.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from gateway.store import Entry

SECONDS = 0.05
"""How old a record, or an event that is no delta, may become here."""
DELTA_SECONDS = 0.25
"""How old a delta may."""
SHARED_SECONDS = 0.025
"""What is due within this time goes along with what is due now: one transaction for many runs."""
MOST_BYTES = 128 * 1024
"""Of entries, all runs together."""


class WriteBehind:
    """What is to be written behind for a run: entries of its log (and their bytes), its newest record."""

    __slots__ = ("due", "entries", "patience", "record", "run", "size")

    def __init__(self, run: str) -> None:
        self.run = run
        self.entries: list[Entry] = []
        self.size = 0
        self.record: Callable[..., None] | None = None
        """Writes the record, given a cursor."""
        self.due = self.patience = math.inf


class HeldWrites:
    """Used on the event loop. `ripe` is called with what has been held long enough."""

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

    def append(self, run: str, entries: Sequence[Entry]) -> int:
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
        held.entries += entries
        held.size += size
        self._size += size
        if self._size > MOST_BYTES:
            self._ripe(self.take_all())
        return size

    def save(self, run: str, record: Callable[..., None]) -> None:
        """Hold a run's record instead of one that is held."""
        self._hold(run, SECONDS).record = record

    def take(self, run: str) -> WriteBehind | None:
        """What is held for a run, no more held."""
        held = self._runs.pop(run, None)
        if held is not None:
            self._size -= held.size
        return held

    def take_all(self) -> list[WriteBehind]:
        """What is held, the oldest first, no more held."""
        held = list(self._runs.values())
        self._runs.clear()
        self._size = 0
        return held

    def _hold(self, run: str, patience: float) -> WriteBehind:
        held = self._runs.get(run)
        if held is None:
            held = self._runs[run] = WriteBehind(run)
        if patience < held.patience:
            held.patience = patience
            held.due = min(held.due, asyncio.get_running_loop().time() + patience)
            self._ring(held.due)
        return held

    def _ring(self, due: float) -> None:
        """Have the alarm ring then if not before."""
        if due >= self._rings:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._rings = due
        self._alarm = asyncio.get_running_loop().call_at(due, self._rang)

    def _rang(self) -> None:
        """Most of what it was set for may have been taken along meanwhile."""
        self._alarm, self._rings = None, math.inf
        until = asyncio.get_running_loop().time() + SHARED_SECONDS
        ripe = [held for held in self._runs.values() if held.due <= until]
        for held in ripe:
            self.take(held.run)
        if self._runs:
            self._ring(min([held.due for held in self._runs.values()]))
        if ripe:
            self._ripe(ripe)
