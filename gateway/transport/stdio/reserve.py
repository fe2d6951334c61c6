"""Reserve: processes of an agent that are started before anybody needs them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from gateway.core.errors import InterlinguaError
from gateway.transport.stdio.pipe import StdioPipe, spawn
from gateway.transport.stdio.supervisor import STEADY_SECONDS, Backoff
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)


class Reserve:
    """Keeps processes that nobody has talked to yet. The first `take` begins to fill it; `aclose` at the end.

    start: starts one; raises errors of the tree.
    most: how many may wait now.
    name: the agent's, for logs.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[StdioPipe]],
        most: Callable[[], int],
        *,
        name: str,
        backoff: Backoff | None = None,
    ) -> None:
        self._start = start
        self._most = most
        self._name = name
        self._backoff = backoff or Backoff()
        self._waiting: list[StdioPipe] = []
        self._failures = 0
        self._filling: asyncio.Task[None] | None = None
        self._closing = TaskSet()
        self._closed = False

    @classmethod
    def of(cls, command: Sequence[str], most: Callable[[], int], *, name: str, **options: Any) -> Reserve:
        """A reserve of what `spawn` starts, by its `options`."""
        return cls(partial(spawn, command, name=name, **options), most, name=name)

    async def take(self) -> StdioPipe:
        """The process that has waited longest; a new one where none does. Another is started in its place.

        Raises what `start` does.
        """
        while self._waiting:
            pipe = self._waiting.pop(0)
            if pipe.exit is None:
                self._failures = 0
                break
            self._closing.start(pipe.aclose())
        else:
            pipe = await self._start()
        self._fill()
        return pipe

    async def aclose(self) -> None:
        """End every process that waits. What was taken is its taker's. Idempotent."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        while self._waiting:
            self._closing.start(self._waiting.pop().aclose())
        await self._closing.settled()

    def _fill(self) -> None:
        if not self._closed and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._filled(), context=contextvars.Context())

    async def _filled(self) -> None:
        """Start what is missing, one after the other."""
        while len(self._waiting) < self._most():
            await asyncio.sleep(self._backoff.delay(self._failures))
            try:
                pipe = await self._start()
            except InterlinguaError as error:
                self._failed(error)
            else:
                self._waiting.append(pipe)
                began = asyncio.get_running_loop().time()
                pipe.exited.add_done_callback(partial(self._ended, pipe, began))

    def _ended(self, pipe: StdioPipe, began: float, _: object) -> None:
        if pipe not in self._waiting:
            return
        self._waiting.remove(pipe)
        if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
            self._failures = 0
        self._failed(f"{self._name} {pipe.exit} before anybody talked to it")
        self._closing.start(pipe.aclose())
        self._fill()

    def _failed(self, why: object) -> None:
        self._failures += 1
        log.warning("%s; another is started after a moment", why)
