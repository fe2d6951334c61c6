"""Threads at an agent's server: made, read, changed and copied there (openapi 0.2.3, operations tagged Threads)."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.agent_connect import codec_threads
from adapters.agent_connect.outbound.client import AgentConnectClient, complaint, encode, explanation
from gateway.core.errors import AgentForgot, Invalid, NotFound, Unsupported
from gateway.core.types import ChatMessage, Checkpoint, Json, JsonObject
from gateway.transport.http import HttpResponse, segment

NOT_OFFERED = (405, 500, 501)
"""Statuses with which real servers answer operations that they have not implemented."""


class RemoteThreads:
    """The threads of one server. `trace` is as in `AgentConnectClient`."""

    def __init__(self, client: AgentConnectClient, trace: str | None = None) -> None:
        self._client = client
        self._trace = trace

    async def create(self, metadata: JsonObject) -> str:
        """A new thread's id. Raises Unsupported, AgentError."""
        reply = await self._send("POST", "/threads", {"metadata": metadata})
        if reply.status in (404, *NOT_OFFERED):
            raise Unsupported(f"the agent says that it has threads, but POST /threads answered {reply.status}")
        if not 200 <= reply.status < 300:
            raise complaint(reply, "POST /threads")
        return codec_threads.thread_id(reply.body, "POST /threads")

    async def read(self, thread: str) -> Checkpoint:
        """See `Stateful.read_thread`."""
        path = _path(thread)
        return codec_threads.state(_answered(await self._send("GET", path), f"GET {path}"), f"GET {path}")

    async def history(self, thread: str, limit: int, before: str | None) -> Sequence[Checkpoint]:
        """See `Stateful.read_history`."""
        path = f"{_path(thread)}/history"
        query = f"?limit={limit}" + (f"&before={segment(before)}" if before is not None else "")
        reply = await self._send("GET", path + query)
        if before is not None and reply.status in (404, 422):
            raise NotFound(explanation(reply) or f"before: the agent has no checkpoint {before!r}")
        return codec_threads.states(_answered(reply, f"GET {path}"), f"GET {path}")

    async def copy(self, thread: str) -> str:
        """The new thread's id. See `Stateful.copy_thread`."""
        path = f"{_path(thread)}/copy"
        return codec_threads.thread_id(_answered(await self._send("POST", path), f"POST {path}"), f"POST {path}")

    async def update(self, thread: str, base: str | None, values: Json, messages: Sequence[ChatMessage] | None) -> None:
        """See `Stateful.update_thread`."""
        body: JsonObject = {}
        if base is not None:
            body["checkpoint"] = {"checkpoint_id": base}
        if values is not None:
            body["values"] = values
        if messages is not None:
            body["messages"] = [codec_threads.message(one) for one in messages]
        path = _path(thread)
        reply = await self._send("PATCH", path, body)
        if base is not None and reply.status == 404:
            raise NotFound(explanation(reply) or f"the agent has no checkpoint {base}")
        if reply.status in (400, 409, 422):
            raise Invalid(explanation(reply) or f"the agent refused the change: PATCH {path} answered {reply.status}")
        _answered(reply, f"PATCH {path}")

    async def _send(self, method: str, path: str, body: JsonObject | None = None) -> HttpResponse:
        return await self._client.send(method, path, None if body is None else encode(body), trace=self._trace)


def _path(thread: str) -> str:
    return f"/threads/{segment(thread)}"


def _answered(reply: HttpResponse, where: str) -> bytes:
    if reply.status == 404:
        raise AgentForgot(f"the agent does not know the thread any more: {where} answered 404")
    if reply.status in NOT_OFFERED:
        raise Unsupported(f"the agent does not offer this: {where} answered {reply.status}")
    if not 200 <= reply.status < 300:
        raise complaint(reply, where)
    return reply.body
