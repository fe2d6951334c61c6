"""Peer: one JSON-RPC connection, whatever it runs over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Raw

from gateway.core.errors import AgentGone
from gateway.transport.pipe import Direct, Pipe, Unreadable
from gateway.transport.rpc.asking import Asking
from gateway.transport.rpc.handler import Canceller, Counts, Handler
from gateway.transport.rpc.incoming import Incoming
from gateway.transport.rpc.outbox import Outbox
from gateway.transport.rpc.serving import Serving, plain_errors
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id

log = logging.getLogger(__name__)

CONCURRENCY = 1000
QUEUE_BYTES = 4 * 1024 * 1024
GRACE = 5.0


class Peer:
    """One connection, and both directions of it. Owns its pipe.

        peer = Peer(pipe, handler)        # nothing happens yet: the handler may be told its peer
        async with peer: ...              # or start() ... await aclose(), or await run()

    Messages are handled in the order in which they came: notifications one after the other, requests each in a task
    of its own that has run up to its first wait, and an answer wakes who asked when all that came before it has been
    handled, and before what came after it is. Messages go out in the order of the calls.

    errors: what is answered when a request's handler raises something that is no RpcError.
    concurrency: requests of the other end under way at once; more are answered with an error.
    queue_bytes: unwritten bytes from which on `drain` waits.
    answer_garbage: whether what is no message is answered (-32700 or -32600, id null), as JSON-RPC has it. Not towards
        an agent that prints its log among its messages; among those in an array it is answered all the same. What can
        be seen to be a request, or a batch of none (section 6), is answered in any case, and an unreadable answer fails
        who waits for it.
    batches: whether arrays of messages are taken apart, and answered by one array, or refused. May be set later: it
        can depend on what the two ends agree on.
    linger: seconds that requests under way get to finish when the other end closes: it may still read (half-closed).
    grace: seconds for each step of closing, for what is left to be written, and for a peer that reads nothing.
    first_id: of our requests; the next are counted from there.
    """

    def __init__(
        self,
        pipe: Pipe,
        handler: Handler,
        *,
        errors: Callable[[Exception], ErrorObject] = plain_errors,
        concurrency: int = CONCURRENCY,
        queue_bytes: int = QUEUE_BYTES,
        answer_garbage: bool = True,
        batches: bool = False,
        linger: float = 0.0,
        grace: float = GRACE,
        first_id: int = 1,
    ) -> None:
        self.pipe = pipe
        self.counts = Counts()
        self._linger = linger
        self._grace = grace
        self._outbox = Outbox(pipe, queue_bytes)
        self._asking = Asking(pipe.name, self._outbox, self.counts, first_id)
        self._serving = Serving(pipe.name, handler, self._outbox, errors)
        self._incoming = Incoming(
            pipe,
            handler,
            counts=self.counts,
            outbox=self._outbox,
            asking=self._asking,
            serving=self._serving,
            concurrency=concurrency,
            answer_garbage=answer_garbage,
            batches=batches,
            grace=grace,
        )
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gone: AgentGone | None = None
        self._ending: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._begun = TaskSet()

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read and write. Once, on the running loop."""
        self._reader = asyncio.create_task(self._read(), name=f"{self.pipe.name} reader")
        self._writer = asyncio.create_task(self._write(), name=f"{self.pipe.name} writer")
        if self._incoming.swift is not None and isinstance(self.pipe, Direct):
            self.pipe.direct(self._taken)

    async def run(self) -> AgentGone:
        """Start, see the connection to its end, and say why it ended. Cancelling closes it."""
        self.start()
        try:
            return await self.wait_closed()
        finally:
            await self.aclose()

    async def __aenter__(self) -> Peer:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what waits, end everything, close the pipe; bounded by a few times `grace`. Idempotent.

        Requests that wait for an answer fail with AgentGone, handlers are cancelled and not answered for. May be
        called from a handler, which is then cancelled.
        """
        self._finish(AgentGone(f"the connection to {self.pipe.name} was closed"), 0.0)
        if self._lingering is not None:
            self._lingering.cancel()
        await self.wait_closed()

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """Let work that an answered request has begun finish when the other end closes, as requests under way do."""
        self._begun.hold(work)

    @property
    def batches(self) -> bool:
        """Whether arrays of messages are taken apart."""
        return self._incoming.batches

    @batches.setter
    def batches(self, taken: bool) -> None:
        self._incoming.batches = taken

    @property
    def closed(self) -> bool:
        """Whether it is all over: the pipe closed, no task left."""
        return self._closed.is_set()

    @property
    def gone(self) -> AgentGone | None:
        """Why nothing more comes from the other end; None while something may."""
        return self._gone

    @property
    def pending(self) -> int:
        """Our requests that wait for their answer."""
        return len(self._asking)

    @property
    def queued(self) -> int:
        """Bytes that are not written yet."""
        return self._outbox.size

    async def wait_closed(self) -> AgentGone:
        """Wait until it is all over, and say why it ended."""
        await self._closed.wait()
        assert self._gone is not None
        return self._gone

    # --- out -------------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = None,
        cancel: Canceller | None = None,
        named: Callable[[Id], None] | None = None,
    ) -> Raw:
        """Ask, and wait for the result. `params` is any value msgspec encodes, or a Raw.

        The request is queued before the first wait. With `cancel`, the other end is told when nobody waits any more,
        because of the timeout (seconds) or because the caller was cancelled. `named` is told the request's id before
        the first wait.

        Raises RpcError for an error answer, AgentTimeout, AgentBroken if the answer cannot be read, AgentGone when
        the connection ends first.
        """
        return await self._asking.request(method, params, timeout, cancel, named)

    def notify(self, method: str, params: Any = None) -> None:
        """Tell. Never waits: who tells much calls `drain`. Raises AgentGone when nothing can be sent any more."""
        self._outbox.put(jsonrpc.notification(method, params))

    def send(self, *messages: bytes) -> None:
        """Say what is encoded already: whole messages without line breaks. Never waits; as `notify`."""
        self._outbox.put(*messages)

    async def drain(self) -> None:
        """Wait until less is queued than `queue_bytes`. Raises AgentGone."""
        await self._outbox.drain()

    @property
    def flowing(self) -> bool:
        """Whether `drain` would neither wait nor raise: then it need not be called."""
        return self._outbox.flowing

    # --- in --------------------------------------------------------------------------------------------------------

    def cancel_incoming(self, id: Id) -> bool:
        """Cancel the handler of the other end's request `id`; it is answered. False if there is none (any more)."""
        return self._serving.cancel(id)

    async def _read(self) -> None:
        try:
            await self._incoming.run()
            self._finish(AgentGone(f"{self.pipe.name} closed the connection"), self._linger)
        except AgentGone as error:
            self._finish(error, self._linger)
        except Exception as error:
            self._failed(error)

    def _taken(self, arrived: Sequence[bytes | Unreadable]) -> Sequence[bytes | Unreadable]:
        try:
            return self._incoming.at_once(arrived)
        except Exception as error:
            self._failed(error)
            return []

    def _failed(self, error: Exception) -> None:
        log.exception("%s: reading failed", self.pipe.name)
        self._finish(AgentGone(f"the connection to {self.pipe.name} failed", detail=repr(error)), 0.0)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """What the other end said before it stopped listening is still read, for a while."""
        try:
            await self._outbox.run()
        except AgentGone as error:
            gone = error
        except Exception as error:
            log.exception("%s: writing failed", self.pipe.name)
            gone = AgentGone(f"the connection to {self.pipe.name} failed", detail=repr(error))
        self._outbox.close(gone)
        if self._ending is None:
            self._deadline = asyncio.get_running_loop().call_later(self._grace, self._finish, gone, 0.0)

    def _finish(self, why: AgentGone, linger: float) -> None:
        """Nothing more is read: who waits for an answer learns it now, and the rest is ended in a task."""
        if self._gone is None:
            self._gone = why
            self._asking.end(why)
            if linger:
                self._lingering = asyncio.create_task(self._left(linger), name=f"{self.pipe.name} lingers")
            self._ending = asyncio.create_task(self._end(why), name=f"{self.pipe.name} end")

    async def _left(self, seconds: float) -> None:
        """Wait for what is under way, and for what answered requests have begun."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while left := [*self._serving.tasks, *self._begun]:
                    await asyncio.wait(left)

    async def _end(self, why: AgentGone) -> None:
        self._serving.mute()
        try:
            if self._deadline is not None:
                self._deadline.cancel()
            if self._lingering is not None:
                await asyncio.wait([self._lingering])
            await self._stop(self._serving.tasks)
            if self._writer is not None:
                await self._bounded(self._outbox.flushed())
            self._outbox.close(why)
            await self._stop([task for task in (self._reader, self._writer) if task is not None])
            await self._bounded(self.pipe.aclose())
        finally:
            self._closed.set()

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._grace)
            for task in left:
                log.error("%s ignores its cancellation", task.get_name())

    async def _bounded(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._grace):
                await step
        except Exception as error:
            log.warning("%s: closing failed: %r", self.pipe.name, error)
