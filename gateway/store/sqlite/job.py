"""What the event loop submits to be written, and the answers to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.store.sqlite.write_behind import WriteBehind

T = TypeVar("T")
Work = Callable[..., T]
"""Called with a cursor. If the job `joins`, also with the run's held writes (or None), which it has to write."""


class WriteJob:
    """Work to do in a transaction. Without a `future` it is tried until it succeeds.

    durable: answered when it is on the disk. soon: answered when it is written; the sync follows.
    long: takes too long for the event loop. size: about how many bytes it writes.
    """

    __slots__ = ("durable", "future", "joins", "long", "run", "size", "soon", "work")

    def __init__(
        self,
        work: Work[Any],
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
