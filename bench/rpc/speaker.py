"""An agent without an event loop, on two file descriptors: who speaks when.

It has few imports and starts in the time that an interpreter takes, and one process outruns its readers. Whoever does
not read holds it up, as most agents are.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

BLOCK = 64 * 1024


class Speech(Protocol):
    """One answer on its way. `at`: when its next chunk is due. `over`: nothing is left to say, or nobody wants it."""

    at: float

    @property
    def pace(self) -> float:
        """Seconds between its chunks; 0: as fast as they are taken."""

    @property
    def over(self) -> bool: ...

    def chunks(self) -> bytes:
        """The next of them."""


Turn = TypeVar("Turn", bound=Speech)


class Speaker(ABC, Generic[Turn]):
    """`serve` it until `source` ends or nobody reads `sink` any more."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._rest = b""
        self._fast: list[Turn] = []
        self._paced: list[tuple[float, int, Turn]] = []
        self._order = itertools.count()

    @abstractmethod
    def take(self, line: bytes) -> None:
        """A message."""

    @abstractmethod
    def ending(self, turn: Turn) -> bytes:
        """What is said after a turn's last chunk."""

    def serve(self) -> None:
        """See the class."""
        with contextlib.suppress(BrokenPipeError):
            while True:
                ready, _, _ = select.select([self._source], [], [], self._seconds())
                if ready:
                    data = os.read(self._source, BLOCK)
                    if not data:
                        return
                    *lines, self._rest = (self._rest + data).split(b"\n")
                    for line in lines:
                        self.take(line)
                self._speak()

    def start(self, turn: Turn) -> None:
        """Have a turn speak. Those that begin together do not speak at the same moments: each has a time of its own."""
        number = next(self._order)
        turn.at = time.monotonic() + turn.pace * (number * 0.618034 % 1.0)
        if turn.pace:
            heapq.heappush(self._paced, (turn.at, number, turn))
        else:
            self._fast.append(turn)

    def write(self, data: bytes) -> None:
        """All of it; waits while nobody reads."""
        written = os.write(self._sink, data) if data else 0
        while written < len(data):
            written += os.write(self._sink, data[written:])

    def _seconds(self) -> float | None:
        """Until there is something to say; None if there is not."""
        if self._fast:
            return 0.0
        return max(0.0, self._paced[0][0] - time.monotonic()) if self._paced else None

    def _speak(self) -> None:
        """What is due: a write a turn."""
        now = time.monotonic()
        while self._paced and self._paced[0][0] <= now:
            turn = heapq.heappop(self._paced)[2]
            if self._said(turn):
                turn.at += turn.pace
                heapq.heappush(self._paced, (turn.at, next(self._order), turn))
        if self._fast:
            self._fast = [turn for turn in self._fast if self._said(turn)]

    def _said(self, turn: Turn) -> bool:
        """Have a turn say the next of it, and its ending with the last; whether there is more to come."""
        if turn.over:  # cancelled
            return False
        said = turn.chunks()
        self.write(said + self.ending(turn) if turn.over else said)
        return not turn.over
