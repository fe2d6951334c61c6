"""Peer: one JSON-RPC connection over any pipe."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from gateway.core.errors import AgentGone, InterlinguaError
from gateway.transport.pipe import Direct, Pipe, Telling
from gateway.transport.rpc.handler import Handler, PeerCounts
from gateway.transport.rpc.incoming import IncomingRequests, MessageReader, plain_errors
from gateway.transport.rpc.outgoing import Answer, Outbox, OutgoingRequests
from gateway.transport.tap import TAP, PeerTap, about
from gateway.transport.tasks import TaskSet
from gateway.transport.waiting import Flag
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id

log = logging.getLogger(__name__)

CONCURRENCY = 1000
QUEUE_BYTES = 4 * 1024 * 1024
GRACE = 5.0


class Peer:
    """One connection, both directions. Owns its pipe.

        peer = Peer(pipe, handler)        # nothing happens yet: the handler may be told its peer
        async with peer: ...              # or start() ... await aclose(), or await run()

    Messages are handled in order of arrival: notifications one after the other, each request in a task of its own that
    has run up to its first wait. An answer wakes its caller after everything before it has been handled, and before
    anything after it is. Messages go out in the order of the calls.

    errors: maps an exception of a request's handler, other than RpcError, to the error answer.
    concurrency: requests of the other end under way at once; more are answered with an error.
    queue_bytes: unwritten bytes from which on `drain` waits.
    answer_garbage: whether input that is not a message is answered (-32700 or -32600, id null), as JSON-RPC says. False
        for an agent that prints its log among its messages; inside an array it is answered all the same. Input that is
        recognizably a request, or an empty batch (section 6), is always answered, and an unreadable answer fails its
        request.
    batches: whether arrays of messages are taken apart and answered by one array, or refused. `take_batches` changes
        it later, when the two ends have agreed on a version.
    linger: seconds that requests under way get to finish when the other end closes: it may still read (half-closed).
    grace: seconds for each step of closing, for the rest to be written, and for a peer that reads nothing.
    first_id: of our requests; the next are counted from there.
    agent: whether an agent is at the other end, for who records what is said.
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
        agent: bool = False,
    ) -> None:
        self.pipe = pipe
        self._agent = agent
        self._linger = linger
        self._grace = grace
        self._outbox = Outbox(pipe, queue_bytes, self._begin_writing)
        self.send = self._outbox.put
        """Sends encoded messages without line breaks, as `notify` does."""
        self._asking = OutgoingRequests(pipe.name, self._outbox, first_id)
        self.request = self._asking.request
        """Send a request and wait for its result: see `OutgoingRequests.request`."""
        self._serving = IncomingRequests(pipe.name, errors)
        self._incoming = MessageReader(
            pipe,
            handler,
            outbox=self._outbox,
            asking=self._asking,
            serving=self._serving,
            concurrency=concurrency,
            answer_garbage=answer_garbage,
            batches=batches,
            grace=grace,
            failed=self._failed,
        )
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gone: AgentGone | None = None
        self._ending: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None
        self._closed = Flag()
        self._begun = TaskSet()
        TAP.made(self)

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read and write. Once, on the running loop."""
        with about(None):  # whoever has it started: others use it as well
            self._context = copy_context()
        self._outbox.open()
        if isinstance(self.pipe, Direct):
            within: Any = self._context.run
            self.pipe.direct(partial(within, self._incoming.at_once))
        if isinstance(self.pipe, Telling):
            self.pipe.when_left(self._begin_reading)
        else:
            self._begin_reading()

    def _begin_reading(self) -> None:
        if self._gone is None:
            self._reader = self._begin(self._read(), "reader")

    def _begin_writing(self) -> None:
        self._writer = self._begin(self._write(), "writer")

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Tasks of which an idle connection needs none. What arrives may begin them, within the same context."""
        return asyncio.create_task(work, name=f"{self.pipe.name} {what}", context=self._context.copy())

    async def run(self) -> AgentGone:
        """Start, wait until the connection ends, and return the reason. Cancelling closes it."""
        self.start()
        try:
            await self._closed.wait()
            assert self._gone is not None
            return self._gone
        finally:
            await self.aclose()

    async def __aenter__(self) -> Peer:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is queued, end everything, within a few times `grace`, and close the pipe. Idempotent.

        Our requests fail with AgentGone. Handlers are cancelled and their requests not answered. A handler may call
        this, and is then cancelled.
        """
        self._finish(AgentGone(f"the connection to {self.pipe.name} was closed"), 0.0)
        if self._lingering is not None:
            self._lingering.cancel()
        await self.wait_closed()

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """Let work that an answered request has begun finish when the other end closes, as requests under way do."""
        self._begun.hold(work)

    def take_batches(self, taken: bool) -> None:
        """Take arrays of messages apart from now on, or refuse them."""
        self._incoming.take_batches(taken)

    def tap(self, on: bool) -> None:
        """See `gateway.transport.tap.Tapped`."""
        notes = PeerTap(agent=self._agent) if on else None
        self._incoming.tap(notes)
        self._outbox.tap(None if notes is None else notes.sent)

    @property
    def counts(self) -> PeerCounts:
        """How many irregular messages there were so far."""
        reader, asked = self._incoming, self._asking
        return PeerCounts(unreadable=reader.unreadable, late=asked.late, unknown=asked.unknown, refused=reader.refused)

    @property
    def closed(self) -> bool:
        """Whether the pipe is closed and no task is left."""
        return self._closed.is_set()

    @property
    def gone(self) -> AgentGone | None:
        """Why the connection ended; None while more may come."""
        return self._gone

    @property
    def busy(self) -> bool:
        """Whether a request of either end, or what one began (`linger_for`), is under way, or something unwritten."""
        return bool(len(self._serving) or len(self._asking) or len(self._begun) or self._outbox.size)

    @property
    def pending(self) -> int:
        """The number of our requests without an answer yet."""
        return len(self._asking)

    @property
    def queued(self) -> int:
        """The number of bytes not written yet."""
        return self._outbox.size

    async def wait_closed(self) -> AgentGone:
        """Wait until it is closed, and return the reason."""
        await self._closed.wait()
        assert self._gone is not None
        return self._gone

    # --- out -------------------------------------------------------------------------------------------------------

    def send_request(self, method: str, params: Any, answered: Callable[[Answer], None]) -> Id:
        """Send a request; returns its id. `answered` is given its answer, or the error, where that stands among the
        messages. Raises AgentGone.
        """
        return self._asking.send(method, params, answered)

    def forget(self, id: Id) -> None:
        """Wait no more for the answer to a request of `send_request`: one that still comes is counted as late."""
        self._asking.forget(id)

    def fail(self, id: Id, why: InterlinguaError) -> None:
        """Fail our request with this id, if it still waits for its answer."""
        self._asking.fail(id, why)

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification. Never waits; call `drain` after many. Raises AgentGone."""
        self._outbox.put(jsonrpc.notification(method, params))

    async def drain(self) -> None:
        """Wait until fewer than `queue_bytes` are queued. Raises AgentGone."""
        await self._outbox.drain()

    @property
    def flowing(self) -> bool:
        """Whether `drain` would neither wait nor raise, so that it need not be called."""
        return self._outbox.flowing

    # --- in --------------------------------------------------------------------------------------------------------

    def cancel_incoming(self, id: Id) -> bool:
        """Cancel the handler of the other end's request `id`, which is answered. False if there is none any more."""
        return self._serving.cancel(id)

    async def _read(self) -> None:
        try:
            await self._incoming.run()
            self._finish(AgentGone(f"{self.pipe.name} closed the connection"), self._linger)
        except AgentGone as error:
            self._finish(error, self._linger)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.exception("%s: reading failed", self.pipe.name)
        self._finish(AgentGone(f"the connection to {self.pipe.name} failed", detail=repr(error)), 0.0)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Write until the other end stops reading. What it sent before is still read, for up to `grace`."""
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
        """Handle nothing more: fail our requests now, and end the rest in a task."""
        if self._gone is None:
            self._gone = why
            self._incoming.stop()
            self._asking.end(why)
            if linger:
                self._lingering = asyncio.create_task(self._left(linger), name=f"{self.pipe.name} lingers")
            self._ending = asyncio.create_task(self._end(why), name=f"{self.pipe.name} end")

    async def _left(self, seconds: float) -> None:
        """Wait for requests under way and for work that answered requests have begun."""
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
            await self._stop(self._serving.tasks, self._serving.stop)
            await self._bounded(self._outbox.flushed())
            self._outbox.close(why)
            await self._stop([task for task in (self._reader, self._writer) if task is not None])
            try:
                await self.pipe.aclose()
            except Exception as error:
                log.warning("%s: closing failed: %r", self.pipe.name, error)
        finally:
            self._closed.set()

    async def _stop(
        self, tasks: list[asyncio.Task[None]], cancel: Callable[[asyncio.Task[None]], object] = asyncio.Task.cancel
    ) -> None:
        for task in tasks:
            cancel(task)
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
