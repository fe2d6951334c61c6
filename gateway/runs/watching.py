"""Reading the log of a run that has ended, and of one that another process drives. Who follows one in progress here:
log.py.
"""

from __future__ import annotations

import asyncio
import math

from gateway.contract import Batch, Take
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.types import Run
from gateway.runs.bells import FollowedRun
from gateway.runs.log import READ_BYTES, decoded
from gateway.store import Store


class StoredWatch:
    """A cursor into the log of a run that has ended."""

    def __init__(self, store: Store, run: Run, output: Output, after: int, *, deltas: bool) -> None:
        """`output` is the run's final document."""
        self.run = run
        self._store = store
        self._output = output
        self.after = after
        self._deltas = deltas
        self._stopped = False

    @property
    def newest(self) -> int:
        """The cursor itself: a run that has ended says nothing new."""
        return self.after

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        """See `gateway.contract.Watch.follow`; never waits for more than the store."""
        self._stopped = False
        while not self._stopped:
            after = self.after
            entries = await self._store.events(self.run.id, after, max_bytes=READ_BYTES, deltas=self._deltas)
            if not entries:
                return True
            events = decoded(entries)
            last = entries[-1].number
            waiting = take(
                Batch(
                    events=events,
                    last=last,
                    snapshot=self._output if isinstance(events[-1][1], e.TERMINAL) else None,
                    skipped=not self._deltas and last - after > len(events),
                )
            )
            self.after = last
            if waiting is not None:
                await waiting
        return False

    def stop(self) -> None:
        self._stopped = True


class ForeignWatch:
    """A cursor into the log of a run that another process drives.

    Reads the log from its beginning, whatever the cursor, since the document has to be folded here.
    """

    def __init__(self, store: Store, followed: FollowedRun, run: Run, output: Output, after: int) -> None:
        """`output` is empty."""
        self.run = run
        self._store = store
        self._followed = followed
        self._output = output
        self._after = after
        self._read = 0
        self._stopped = False

    @property
    def newest(self) -> int:
        """The newest event that was read: this process does not know what the other one has numbered since."""
        return self._read

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        self._stopped = False
        loop = asyncio.get_running_loop()
        due = math.inf if timeout is None else loop.time() + timeout
        while not self._stopped:
            last_look, mark = self.run.status.ended, self._followed.mark
            if (batch := await self._news()) is not None:
                if (waiting := take(batch)) is not None:
                    await waiting
                continue
            if last_look:
                return True
            self.run = await self._store.run(self.run.id)
            if not self.run.status.ended and not self._stopped:
                if loop.time() >= due:
                    raise TimeoutError
                await self._followed.news(mark, due - loop.time())
        return False

    def stop(self) -> None:
        self._stopped = True
        self._followed.rung()

    async def _news(self) -> Batch | None:
        """Events written since the last read, if above the cursor."""
        while entries := await self._store.events(self.run.id, self._read, max_bytes=READ_BYTES):
            events = decoded(entries)
            for _, event in events:
                self._output.apply(event)
            self._read = entries[-1].number
            fresh = tuple((number, event) for number, event in events if number > self._after)
            if fresh:
                whole = sum(len(entry.data) for entry in entries) < READ_BYTES
                if any(type(event) is not e.PartDelta for _, event in fresh):  # text changes nothing of the run
                    self.run = await self._store.run(self.run.id)
                return Batch(events=fresh, last=self._read, snapshot=self._output if whole else None)
        return None
