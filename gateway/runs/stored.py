"""Watching a run that is not in this process's memory: it has ended, or another gateway process drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.contract import Batch, Take
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.output import Output
from gateway.core.types import Run
from gateway.runs.watching import READ_BYTES, decoded
from gateway.store import Store

POLL_SECONDS = 0.2


def elsewhere(run_id: str) -> Unavailable:
    """Why something cannot be done to a run: another gateway process drives it, which cannot be told."""
    return Unavailable(f"run {run_id} belongs to another gateway process")


class StoredWatch:
    """A cursor into the log of a run that has ended."""

    def __init__(self, store: Store, run: Run, output: Output, after: int, *, deltas: bool) -> None:
        """`output` is the run's final document."""
        self.run = run
        self._store = store
        self._output = output
        self.after = after
        self._deltas = deltas

    @property
    def newest(self) -> int:
        """See `gateway.contract.Watch.newest`: nothing new comes."""
        return self.after

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        """See `gateway.contract.Watch.next`; never waits for more than the store."""
        after = self.after
        entries = await self._store.events(self.run.id, after, max_bytes=READ_BYTES, deltas=self._deltas)
        if not entries:
            return None
        events = decoded(entries)
        self.after = entries[-1].number
        complete = isinstance(events[-1][1], e.TERMINAL)
        return Batch(
            events=events,
            last=self.after,
            snapshot=self._output if complete else None,
            skipped=not self._deltas and self.after - after > len(events),
        )


class ForeignWatch:
    """A cursor into the log of a run that another process drives: the store is asked for news a few times a second.

    Reads the log from its beginning, whatever the cursor, since the document has to be folded here.
    """

    def __init__(self, store: Store, run: Run, output: Output, after: int) -> None:
        """`output` is empty."""
        self.run = run
        self._store = store
        self._output = output
        self._after = after
        self._read = 0

    @property
    def newest(self) -> int:
        """See `gateway.contract.Watch.newest`: what was read; this process does not know what the other one says."""
        return self._read

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        async with asyncio.timeout(timeout):
            while True:
                last_look = self.run.status.ended
                batch = await self._news()
                if batch is not None:
                    return batch
                if last_look:
                    return None
                self.run = await self._store.run(self.run.id)
                if not self.run.status.ended:
                    await asyncio.sleep(POLL_SECONDS)

    async def _news(self) -> Batch | None:
        """What was written since, if it is above the cursor."""
        while entries := await self._store.events(self.run.id, self._read, max_bytes=READ_BYTES):
            events = decoded(entries)
            for _, event in events:
                self._output.apply(event)
            self._read = entries[-1].number
            fresh = tuple((number, event) for number, event in events if number > self._after)
            if fresh:
                whole = sum(len(entry.data) for entry in entries) < READ_BYTES
                self.run = await self._store.run(self.run.id)
                return Batch(events=fresh, last=self._read, snapshot=self._output if whole else None)
        return None


async def stopped_elsewhere(look: Callable[[], Coroutine[Any, Any, Run]], timeout: float | None) -> Run | None:
    """The run of another process once it has stopped; None when `timeout` seconds passed first."""
    try:
        async with asyncio.timeout(timeout):
            while not (run := await look()).status.stopped:  # noqa: ASYNC110 - the news are in another process
                await asyncio.sleep(POLL_SECONDS)
            return run
    except TimeoutError:
        return None
