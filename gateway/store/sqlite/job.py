"""What the event loop gives to be written, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.store.sqlite.write_behind import WriteBehind

T = TypeVar("T")
Work = Callable[..., T]
"""What is done with a cursor. Where it `joins`, it is also given what was held of its run, or None, to write it."""


class Job:
    """Something to do in a transaction. Without a `future` nobody waits and it is tried until it is done.

    durable: whoever waits is told when it is on the disk. soon: told when it is written; the disk follows.
    long: it takes so long that the event loop had better not do it. size: bytes that it writes, about.
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


Piece = Job | WriteBehind
Answer = tuple[Job, Any, BaseException | None]
"""What to tell whoever waits for the job: a result or an error."""


def answer(answers: Sequence[Answer]) -> None:
    """Tell who waits. On the event loop."""
    for job, result, error in answers:
        future = job.future
        if future is None or future.done():
            continue  # whoever waited was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
