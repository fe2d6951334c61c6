"""Where the state of a thread is, and how it is read, changed and copied there.

It is with the agent that took the newest turn, if that agent keeps state where it can be read (`Stateful`), and else in
the gateway's own record of the conversation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.agents.entry import Entry
from gateway.agents.roster import Roster
from gateway.contract import Stateful
from gateway.core import thread_state
from gateway.core.errors import AgentError, AgentTimeout, NotFound, Unsupported
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject, Thread, ThreadChange
from gateway.runs.threads import Threads
from gateway.store import Store
from gateway.store.records import new_id

PAGE: Final = 1000
STATE_SECONDS: Final = 10.0
"""How long an agent may take to read, change or copy the state of a thread."""


class Keeper(msgspec.Struct, frozen=True):
    """The agent that took a thread's newest turn. `upstream` is what is recorded of the thread there, if anything."""

    agent: Agent
    entry: Entry
    upstream: JsonObject | None

    @property
    def remote(self) -> Stateful | None:
        """The agent's side of the thread, where its state can be read there."""
        outbound = self.entry.outbound
        return outbound if self.upstream is not None and isinstance(outbound, Stateful) else None

    @property
    def published(self) -> bool:
        """Whether clients are shown what the agent keeps."""
        return thread_state.schema_of(self.agent) is not None


