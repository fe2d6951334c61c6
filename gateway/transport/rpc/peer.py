"""Peer: one JSON-RPC connection, whatever it runs over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec import UNSET, Raw

from gateway.core.errors import AgentBroken, AgentGone
from gateway.transport.pipe import Direct, Pipe, Unreadable
from gateway.transport.rpc.asking import Asking
from gateway.transport.rpc.handler import Canceller, Counts, Handler, Swift
from gateway.transport.rpc.outbox import Outbox
from gateway.transport.rpc.serving import Answers, Serving, plain_errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, ErrorObject, Id, Malformed, Notification, Request, Response

log = logging.getLogger(__name__)

CONCURRENCY = 1000
QUEUE_BYTES = 4 * 1024 * 1024
GRACE = 5.0
_BREATH = 256
"""Messages after which the reader lets others run, should its pipe never make it wait."""
_BATCH = Malformed(jsonrpc.INVALID_REQUEST, "several messages in an array are not taken", b"[", 0)
_BARE = Malformed(jsonrpc.INVALID_REQUEST, "neither method nor result nor error", b"{", 0)


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
        be seen to be a request is answered in any case, and an unreadable answer fails who waits for it.
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
        self._handler = handler
        self._swift = handler.take if isinstance(handler, Swift) else None
        self._concurrency = concurrency
        self._answer_garbage = answer_garbage
        self.batches = batches
        self._linger = linger
        self._grace = grace
        self._outbox = Outbox(pipe, queue_bytes)
        self._asking = Asking(pipe.name, self._outbox, self.counts, first_id)
        self._serving = Serving(pipe.name, handler, self._outbox, errors)
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gone: AgentGone | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._woken = False
        self._begun: set[asyncio.Future[Any]] = set()

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read and write. Once, on the running loop."""
        self._reader = asyncio.create_task(self._read(), name=f"{self.pipe.name} reader")
        self._writer = asyncio.create_task(self._write(), name=f"{self.pipe.name} writer")
        if self._swift is not None and isinstance(self.pipe, Direct):
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
        for task in self._serving.tasks:  # should they linger
            task.cancel()
        await self.wait_closed()

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """What an answered request has begun: when the other end closes, it gets to finish as those under way do."""
        self._begun.add(work)
        work.add_done_callback(self._begun.discard)

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
        handled = 0
        try:
            while arrived := await self.pipe.receive():
                at, end = 0, len(arrived)
                while at < end:
                    if self._swift is not None and not self._woken:
                        before, at = at, self._swift(arrived, at)
                        handled += at - before
                    if at < end:
                        data = arrived[at]
                        waiting = self._take(jsonrpc.decode(data) if isinstance(data, bytes) else data)
                        if waiting is not None:
                            await waiting
                        at += 1
                        handled += 1
                    if handled >= _BREATH:
                        handled = 0
                        await self._let_run()
            self._finish(AgentGone(f"{self.pipe.name} closed the connection"), self._linger)
        except AgentGone as error:
            self._finish(error, self._linger)
        except Exception as error:
            log.exception("%s: reading failed", self.pipe.name)
            self._finish(AgentGone(f"the connection to {self.pipe.name} failed", detail=repr(error)), 0.0)

    def _taken(self, arrived: Sequence[bytes | Unreadable]) -> Sequence[bytes | Unreadable]:
        """See `Direct.direct`: what the handler takes at once does not wait until the reader has woken."""
        if self._swift is None or self._woken:
            return arrived
        return arrived[self._swift(arrived, 0) :]

    def _take(self, message: jsonrpc.Message | Unreadable) -> Awaitable[None] | None:
        """Handle it. What is returned is to be awaited before the next: notifications, most of all, need no waiting."""
        if type(message) is Notification and not self._woken:
            return self._notified(message)
        if type(message) is Response and self._asking.settle(message):
            self._woken = True
            return None
        return self._take_slowly(message)

    def _notified(self, message: Notification) -> Awaitable[None] | None:
        try:
            waiting = self._handler.notification(message.method, message.params)
        except Exception:
            log.exception("%s: handling %s failed", self.pipe.name, message.method)
            return None
        return None if waiting is None else self._handling(waiting, message.method)

    async def _handling(self, waiting: Awaitable[None], method: str) -> None:
        try:
            await waiting
        except Exception:
            log.exception("%s: handling %s failed", self.pipe.name, method)

    async def _take_slowly(self, message: jsonrpc.Message | Unreadable) -> None:
        if isinstance(message, Notification):
            await self._let_run()
            waiting = self._notified(message)
            if waiting is not None:
                await waiting
        elif isinstance(message, Response):
            if message.bare:
                await self._garbled(_BARE)
            else:
                self._asking.stray(message)
        elif isinstance(message, Request):
            await self._accept(message)
        elif isinstance(message, Malformed | Unreadable):
            await self._garbled(message)
        else:
            await self._take_apart(message)

    async def _take_apart(self, batch: Batch) -> None:
        """The messages of an array. Answers among them are taken in any case: somebody waits for them."""
        answers = Answers(self._outbox)
        noise = not self._answer_garbage and all(isinstance(one, Malformed) for one in batch.messages)
        refused = False
        for one in batch.messages:
            if isinstance(one, Response) or (self.batches and isinstance(one, Notification)):
                waiting = self._take(one)
                if waiting is not None:
                    await waiting
            elif not self.batches:
                refused = True
            elif isinstance(one, Request):
                await self._accept(one, answers)
            elif isinstance(one, Malformed):
                await self._garbled(one, None if noise else answers)
        with contextlib.suppress(AgentGone):
            answers.seal()
        if refused:
            await self._garbled(_BATCH)

    async def _let_run(self) -> None:
        """Let the tasks run that were woken or begun: the loop takes them in that order, and us after them.

        Not after every message, a turn of the loop being dear, but before the next one that is not handled in a task.
        """
        self._woken = False
        await asyncio.sleep(0)

    async def _accept(self, request: Request, answers: Answers | None = None) -> None:
        if len(self._serving) < self._concurrency:
            if answers is not None:
                answers.expect()
            self._serving.accept(request, answers)
            self._woken = True
        else:
            self.counts.refused += 1
            error = ErrorObject(jsonrpc.INTERNAL_ERROR, "too many requests under way; try again later")
            await self._reply(jsonrpc.error(request.id, error), answers)

    async def _garbled(self, what: Unreadable | Malformed, answers: Answers | None = None) -> None:
        """No message; but somebody may wait for what it was meant to be."""
        self.counts.unreadable += 1
        try:
            self._handler.unreadable(what)
        except Exception:
            log.exception("%s: reporting an unreadable message failed", self.pipe.name)
        seen = jsonrpc.glimpse(what.start) if isinstance(what, Unreadable) else what
        code = what.code if isinstance(what, Malformed) else jsonrpc.INVALID_REQUEST
        if seen.id is not UNSET and seen.answer:
            why = AgentBroken(f"the answer of {self.pipe.name} cannot be read: {what.reason}")
            self._asking.fail(seen.id, why)
        elif seen.id is not UNSET and seen.method:
            await self._reply(jsonrpc.error(seen.id, ErrorObject(code, what.reason)), answers)
        elif (self._answer_garbage or answers is not None) and isinstance(what, Malformed):
            await self._reply(jsonrpc.error(None, ErrorObject(code, what.reason)), answers)

    async def _reply(self, message: bytes, answers: Answers | None = None) -> None:
        """An answer by the reader itself, which does not go on while the other end lets its answers lie."""
        if answers is not None:
            answers.expect()
            answers.put(message)
            return
        try:
            self._outbox.put(message)
            async with asyncio.timeout(self._grace):
                await self._outbox.drain()
        except AgentGone:
            return
        except TimeoutError:
            raise AgentGone(f"{self.pipe.name} does not read what it is answered") from None

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
            self._ending = asyncio.create_task(self._end(why, linger), name=f"{self.pipe.name} end")

    async def _end(self, why: AgentGone, linger: float) -> None:
        self._serving.mute()
        try:
            if self._deadline is not None:
                self._deadline.cancel()
            until = asyncio.get_running_loop().time() + linger
            while linger and (left := [*self._serving.tasks, *self._begun]):
                if not (await asyncio.wait(left, timeout=until - asyncio.get_running_loop().time()))[0]:
                    break
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
