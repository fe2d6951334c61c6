"""The operations tagged Threads: the conversations that runs are started on."""

from __future__ import annotations

import time
import uuid

from msgspec.structs import replace

from adapters.agent_connect import codec_threads, wire
from adapters.agent_connect.inbound import parameters
from gateway.contract import Gateway, paged
from gateway.core.errors import AgentError, Conflict, Invalid, Unsupported
from gateway.core.json_match import contains
from gateway.core.types import Checkpoint, JsonObject, Thread, ThreadQuery, ThreadStatus
from gateway.transport.asgi import HttpRequest, Reply

PAGE = 1000


def new_thread(thread_id: str | None = None, metadata: JsonObject | None = None) -> Thread:
    """An empty thread of this protocol, with a fresh id unless one is given."""
    now = time.time()
    return Thread(
        id=thread_id or str(uuid.uuid4()),
        created_at=now,
        updated_at=now,
        protocol=wire.PROTOCOL,
        metadata=metadata or {},
    )


class ThreadOperations:
    """Threads with their state, which the gateway or the agent keeps."""

    def __init__(self, gateway: Gateway, limit: int) -> None:
        """limit: bytes that a request's body may have."""
        self._gateway = gateway
        self._limit = limit

    async def create(self, request: HttpRequest) -> Reply:
        """`POST /threads`. 409 if the id exists, unless `if_exists: do_nothing`."""
        wanted = await parameters.body(request, wire.thread_create, self._limit)
        thread = new_thread(wanted.get("thread_id"), wanted.get("metadata"))
        known = await self._gateway.threads.create(thread, or_get=wanted.get("if_exists") == "do_nothing")
        return await self._reply(known)

    async def search(self, request: HttpRequest) -> Reply:
        """`POST /threads/search`: those that came in by this protocol."""
        wanted = await parameters.body(request, wire.thread_search, self._limit)
        status = wanted.get("status")
        query = ThreadQuery(
            protocol=wire.PROTOCOL,
            status=ThreadStatus(status) if status else None,
            metadata=wanted.get("metadata") or {},
        )
        values = wanted.get("values") or {}
        limit, offset = wanted.get("limit") or 10, wanted.get("offset") or 0
        if not values:
            threads = await self._gateway.threads.list(replace(query, limit=limit, offset=offset))
            return Reply(200, codec_threads.encode_threads([(one, await self._kept(one)) for one in threads]))
        found: list[tuple[Thread, Checkpoint]] = []
        async for thread in paged(self._gateway.threads.list, replace(query, limit=PAGE)):
            state = await self._kept(thread)  # states that agents keep are not looked at
            if contains(state.values, values):
                found.append((thread, state))
            if len(found) == offset + limit:
                break
        return Reply(200, codec_threads.encode_threads(found[offset:]))

    async def _kept(self, thread: Thread) -> Checkpoint:
        return await self._gateway.threads.state(thread.id, ask=False)

    async def get(self, request: HttpRequest) -> Reply:
        """`GET /threads/{thread_id}`."""
        return await self._reply(await self._gateway.threads.get(parameters.uuid(request, "thread_id")))

    async def delete(self, request: HttpRequest) -> Reply:
        """`DELETE /threads/{thread_id}`. 422 while a run is active on it: the operation has no 409."""
        thread_id = parameters.uuid(request, "thread_id")
        try:
            await self._gateway.threads.delete(thread_id)
        except Conflict as error:
            raise Invalid(str(error), detail=error.detail) from None
        return Reply(204)

    async def copy(self, request: HttpRequest) -> Reply:
        """`POST /threads/{thread_id}/copy`."""
        return await self._reply(await self._gateway.threads.copy(parameters.uuid(request, "thread_id")))

    async def history(self, request: HttpRequest) -> Reply:
        """`GET /threads/{thread_id}/history`: newest first; `before` is the checkpoint to start below."""
        thread_id = parameters.uuid(request, "thread_id")
        limit = parameters.integer(request, "limit", 10, 1, 1000)
        before = request.query("before")
        states = await self._gateway.threads.states(thread_id, limit=limit, before=before)
        return Reply(200, codec_threads.encode_history(states))

    async def patch(self, request: HttpRequest) -> Reply:
        """`PATCH /threads/{thread_id}`: metadata is merged; values, messages or a checkpoint make a new state."""
        thread_id = parameters.uuid(request, "thread_id")
        wanted = await parameters.body(request, wire.thread_patch, self._limit)
        metadata, said, ref = wanted.get("metadata"), wanted.get("messages"), wanted.get("checkpoint")
        if metadata is not None:  # a client may send back what it was told
            metadata.pop(wire.STATE_UNREAD, None)
        stateful = wanted.get("values") is not None or said is not None
        if not stateful and (metadata is not None or ref is None):
            return await self._reply(await self._gateway.threads.update(thread_id, metadata=metadata or {}))
        thread = await self._gateway.threads.patch(
            thread_id,
            metadata=metadata or {},
            base=ref["checkpoint_id"] if ref is not None else None,
            values=wanted.get("values"),
            messages=None if said is None else [codec_threads.chat_message(one) for one in said],
        )
        return await self._reply(thread)

    async def _reply(self, thread: Thread) -> Reply:
        """The thread with its state. If the agent keeps the state and refuses it, the metadata says so."""
        try:
            state = await self._gateway.threads.state(thread.id)
        except (AgentError, Unsupported) as error:
            return Reply(200, codec_threads.encode_thread(thread, await self._kept(thread), str(error)))
        return Reply(200, codec_threads.encode_thread(thread, state))
