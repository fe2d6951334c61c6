"""The half of the `Gateway` that keeps records: threads, files, what inbound halves keep. Runs are in engine.py.

What is kept is a registration of the store whose name begins with the protocol and a slash, which no agent's name has.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from gateway.agents.roster import Roster
from gateway.contract import Caller, Kept, ThreadWatch
from gateway.core.errors import Conflict, Invalid, NotFound
from gateway.core.types import Artifact, ChatMessage, Checkpoint, Json, JsonObject, Thread, ThreadChange, ThreadQuery
from gateway.runs.states import States
from gateway.runs.threads import UPLOADS, Threads, new_id
from gateway.store import Registration, Store


class Records:
    """See `gateway.contract.Gateway` for every method."""

    roster: Roster
    states: States

    def __init__(self, store: Store, *, public_url: str, artifact_limit: int) -> None:
        """`artifact_limit`: bytes that one uploaded file may have."""
        self.store = store
        self.public_url = public_url
        self.conversations = Threads(store)
        self._artifact_limit = artifact_limit
        self._kept: dict[str, tuple[Sequence[Registration], tuple[Kept, ...]]] = {}
        """By protocol: all registrations as they were, and what is made of those of the protocol."""

    @property
    def process(self) -> str:
        """See `Gateway.process`."""
        return self.store.owner

    # --- what inbound halves keep -------------------------------------------------------------------------------

    async def keep(
        self, protocol: str, name: str, data: JsonObject, *, owner: str, expires_at: float | None = None
    ) -> None:
        """See `Gateway.keep`."""
        known = self._kept[protocol][1] if protocol in self._kept else await self.kept(protocol)
        before = next((one for one in known if one.name == name and one.owner == owner), None)
        registration = Registration(
            name=f"{protocol}/{name}",
            protocol=protocol,
            owner=owner,
            data=data,
            created_at=before.created_at if before is not None else time.time(),
            expires_at=expires_at,
        )
        try:
            await self.store.put_registration(registration)
        except Conflict as error:
            raise Conflict(f"{name} belongs to somebody else") from error

    async def kept(self, protocol: str) -> Sequence[Kept]:
        """See `Gateway.kept`. The store gives the same list, and the same records, while they are the same."""
        everything = await self.store.registrations(time.time())
        known, out = self._kept.get(protocol, ((), ()))
        if known is everything:
            return out
        before = {id(one): kept for one, kept in zip(_below(protocol, known), out, strict=True)}
        now = _below(protocol, everything)
        out = tuple(before.get(id(one)) or _kept(protocol, one) for one in now)
        self._kept[protocol] = (everything, out)
        return out

    async def forget(self, protocol: str, name: str) -> None:
        """See `Gateway.forget`."""
        with contextlib.suppress(NotFound):
            await self.store.delete_registration(f"{protocol}/{name}")

    # --- threads ------------------------------------------------------------------------------------------------

    async def create_thread(self, thread: Thread, *, or_get: bool = False) -> Thread:
        """See `Gateway.create_thread`."""
        try:
            await self.store.create_thread(thread)
        except Conflict:
            if not or_get:
                raise
            return await self.thread(thread.id)
        return thread

    async def thread(self, thread_id: str) -> Thread:
        """See `Gateway.thread`."""
        return await self.store.thread(thread_id)

    async def threads(self, query: ThreadQuery) -> Sequence[Thread]:
        """See `Gateway.threads`."""
        return await self.store.threads(query)

    async def count_threads(self, query: ThreadQuery) -> int:
        """See `Gateway.count_threads`."""
        return await self.store.count_threads(query)

    async def update_thread(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> Thread:
        """See `Gateway.update_thread`."""
        return await self.conversations.change(
            thread_id, ThreadChange(metadata=metadata or {}, attributes=attributes or {})
        )

    async def patch_thread(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        base: str | None = None,
        values: Json = None,
        messages: Sequence[ChatMessage] | None = None,
    ) -> Thread:
        """See `Gateway.patch_thread`."""
        thread = await self.store.thread(thread_id)
        return await self.states.patch(thread, metadata=metadata or {}, base=base, values=values, messages=messages)

    async def copy_thread(self, thread_id: str) -> Thread:
        """See `Gateway.copy_thread`."""
        return await self.states.copy(await self.store.thread(thread_id))

    async def state(self, thread_id: str, *, ask: bool = True) -> Checkpoint:
        """See `Gateway.state`."""
        return await self.states.now(await self.store.thread(thread_id), ask=ask)

    async def states_of(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """See `Gateway.states_of`."""
        return await self.states.history(await self.store.thread(thread_id), limit=limit, before=before)

    async def delete_thread(self, thread_id: str) -> None:
        """See `Gateway.delete_thread`."""
        await self.store.delete_thread(thread_id)

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """See `Gateway.history`."""
        return await self.store.history(thread_id, limit=limit, before=before)

    @contextlib.asynccontextmanager
    async def join(self, thread_id: str, caller: Caller | None = None) -> AsyncIterator[ThreadWatch]:
        """See `Gateway.join`."""
        await self.store.thread(thread_id)
        with self.conversations.listeners.join(thread_id, caller) as listener:
            yield listener

    # --- artifacts ----------------------------------------------------------------------------------------------

    async def add_artifact(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        """See `Gateway.add_artifact`."""
        artifact_id = new_id()
        owner = artifact.run or artifact.thread
        if owner is None:
            raise Invalid("an uploaded file belongs to a run or a thread")
        if artifact.thread is not None:
            await self._check_file(await self.store.thread(artifact.thread), artifact)
        artifact = replace(
            artifact,
            id=artifact_id,
            created_at=time.time(),
            url=f"{self.public_url}/artifacts/{owner}/{artifact_id}",
        )
        stored = await self.store.put_artifact(artifact, content, max_bytes=self._artifact_limit)
        if artifact.thread is not None:
            await self.conversations.change(artifact.thread, ThreadChange(attributes={UPLOADS: True}))
        return stored

    async def _check_file(self, thread: Thread, artifact: Artifact) -> None:
        """Raises Unsupported where the thread's agent is known and does not take such a file."""
        if thread.agent is not None:
            entry = await self.roster.find(thread.agent, thread.protocol, thread.metadata)
            entry.takes_file(await entry.need(), artifact.media_type, artifact.name)

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        """See `Gateway.artifacts`."""
        return await self.store.artifacts(run=run, thread=thread)

    async def artifact(self, artifact_id: str) -> Artifact:
        """See `Gateway.artifact`."""
        return await self.store.artifact(artifact_id)

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """See `Gateway.open_artifact`."""
        return self.store.open_artifact(artifact_id)


def _below(protocol: str, registrations: Sequence[Registration]) -> list[Registration]:
    prefix = f"{protocol}/"
    return [one for one in registrations if one.name.startswith(prefix)]


def _kept(protocol: str, one: Registration) -> Kept:
    name = one.name.removeprefix(f"{protocol}/")
    return Kept(name=name, owner=one.owner, data=one.data, created_at=one.created_at, expires_at=one.expires_at)


async def in_chunks(content: AsyncIterator[bytes] | bytes) -> AsyncIterator[bytes]:
    """A file's content as the store takes it."""
    if isinstance(content, bytes):
        yield content
        return
    async for chunk in content:
        yield chunk
