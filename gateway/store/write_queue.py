"""The queue of writes, in order: jobs with an answer, and writes held back for a moment (held_writes.py).

An engine takes a batch of pieces, writes it in one transaction, and answers the jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.core.errors import Unavailable
from gateway.core.types import Run
from gateway.store import LogEntry
from gateway.store.held_writes import HeldWrites, WriteBehind

T = TypeVar("T")


class WriteJob:
    """Work to do in a transaction; what `work` is, the engine says. Without a `future` it is tried until it succeeds.

    durable: answered when it is on the disk. soon: answered when it is written; the sync follows.
    joins: it is also given the held writes of `run` (or None), which it has to write.
    long: takes long. size: about how many bytes it writes. since: when it was submitted (monotonic).
    """

    __slots__ = ("durable", "future", "joins", "long", "run", "since", "size", "soon", "work")

    def __init__(
        self,
        work: Any,
        run: str | None,
        future: asyncio.Future[Any] | None,
        *,
        durable: bool = False,
        soon: bool = False,
        joins: bool = False,
        long: bool = False,
        size: int = 0,
    ) -> None:
        self.work = work
        self.run = run
        self.future = future
        self.durable = durable
        self.soon = soon
        self.joins = joins
        self.long = long
        self.size = size
        self.since = time.monotonic()


Piece = WriteJob | WriteBehind
Answer = tuple[WriteJob, Any, BaseException | None]
"""A job with its result or its error."""


def answer(answers: Sequence[Answer]) -> None:
    """Resolve the futures of the jobs. Called on the event loop."""
    for job, result, error in answers:
        future = job.future
        if future is None or future.done():
            continue  # the caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def closed() -> Unavailable:
    """The error of a call before `open` or after `close`."""
    return Unavailable("the store is closed")


class WriteQueue:
    """Gathers what is to be written. Used on the event loop. `wake` is called when there is something to take."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Piece] = deque()
        self._held = HeldWrites(self._ripe)
        self._usable = False
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

    def close(self) -> None:
        """Take no more, and release what is held."""
        self._usable = False
        self._waiting += self._held.take_all()

    def __len__(self) -> int:
        """How many pieces can be taken."""
        return len(self._waiting)

    def holds(self, run: str | None = None) -> bool:
        """Whether something waits; given a run, whether something may wait for it."""
        return bool(self._waiting) or (bool(self._held) if run is None else run in self._held)

    def submit(
        self,
        work: Callable[..., T],
        *,
        run: str | None = None,
        durable: bool = True,
        soon: bool = False,
        joins: bool = False,
        own: bool = False,
        long: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Do `work` in the next transaction, after everything appended. The future gets its result.

        own: it touches no run but `run`, or a new one, so only the appends of that run must be written before it.
        durable: answer when it is on the disk. With `soon`: answer when it is written. The rest: see `WriteJob`.

        `work` may raise an InterlinguaError before or after it writes; its writes are undone. Cancelling the future
        does not undo the work.
        """
        if not self._usable or self._loop is None:
            raise closed()
        future: asyncio.Future[T] = self._loop.create_future()
        durable, soon = durable and not soon, durable and soon
        if not own:
            self._waiting += self._held.take_all()
        elif run is not None and (held := self._held.take(run)) is not None:
            self._waiting.append(held)
        self._waiting.append(WriteJob(work, run, future, durable=durable, soon=soon, joins=joins, long=long, size=size))
        self._wake()
        return future

    def behind(self, work: Callable[..., Any]) -> None:
        """Do `work` soon and in order, without an answer."""
        if not self._usable:
            raise closed()
        self._waiting.append(WriteJob(work, None, None))
        self._wake()

    def append(self, run: str, entries: Sequence[LogEntry]) -> None:
        """Write entries of a run's log behind."""
        if not self._usable:
            raise closed()
        self.put += self._held.append(run, entries)

    def save(self, record: Run, *, soon: bool) -> None:
        """Write a run's record behind. A later record of the run replaces it."""
        if not self._usable:
            raise closed()
        self._held.save(record, soon=soon)

    def take(self, most: int) -> list[Piece]:
        """Hand out what waits, the oldest first, up to so many pieces."""
        waiting = self._waiting
        if len(waiting) > most:
            return [waiting.popleft() for _ in range(most)]
        batch = list(waiting)
        waiting.clear()
        return batch

    def _ripe(self, held: list[WriteBehind]) -> None:
        self._waiting += held
        self._wake()
