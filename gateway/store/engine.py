"""What every engine on SQL does in the same way: one read of its `queries`, or one write of its `changes`."""

# mypy: disable-error-code="no-any-return"
# What a function of an engine's modules returns is said there, for that engine's cursor or connection.

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from gateway.core.types import Artifact, Checkpoint, Run, RunQuery, Thread, ThreadChange, ThreadQuery
from gateway.store import Delivery, LogEntry, Registration
from gateway.store.leases import HeldLease
from gateway.store.records import RegistrationCache, encode
from gateway.store.uploads import upload
from gateway.store.write_queue import LONG, WriteQueue


class StoreWriter(Protocol):
    """What writes all that an engine's queue gathers."""

    @property
    def queue(self) -> WriteQueue: ...

    @property
    def trouble(self) -> str:
        """See `Store.trouble`."""

    @property
    def backlog(self) -> int:
        """See `Store.backlog`."""

    def settled(self, run: str | None) -> bool:
        """Whether all that was to be written (of `run`, if given) is. May return False although it is."""


class StoreEngine(ABC):
    """Implements those methods of `gateway.store.Store`, which has the contract of each.

    queries, changes, retention: the engine's modules, whose functions have the same names and keywords in each.
    """

    def __init__(
        self,
        owner: str,
        held: HeldLease,
        writer: StoreWriter,
        *,
        queries: ModuleType,
        changes: ModuleType,
        retention: ModuleType,
    ) -> None:
        self.owner = owner
        self.append = writer.queue.append
        self._held = held
        self._queue = writer.queue
        self._settled = writer.settled
        self._writes = writer
        self._queries, self._changes, self._retention = queries, changes, retention
        self._registered = RegistrationCache()
        self._closing: asyncio.Future[None] | None = None

    @abstractmethod
    async def _close(self) -> None:
        """See `Store.close`. Called once."""

    @abstractmethod
    async def _read(self, work: Any, run: str | None = None, *, one: bool = False) -> Any:
        """Read after everything appended for `run`. `one`: it reads a record or two."""

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # everything is written even if the caller is cancelled

    @property
    def trouble(self) -> str:
        return self._writes.trouble

    @property
    def held_since(self) -> float:
        return self._held.since

    @property
    def backlog(self) -> int:
        return self._writes.backlog

    # runs

    async def activate(self, run_id: str) -> bool:
        return await self._queue.submit(partial(self._changes.activate, owner=self.owner, run_id=run_id), run=run_id)

    def save(self, run: Run, *, soon: bool = False) -> None:
        self._queue.save(run, soon=soon)

    async def flush(self, run_id: str | None = None) -> None:
        if not self._settled(run_id):
            await self._queue.submit(self._changes.nothing, run=run_id, own=run_id is not None, durable=False)
        elif not self._queue.usable:
            raise self._queue.closed()

    async def owner_of(self, run_id: str) -> str:
        return await self._read(partial(self._queries.owner_of, run_id=run_id), run_id, one=True)

    async def runs(self, query: RunQuery) -> list[Run]:
        return await self._read(partial(self._queries.runs, query=query))

    async def count_runs(self, query: RunQuery) -> int:
        return await self._read(partial(self._queries.count_runs, query=query))

    async def delete_run(self, run_id: str) -> None:
        await self._queue.submit(partial(self._changes.delete_run, run_id=run_id), run=run_id, size=LONG)

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[LogEntry]:
        work = partial(self._queries.events, run_id=run_id, after=after, max_bytes=max_bytes, deltas=deltas)
        return await self._read(work, run_id)

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        work = partial(self._changes.create_thread, thread=thread, checkpoints=tuple(checkpoints))
        await self._queue.submit(work, size=LONG if checkpoints else 0)

    async def thread(self, thread_id: str) -> Thread:
        return await self._read(partial(self._queries.thread, thread_id=thread_id), one=True)

    async def threads(self, query: ThreadQuery) -> list[Thread]:
        return await self._read(partial(self._queries.threads, query=query))

    async def count_threads(self, query: ThreadQuery) -> int:
        return await self._read(partial(self._queries.count_threads, query=query))

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        point = None if checkpoint is None else encode(checkpoint)
        work = partial(
            self._changes.update_thread, thread_id=thread_id, change=change, checkpoint=checkpoint, record=point, at=at
        )
        return await self._queue.submit(work, size=len(point or b"") + len(encode(change)))

    async def delete_thread(self, thread_id: str) -> None:
        await self._queue.submit(partial(self._changes.delete_thread, thread_id=thread_id), size=LONG)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        return await self._read(partial(self._queries.history, thread_id=thread_id, limit=limit, before=before))

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        return await upload(self._queue, self._changes.STEPS, artifact, content, owner=self.owner, max_bytes=max_bytes)

    async def artifact(self, artifact_id: str) -> Artifact:
        return await self._read(partial(self._queries.artifact, artifact_id=artifact_id))

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
        return await self._read(partial(self._queries.artifacts, run_id=run, thread_id=thread))

    async def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        number = 0
        while data := await self._read(partial(self._queries.chunk, artifact_id=artifact_id, number=number)):
            yield data
            number += 1

    # callbacks, registrations, retention

    async def deliveries(self, now: float, limit: int = 100) -> list[Delivery]:
        return await self._read(partial(self._queries.deliveries, owner=self.owner, now=now, limit=limit))

    async def delivered(self, delivery_id: str) -> None:
        await self._queue.submit(partial(self._changes.delivered, delivery_id=delivery_id))

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        await self._queue.submit(partial(self._changes.postpone, delivery_id=delivery_id, due_at=due_at))

    async def registrations(self, now: float) -> list[Registration]:
        if await self._read(self._queries.registration_changes, one=True) != self._registered.changes:
            self._registered = self._registered.newer(*await self._read(self._queries.registrations))
        return self._registered.at(now)

    async def delete_registration(self, name: str) -> None:
        await self._queue.submit(partial(self._changes.delete_registration, name=name))

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        gone = 0
        for step in self._retention.steps(older_than, max_bytes, time.time()):
            more = True
            while more:
                removed, more = await self._queue.submit(step, durable=False, size=LONG)
                gone += removed
        return gone
