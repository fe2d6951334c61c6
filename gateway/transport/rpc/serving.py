"""The other end's requests: a task each, and what they are answered."""

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
    """What is answered when a handler fails and the adapter says nothing better. Never what is private."""
    if isinstance(error, InterlinguaError):
        return ErrorObject(jsonrpc.INTERNAL_ERROR, str(error))
    return ErrorObject(jsonrpc.INTERNAL_ERROR, "internal error")


class Answered(Protocol):
    """Where answers go: the Outbox, or the array that a batch is answered with. As `Outbox`."""

    def put(self, *messages: bytes) -> None: ...

    async def drain(self) -> None: ...


class Answers:
    """The answers of one batch: an array, sent when the last of them is there, and nothing if there is none.

    Say with `expect` what is to come before it comes, and `seal` when nothing more is expected.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._answers: list[bytes] = []
        self._missing = 1  # the seal

    def expect(self) -> None:
        """One more."""
        self._missing += 1

    def put(self, *messages: bytes) -> None:
        """So many that were expected. Raises AgentGone as `Outbox.put`."""
        self._answers += messages
        self._came(len(messages))

    async def drain(self) -> None:
        await self._outbox.drain()

    def seal(self) -> None:
        """All that are expected are known. Raises AgentGone."""
        self._came(1)

    def _came(self, count: int) -> None:
        self._missing -= count
        if not self._missing and self._answers:
            self._outbox.put(b"[" + b",".join(self._answers) + b"]")


class Serving:
    """The requests to one Peer that are under way, by task."""

    def __init__(self, name: str, handler: Handler, outbox: Outbox, errors: Callable[[Exception], ErrorObject]) -> None:
        self._name = name
        self._handler = handler
        self._outbox = outbox
        self._errors = errors
        self._tasks: dict[asyncio.Task[None], Id] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        self._mute = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those under way."""
        return list(self._tasks)

    def accept(self, request: Request, to: Answered | None = None) -> None:
        """Serve it; begins with the next turn of the loop. `to` is where the answer goes if not to the Outbox."""
        work = self._serve(request, to or self._outbox)
        task = asyncio.create_task(work, name=f"{self._name} {request.method}")
        self._tasks[task] = request.id
        task.add_done_callback(self._served)

    def cancel(self, id: Id) -> bool:
        """See Peer.cancel_incoming. Several requests may have one id: that is their sender's affair."""
        wanted = [task for task, its in self._tasks.items() if its == id and not isinstance(id, bool)]
        for task in wanted:
            if task not in self._cancelled:  # a second time would hit it while it cleans up
                self._cancelled.add(task)
                task.cancel()
        return bool(wanted)

    def mute(self) -> None:
        """Who is cancelled from now on is not answered for: it is we who end."""
        self._mute = True

    async def _serve(self, request: Request, to: Answered) -> None:
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
        self._cancelled.discard(task)
