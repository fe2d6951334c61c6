"""Our requests, and who is told their answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, InterlinguaError
from gateway.transport.deadline import Deadline
from gateway.transport.rpc.handler import Canceller
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Response, RpcError

log = logging.getLogger(__name__)

Answer: TypeAlias = Raw | InterlinguaError

_NULL = Raw(b"null")


class RequestSink(Protocol):
    """Takes requests to send. In a Peer, its Outbox."""

    def put(self, message: bytes) -> None:
        """Send soon. May raise AgentGone."""


class OutgoingRequests:
    """Our requests to the other end that have no answer yet. Ids are counted from `first_id`."""

    def __init__(self, name: str, outbox: RequestSink, first_id: int = 1) -> None:
        self.late = self.unknown = 0
        """Stray answers so far: those to requests that were given up, those to none."""
        self._name = name
        self._outbox = outbox
        self._first_id = self._next_id = first_id
        self._pending: dict[Id, tuple[Callable[[Answer], None], str]] = {}
        self._gone: AgentGone | None = None

    def __len__(self) -> int:
        return len(self._pending)

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None,
        cancel: Canceller | None,
        named: Callable[[Id], None] | None,
        *,
        sink: RequestSink | None = None,
    ) -> Raw:
        """Implements `Peer.request`. Leaves nothing here, however it ends. `sink` replaces the `outbox`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        sink = sink or self._outbox
        id = self.send(method, params, partial(_wake, future), sink)
        if named is not None:
            named(id)
        try:
            with Deadline(timeout):
                answer = await future
        except TimeoutError:
            if not future.done() or future.cancelled():
                raise AgentTimeout(f"{self._name} did not answer {method} within {timeout or 0:g} seconds") from None
            answer = future.result()  # it came while the time ran out
        finally:
            if self._pending.pop(id, None) is not None and cancel is not None:
                with contextlib.suppress(AgentGone):
                    sink.put(jsonrpc.notification(*cancel(id)))
        if isinstance(answer, InterlinguaError):
            raise answer
        return answer

    def send(self, method: str, params: Any, answered: Callable[[Answer], None], sink: RequestSink | None = None) -> Id:
        """Implements `Peer.send_request`."""
        if self._gone is not None:
            raise AgentGone.of(self._gone)
        id = self._next_id
        (sink or self._outbox).put(jsonrpc.request(id, method, params))
        self._next_id += 1
        self._pending[id] = answered, method
        return id

    def forget(self, id: Id) -> None:
        """Implements `Peer.forget`."""
        self._pending.pop(id, None)

    def settle(self, response: Response) -> bool:
        """Give an answer to its request. False if none waits. A number out of range makes it unreadable."""
        error = response.error
        if error is not None:
            return self._set(response.id, RpcError(error.code, error.message, error.data))
        result = response.result or _NULL
        try:
            jsonrpc.unpack(result)
        except (ValueError, RecursionError) as wrong:
            return self._set(response.id, AgentBroken(f"the answer of {self._name} cannot be read: {wrong}"))
        return self._set(response.id, result)

    def asked(self, id: Id, method: str | None = None) -> bool:
        """Whether a request with this id (and method) waits for its answer."""
        waiting = self._pending.get(id)
        return waiting is not None and method in (None, waiting[1])

    def fail(self, id: Id, why: InterlinguaError) -> bool:
        """Fail the request with this id. False if none waits."""
        return self._set(id, why)

    def end(self, why: AgentGone) -> None:
        """Fail every request, those to come too: the connection has ended."""
        self._gone = why
        for id in list(self._pending):
            self._set(id, AgentGone.of(why))

    def stray(self, response: Response) -> None:
        """Count an answer to which no request waits."""
        late = isinstance(response.id, int) and self._first_id <= response.id < self._next_id
        if late:
            self.late += 1
        else:
            self.unknown += 1
        told = f": {response.error.message}" if response.error else ""
        log.debug("%s answers %r, which nobody waits for%s", self._name, response.id, told)

    def _set(self, id: Id, answer: Answer) -> bool:
        waiting = self._pending.pop(id, None)
        if waiting is None:
            return False
        waiting[0](answer)
        return True


def _wake(future: asyncio.Future[Answer], answer: Answer) -> None:
    """Set errors as results: asyncio logs an exception that is never retrieved, as that of a cancelled caller."""
    if not future.done():
        future.set_result(answer)
