"""The other end's requests: a task for each, and its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from gateway.core.errors import AgentGone, InterlinguaError, Invalid
from gateway.transport.rpc.handler import Handler
from gateway.transport.rpc.outbox import Outbox
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Request, RpcError

log = logging.getLogger(__name__)


def plain_errors(error: Exception) -> ErrorObject:
    """Map a handler's exception to an error answer without private detail. The default of `Peer`'s `errors`."""
    if isinstance(error, InterlinguaError):
        return ErrorObject(jsonrpc.INTERNAL_ERROR, str(error))
    return ErrorObject(jsonrpc.INTERNAL_ERROR, "internal error")


class AnswerSink(Protocol):
    """Takes answers: the Outbox, or the array that answers a batch. The methods are those of `Outbox`."""

    def put(self, *messages: bytes) -> None: ...

    async def drain(self) -> None: ...


class BatchAnswers:
    """Collects the answers of one batch, and sends them as one array when the last is there; nothing if there is none.

    Call `expect` for each answer before it comes, and `seal` after the last `expect`.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._answers: list[bytes] = []
        self._missing = 1  # the seal

    def expect(self) -> None:
        """Expect one more answer."""
        self._missing += 1

    def put(self, *messages: bytes) -> None:
        """Add expected answers. Raises AgentGone as `Outbox.put` does."""
        self._answers += messages
        self._came(len(messages))

    async def drain(self) -> None:
        await self._outbox.drain()

    def seal(self) -> None:
        """Expect no more answers. Raises AgentGone."""
        self._came(1)

    def _came(self, count: int) -> None:
        self._missing -= count
        if not self._missing and self._answers:
            self._outbox.put(b"[" + b",".join(self._answers) + b"]")


class IncomingRequests:
    """The other end's requests under way, by task."""

    def __init__(self, name: str, handler: Handler, outbox: Outbox, errors: Callable[[Exception], ErrorObject]) -> None:
        self._name = name
        self._handler = handler
        self._outbox = outbox
        self._errors = errors
        self._tasks: dict[asyncio.Task[None], Id] = {}
        self._cancelled: dict[asyncio.Task[None], None] = {}
        self._mute = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of the requests under way."""
        return list(self._tasks)

    def accept(self, request: Request, to: AnswerSink | None = None) -> None:
        """Serve a request in a task, from the next turn of the loop on. `to` takes its answer instead of the Outbox."""
        work = self._serve(request, to or self._outbox)
        task = asyncio.create_task(work, name=f"{self._name} {request.method}")
        self._tasks[task] = request.id
        task.add_done_callback(self._served)

    def cancel(self, id: Id) -> bool:
        """Implements `Peer.cancel_incoming`. If several requests have the id, cancels all of them."""
        wanted = [task for task, its in self._tasks.items() if its == id and not isinstance(id, bool)]
        for task in wanted:
            if task not in self._cancelled:  # a second time would hit it while it cleans up
                self._cancelled[task] = None
                task.cancel()
        return bool(wanted)

    def mute(self) -> None:
        """Do not answer requests cancelled from now on, because the connection ends."""
        self._mute = True

    async def _serve(self, request: Request, to: AnswerSink) -> None:
        try:
            value = await self._handler.request(request.method, request.params, request.id)
            answer = jsonrpc.result(request.id, value)
        except asyncio.CancelledError:
            if self._mute:
                raise
            answer = jsonrpc.error(request.id, ErrorObject(jsonrpc.REQUEST_CANCELLED, "request cancelled"))
        except Exception as error:
            answer = self._failure(request, error)
        try:
            to.put(answer)
            await to.drain()  # so that a peer that reads no answers does not get many to ignore
        except AgentGone:
            return

    def _failure(self, request: Request, error: Exception) -> bytes:
        if isinstance(error, InterlinguaError):
            level = logging.INFO if isinstance(error, Invalid) else logging.DEBUG
            log.log(level, "%s: %s is answered %s (%s)", self._name, request.method, error, error.detail)
        else:
            log.error("%s: answering %s failed", self._name, request.method, exc_info=error)
        try:
            said = error.error if isinstance(error, RpcError) else self._errors(error)
            return jsonrpc.error(request.id, said)
        except Exception:
            log.exception("%s: the error of %s cannot be said", self._name, request.method)
            return jsonrpc.error(request.id, plain_errors(error))

    def _served(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._cancelled.pop(task, None)
