"""Tasks that their owner starts and does not await one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """Holds tasks until they are done: the event loop itself keeps only weak references to them.

    `failed` is called with what a task raised. Without it asyncio logs an exception that nobody retrieves.
    """

    __slots__ = ("_failed", "_tasks")

    def __init__(self, failed: Callable[[BaseException], object] | None = None) -> None:
        self._tasks: dict[asyncio.Future[Any], asyncio.Future[None] | None] = {}
        """With what is done when they are, where `whole` waits for it."""
        self._failed = failed

    def __iter__(self) -> Iterator[asyncio.Future[Any]]:
        """Iterate over the tasks held now; tasks may come and go meanwhile."""
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run `work` in a task and hold it."""
        task = asyncio.create_task(work, name=name)
        self.hold(task)
        return task

    def hold(self, task: asyncio.Future[Any]) -> None:
        """Hold a task or future that exists already."""
        self._tasks[task] = None
        task.add_done_callback(self._done)

    async def whole(self, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        """Await work that is carried out whole even if who awaits it is cancelled, as when a client goes away."""
        loop = asyncio.get_running_loop()
        task = work if isinstance(work, asyncio.Future) else loop.create_task(work)
        self._tasks[task] = over = loop.create_future()
        task.add_done_callback(self._done)
        await over
        return task.result()

    def cancel(self) -> None:
        for task in self:
            task.cancel()

    async def settled(self) -> None:
        """Wait until none is left, not even one that was started meanwhile. Raises nothing that a task raises."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _done(self, task: asyncio.Future[Any]) -> None:
        if (over := self._tasks.pop(task, None)) is not None and not over.done():
            over.set_result(None)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
