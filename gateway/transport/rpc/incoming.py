"""Reads the messages of one Peer in their order; those that nothing has to wait for without waking its task."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET, Raw, UnsetType

from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError, Invalid
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc.handler import Handler, RequestWitness, Swift
from gateway.transport.rpc.outgoing import Outbox, OutgoingRequests
from gateway.transport.tap import PeerTap, about
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, MessageBatch, Notification, Request, Response, RpcError

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


Serve: TypeAlias = Callable[[str, Raw, Id], Awaitable[Any]]
"""See `Handler.request`."""
CROWDED = ErrorObject(jsonrpc.INTERNAL_ERROR, "too many requests under way; try again later")


class IncomingRequests:
    """The other end's requests under way, by task."""

    def __init__(self, name: str, errors: Callable[[Exception], ErrorObject] = plain_errors) -> None:
        self._name = name
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

    def accept(self, request: Request, serve: Serve, to: AnswerSink) -> None:
        """Have `serve` serve a request in a task, from the next turn of the loop on. `to` takes its answer."""
        work = self._serve(request, serve, to)
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {request.method}")
        self._tasks[task] = request.id
        task.add_done_callback(self._served)

    def cancel(self, id: Id) -> bool:
        """Implements `Peer.cancel_incoming`. If several requests have the id, cancels all of them."""
        wanted = [task for task, its in self._tasks.items() if its == id and not isinstance(id, bool)]
        for task in wanted:
            self.stop(task)
        return bool(wanted)

    def stop(self, task: asyncio.Task[None]) -> None:
        """Cancel a request, if it is not yet: a second time would hit it while it cleans up."""
        if task not in self._cancelled:
            self._cancelled[task] = None
            task.cancel()

    def mute(self) -> None:
        """Do not answer requests cancelled from now on, because the connection ends."""
        self._mute = True

    async def _serve(self, request: Request, serve: Serve, to: AnswerSink) -> None:
        try:
            value = await serve(request.method, request.params, request.id)
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


_BREATH = 256
"""Messages after which the reader lets other tasks run, even if its pipe never makes it wait."""
_BATCH = Malformed(jsonrpc.INVALID_REQUEST, "several messages in an array are not taken", b"[", 0)
_BARE = Malformed(jsonrpc.INVALID_REQUEST, "neither method nor result nor error", b"{", 0)


