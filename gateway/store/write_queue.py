"""The queue of writes, in order: jobs with an answer, and writes held back for a moment.

An engine takes a batch of pieces, writes it in one transaction, and has the jobs answer.

Appends and saves are held back by run, so that entries share rows and a run's end takes them along. Deltas of streaming
text are held longest: there are many of them, and if a crash loses the last moments, the agent's final result still has
the whole. When too much is held, all of it is released.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import Unavailable
from gateway.core.types import Run
from gateway.store import LogEntry

T = TypeVar("T")

logger = logging.getLogger(__name__)

SECONDS = 0.05
"""How long a record, or an event that is not a delta, is held."""
SOON_SECONDS = 0.005
"""How long a record is held without which its run could not be found again after a crash: a run that is over by then
need not be written twice.
"""
DELTA_SECONDS = 0.25
"""How long a delta is held."""
SLACK_SECONDS = 0.001
"""Whatever is due within this time is due now: the loop's timers count milliseconds."""
MOST_RUNS = 8
"""The most runs to release at a time, if the event loop writes them: each is some 10 us, for which all else waits."""
SLOW_SECONDS = 1.0
"""For how long no new run is held after one that was not over when it was due: such a run is written twice anyway."""
MOST_BYTES = 128 * 1024
"""The most bytes of entries to hold, over all runs."""
SMALL_BYTES = 256 * 1024
"""The most that an event loop should write itself."""
LONG = SMALL_BYTES + 1
"""The size of a job that takes long, however little it writes."""


