"""A run's time: it stands still while a person is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from gateway.transport.deadline import Deadline


class Clock(Deadline):
    """A deadline that can be paused, by several at once, while it is entered."""

    _pauses = 0
    _left: float | None = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time does not count inside."""
        self._pauses += 1
        if self._pauses == 1 and self.due is not None:
            self._left = max(0.0, self.due - asyncio.get_running_loop().time())
            self.move(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._left is not None:
                self.move(asyncio.get_running_loop().time() + self._left)
                self._left = None
