"""The operations tagged Threads: the conversations that runs are started on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from adapters.agent_connect import codec_request, codec_thread, wire
from adapters.agent_connect.inbound.call import NOTHING, Call, Reply
from gateway.adapter import Gateway
from gateway.core.errors import Conflict, Invalid, NotFound, Unsupported
from gateway.core.types import ChatMessage, Checkpoint, JsonObject, Thread, ThreadQuery, ThreadStatus

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


class Threads:
    """Threads as the gateway's own record has them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def create(self, call: Call) -> Reply:
        """`POST /threads`. 409 if the id exists, unless `if_exists: do_nothing`."""
        wanted = await call.read(wire.thread_create)
        thread = new_thread(wanted.get("thread_id"), wanted.get("metadata"))
        known = await self._gateway.create_thread(thread, or_get=wanted.get("if_exists") == "do_nothing")
        return await self._reply(known)

    async def search(self, call: Call) -> Reply:
        """`POST /threads/search`: those that came in by this protocol."""
        wanted = await call.read(wire.thread_search)
        status = wanted.get("status")
        threads = await self._gateway.threads(
            ThreadQuery(
                protocol=wire.PROTOCOL,
                status=ThreadStatus(status) if status else None,
                metadata=wanted.get("metadata") or {},
                values=wanted.get("values") or {},
                limit=wanted.get("limit") or 10,
                offset=wanted.get("offset") or 0,
            )
        )
        return Reply(codec_thread.encode_threads([(thread, await self._messages(thread)) for thread in threads]))

    async def get(self, call: Call) -> Reply:
        """`GET /threads/{thread_id}`."""
        return await self._reply(await self._gateway.thread(call.uuid("thread_id")))

    async def delete(self, call: Call) -> Reply:
        """`DELETE /threads/{thread_id}`. 422 while a run is active on it: the operation has no 409."""
        thread_id = call.uuid("thread_id")
        try:
            await self._gateway.delete_thread(thread_id)
        except Conflict as error:
            raise Invalid(str(error), detail=error.detail) from None
        return NOTHING

    async def copy(self, call: Call) -> Reply:
        """`POST /threads/{thread_id}/copy`."""
        return await self._reply(await self._gateway.copy_thread(call.uuid("thread_id")))

    async def history(self, call: Call) -> Reply:
        """`GET /threads/{thread_id}/history`: newest first; `before` is the checkpoint to start below."""
        thread_id = call.uuid("thread_id")
        limit = call.integer("limit", 10, 1, 1000)
        before = call.query("before")
        await self._gateway.thread(thread_id)
        checkpoints = await self._checkpoints(thread_id)
        states = list(zip(checkpoints, codec_thread.conversation(checkpoints), strict=True))
        if before is not None:
            ids = [checkpoint.id for checkpoint in checkpoints]
            if before.lower() not in ids:
                raise NotFound(f"before: the thread has no checkpoint {before!r}")
            states = states[: ids.index(before.lower())]
        return Reply(codec_thread.encode_history(states[::-1][:limit]))

    async def patch(self, call: Call) -> Reply:
        """`PATCH /threads/{thread_id}`: metadata is merged; values, messages or a checkpoint make a new state."""
        thread_id = call.uuid("thread_id")
        wanted = await call.read(wire.thread_patch)
        thread = await self._gateway.thread(thread_id)
        metadata = wanted.get("metadata")
        stateful = wanted.get("values") is not None or wanted.get("messages") is not None
        if not stateful and (metadata is not None or wanted.get("checkpoint") is None):
            return await self._reply(await self._gateway.update_thread(thread_id, metadata=metadata or {}))
        if thread.upstream:
            raise Unsupported("the thread's state is with its agent, which takes no patches; metadata can be patched")
        checkpoint = await self._patched(thread, wanted)
        return await self._reply(await self._gateway.update_thread(thread_id, metadata=metadata, checkpoint=checkpoint))

    async def _patched(self, thread: Thread, wanted: wire.ThreadPatch) -> Checkpoint:
        checkpoints = await self._checkpoints(thread.id)
        conversations = codec_thread.conversation(checkpoints)
        now = conversations[-1] if conversations else []
        base, values = now, thread.values
        ref = wanted.get("checkpoint")
        if ref is not None:
            found = [at for at, checkpoint in enumerate(checkpoints) if checkpoint.id == ref["checkpoint_id"]]
            if not found:
                raise NotFound(f"/checkpoint/checkpoint_id: the thread has no checkpoint {ref['checkpoint_id']}")
            base, values = conversations[found[0]], checkpoints[found[0]].values
        said = wanted.get("messages")
        then = base if said is None else list(codec_request.chat_messages(said))
        messages, mark = codec_request.patched_messages(now, then)
        given = wanted.get("values")
        return Checkpoint(
            id=str(uuid.uuid4()),
            thread=thread.id,
            created_at=time.time(),
            values=values if given is None else given,
            messages=messages,
            metadata={"source": "patch", **mark},
        )

    async def _reply(self, thread: Thread) -> Reply:
        return Reply(codec_thread.encode_thread(thread, await self._messages(thread)))

    async def _messages(self, thread: Thread) -> Sequence[ChatMessage]:
        conversations = codec_thread.conversation(await self._checkpoints(thread.id))
        return conversations[-1] if conversations else ()

    async def _checkpoints(self, thread_id: str) -> list[Checkpoint]:
        """All of the thread's, oldest first."""
        out: list[Checkpoint] = []
        while True:
            before = out[-1].id if out else None
            page = await self._gateway.history(thread_id, limit=PAGE, before=before)
            out += page
            if len(page) < PAGE:
                return out[::-1]
