"""Conversations: what the gateway itself remembers of a thread.

The record is the gateway's own, whatever the agent keeps: state, messages and checkpoints serve history and copy for
agents that offer neither.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gateway.contract import Caller, News
from gateway.core import delta, memory, projection
from gateway.core.errors import AgentGone, Conflict, InterlinguaError
from gateway.core.types import (
    Agent,
    Artifact,
    ChatMessage,
    Checkpoint,
    Json,
    JsonObject,
    Role,
    Run,
    RunStatus,
    Thread,
    ThreadChange,
    ThreadStatus,
    ThreadUpdate,
)
from gateway.store import Store
from gateway.store.records import new_id
from gateway.transport.tasks import TaskSet
from gateway.transport.waiting import Flag

log = logging.getLogger(__name__)


UPLOADS = "uploads"
"""Attribute of a thread that a client has uploaded files to."""

EARLIER = "interlingua.earlier"
"""Key in the metadata of a copied thread's file: it came with a turn of the thread that was copied."""

NOT_TOLD = ""
"""`Thread.untold` of an agent that is never told: its client has heard so."""


class Threads:
    """Changes thread records. The store applies each change to the record as it is, so that none is lost to another
    one, whichever process makes it.
    """

    def __init__(
        self,
        store: Store,
        watchers: ThreadWatchers,
        hold: Callable[[str, str], Callable[[], None]],
        holding: Callable[[str, str], JsonObject],
    ) -> None:
        """`hold`: see `ThreadContext.hold`; given a thread and an agent. `holding`: what is recorded with what
        `ThreadContext.set_thread` records, of whether this process has the conversation.
        """
        self._store = store
        self._writing = TaskSet()
        self.watchers = watchers
        self.hold = hold
        self.holding = holding

    async def change(self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None) -> Thread:
        """Returns the new record. Raises NotFound."""
        return await self._store.update_thread(thread_id, change, checkpoint, at=time.time())

    async def create(self, thread: Thread) -> Thread:
        """Store a thread that begins with a request to its agent, and return it as it is stored.

        Another process may have stored the same session of the agent's meanwhile. Raises Conflict for any other thread
        by this id.
        """
        try:
            await self._store.create_thread(thread)
        except Conflict:
            there = await self._store.thread(thread.id)
            if any(getattr(there, key) != getattr(thread, key) for key in ("protocol", "agent", "attributes")):
                raise
            return there
        return thread

    def note(self, thread_id: str, update: ThreadUpdate) -> None:
        """Record an update behind."""
        self._writing.start(self._record(thread_id, update))

    async def _record(self, thread_id: str, update: ThreadUpdate) -> None:
        try:
            await self.change(thread_id, noted(update))
        except InterlinguaError as error:
            log.warning("thread %s: an update could not be recorded: %s", thread_id, error)

    async def settled(self) -> None:
        """Wait until every update noted so far is recorded."""
        await asyncio.gather(*self._writing)

    async def copy(self, thread_id: str, upstream: dict[str, JsonObject] | None = None, values: Json = None) -> Thread:
        """A new thread with the same metadata, state and history; its agents start afresh, but for those of `upstream`.
        `values`: the state there, where it is not in the record.
        """
        source = await self._store.thread(thread_id)
        now = time.time()
        target = replace(
            source,
            id=new_id(),
            created_at=now,
            updated_at=now,
            upstream=upstream or {},
            untold={},
            updates=(),
            status=ThreadStatus.IDLE,
            values=source.values if values is None else values,
        )
        history = await self._store.history(thread_id, limit=1_000_000)
        copies = [replace(point, id=new_id(), thread=target.id) for point in reversed(history)]
        target = replace(target, checkpoint=copies[-1].id if copies else None)
        await self._store.create_thread(target, copies)
        if source.attributes.get(UPLOADS):
            await self._copy_uploads(thread_id, target)
        return target

    async def _copy_uploads(self, source: str, target: Thread) -> None:
        """Give a copied thread the files that clients gave to the original: its agents start without them."""
        for file in await self._store.artifacts(thread=source):
            if file.agent_created:
                continue
            file_id = new_id()
            copied = replace(
                file,
                id=file_id,
                thread=target.id,
                run=None,
                url=f"{file.url.rpartition('/artifacts/')[0]}/artifacts/{target.id}/{file_id}",
                metadata=file.metadata if file.run is None else {**file.metadata, EARLIER: True},
            )
            await self._store.put_artifact(copied, self._store.open_artifact(file.id), max_bytes=file.size)


