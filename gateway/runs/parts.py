"""The parts of the `Gateway` beside its runs: threads, files, records, and the back-channel.

A record is a registration of the store whose name begins with the protocol and a slash, which no agent's name has.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gateway.agents.entry import Entry
from gateway.agents.roster import Roster
from gateway.contract import Caller, Kept, Relay, ThreadWatch
from gateway.core.errors import Conflict, Invalid, NotFound, Unsupported
from gateway.core.types import (
    Artifact,
    ChatMessage,
    Checkpoint,
    Json,
    JsonObject,
    RunQuery,
    Thread,
    ThreadChange,
    ThreadQuery,
    ThreadUpdate,
)
from gateway.runs.callers import LentCaller, Lobby
from gateway.runs.post import PostOffice
from gateway.runs.states import States
from gateway.runs.thread_context import ConversationContext
from gateway.runs.threads import UPLOADS, Threads
from gateway.store import Registration, Store, Undelivered
from gateway.store.records import new_id

T = TypeVar("T")


async def synced(store: Store, reading: Awaitable[T]) -> T:
    """What somebody is to be told, who may have no part in the runs that it tells of: once it is on the disk."""
    found = await reading
    await store.synced()
    return found


class EngineThreads:
    """Implements `gateway.contract.GatewayThreads`."""

    def __init__(self, store: Store, conversations: Threads, states: States) -> None:
        self._store = store
        self._conversations = conversations
        self._states = states

    async def create(self, thread: Thread, *, or_get: bool = False) -> Thread:
        try:
            await self._store.create_thread(thread)
        except Conflict:
            if not or_get:
                raise
            return await self.get(thread.id)
        return thread

    async def get(self, thread_id: str) -> Thread:
        return await self._store.thread(thread_id)

    async def list(self, query: ThreadQuery) -> Sequence[Thread]:
        return await synced(self._store, self._store.threads(query))

    async def count(self, query: ThreadQuery) -> int:
        return await synced(self._store, self._store.count_threads(query))

    async def update(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> Thread:
        return await self._conversations.change(
            thread_id, ThreadChange(metadata=metadata or {}, attributes=attributes or {})
        )

    async def patch(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        base: str | None = None,
        values: Json = None,
        messages: Sequence[ChatMessage] | None = None,
    ) -> Thread:
        thread = await self._store.thread(thread_id)
        return await self._states.patch(thread, metadata=metadata or {}, base=base, values=values, messages=messages)

    async def copy(self, thread_id: str) -> Thread:
        return await self._states.copy(await self._store.thread(thread_id))

    async def state(self, thread_id: str, *, ask: bool = True) -> Checkpoint:
        return await synced(self._store, self._states.now(await self._store.thread(thread_id), ask=ask))

    async def states(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        thread = await self._store.thread(thread_id)
        return await synced(self._store, self._states.history(thread, limit=limit, before=before))

    async def delete(self, thread_id: str) -> None:
        await self._store.delete_thread(thread_id)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        return await synced(self._store, self._store.history(thread_id, limit=limit, before=before))


class EngineFiles:
    """Implements `gateway.contract.GatewayFiles`."""

    def __init__(
        self, store: Store, roster: Roster, conversations: Threads, *, public_url: str, artifact_limit: int
    ) -> None:
        """`artifact_limit`: bytes that one uploaded file may have."""
        self._store = store
        self._roster = roster
        self._conversations = conversations
        self._public_url = public_url
        self._artifact_limit = artifact_limit

    async def add(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        artifact_id = new_id()
        owner = artifact.run or artifact.thread
        if owner is None:
            raise Invalid("an uploaded file belongs to a run or a thread")
        if artifact.thread is not None:
            await self._check_file(await self._store.thread(artifact.thread), artifact)
        artifact = replace(
            artifact,
            id=artifact_id,
            created_at=time.time(),
            url=f"{self._public_url}/artifacts/{owner}/{artifact_id}",
        )
        stored = await self._store.put_artifact(artifact, content, max_bytes=self._artifact_limit)
        if artifact.thread is not None:
            await self._conversations.change(artifact.thread, ThreadChange(attributes={UPLOADS: True}))
        return stored

    async def _check_file(self, thread: Thread, artifact: Artifact) -> None:
        """Raises Unsupported where the thread's agent is known and does not take such a file."""
        if thread.agent is not None:
            entry = await self._roster.find(thread.agent, thread.protocol, thread.metadata)
            entry.takes_file(await entry.need(), artifact.media_type, artifact.name)

    async def list(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        return await self._store.artifacts(run=run, thread=thread)

    async def get(self, artifact_id: str) -> Artifact:
        return await self._store.artifact(artifact_id)

    def open(self, artifact_id: str) -> AsyncIterator[bytes]:
        return self._store.open_artifact(artifact_id)


class EngineRecords:
    """Implements `gateway.contract.GatewayRecords`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[Sequence[Registration], tuple[Kept, ...]]] = {}
        """By protocol: all registrations as they were, and what is made of those of the protocol."""

    async def keep(
        self, protocol: str, name: str, data: JsonObject, *, owner: str, expires_at: float | None = None
    ) -> None:
        registration = Registration(
            name=f"{protocol}/{name}",
            protocol=protocol,
            owner=owner,
            data=data,
            created_at=time.time(),
            expires_at=expires_at,
        )
        try:
            await self._store.put_registration(registration)
        except Conflict as error:
            raise Conflict(f"{name} belongs to somebody else") from error

    async def kept(self, protocol: str) -> Sequence[Kept]:
        """See `GatewayRecords.kept`. The store gives the same list, and the same records, while they are the same."""
        everything = await self._store.registrations(time.time())
        known, out = self._kept.get(protocol, ((), ()))
        if known is everything:
            return out
        before = {id(one): kept for one, kept in zip(_below(protocol, known), out, strict=True)}
        now = _below(protocol, everything)
        out = tuple(before.get(id(one)) or _kept(protocol, one) for one in now)
        self._kept[protocol] = (everything, out)
        return out

    async def forget(self, protocol: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._store.delete_registration(f"{protocol}/{name}")


def _below(protocol: str, registrations: Sequence[Registration]) -> list[Registration]:
    prefix = f"{protocol}/"
    return [one for one in registrations if one.name.startswith(prefix)]


def _kept(protocol: str, one: Registration) -> Kept:
    name = one.name.removeprefix(f"{protocol}/")
    return Kept(name=name, owner=one.owner, data=one.data, number=one.number, expires_at=one.expires_at)


async def in_chunks(content: AsyncIterator[bytes] | bytes) -> AsyncIterator[bytes]:
    """A file's content as the store takes it."""
    if isinstance(content, bytes):
        yield content
        return
    async for chunk in content:
        yield chunk


class RelayRequest(msgspec.Struct, frozen=True):
    """Relay a request to an agent that is connected, or has the thread's conversation open, in the asked process.

    A new `Thread` is stored there with the agent's answer. `history`: what the agent notes before it answers belongs to
    the answer (see `GatewayBackchannel.relay`).
    """

    agent: str
    protocol: str
    method: str
    params: msgspec.Raw
    thread: str | Thread | None = None
    caller: LentCaller | None = None
    history: bool = False


class RelayAnswer(msgspec.Struct, frozen=True):
    """The agent's answer, after the history that it told."""

    result: msgspec.Raw
    history: tuple[ThreadUpdate, ...] = ()


class ForwardNotification(msgspec.Struct, frozen=True):
    """The same for a notification."""

    agent: str
    protocol: str
    method: str
    params: msgspec.Raw
    thread: str | None = None


class EngineBackchannel:
    """Implements `gateway.contract.GatewayBackchannel`."""

    def __init__(self, store: Store, roster: Roster, conversations: Threads, post: PostOffice, lobby: Lobby) -> None:
        self._store = store
        self._roster = roster
        self._conversations = conversations
        self._post = post
        self._lobby = lobby
        post.serve(RelayRequest, self._relay_for)
        post.serve(ForwardNotification, self._forward_for)

    def join(self, thread_id: str, caller: Caller | None = None) -> AbstractAsyncContextManager[ThreadWatch]:
        return self._lobby.join(thread_id, caller)

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
        entry, found = await self._found(agent, protocol, thread)
        new = isinstance(thread, Thread)
        if (process := await self._lobby.place(entry, thread if isinstance(thread, str) else None)) is not None:
            with contextlib.ExitStack() as stack:
                lent = stack.enter_context(self._lobby.lend(caller)) if caller is not None else None
                call = RelayRequest(agent, protocol, method, params, thread, lent, told is not None)
                try:
                    answer = await self._post.ask(process, call, RelayAnswer, within=None)
                except Undelivered as error:
                    self._lobby.gone(process, error, entry)
                    await self._roster.refresh_hosted()
                    self._lobby.not_moved(entry)
                else:
                    if told is not None:
                        for update in answer.history:
                            told(update)
                    return answer.result
        return await self._relay(entry, protocol, method, params, found, caller=caller, told=told, new=new)

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        entry, found = await self._found(agent, protocol, thread)
        if (process := await self._lobby.place(entry, thread)) is not None:
            self._post.tell(process, ForwardNotification(agent, protocol, method, params, thread))
            return
        await self._forward(entry, protocol, method, params, found)

    # --- for other processes ----------------------------------------------------------------------------------------

    async def _relay_for(self, process: str, call: RelayRequest) -> RelayAnswer:
        """Relay for another process. Raises Undelivered if the agent has moved on."""
        entry, thread = await self._found(call.agent, call.protocol, call.thread)
        self._lobby.not_moved(entry)
        caller = self._lobby.borrow(process, call.caller) if call.caller is not None else None
        history: list[ThreadUpdate] = []
        told = history.append if call.history else None
        new = isinstance(call.thread, Thread)
        result = await self._relay(
            entry, call.protocol, call.method, call.params, thread, caller=caller, told=told, new=new
        )
        return RelayAnswer(result, tuple(history))

    async def _forward_for(self, _: str, call: ForwardNotification) -> None:
        entry, thread = await self._found(call.agent, call.protocol, call.thread)
        self._lobby.not_moved(entry)
        await self._forward(entry, call.protocol, call.method, call.params, thread)

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _found(self, name: str, protocol: str, thread: str | Thread | None) -> tuple[Entry, Thread | None]:
        thread = await self._store.thread(thread) if isinstance(thread, str) else thread
        return await self._roster.find(name, protocol, thread.metadata if thread else None), thread

    async def _relay(
        self,
        entry: Entry,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        thread: Thread | None,
        *,
        caller: Caller | None,
        told: Callable[[ThreadUpdate], None] | None,
        new: bool = False,
    ) -> msgspec.Raw:
        entry.begin()
        try:
            relay, context = await self._beside(entry, protocol, thread, caller, told, new=new)
            try:
                answer = await relay.relay(context, method, params)
                if new:
                    await context.create()
                return answer
            finally:
                context.answered()
        finally:
            self._roster.let_go(entry)

    async def _forward(
        self, entry: Entry, protocol: str, method: str, params: msgspec.Raw, thread: Thread | None
    ) -> None:
        entry.begin()
        try:
            relay, context = await self._beside(entry, protocol, thread)
            await relay.forward(context, method, params)
        finally:
            self._roster.let_go(entry)

    async def _beside(
        self,
        entry: Entry,
        protocol: str,
        thread: Thread | None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
        *,
        new: bool = False,
    ) -> tuple[Relay, ConversationContext]:
        relay = entry.relay if entry.route.target.protocol == protocol else None
        # of an agent that is down its client hears so, whatever the agent speaks
        agent = None if thread is None else await entry.need()
        if relay is None:
            raise Unsupported(f"agent {entry.route.name} does not speak this protocol itself")
        agent = agent or await entry.need()
        of_thread = None if thread is None or new else RunQuery(thread=thread.id, limit=1, brief=True)
        newest = await self._store.runs(of_thread) if of_thread is not None else ()
        context = ConversationContext(
            agent,
            self._conversations,
            thread,
            given=caller,
            last=newest[0].id if newest else None,
            told=told,
            new=new,
        )
        return relay, context