class MessageReader:
    """Reads `pipe`: gives requests to `serving`, answers to `asking` and everything else to `handler`.

    The other parameters are Peer's.
    """

    def __init__(
        self,
        pipe: Pipe,
        handler: Handler,
        *,
        outbox: Outbox,
        asking: OutgoingRequests,
        serving: IncomingRequests,
        concurrency: int,
        answer_garbage: bool,
        batches: bool,
        grace: float,
        failed: Callable[[Exception], None],
    ) -> None:
        self.batches = batches
        self.unreadable = self.refused = 0
        """Counted so far: input that was not a message, requests refused because too many were under way."""
        self._swift = handler.take if isinstance(handler, Swift) else None
        self._tap: PeerTap | None = None
        self._witness = handler if isinstance(handler, RequestWitness) else None
        self._pipe = pipe
        self._handler = handler
        self._serve = handler.request
        self._outbox = outbox
        self._asking = asking
        self._serving = serving
        self._concurrency = concurrency
        self._answer_garbage = answer_garbage
        self._grace = grace
        self._failed = failed
        self._woken = self._stopped = False
        # that the other end prints each message twice, once in a log; the last answer that was found behind a text
        self._copies = False
        self._found: jsonrpc.Id | UnsetType = UNSET
        # what the next message waits for, of which method: else it is handled
        self._begun: tuple[Awaitable[None], str] | None = None

    def take_batches(self, taken: bool) -> None:
        self.batches = taken

    def tap(self, notes: PeerTap | None) -> None:
        """Note every message from now on, and handle one after the other."""
        self._tap = notes

    def stop(self) -> None:
        """The connection ends: drop what arrives from now on, so that the other end can write, and read what we do."""
        self._stopped = True

    async def run(self) -> None:
        """Read until the other end closes. Raises AgentGone, also if the other end reads no answers."""
        handled = 0
        try:
            while arrived := await self._pipe.receive():
                at, end = 0, len(arrived)
                while at < end and not self._stopped:
                    if self._begun is None:
                        before, at = at, self._pass(arrived, at)
                        handled += at - before
                    if handled >= _BREATH:
                        handled = 0
                        await self._let_run()
                    elif at < end:
                        data, at = arrived[at], at + 1
                        handled += 1
                        if self._begun is not None:
                            await self._finish_begun()
                            continue
                        with contextlib.nullcontext() if self._tap is None else about(self._tap.heard(data)):
                            for message in self._decode(data):
                                await self._take(message)
        finally:
            if self._begun is not None and inspect.iscoroutine(self._begun[0]):
                self._begun[0].close()

    def at_once(self, arrived: Sequence[bytes | Unreadable]) -> Sequence[bytes | Unreadable]:
        """Handle messages before the reader's task has woken. Passed to `Direct.direct`."""
        if self._stopped:
            return []
        try:
            return arrived[self._pass(arrived, 0) :]
        except Exception as error:
            self._failed(error)
            return []

    def _pass(self, arrived: Sequence[bytes | Unreadable], at: int) -> int:
        """Handle messages from `at` on, up to the first that something has to wait for. Returns its place."""
        end = min(len(arrived), at + _BREATH)
        while at < end and self._tap is None:
            if self._swift is not None and not self._woken and (at := self._swift(arrived, at)) >= end:
                break
            data = arrived[at]
            if not isinstance(data, bytes) or not self._taken(jsonrpc.decode(data)):
                break
            at += 1
        return at

    def _taken(self, message: jsonrpc.Message | Unreadable) -> bool:
        """Handle a message at once. False if it cannot be, or is to be waited for: then see `_take`."""
        if type(message) is Notification:
            if self._woken:
                return False
            try:
                waiting = self._handler.notification(message.method, message.params)
            except Exception:
                log.exception("%s: handling %s failed", self._pipe.name, message.method)
                return True
            self._begun = None if waiting is None else (waiting, message.method)
            return waiting is None
        if type(message) is Request and len(self._serving) < self._concurrency:
            self._serving.accept(message, self._serve, self._outbox)
        elif type(message) is not Response or not self._asking.settle(message):
            return False
        self._wake()
        return True

    def _decode(self, data: bytes | Unreadable) -> Sequence[jsonrpc.Message | Unreadable]:
        if isinstance(data, Unreadable):
            return (data,)
        if self._answer_garbage or self._copies:
            return (jsonrpc.decode(data),)
        *before, found = jsonrpc.apart(data)
        if before and isinstance(found, Request):
            self._copies = self._asking.asked(found.id, found.method)
        elif before and isinstance(found, Response):
            self._copies, self._found = not self._asking.asked(found.id), found.id
        return (jsonrpc.decode(data),) if self._copies else (*before, found)

    async def _take(self, message: jsonrpc.Message | Unreadable) -> None:
        """Handle a message, and wait for what it takes."""
        if self._taken(message):
            return
        if self._begun is not None:
            await self._finish_begun()
        elif isinstance(message, Notification):
            await self._let_run()
            await self._take(message)
        elif isinstance(message, Response):
            if message.bare:
                await self._garbled(_BARE)
            else:
                self._copies = self._copies or message.id == self._found
                self._asking.stray(message)
        elif isinstance(message, Request):
            await self._accept(message)
        elif isinstance(message, Malformed | Unreadable):
            await self._garbled(message)
        else:
            await self._take_apart(message)

    async def _finish_begun(self) -> None:
        """Wait for what a notification takes that `_taken` has begun."""
        assert self._begun is not None, "called where there is one"
        (waiting, method), self._begun = self._begun, None
        try:
            await waiting
        except Exception:
            log.exception("%s: handling %s failed", self._pipe.name, method)

    async def _take_apart(self, batch: MessageBatch) -> None:
        """Handle the messages of an array. Answers are always taken, since a request waits for each."""
        answers = BatchAnswers(self._outbox)
        noise = not self._answer_garbage and all(isinstance(one, Malformed) for one in batch.messages)
        refused = False
        for one in batch.messages:
            if isinstance(one, Response) or (self.batches and isinstance(one, Notification)):
                await self._take(one)
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
        """Let the tasks run that were woken or started: the loop runs them in that order, then continues here.

        A turn of the loop is expensive, so this is not done after every message but before the next one that is not
        handled in a task of its own.
        """
        self._woken = False
        await asyncio.sleep(0)

    def _wake(self) -> None:
        """Tasks were woken or started. They have run once the loop has come to what it is asked for here."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._ran)

    def _ran(self) -> None:
        self._woken = False

    async def _accept(self, request: Request, answers: BatchAnswers | None = None) -> None:
        if len(self._serving) < self._concurrency:
            if answers is not None:
                answers.expect()
            self._serving.accept(request, self._serve, answers or self._outbox)
            self._wake()
        else:
            self.refused += 1
            if self._witness is not None:
                self._witness.refused(request, CROWDED)
            await self._reply(jsonrpc.error(request.id, CROWDED), answers)

    async def _garbled(self, what: Unreadable | Malformed, answers: BatchAnswers | None = None) -> None:
        """Deal with input that is not a message. If it looks like an answer or a request, fail or answer that."""
        self.unreadable += 1
        try:
            self._handler.unreadable(what)
        except Exception:
            log.exception("%s: reporting an unreadable message failed", self._pipe.name)
        seen = jsonrpc.glimpse(what.start, what.end) if isinstance(what, Unreadable) else what
        code = what.code if isinstance(what, Malformed) else jsonrpc.INVALID_REQUEST
        if seen.id is not UNSET and seen.answer:
            why = AgentBroken(f"the answer of {self._pipe.name} cannot be read: {what.reason}")
            self._asking.fail(seen.id, why)
        elif seen.id is not UNSET and seen.method:
            await self._reply(jsonrpc.error(seen.id, ErrorObject(code, what.reason)), answers)
        elif isinstance(what, Malformed) and (
            self._answer_garbage or answers is not None or what.reason == jsonrpc.EMPTY_BATCH
        ):
            await self._reply(jsonrpc.error(None, ErrorObject(code, what.reason)), answers)

    async def _reply(self, message: bytes, answers: BatchAnswers | None = None) -> None:
        """Send an answer from the reader, and wait while the other end does not read its answers."""
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
            raise AgentGone(f"{self._pipe.name} does not read what it is answered") from None
