"""A run's time: it stands still while a person is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import TracebackType

from gateway.transport.deadline import Deadline


class Clock:
    """A timeout of `seconds` (None: no limit) that can be paused, by several at once. Enter it once."""

    def __init__(self, seconds: float | None) -> None:
        self._deadline = Deadline(seconds)
        self._running = False
        self._pauses = 0
        self._left: float | None = None

    @property
    def expired(self) -> bool:
        """True if a TimeoutError was this clock's."""
        return self._deadline.expired

    def __enter__(self) -> Clock:
        self._deadline.__enter__()
        self._running = True
        if self._pauses:
            self._stop()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = False
        self._deadline.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time does not count inside."""
        self._pauses += 1
        if self._pauses == 1:
            self._stop()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._go()

    def _stop(self) -> None:
        due = self._deadline.due if self._running and not self.expired else None
        if due is not None:
            self._left = max(0.0, due - asyncio.get_running_loop().time())
            self._deadline.move(None)

    def _go(self) -> None:
        if self._running and self._left is not None:
            self._deadline.move(asyncio.get_running_loop().time() + self._left)
        self._left = None
