"""Questions that a client has only acknowledged: it answers them later, by a message of type response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Raw

from adapters.agent_context.wire.constants import ACKNOWLEDGEMENTS, CORRELATION, MESSAGE, META, RESPONSE
from adapters.agent_context.wire.messages import Message, read
from gateway.core import delta
from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp.runs.keys import RESUME
from gateway.mcp.server.contract import Call, Session
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError


class Pending:
    """One per gateway process."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Session, str], asyncio.Future[Raw]] = {}

    def patient(self, call: Call) -> Call:
        """The call, whose client may acknowledge a question first."""
        return cast(Call, _Patient(call, self))

    def answered(self, session: Session, params: Raw, *, by_handle: bool) -> bool:
        """A message of a client: whether it was an answer that somebody waits for.

        Known by the handle that came with the question, or by its correlation id where nothing else has that.
        """
        if not any(each is session for each, _ in self._waiting):
            return False
        try:
            message = read(params, Message)
        except RpcError:
            return False
        key = message.beside.get(RESUME if by_handle else CORRELATION)
        future = self._waiting.get((session, str(key)))
        if message.content.type != RESPONSE or future is None or future.done():
            return False
        future.set_result(Raw(delta.encode({"content": {"type": RESPONSE, "payload": message.content.payload}})))
        return True

    def left(self, session: Session) -> None:
        """The session has ended."""
        for (other, _), future in self._waiting.items():
            if other is session and not future.done():
                future.set_exception(AgentGone("the client has gone"))
                future.exception()  # whoever waits gets it; nobody may

    @contextlib.contextmanager
    def open(self, session: Session, meta: JsonObject) -> Iterator[asyncio.Future[Raw]]:
        """While the block lasts, the answer to the question with this `_meta` may come in a message."""
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        keys = [(session, str(meta[key])) for key in (RESUME, CORRELATION) if key in meta]
        for key in keys:
            self._waiting[key] = future
        try:
            yield future
        finally:
            future.cancel()
            for key in keys:
                if self._waiting.get(key) is future:
                    del self._waiting[key]


class _Patient:
    """See `Call`: all of it is the call's but `ask`."""

    def __init__(self, call: Call, pending: Pending) -> None:
        self._call = call
        self._pending = pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        """See `Call.ask`."""
        if method != MESSAGE:
            return await self._call.ask(method, params, timeout=timeout)
        with self._pending.open(self._call.session, params[META]) as later:  # it may come right behind the answer
            result = await self._call.ask(method, params, timeout=timeout)
            return await later if _acknowledges(result) else result


def _acknowledges(result: Raw) -> bool:
    """Whether an answer says no more than that the question has come."""
    try:
        said = jsonrpc.unpack(result)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict) or said.keys() - {"status", META}:
        return False
    return "status" not in said or said["status"] in ACKNOWLEDGEMENTS