def noted(update: ThreadUpdate) -> ThreadChange:
    """The change that records an update. An agent may have cut a text in two, which no store takes."""
    sound = replace(update, kind=delta.sound(update.kind), data=delta.sound(update.data))
    return ThreadChange(updates=(sound,))


def checkpoint_of(run: Run, agent: Agent, artifacts: Sequence[Artifact]) -> Checkpoint | None:
    """The checkpoint that a successful run adds to its thread: the prompt and the answer."""
    if run.thread is None or run.status is not RunStatus.SUCCESS:
        return None
    document = msgspec.json.decode(run.output)
    said = projection.text_of(document, agent.text_output)
    asked = projection.text_of(run.request.input, agent.text_input)
    files = [{"id": a.id, "name": a.name, "url": a.url} for a in artifacts]
    messages = [
        ChatMessage(role=Role.USER, content=_shown(asked, run.request.input), id=f"{run.id}-input"),
        ChatMessage(
            role=Role.ASSISTANT,
            content=_shown(said, document),
            id=f"{run.id}-output",
            metadata={"artifacts": files} if files else {},
        ),
    ]
    return Checkpoint(
        id=new_id(),
        thread=run.thread,
        run=run.id,
        created_at=run.updated_at,
        messages=tuple(messages),
        metadata={"source": "run", "run_id": run.id, "agent": agent.name},
    )


def known_now(
    thread: Thread, run: Run, agent: Agent, checkpoint: Checkpoint | None, recalled: bool
) -> ThreadChange | None:
    """The change of a thread after a run: its agent knows the conversation, and other agents have missed `checkpoint`.

    `recalled`: the run's input was asked for, so that it may have been sent. None where nothing changes.
    """
    unreached = run.failure is not None and run.failure.code == AgentGone.code and run.upstream is None
    untold: dict[str, str | None] = {}
    if recalled and not unreached:
        if agent.capabilities.threads and agent.name in thread.untold:
            untold[agent.name] = None
        elif memory.LOST in run.losses and not agent.capabilities.threads:
            untold[agent.name] = NOT_TOLD
    if checkpoint is not None:
        missed = thread.upstream.keys() - thread.untold.keys() - {agent.name}
        untold |= dict.fromkeys(missed, checkpoint.id)
    return ThreadChange(untold=untold) if untold else None


def _shown(text: str | None, document: Json) -> str:
    """A document as a message of the record says it: its text, else its JSON."""
    return text if text is not None else delta.encode(document).decode() if document is not None else ""


MOST_BEHIND = 1000
"""News that a watcher may be behind before it loses updates."""


class ThreadWatcher:
    """See `gateway.contract.ThreadWatch`."""

    def __init__(self, caller: Caller | None) -> None:
        self.caller = caller
        self._news: list[News] = []
        self._ready = Flag()

    async def next(self) -> News:
        while not self._news:
            self._ready.clear()
            await self._ready.wait()
        return self._news.pop(0)

    @property
    def behind(self) -> int:
        return len(self._news)

    def tell(self, news: News) -> None:
        """Add to what `next` gives. Never blocks."""
        if len(self._news) >= MOST_BEHIND:
            oldest = next((item for item in self._news if isinstance(item, ThreadUpdate)), None)
            if oldest is not None:
                self._news.remove(oldest)
        self._news.append(news)
        self._ready.set()


class ThreadListener(Protocol):
    """Watches a thread, for a client of this process or of another."""

    @property
    def caller(self) -> Caller | None:
        """The client that may be asked, if any."""

    def tell(self, news: News) -> None:
        """Told of everything. Never blocks."""


class ThreadWatchers:
    """All watchers, by thread."""

    def __init__(self) -> None:
        self._by_thread: dict[str, list[ThreadListener]] = {}

    def add(self, thread_id: str, watcher: ThreadListener) -> None:
        """One more watches the thread."""
        self._by_thread.setdefault(thread_id, []).append(watcher)

    def remove(self, thread_id: str, watcher: ThreadListener) -> None:
        """It watches no more."""
        there = self._by_thread[thread_id]
        there.remove(watcher)
        if not there:
            del self._by_thread[thread_id]

    def callers(self, thread_id: str) -> list[Caller]:
        """The thread's clients that may be asked, the newest first."""
        there = self._by_thread.get(thread_id, ())
        return [watcher.caller for watcher in reversed(there) if watcher.caller is not None]

    def tell(self, thread_id: str, news: News) -> None:
        """Tell everyone who watches the thread."""
        for watcher in self._by_thread.get(thread_id, ()):
            watcher.tell(news)
