"""What passes on the engine's own contexts and watches: wrappers override what they change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Unpack

from gateway.contract.backchannel import Caller, ThreadContext
from gateway.contract.gateway import Take, Watch
from gateway.contract.outbound import FileDetails, RunContext
from gateway.core.events import Event
from gateway.core.memory import Recalled
from gateway.core.types import Agent, Answer, Artifact, Checkpoint, Interrupt, JsonObject, Run, Thread, ThreadUpdate


class WrappedThread:
    """A `ThreadContext` that says what another one says. Wrappers override what they change, and may add to it: what
    one has added, those around it have, too.
    """

    def __init__(self, context: ThreadContext) -> None:
        self._thread_context = context

    def __getattr__(self, name: str) -> Any:
        if name == "_thread_context":  # not yet made
            raise AttributeError(name)
        return getattr(self._thread_context, name)

    @property
    def agent(self) -> Agent:
        return self._thread_context.agent

    @property
    def thread(self) -> Thread | None:
        return self._thread_context.thread

    @property
    def upstream_thread(self) -> JsonObject | None:
        return self._thread_context.upstream_thread

    @property
    def caller(self) -> Caller | None:
        return self._thread_context.caller

    @property
    def callers(self) -> Sequence[Caller]:
        return self._thread_context.callers

    async def set_thread(self, upstream: JsonObject) -> None:
        await self._thread_context.set_thread(upstream)

    def hold(self) -> Callable[[], None]:
        return self._thread_context.hold()

    def note(self, update: ThreadUpdate) -> None:
        self._thread_context.note(update)

    def retell(self, update: ThreadUpdate) -> None:
        self._thread_context.retell(update)


class WrappedRun(WrappedThread):
    """The same of a `RunContext`."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._context = context

    @property
    def run(self) -> Run:
        return self._context.run

    @property
    def traceparent(self) -> str | None:
        return self._context.traceparent

    @property
    def cancelled(self) -> bool:
        return self._context.cancelled

    @property
    def heard(self) -> int:
        return self._context.heard

    def emit(self, *events: Event) -> None:
        self._context.emit(*events)

    def afterwards(self, then: Callable[[], None]) -> None:
        self._context.afterwards(then)

    async def drain(self) -> None:
        await self._context.drain()

    async def shown(self) -> None:
        await self._context.shown()

    @property
    def flowing(self) -> bool:
        return self._context.flowing

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None, finds: bool = True) -> None:
        await self._context.set_upstream(upstream, thread=thread, finds=finds)

    async def thread_state(self) -> Checkpoint | None:
        return await self._context.thread_state()

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        return await self._context.recall(fresh=fresh, knows=knows)

    async def ask(self, interrupt: Interrupt) -> Answer:
        return await self._context.ask(interrupt)

    async def add_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        return await self._context.add_artifact(name, content, **about)

    async def uploads(self) -> Sequence[Artifact]:
        return await self._context.uploads()

    async def contents(self, ids: Sequence[str]) -> Mapping[str, bytes]:
        return await self._context.contents(ids)

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        return self._context.open_artifact(artifact_id)

    def lost(self, what: str, count: int = 1) -> None:
        self._context.lost(what, count)


class WrappedWatch:
    """A `Watch` that is another one. Wrappers override `follow`."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def run(self) -> Run:
        return self._watch.run

    @property
    def newest(self) -> int:
        return self._watch.newest

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        return await self._watch.follow(take, timeout)

    def stop(self) -> None:
        self._watch.stop()