class WriteJob(msgspec.Struct, eq=False):
    """Work to do in a transaction; what `work` is, the engine says. Without a `future` it is tried until it succeeds.

    durable: answered when it is on the disk. soon: answered when it is written; the sync follows.
    joins: it is also given the held writes of `run` (or None), which it has to write.
    size: about how many bytes it writes; `LONG` where it takes long.
    written: may be called with the result of a durable one once that is written, before the answer; must not raise.
    """

    work: Any
    run: str | None = None
    future: asyncio.Future[Any] | None = None
    durable: bool = False
    soon: bool = False
    joins: bool = False
    size: int = 0
    written: Callable[[Any], None] | None = None
    result: Any = None
    error: BaseException | None = None

    def ends(self, result: Any = None, error: BaseException | None = None) -> None:
        """Note what came of it. Nobody is told before `answer`, and what is tried again ends again."""
        self.result, self.error = result, error

    def answer(self) -> None:
        """Resolve the future, unless its caller was cancelled. Called on the event loop."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.result)
        else:
            future.set_exception(self.error)


class Creation(msgspec.Struct, eq=False):
    """A run that is yet to be written: its record (and that as it is written), its first events as they go into its
    row, and the numbers reserved for more. `written` is called when it is, or never can be.
    """

    run: Run
    record: bytearray
    head: bytearray
    reserved: int
    written: Callable[[], None]


class WriteBehind(msgspec.Struct, eq=False):
    """Pending writes of one run: its creation, entries of its log (and their size), its newest record."""

    run: str
    creation: Creation | None = None
    entries: list[LogEntry] = []
    size: int = 0
    record: Run | None = None
    due: float = math.inf
    patience: float = math.inf

    def create(self, creation: Creation) -> None:
        self.creation = creation

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


class Trouble:
    """What keeps a store from being written. The log is warned once, until it is something else or over."""

    def __init__(self) -> None:
        self._error = ""
        self.why = ""
        """What clients may know of it; empty once it is over."""
        self.refused: WriteJob | None = None
        """The work of the last job that was refused, without its caller: while it fails again, it is not over."""

    def tell(self, what: str, error: BaseException, why: str, job: WriteJob | None = None) -> None:
        """This could not be done. `job`: the one that is refused for it."""
        self.why = why
        if job is not None:
            self.refused = WriteJob(job.work, job.run, joins=job.joins)
        if (said := str(error)) != self._error:
            self._error = said
            logger.warning("%s: %s (told once, until it changes)", what, error)

    def over(self) -> None:
        """All that waited is written, and what was refused could be."""
        if self.why:
            self._error = self.why = ""
            self.refused = None
            logger.warning("the store is written again")


Piece = WriteJob | WriteBehind


class WriteQueue:
    """Gathers what is to be written. Used on the event loop. `wake` is called when there is something to take."""

    def __init__(self, wake: Callable[[], None], most_runs: int = MOST_RUNS) -> None:
        """most_runs: the most to release at a time of those whose writes are held."""
        self._wake = wake
        self._most_runs = most_runs
        self._waiting: list[Piece] = []
        self._held: dict[str, WriteBehind] = {}
        self._held_bytes = 0
        self._order: list[tuple[float, str]] = []  # a heap of names, which keeps no run that has left
        self._alarm: asyncio.TimerHandle | None = None
        self._rings = math.inf
        self._quick_from = 0.0
        self._usable = False
        self._why = "the store is closed"
        self._loop: asyncio.AbstractEventLoop | None = None
        self.put = 0
        """Bytes of appended entries, all told."""

    @property
    def usable(self) -> bool:
        """Between `open` and `close`."""
        return self._usable

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._usable = True

    def closed(self) -> Unavailable:
        """The error of a call before `open` or after `close`."""
        return Unavailable(self._why)

    def close(self, why: str | None = None) -> None:
        """Take no more, and release what is held. `why`: what callers are told from now on."""
        self._usable = False
        self._why = why or self._why
        self._waiting += self._let_go()

    def __len__(self) -> int:
        """How many pieces can be taken."""
        return len(self._waiting)

    def holds(self, run: str | None = None, taken: Sequence[Piece] = ()) -> bool:
        """Whether anything waits here or is among what was taken; given a run, anything of that."""
        if run is None:
            return bool(self._waiting or self._held or taken)
        return run in self._held or any(piece.run == run for piece in chain(self._waiting, taken))

    def submit(
        self,
        work: Callable[..., T],
        *,
        run: str | None = None,
        durable: bool = True,
        soon: bool = False,
        joins: bool = False,
        own: bool = False,
        size: int = 0,
        written: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        """Do `work` in the next transaction, after everything appended. The future gets its result.

        own: it touches no run but `run`, or a new one, so only the appends of that run must be written before it.
        durable: answer when it is on the disk. With `soon`: answer when it is written. The rest: see `WriteJob`.

        `work` may raise an InterlinguaError before or after it writes; its writes are undone. Cancelling the future
        does not undo the work.
        """
        if not self._usable or self._loop is None:
            raise self.closed()
        future: asyncio.Future[T] = self._loop.create_future()
        if not own:
            self._waiting += self._let_go()
        elif run is not None and (held := self._let_go_of(run)) is not None:
            self._waiting.append(held)
        self._waiting.append(WriteJob(work, run, future, durable and not soon, soon, joins, size, written))
        self._wake()
        return future

    def behind(self, work: Callable[..., Any]) -> None:
        """Do `work` soon and in order, without an answer."""
        if not self._usable:
            raise self.closed()
        self._waiting.append(WriteJob(work))
        self._wake()

    def take(self, most: int) -> list[Piece]:
        """Hand out what waits, the oldest first, up to so many pieces."""
        batch = self._waiting[:most]
        del self._waiting[:most]
        return batch

    # --- what is held --------------------------------------------------------------------------------------------

    @property
    def quick(self) -> bool:
        """Whether it is worth while to write new runs behind: as far as is known they are over before they are due."""
        return self._usable and asyncio.get_running_loop().time() >= self._quick_from

    def create(self, creation: Creation) -> None:
        """Write a new run behind, which outlives this process as it is. While `quick`."""
        self._hold(creation.run.id, SECONDS).create(creation)

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> int:
        """Write entries of a run's log behind. Returns their size."""
        if not self._usable:
            raise self.closed()
        size, patience = 0, DELTA_SECONDS
        for entry in entries:
            size += len(entry.data)
            if not entry.delta:
                patience = SECONDS
        held = self._held.get(run_id)
        if held is None or patience < held.patience:
            held = self._hold(run_id, patience)
        held.add(entries, size)
        self.put += size
        self._held_bytes += size
        if self._held_bytes > MOST_BYTES:
            self._waiting += self._let_go()
            self._wake()
        return size

    def save(self, record: Run, *, soon: bool) -> None:
        """Write a run's record behind, with `soon` after a shorter while. A later record of the run replaces it."""
        if not self._usable:
            raise self.closed()
        self._hold(record.id, SOON_SECONDS if soon else SECONDS).replace(record)

    def _hold(self, run: str, patience: float) -> WriteBehind:
        held = self._held.get(run)
        if held is None:
            held = self._held[run] = WriteBehind(run)
        if patience < held.patience:
            due = held.hurry(patience)
            heapq.heappush(self._order, (due, run))
            if due < self._rings:
                self._ring(due)
        return held

    def _let_go_of(self, run: str) -> WriteBehind | None:
        """What was held for a run."""
        held = self._held.pop(run, None)
        if held is not None:
            self._held_bytes -= held.size
        return held

    def _let_go(self) -> list[WriteBehind]:
        """All that was held, the oldest first."""
        held = list(self._held.values())
        self._held.clear()
        self._order.clear()
        self._held_bytes = 0
        return held

    def _ring(self, due: float) -> None:
        """Set the alarm to ring then."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._rings = due
        self._alarm = asyncio.get_running_loop().call_at(due, self._rang)

    def _rang(self) -> None:
        """Release a few runs: what is due, and what is due next within the time that it has waited, since writing has a
        price for each time. Of many runs each few have their moment, and all else waits for one write, not for all.
        """
        self._alarm, self._rings = None, math.inf
        now = until = asyncio.get_running_loop().time() + SLACK_SECONDS
        order = self._order
        ripe: list[WriteBehind] = []
        while order and len(ripe) < self._most_runs:
            due, run = order[0]
            if (held := self._held.get(run)) is not None and held.due == due:  # else it was hurried or let go of since
                if due > until:
                    break
                if due <= now:
                    until = max(until, now + held.patience)
                if held.creation is not None:
                    self._quick_from = now + SLOW_SECONDS
                self._let_go_of(run)
                ripe.append(held)
            heapq.heappop(order)
        if ripe:
            self._waiting += ripe
            self._wake()
        if order:
            self._ring(order[0][0])