class States:
    """The states of all threads."""

    def __init__(self, store: Store, roster: Roster, threads: Threads) -> None:
        self._store = store
        self._roster = roster
        self._threads = threads

    # --- read -----------------------------------------------------------------------------------------------------

    async def now(self, thread: Thread, *, ask: bool) -> Checkpoint:
        keeper = await self._keeper(thread)
        points = await self._points(thread.id)
        newest = points[-1] if points else _empty(thread)
        if keeper is not None and (remote := keeper.remote) is not None and keeper.published:
            if not ask:
                return _shown(newest, keeper)
            async with _bounded(keeper):
                found = await remote.read_thread(keeper.upstream or {})
            return found if found.messages else _with(found, newest.messages)
        return _shown(newest, keeper)

    async def history(self, thread: Thread, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        keeper = await self._keeper(thread)
        if keeper is not None and (remote := keeper.remote) is not None and keeper.published:
            async with _bounded(keeper):
                return await remote.read_history(keeper.upstream or {}, limit=limit, before=before)
        points = await self._points(thread.id)
        end = len(points) if before is None else _place(points, before, "before")
        return [_shown(point, keeper) for point in reversed(points[max(0, end - limit) : end])]

    async def for_run(self, thread: Thread, agent: Agent) -> Checkpoint | None:
        if not thread.begun or (agent.name in thread.upstream and agent.name not in thread.untold):
            return None
        keeper = await self._keeper(thread)
        if keeper is None or (keeper.agent.name == agent.name and keeper.upstream is None):
            given = _with(_empty(thread), (), thread.values)
            if keeper is None and (points := await self._points(thread.id)):
                given = thread_state.as_given(points[-1], agent)
            return None if given.values in (None, {}) else given
        own = agent.thread_schema
        there = keeper.agent.thread_schema if keeper.remote is not None else thread_state.schema_of(keeper.agent)
        if keeper.agent.name == agent.name or not own or not there or not thread_state.same_schema(own, there):
            return None
        try:
            found = await self.now(thread, ask=True)
        except AgentError:
            return None  # the conversation is told instead
        if found.values is None:
            return None
        return found if keeper.remote is not None else _with(found, ())

    async def check(self, thread: Thread, agent: Agent, protocol: str) -> None:
        """Raises Unsupported where the agent's state has another schema than that of an agent on the thread already."""
        if not agent.thread_schema:
            return
        for name in thread.upstream.keys() - {agent.name}:
            try:
                other = await self._roster.entry(name, protocol, thread.metadata).describe(STATE_SECONDS)
            except NotFound:
                continue
            if other.thread_schema and not thread_state.same_schema(agent.thread_schema, other.thread_schema):
                raise Unsupported(
                    f"agent {agent.name} cannot go on with a thread of agent {name}: "
                    "the state that they keep of a thread has different schemas"
                )

    # --- change ---------------------------------------------------------------------------------------------------

    async def patch(
        self,
        thread: Thread,
        *,
        metadata: JsonObject,
        base: str | None,
        values: Json,
        messages: Sequence[ChatMessage] | None,
    ) -> Thread:
        keeper = await self._keeper(thread)
        points = await self._points(thread.id)
        now = points[-1] if points else _empty(thread)
        start, own = now, keeper is not None and thread_state.schema_of(keeper.agent) is thread_state.SCHEMA
        remote = None if keeper is None else keeper.remote
        if keeper is not None and remote is not None:
            async with _bounded(keeper):
                await remote.update_thread(keeper.upstream or {}, base=base, values=values, messages=messages)
            values = values if thread_state.same_schema(keeper.agent.thread_schema or {}, thread_state.SCHEMA) else None
        elif keeper is not None and keeper.upstream is not None and keeper.agent.capabilities.threads:
            raise Unsupported("the thread's state is with its agent, which takes no patches; metadata can be patched")
        elif base is not None:
            start = points[_place(points, base, "/checkpoint/checkpoint_id")]
        given = {"source": "patch"} if keeper is None else {"source": "patch", "agent": keeper.agent.name}
        change = thread_state.patched(now, start, values, messages, strict=own)
        point = replace(change, id=new_id(), created_at=time.time(), metadata=given)
        missed = thread.upstream.keys() - thread.untold.keys() - ({keeper.agent.name} if keeper is not None else set())
        told = ThreadChange(metadata=metadata, untold=dict.fromkeys(missed, point.id))
        return await self._threads.change(thread.id, told, point)

    async def copy(self, thread: Thread) -> Thread:
        keeper = await self._keeper(thread)
        if keeper is None or (remote := keeper.remote) is None:
            return await self._threads.copy(thread.id)
        name, there = keeper.agent.name, keeper.upstream or {}
        try:
            async with _bounded(keeper):
                return await self._threads.copy(thread.id, {name: await remote.copy_thread(there)})
        except (AgentError, Unsupported) as error:
            if not keeper.published:  # the conversation is told instead
                return await self._threads.copy(thread.id)
            if isinstance(error, AgentError):
                raise
        async with _bounded(keeper):
            state = await remote.read_thread(there)
        return await self._threads.copy(thread.id, values=state.values)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _keeper(self, thread: Thread) -> Keeper | None:
        name = await self._newest(thread)
        if name is None:
            return None
        try:
            entry = await self._roster.find(name, thread.protocol, thread.metadata)
        except NotFound:  # its route has gone
            return None
        return Keeper(await entry.describe(STATE_SECONDS), entry, thread.upstream.get(name))

    async def _newest(self, thread: Thread) -> str | None:
        """The agent that took the newest turn; of a thread without turns the only one that was asked."""
        if thread.checkpoint is not None or thread.values is not None:
            before = None
            while page := await self._store.history(thread.id, limit=1 if before is None else PAGE, before=before):
                for point in page:
                    if point.run is not None and isinstance(name := point.metadata.get("agent"), str):
                        return name
                before = page[-1].id
        return next(iter(thread.upstream)) if len(thread.upstream) == 1 else None

    async def _points(self, thread_id: str) -> thread_state.Accumulated:
        """All of the thread's, oldest first."""
        found: list[Checkpoint] = []
        while True:
            page = await self._store.history(thread_id, limit=PAGE, before=found[-1].id if found else None)
            found += page
            if len(page) < PAGE:
                return thread_state.Accumulated(reversed(found))


@asynccontextmanager
async def _bounded(keeper: Keeper) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(STATE_SECONDS):
            yield
    except TimeoutError:
        raise AgentTimeout(f"agent {keeper.agent.name} did not answer about its thread in time") from None


def _shown(point: Checkpoint, keeper: Keeper | None) -> Checkpoint:
    """The gateway's own record, as clients are shown it."""
    if keeper is None:
        return replace(point, values=thread_state.untouched(point))
    own = thread_state.schema_of(keeper.agent) is thread_state.SCHEMA
    return replace(point, values=thread_state.kept(point) if own else None)


def _place(points: thread_state.Accumulated, ident: str, path: str) -> int:
    at = points.place(ident.lower())
    if at is not None:
        return at
    raise NotFound(f"{path}: the thread has no checkpoint {ident!r}")


def _empty(thread: Thread) -> Checkpoint:
    return Checkpoint(id="", thread=thread.id, created_at=thread.created_at)


def _with(point: Checkpoint, messages: tuple[ChatMessage, ...], values: Json = None) -> Checkpoint:
    return replace(point, messages=messages, values=point.values if values is None else values)
