"""What the event loop gives the writer to do, and what it gets back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.store import Entry

T = TypeVar("T")
Work = Callable[[sqlite3.Cursor], T]


class Job:
    """Something to do in a transaction. Without a `future` nobody waits and it is tried until it is done.

    `record`: it writes the run's whole record, and so makes one that was to be written behind before it superfluous.
    """

    __slots__ = ("durable", "future", "record", "run", "work")

    def __init__(
        self, work: Work[Any], run: str | None, future: asyncio.Future[Any] | None, *, durable: bool, record: bool
    ) -> None:
        self.work = work
        self.run = run
        self.future = future
        self.durable = durable
        self.record = record


Appended = tuple[str, Sequence[Entry], int]
"""run, entries, their size in bytes"""

Piece = Job | Appended
Answer = tuple[asyncio.Future[Any], Any, BaseException | None]
