"""The gateway scoped to one principal. Anything outside its scope raises NotFound, as if it did not exist.

A principal owns what it makes: threads by the mark OWNER, runs by their `principal` (and those on its threads), files
by the run or thread that they belong to. What was made while no client was asked who it is belongs to nobody. Two doors
that know the same name mean the same principal.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace
from starlette.types import Scope

from gateway.access.authenticator import Principal
from gateway.access.options import AuthenticatingOptions
from gateway.access.visit import LastingWatch, Visit, visit_of, waited
from gateway.contract.backchannel import Caller, ThreadWatch
from gateway.contract.gateway import (
    LIST_SECONDS,
    Gateway,
    GatewayAgents,
    GatewayBackchannel,
    GatewayFiles,
    GatewayLimits,
    GatewayRecords,
    GatewayRuns,
    GatewayThreads,
    Requests,
    Watch,
    paged,
)
from gateway.core.errors import Conflict, NotFound
from gateway.core.events import Event
from gateway.core.files import Attachment
from gateway.core.types import (
    OWNER,
    Agent,
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
    agent_id,
)
from gateway.transport.asgi import Everybody

PAGE: Final = 200

T = TypeVar("T")
Q = TypeVar("Q", RunQuery, ThreadQuery)


class ScopedGateway:
    """Implements `gateway.contract.Gateway` for one request or connection. Each part wraps the gateway's own."""

    def __init__(self, gateway: Gateway, visit: Visit) -> None:
        self.public_url = gateway.public_url
        self._gateway = gateway
        self._visit = visit
        self._principal = visit.principal

    @property
    def process(self) -> str:
        return self._gateway.process

    def new_id(self) -> str:
        return self._gateway.new_id()

    def requests(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> Requests:
        return self._gateway.requests(protocol, methods, code, mcp=mcp)

    @cached_property
    def agents(self) -> ScopedAgents:
        return ScopedAgents(self._gateway.agents, self._principal)

    @cached_property
    def threads(self) -> ScopedThreads:
        return ScopedThreads(self._gateway.threads, self._principal, self.agents)

    @cached_property
    def runs(self) -> ScopedRuns:
        return ScopedRuns(self._gateway.runs, self._visit, self.agents, self.threads)

    @cached_property
    def files(self) -> ScopedFiles:
        return ScopedFiles(self._gateway.files, self.runs, self.threads)

    @cached_property
    def backchannel(self) -> ScopedBackchannel:
        """The back-channel on the principal's threads and to its agents."""
        return ScopedBackchannel(self._gateway.backchannel, self.agents, self.threads)

    @property
    def records(self) -> GatewayRecords:
        """The gateway's own: no client reads them."""
        return self._gateway.records

    @property
    def limits(self) -> GatewayLimits:
        """The gateway's own, which count for every client by its name."""
        return self._gateway.limits


class ScopedAgents:
    """Implements `gateway.contract.GatewayAgents`."""

    def __init__(self, agents: GatewayAgents, principal: Principal) -> None:
        self._inner = agents
        self._principal = principal

    def names(self, protocol: str) -> Sequence[str]:
        return [name for name in self._inner.names(protocol) if self.may_use(name)]

    async def list(self, protocol: str, names: Sequence[str] | None = None) -> Sequence[Agent]:
        return [agent for agent in await self._inner.list(protocol, names) if self.may_use(agent.name)]

    async def get(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        self._seen(name, protocol)
        try:
            found = await self._inner.get(name, protocol, within=within)
        except NotFound:
            raise self.none(name, protocol) from None
        if not self.may_use(found.name):
            raise self.none(name, protocol)
        return found

    async def create(self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None) -> Agent:
        """The new agent belongs to the principal."""
        await self.get(template, protocol)
        return await self._inner.create(template, protocol, config, owner=self._principal.who.id)

    async def destroy(self, name: str, protocol: str) -> None:
        await self.get(name, protocol)
        await self._inner.destroy(name, protocol)

    def created(self, name: str) -> tuple[str, str | None] | None:
        return self._inner.created(name)

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        self._inner.hosted_changed(protocol, described)

    def extension(self, name: str, protocol: str, key: str) -> Any:
        self._seen(name, protocol)
        try:
            return self._inner.extension(name, protocol, key)
        except NotFound:
            raise self.none(name, protocol) from None

    def routed(self, name: str) -> bool:
        return self._inner.routed(name)

    def reachable(self, name: str, protocol: str) -> bool:
        return self.may_use(name) and self._inner.reachable(name, protocol)

    def may_use(self, name: str) -> bool:
        """Whether the agent is there for it."""
        return self._principal.may_use(name, self._inner.created(name))

    def _seen(self, given: str, protocol: str) -> None:
        """Raises NotFound for an agent that is there, and not for it; before anything is asked of it."""
        if any(not self.may_use(name) for name in self._meant(given, protocol)):
            raise self.none(given, protocol)

    async def look(self, given: str, protocol: str) -> None:
        """The same; an unknown one may be there at another gateway of the store, and is here from then on.

        Raises NotFound for one that is nowhere: the gateway's own error would list agents of others.
        """
        if not self._meant(given, protocol):
            with contextlib.suppress(NotFound):
                await self._inner.get(given, protocol, within=LIST_SECONDS)
            if not self._meant(given, protocol):
                raise self.none(given, protocol)
        self._seen(given, protocol)

    def _meant(self, given: str, protocol: str) -> Sequence[str]:
        """The names of the agent that is given by name or UUID."""
        there = self._inner.names(protocol)
        if given in there:
            return [given]
        try:
            id = str(uuid.UUID(given))
        except ValueError:
            return []
        return [name for name in there if agent_id(name) == id]

    def none(self, given: str, protocol: str) -> NotFound:
        return NotFound(f"no agent '{given}'; have {', '.join(self.names(protocol)) or 'none'}")

    def noticed(self, agent: str, what: str) -> None:
        self._inner.noticed(agent, what)


class ScopedThreads:
    """Implements `gateway.contract.GatewayThreads`."""

    def __init__(self, threads: GatewayThreads, principal: Principal, agents: ScopedAgents) -> None:
        self._inner = threads
        self._principal = principal
        self._agents = agents

    async def create(self, thread: Thread, *, or_get: bool = False) -> Thread:
        """The new thread belongs to the principal. Raises Conflict for the id of another's thread."""
        found = await self._inner.create(self.marked(thread), or_get=or_get)
        if not self._shown_thread(found):
            raise Conflict(f"thread {thread.id} exists already")
        return found

    def marked(self, thread: Thread) -> Thread:
        return replace(thread, attributes={**thread.attributes, **self._principal.marks})

    async def get(self, thread_id: str) -> Thread:
        thread = await self._inner.get(thread_id)
        if not self._shown_thread(thread):
            raise NotFound(f"no thread {thread_id}")
        return thread

    async def list(self, query: ThreadQuery) -> Sequence[Thread]:
        return await _sifted(self._principal, self._inner.list, self._of_threads(query), self._shown_thread)

    async def count(self, query: ThreadQuery) -> int:
        found = self._of_threads(query)
        if _unlimited(self._principal):
            return await self._inner.count(found)
        return len(await _sifted(self._principal, self._inner.list, _all(found), self._shown_thread))

    def _of_threads(self, query: ThreadQuery) -> ThreadQuery:
        if self._principal.oversees:
            return query
        return replace(query, attributes={**query.attributes, **self._principal.marks})

    def _shown_thread(self, thread: Thread) -> bool:
        owned = self._principal.has(thread.attributes.get(OWNER))
        return owned and (thread.agent is None or self._agents.may_use(thread.agent))

    async def has(self, thread_id: str) -> bool:
        try:
            return self._shown_thread(await self._inner.get(thread_id))
        except NotFound:
            return False

    async def update(
        self, thread_id: str, *, metadata: JsonObject | None = None, attributes: JsonObject | None = None
    ) -> Thread:
        await self.get(thread_id)
        return await self._inner.update(thread_id, metadata=metadata, attributes=attributes)

    async def patch(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        base: str | None = None,
        values: Json = None,
        messages: Sequence[ChatMessage] | None = None,
    ) -> Thread:
        await self.get(thread_id)
        return await self._inner.patch(thread_id, metadata=metadata, base=base, values=values, messages=messages)

    async def state(self, thread_id: str, *, ask: bool = True) -> Checkpoint:
        await self.get(thread_id)
        return await self._inner.state(thread_id, ask=ask)

    async def states(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        await self.get(thread_id)
        return await self._inner.states(thread_id, limit=limit, before=before)

    async def copy(self, thread_id: str) -> Thread:
        """The copy belongs to the principal, whoever owns the original."""
        await self.get(thread_id)
        copy = await self._inner.copy(thread_id)
        if copy.attributes.get(OWNER) == self._principal.who.id:
            return copy
        return await self._inner.update(copy.id, attributes=self._principal.marks)

    async def delete(self, thread_id: str) -> None:
        await self.get(thread_id)
        await self._inner.delete(thread_id)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        await self.get(thread_id)
        return await self._inner.history(thread_id, limit=limit, before=before)


class ScopedRuns:
    """Implements `gateway.contract.GatewayRuns`.

    `wait` and `watch` raise Unauthenticated when the token has expired; the run goes on.
    """

    def __init__(self, runs: GatewayRuns, visit: Visit, agents: ScopedAgents, threads: ScopedThreads) -> None:
        self._inner = runs
        self._visit = visit
        self._principal = visit.principal
        self._agents = agents
        self._threads = threads

    async def start(
        self, request: RunRequest, *, files: Sequence[Attachment] = (), caller: Caller | None = None, told: bool = True
    ) -> Run:
        """The run belongs to the principal, and may call the tools that the principal may."""
        await self._agents.look(request.agent, request.protocol)
        if request.thread is not None:
            await self._threads.get(request.thread)
        request = replace(request, principal=self._principal.who.id, tools=self._principal.tools)
        try:
            return await self._inner.start(request, files=files, caller=caller, told=told)
        except NotFound:
            if request.thread is not None:
                await self._threads.get(request.thread)
            raise self._agents.none(request.agent, request.protocol) from None

    async def get(self, run_id: str) -> Run:
        run = await self._inner.get(run_id)
        if not await self._mine(run):
            raise NotFound(f"no run {run_id}")
        return run

    async def list(self, query: RunQuery) -> Sequence[Run]:
        found = await self._of_runs(query)
        return [] if found is None else await _sifted(self._principal, self._inner.list, found, self._shown(query))

    async def count(self, query: RunQuery) -> int:
        found = await self._of_runs(query)
        if found is None:
            return 0
        if _unlimited(self._principal):
            return await self._inner.count(found)
        return len(await _sifted(self._principal, self._inner.list, _all(found), self._shown(query)))

    async def _of_runs(self, query: RunQuery) -> RunQuery | None:
        """The query for what is its own: its runs, or all those on a thread of its own; None for nothing."""
        if query.thread is not None:
            return query if await self._threads.has(query.thread) else None
        return query if self._principal.oversees else replace(query, principal=self._principal.who.id)

    async def _mine(self, run: Run) -> bool:
        if not self._agents.may_use(run.agent):
            return False
        if self._principal.has(run.request.principal):
            return True
        return run.thread is not None and await self._threads.has(run.thread)

    def _shown(self, query: RunQuery) -> Callable[[Run], bool]:

        def shown(run: Run) -> bool:
            known = query.thread is not None or self._principal.has(run.request.principal)
            return known and self._agents.may_use(run.agent)

        return shown

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        await self.get(run_id)
        if self._visit.lasting:
            return await self._inner.wait(run_id, timeout)
        return await waited(lambda seconds: self._inner.wait(run_id, seconds), timeout, self._visit)

    async def ended(self, run_id: str, beside: Collection[type[Event]]) -> Run | None:
        await self.get(run_id)
        if self._visit.lasting:
            return await self._inner.ended(run_id, beside)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._visit.left()):
                    return await self._inner.ended(run_id, beside)

    @contextlib.asynccontextmanager
    async def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AsyncIterator[Watch]:
        await self.get(run_id)
        async with self._inner.watch(run_id, after, deltas=deltas) as watch:
            yield watch if self._visit.lasting else cast(Watch, LastingWatch(watch, self._visit))

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        await self.get(run_id)
        return await self._inner.events(run_id, after)

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        """The answer is marked as the principal's."""
        await self.get(run_id)
        return await self._inner.answer(run_id, replace(answer, by=self._principal.who), interrupt_id)

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        await self.get(run_id)
        return await self._inner.cancel(run_id, reason=reason, wait=wait)

    async def delete(self, run_id: str) -> None:
        await self.get(run_id)
        await self._inner.delete(run_id)

    def lost(self, run_id: str, what: str, count: int = 1) -> None:
        self._inner.lost(run_id, what, count)


class ScopedFiles:
    """Implements `gateway.contract.GatewayFiles`."""

    def __init__(self, files: GatewayFiles, runs: ScopedRuns, threads: ScopedThreads) -> None:
        self._inner = files
        self._runs = runs
        self._threads = threads

    async def add(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        await self._holder(artifact.run, artifact.thread)
        return await self._inner.add(artifact, content)

    async def list(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        await self._holder(run, thread)
        return await self._inner.list(run=run, thread=thread)

    async def get(self, artifact_id: str) -> Artifact:
        found = await self._inner.get(artifact_id)
        try:
            await self._holder(found.run, None if found.run is not None else found.thread)
        except NotFound:
            raise NotFound(f"no artifact {artifact_id}") from None
        return found

    async def open(self, artifact_id: str) -> AsyncIterator[bytes]:
        await self.get(artifact_id)
        content = self._inner.open(artifact_id)
        try:
            async for chunk in content:
                yield chunk
        finally:
            if (aclose := getattr(content, "aclose", None)) is not None:
                await aclose()

    async def _holder(self, run: str | None, thread: str | None) -> None:
        if run is not None:
            await self._runs.get(run)
        if thread is not None:
            await self._threads.get(thread)


class ScopedBackchannel:
    """Implements `gateway.contract.GatewayBackchannel`."""

    def __init__(self, backchannel: GatewayBackchannel, agents: ScopedAgents, threads: ScopedThreads) -> None:
        self._inner = backchannel
        self._agents = agents
        self._threads = threads

    @contextlib.asynccontextmanager
    async def join(self, thread_id: str, caller: Caller | None = None) -> AsyncIterator[ThreadWatch]:
        await self._threads.get(thread_id)
        async with self._inner.join(thread_id, caller) as watch:
            yield watch

    async def relay(
        self,
        agent: str,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        *,
        thread: str | Thread | None = None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> msgspec.Raw:
        if isinstance(thread, Thread):
            thread = self._threads.marked(thread)
        await self._related(agent, protocol, thread)
        return await self._inner.relay(agent, protocol, method, params, thread=thread, caller=caller, told=told)

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        await self._related(agent, protocol, thread)
        await self._inner.forward(agent, protocol, method, params, thread=thread)

    async def _related(self, agent: str, protocol: str, thread: str | Thread | None) -> None:
        await self._agents.look(agent, protocol)
        if isinstance(thread, str):
            await self._threads.get(thread)


def _unlimited(principal: Principal) -> bool:
    """Whether the store's own filter finds exactly what the principal may see."""
    return principal.agents == ("*",) and not principal.oversees


async def _sifted(
    principal: Principal, fetch: Callable[[Q], Awaitable[Sequence[T]]], query: Q, shown: Callable[[T], bool]
) -> Sequence[T]:
    """The page of the query, of what is shown."""
    if _unlimited(principal):
        return await fetch(query)
    found: list[T] = []
    wanted = query.offset + query.limit
    async for one in paged(fetch, replace(query, limit=PAGE, offset=0)):
        if shown(one):
            found.append(one)
        if len(found) >= wanted:
            break
    return found[query.offset : wanted]


def _all(query: Q) -> Q:
    return replace(query, limit=1 << 62, offset=0)


def serving(
    make: Callable[[Gateway], T], gateway: Gateway, options: AuthenticatingOptions
) -> Callable[[Scope], T] | Everybody[T]:
    """What serves the clients of a door: made once where they are not asked who they are, else for each request.

    A function that is returned raises Unauthenticated.
    """
    if not options.authenticates:
        return Everybody(make(gateway))
    return lambda scope: make(ScopedGateway(gateway, visit_of(scope)))
