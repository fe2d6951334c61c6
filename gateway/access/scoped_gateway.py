"""The gateway as it is for one principal: what is not there for it is answered as what there is not at all.

What it makes is its own: threads by the mark OWNER, runs by their `principal` (and those on its threads), files by
theirs. What was made while nobody was asked is nobody's. Two doors that know the same name mean the same somebody.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.access.agents import OwnAgents
from gateway.access.time_left import LastingWatch, waited
from gateway.contract.backchannel import Caller, ThreadWatch
from gateway.contract.inbound import Watch
from gateway.core.errors import Conflict, NotFound
from gateway.core.events import Event
from gateway.core.files import Attachment
from gateway.core.types import (
    OWNER,
    Answer,
    Artifact,
    ChatMessage,
    Checkpoint,
    Json,
    JsonObject,
    Run,
    RunQuery,
    RunRequest,
    Thread,
    ThreadQuery,
    ThreadUpdate,
)

PAGE: Final = 200

T = TypeVar("T")
Q = TypeVar("Q", RunQuery, ThreadQuery)


class ScopedGateway(OwnAgents):
    """See `gateway.contract.Gateway` for every method. Made for one request or connection, `visit`.

    What waits (`wait`, `watch`) raises Unauthenticated when the token has expired; the run goes on.
    """

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(
        self,
        request: RunRequest,
        *,
        files: Sequence[Attachment] = (),
        caller: Caller | None = None,
        told: bool = True,
    ) -> Run:
        """See `Gateway`. The run is the principal's, with the tools that it has."""
        await self._look(request.agent, request.protocol)
        if request.thread is not None:
            await self.thread(request.thread)
        request = replace(request, principal=self._id, tools=self._principal.tools)
        try:
            return await self._gateway.start(request, files=files, caller=caller, told=told)
        except NotFound:
            if request.thread is not None:
                await self.thread(request.thread)
            raise self._none(request.agent, request.protocol) from None

    async def run(self, run_id: str) -> Run:
        """See `Gateway`."""
        run = await self._gateway.run(run_id)
        if not await self._mine(run):
            raise NotFound(f"no run {run_id}")
        return run

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        """See `Gateway`."""
        found = await self._of_runs(query)
        return [] if found is None else await self._sifted(self._gateway.runs, found, self._shown(query))

    async def count_runs(self, query: RunQuery) -> int:
        """See `Gateway`."""
        found = await self._of_runs(query)
        if found is None:
            return 0
        if self._unlimited:
            return await self._gateway.count_runs(found)
        return len(await self._sifted(self._gateway.runs, _all(found), self._shown(query)))

    async def _of_runs(self, query: RunQuery) -> RunQuery | None:
        """The query for what is its own: its runs, or all those on a thread of its own; None for nothing."""
        if query.thread is not None:
            return query if await self._has_thread(query.thread) else None
        return query if self._principal.oversees else replace(query, principal=self._id)

    async def _mine(self, run: Run) -> bool:
        if not self._may_use(run.agent):
            return False
        if self._principal.has(run.request.principal):
            return True
        return run.thread is not None and await self._has_thread(run.thread)

    def _shown(self, query: RunQuery) -> Callable[[Run], bool]:
        """Which of the runs that were found are shown."""

        def shown(run: Run) -> bool:
            known = query.thread is not None or self._principal.has(run.request.principal)
            return known and self._may_use(run.agent)

        return shown

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """See `Gateway`."""
        await self.run(run_id)
        if self._visit.lasting:
            return await self._gateway.wait(run_id, timeout)
        return await waited(lambda seconds: self._gateway.wait(run_id, seconds), timeout, self._visit)

    @contextlib.asynccontextmanager
    async def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AsyncIterator[Watch]:
        """See `Gateway`."""
        await self.run(run_id)
        async with self._gateway.watch(run_id, after, deltas=deltas) as watch:
            yield watch if self._visit.lasting else LastingWatch(watch, self._visit)

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        """See `Gateway`."""
        await self.run(run_id)
        return await self._gateway.events(run_id, after)

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        """See `Gateway`. It is the principal's answer."""
        await self.run(run_id)
        return await self._gateway.answer(run_id, replace(answer, by=self._principal.who), interrupt_id)

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        """See `Gateway`."""
        await self.run(run_id)
        return await self._gateway.cancel(run_id, reason=reason, wait=wait)

    async def delete_run(self, run_id: str) -> None:
        """See `Gateway`."""
        await self.run(run_id)
        await self._gateway.delete_run(run_id)

    def noticed(self, agent: str, what: str) -> None:
        """See `Gateway`."""
        self._gateway.noticed(agent, what)

    def lost(self, run_id: str, what: str, count: int = 1) -> None:
        """See `Gateway`."""
        self._gateway.lost(run_id, what, count)

    # --- threads ------------------------------------------------------------------------------------------------

    async def create_thread(self, thread: Thread, *, or_get: bool = False) -> Thread:
        """See `Gateway`. It is the principal's; a known one that is not is a Conflict."""
        marked = replace(thread, attributes={**thread.attributes, OWNER: self._id})
        found = await self._gateway.create_thread(marked, or_get=or_get)
        if not self._shown_thread(found):
            raise Conflict(f"thread {thread.id} exists already")
        return found

    async def thread(self, thread_id: str) -> Thread:
        """See `Gateway`."""
        thread = await self._gateway.thread(thread_id)
        if not self._shown_thread(thread):
            raise NotFound(f"no thread {thread_id}")
        return thread

    async def threads(self, query: ThreadQuery) -> Sequence[Thread]:
        """See `Gateway`."""
        return await self._sifted(self._gateway.threads, self._of_threads(query), self._shown_thread)

    async def count_threads(self, query: ThreadQuery) -> int:
        """See `Gateway`."""
        found = self._of_threads(query)
        if self._unlimited:
            return await self._gateway.count_threads(found)
        return len(await self._sifted(self._gateway.threads, _all(found), self._shown_thread))

    def _of_threads(self, query: ThreadQuery) -> ThreadQuery:
        if self._principal.oversees:
            return query
        return replace(query, attributes={**query.attributes, OWNER: self._id})

    def _shown_thread(self, thread: Thread) -> bool:
        owned = self._principal.has(thread.attributes.get(OWNER))
        return owned and (thread.agent is None or self._may_use(thread.agent))

    async def _has_thread(self, thread_id: str) -> bool:
        try:
            return self._shown_thread(await self._gateway.thread(thread_id))
        except NotFound:
            return False

    async def update_thread(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> Thread:
        """See `Gateway`."""
        await self.thread(thread_id)
        return await self._gateway.update_thread(thread_id, metadata=metadata, attributes=attributes)

    async def patch_thread(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        base: str | None = None,
        values: Json = None,
        messages: Sequence[ChatMessage] | None = None,
    ) -> Thread:
        """See `Gateway`."""
        await self.thread(thread_id)
        return await self._gateway.patch_thread(
            thread_id, metadata=metadata, base=base, values=values, messages=messages
        )

    async def state(self, thread_id: str, *, ask: bool = True) -> Checkpoint:
        """See `Gateway`."""
        await self.thread(thread_id)
        return await self._gateway.state(thread_id, ask=ask)

    async def states_of(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """See `Gateway`."""
        await self.thread(thread_id)
        return await self._gateway.states_of(thread_id, limit=limit, before=before)

    async def copy_thread(self, thread_id: str) -> Thread:
        """See `Gateway`. Of whomever the original is, the copy is the principal's."""
        await self.thread(thread_id)
        copy = await self._gateway.copy_thread(thread_id)
        if copy.attributes.get(OWNER) == self._id:
            return copy
        return await self._gateway.update_thread(copy.id, attributes={OWNER: self._id})

    async def delete_thread(self, thread_id: str) -> None:
        """See `Gateway`."""
        await self.thread(thread_id)
        await self._gateway.delete_thread(thread_id)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """See `Gateway`."""
        await self.thread(thread_id)
        return await self._gateway.history(thread_id, limit=limit, before=before)

    @contextlib.asynccontextmanager
    async def join(self, thread_id: str, caller: Caller | None = None) -> AsyncIterator[ThreadWatch]:
        """See `Gateway`."""
        await self.thread(thread_id)
        async with self._gateway.join(thread_id, caller) as watch:
            yield watch

    async def relay(
        self,
        agent: str,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        *,
        thread: str | None = None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> msgspec.Raw:
        """See `Gateway`."""
        await self._related(agent, protocol, thread)
        return await self._gateway.relay(agent, protocol, method, params, thread=thread, caller=caller, told=told)

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        """See `Gateway`."""
        await self._related(agent, protocol, thread)
        await self._gateway.forward(agent, protocol, method, params, thread=thread)

    async def _related(self, agent: str, protocol: str, thread: str | None) -> None:
        await self._look(agent, protocol)
        if thread is not None:
            await self.thread(thread)

    # --- files --------------------------------------------------------------------------------------------------

    async def add_artifact(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        """See `Gateway`."""
        await self._holder(artifact.run, artifact.thread)
        return await self._gateway.add_artifact(artifact, content)

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        """See `Gateway`."""
        await self._holder(run, thread)
        return await self._gateway.artifacts(run=run, thread=thread)

    async def artifact(self, artifact_id: str) -> Artifact:
        """See `Gateway`."""
        found = await self._gateway.artifact(artifact_id)
        try:
            await self._holder(found.run, None if found.run is not None else found.thread)
        except NotFound:
            raise NotFound(f"no artifact {artifact_id}") from None
        return found

    async def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """See `Gateway`."""
        await self.artifact(artifact_id)
        content = self._gateway.open_artifact(artifact_id)
        try:
            async for chunk in content:
                yield chunk
        finally:
            if (aclose := getattr(content, "aclose", None)) is not None:
                await aclose()

    async def _holder(self, run: str | None, thread: str | None) -> None:
        if run is not None:
            await self.run(run)
        if thread is not None:
            await self.thread(thread)

    # --- lists --------------------------------------------------------------------------------------------------

    @property
    def _unlimited(self) -> bool:
        """Whether the store finds all by itself."""
        return self._principal.agents == ("*",) and not self._principal.oversees

    async def _sifted(
        self, fetch: Callable[[Q], Awaitable[Sequence[T]]], query: Q, shown: Callable[[T], bool]
    ) -> Sequence[T]:
        """The page of the query, of what is shown."""
        if self._unlimited:
            return await fetch(query)
        found: list[T] = []
        wanted, at = query.offset + query.limit, 0
        while len(found) < wanted:
            page = await fetch(replace(query, limit=PAGE, offset=at))
            found += filter(shown, page)
            if len(page) < PAGE:
                break
            at += PAGE
        return found[query.offset : wanted]


def _all(query: Q) -> Q:
    return replace(query, limit=1 << 62, offset=0)
