"""Changes of a run that are carried out whole, and who waits for it to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.transport.tasks import TaskSet


class ShieldedChanges:
    """One per run in progress."""

    def __init__(self) -> None:
        self._background = TaskSet()
        self._stops: set[asyncio.Future[None]] = set()

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to a background task until it is done."""
        self._background.hold(task)

    async def change(self, change: Coroutine[Any, Any, None]) -> None:
        """Change the record and the log, and all that follows from it, even if who wants it is cancelled meanwhile (a
        client's task, an adapter's): half of it would have the next event take a number that the store has already.
        """
        task = asyncio.ensure_future(change)
        self.keep(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # of who was cancelled, nobody's
        await asyncio.shield(task)

    async def until(self, true: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is true that `tell` follows; False when `timeout` seconds passed first."""
        while not true():
            future = asyncio.get_running_loop().create_future()
            self._stops.add(future)
            try:
                if timeout is None:
                    await future
                else:
                    async with asyncio.timeout(timeout):
                        await future
            except TimeoutError:
                return False
            finally:
                self._stops.discard(future)
        return True

    def tell(self) -> None:
        """Have who waits look again."""
        for future in self._stops:
            if not future.done():
                future.set_result(None)
