"""Runs that wait for their turn on a thread."""

from __future__ import annotations

import asyncio
import contextlib

from gateway.core.types import Run

POLL_SECONDS = 0.5


class Turns:
    """One per engine."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}

    async def wait(self, run: Run) -> None:
        """Until a run on its thread ends here, or a moment has passed (it may end in another process)."""
        assert run.thread is not None, "only runs on threads queue"
        event = self._waiting.setdefault(run.thread, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await event.wait()

    def ended(self, run: Run) -> None:
        """A run has ended."""
        if self._waiting and (waiting := self._waiting.pop(run.thread or "", None)) is not None:
            waiting.set()
