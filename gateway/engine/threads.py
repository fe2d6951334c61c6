"""Conversations: what the gateway itself remembers of a thread.

The record is the gateway's own, whatever the agent keeps: state, messages and checkpoints serve history and copy for
agents that offer neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from gateway.core import projection
from gateway.core.errors import InterlinguaError
from gateway.core.types import (
    Agent,
    Artifact,
    ChatMessage,
    Checkpoint,
    JsonObject,
    Role,
    Run,
    RunStatus,
    Thread,
    ThreadStatus,
    ThreadUpdate,
)
from gateway.engine.listeners import Listeners
from gateway.store import Store

log = logging.getLogger(__name__)

KEPT_UPDATES = 200
NOTHING = contextlib.nullcontext()
"""What is held for no thread."""

STATUS = {
    RunStatus.PENDING: ThreadStatus.BUSY,
    RunStatus.RUNNING: ThreadStatus.BUSY,
    RunStatus.INTERRUPTED: ThreadStatus.INTERRUPTED,
    RunStatus.SUCCESS: ThreadStatus.IDLE,
    RunStatus.CANCELLED: ThreadStatus.IDLE,
    RunStatus.ERROR: ThreadStatus.ERROR,
    RunStatus.TIMEOUT: ThreadStatus.ERROR,
}


def new_id() -> str:
    """A UUID (version 7): random, and later ones sort after earlier ones, which keeps the store's indexes compact."""
    if not _random:
        block = os.urandom(2560)
        _random.extend([block[at : at + 10].hex() for at in range(0, 2560, 10)])
    time_ = f"{time.time_ns() // 1_000_000:012x}"
    chance = _random.pop()
    variant = "89ab"[int(chance[3], 16) & 3]
    return f"{time_[:8]}-{time_[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"


_random: list[str] = []
"""Randomness for the next ids: one call of the system's serves a few hundred."""


def with_update(updates: tuple[ThreadUpdate, ...], update: ThreadUpdate) -> tuple[ThreadUpdate, ...]:
    """The updates with one more: it takes the place of the last one of its kind unless every one counts.

    Of those that all count the oldest go when there are more than KEPT_UPDATES.
    """
    if update.kept:
        kept = [each for each in updates if each.kept]
        gone = kept[: max(0, len(kept) + 1 - KEPT_UPDATES)]
        return (*(each for each in updates if not any(each is old for old in gone)), update)
    same = (update.protocol, update.kind)
    return (*(each for each in updates if each.kept or (each.protocol, each.kind) != same), update)


class Threads:
    """Reads and changes thread records, one change of a thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._writing: set[asyncio.Task[None]] = set()
        self.listeners = Listeners()

    def lock(self, thread_id: str) -> asyncio.Lock:
        """Held while a thread's record is read, changed and written."""
        return self._locks.setdefault(thread_id, asyncio.Lock())

    def held(self, thread_id: str | None) -> AbstractAsyncContextManager[object]:
        """The thread's lock, or nothing to hold without a thread."""
        return NOTHING if thread_id is None else self.lock(thread_id)

    async def change(
        self, thread_id: str, edit: Callable[[Thread], Thread], checkpoint: Checkpoint | None = None
    ) -> Thread:
        """Apply `edit` to the stored record. Returns the new one. Raises NotFound."""
        async with self.lock(thread_id):
            thread = replace(edit(await self._store.thread(thread_id)), updated_at=time.time())
            if checkpoint is not None:
                thread = replace(thread, values=checkpoint.values)
            await self._store.update_thread(thread, checkpoint)
            return thread

    async def update(
        self,
        thread_id: str,
        metadata: JsonObject | None,
        attributes: JsonObject | None,
        checkpoint: Checkpoint | None,
    ) -> Thread:
        """See `Gateway.update_thread`."""
        return await self.change(
            thread_id,
            lambda now: replace(
                now,
                metadata={**now.metadata, **(metadata or {})},
                attributes={**now.attributes, **(attributes or {})},
            ),
            checkpoint,
        )

    def note(self, thread_id: str, update: ThreadUpdate, *, tell: bool = True) -> None:
        """Record an update behind; watchers are told at once unless they hear of it otherwise."""
        if tell:
            self.listeners.tell(thread_id, update)
        task = asyncio.ensure_future(self._record(thread_id, update))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _record(self, thread_id: str, update: ThreadUpdate) -> None:
        try:
            await self.change(thread_id, lambda now: replace(now, updates=with_update(now.updates, update)))
        except InterlinguaError as error:
            log.warning("thread %s: an update could not be recorded: %s", thread_id, error)

    async def settled(self) -> None:
        """Wait until every update noted so far is recorded."""
        await asyncio.gather(*self._writing)

    async def busy(self, thread_id: str | None) -> Thread | None:
        """The thread's record once a run of it is created. Writes nothing."""
        if thread_id is None:
            return None
        return replace(await self._store.thread(thread_id), status=ThreadStatus.BUSY, updated_at=time.time())

    async def noted(self, run: Run) -> Thread:
        """The thread's record with what its run is doing now. Writes nothing."""
        assert run.thread is not None
        thread = await self._store.thread(run.thread)
        return replace(thread, status=STATUS[run.status], updated_at=run.updated_at)

    async def after_run(
        self, run: Run, agent: Agent, artifacts: Sequence[Artifact]
    ) -> tuple[Thread, Checkpoint | None]:
        """The thread's record once `run` has ended, with the checkpoint a success makes. Writes nothing."""
        thread = await self.noted(run)
        if run.status is not RunStatus.SUCCESS:
            return thread, None
        values = msgspec.json.decode(run.output)
        said = projection.text_of(values, agent.text_output)
        asked = projection.text_of(run.request.input, agent.text_input)
        files = [{"id": a.id, "name": a.name, "url": a.url} for a in artifacts]
        messages = [
            ChatMessage(role=Role.USER, content=asked or "", id=f"{run.id}-input"),
            ChatMessage(
                role=Role.ASSISTANT,
                content=said or "",
                id=f"{run.id}-output",
                metadata={"artifacts": files} if files else {},
            ),
        ]
        checkpoint = Checkpoint(
            id=new_id(),
            thread=thread.id,
            run=run.id,
            created_at=run.updated_at,
            values=values,
            messages=tuple(messages),
            metadata={"source": "run", "run_id": run.id, "agent": agent.name},
        )
        return replace(thread, values=values), checkpoint

    async def copy(self, thread_id: str) -> Thread:
        """A new thread with the same metadata, state and history; its agents start afresh."""
        source = await self._store.thread(thread_id)
        now = time.time()
        target = replace(
            source, id=new_id(), created_at=now, updated_at=now, upstream={}, updates=(), status=ThreadStatus.IDLE
        )
        history = await self._store.history(thread_id, limit=1_000_000)
        copies = [replace(point, id=new_id(), thread=target.id) for point in reversed(history)]
        await self._store.create_thread(target, copies)
        return target
