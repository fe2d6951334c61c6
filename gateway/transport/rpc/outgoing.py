"""What goes out over a connection: the queue of what is to be written, and our requests, until they are answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, InterlinguaError
from gateway.transport.pipe import Eager, Pipe
from gateway.transport.rpc.handler import Canceller
from gateway.transport.waiting import Deadline, Flag
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Response, RpcError

log = logging.getLogger(__name__)

PAUSE = 0.001
"""Seconds after the last write from which on a message does not wait for others of the same turn of the loop."""
SMALL = 64 * 1024
"""The most bytes to offer to the pipe (see `Eager`). More are sent, waiting until the peer reads them."""


class Outbox:
    """Messages queued for `pipe`. `put` never waits; call `drain` after many.

    limit: bytes that may be queued before `drain` waits, until half of them are written. start: has a task `run`, and
    is called once, when something is to be written after `open` that the pipe does not take at once.
    """

    def __init__(self, pipe: Pipe, limit: int, start: Callable[[], None]) -> None:
        self._pipe = pipe
        self._start: Callable[[], None] | None = start
        self._offer = pipe.offer if isinstance(pipe, Eager) else None
        self._limit = limit
        self._waiting: list[bytes] = []
        self._size = 0  # of what waits and of what is being written
        self._gone: AgentGone | None = None
        self._due = 0.0  # the loop's time from which on a message goes at once
        self._idle = False  # `run` would wait for `_some`
        self._some = Flag()  # the pipe did not take all that it was offered
        self._room = Flag()
        self._room.set()
        self.flowing = True
        """Whether `drain` would neither wait nor raise."""
        self._empty: Flag | None = None  # once `flushed` waits for it
        self._note: Callable[[Sequence[bytes]], None] | None = None

    @property
    def size(self) -> int:
        """Bytes not yet written."""
        return self._size

    def put(self, *messages: bytes) -> None:
        """Send soon. Raises AgentGone when nothing can be sent any more."""
        if self._gone is not None:
            raise AgentGone.of(self._gone)
        if self._note is not None:
            self._note(messages)
        first, size = not self._waiting, sum(map(len, messages))
        later = False
        if first and self._offer is not None:
            loop = asyncio.get_running_loop()
            if later := (now := loop.time()) < self._due:
                loop.call_soon(self._offered)
            else:
                self._due = now + PAUSE
                if self._idle and 0 < size <= SMALL and self._offer(messages):
                    return
        self._waiting += messages
        self._size += size
        if first and not later:
            self._write()
        if self._size > self._limit:
            self.flowing = False
            self._room.clear()

    def tap(self, note: Callable[[Sequence[bytes]], None] | None) -> None:
        """Have `note` called with what is queued, from now on."""
        self._note = note

    async def drain(self) -> None:
        """Wait until there is room. Raises AgentGone."""
        if self.flowing:
            return
        await self._room.wait()
        if self._gone is not None:
            raise AgentGone.of(self._gone)

    async def flushed(self) -> None:
        """Wait until everything is written, or nothing can be any more. Nothing is before `open`."""
        if self._size and (self._idle or self._start is None):
            self._empty = self._empty or Flag()
            await self._empty.wait()

    def close(self, why: AgentGone) -> None:
        """Drop what is queued and send nothing more. The first reason is kept."""
        if self._gone is None:
            self._gone = why
        self.flowing = False
        self._waiting.clear()
        self._written(self._size)

    def open(self) -> None:
        self._idle = True
        if self._waiting:
            self._write()

    async def run(self) -> None:
        """Write until cancelled. Raises AgentGone when the other end has gone."""
        while True:
            self._idle = True
            await self._some.wait()
            self._idle = False
            self._some.clear()
            while self._waiting:
                messages, self._waiting = self._waiting, []
                size = self._size
                await self._pipe.send(messages)
                del messages
                self._written(size)

    def _offered(self) -> None:
        """Offer the queue to the pipe. What it does not take is left to `run`."""
        if not self._waiting:  # closed meanwhile
            return
        if self._idle and self._size <= SMALL and self._offer is not None and self._offer(self._waiting):
            self._waiting = []
            self._written(self._size)
        else:
            self._write()

    def _write(self) -> None:
        self._some.set()
        if self._idle and self._start is not None:
            start, self._start = self._start, None
            start()

    def _written(self, size: int) -> None:
        self._size -= size
        if not self.flowing and self._size <= self._limit // 2:
            self.flowing = self._gone is None
            self._room.set()
        if not self._size and self._empty is not None:
            self._empty.set()


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
        self._alone: Id = None

    def __len__(self) -> int:
        return len(self._pending)

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = None,
        cancel: Canceller | None = None,
        named: Callable[[Id], None] | None = None,
        sink: RequestSink | None = None,
        alone: bool = False,
    ) -> Raw:
        """Send a request and wait for its result. `params` is any value msgspec encodes, or a Raw.

        The request is queued before the first wait, and `named` is called with its id. If the timeout (seconds) passes
        or the caller is cancelled, the notification that `cancel` makes is sent. Leaves nothing here, however it ends.
        `sink` replaces the `outbox`. alone: nothing else is said until it is answered, so an error without an id is the
        answer.

        Raises RpcError for an error answer, AgentTimeout, AgentBroken if the answer cannot be read, AgentGone when
        the connection ends first.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        sink = sink or self._outbox
        id = self.send(method, params, partial(_wake, future), sink)
        if named is not None:
            named(id)
        if alone:
            self._alone = id
        try:
            with Deadline(timeout):
                answer = await future
        except TimeoutError:
            if not future.done() or future.cancelled():
                raise AgentTimeout(f"{self._name} did not answer {method} within {timeout or 0:g} seconds") from None
            answer = future.result()  # it came while the time ran out
        finally:
            if alone:
                self._alone = None
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
        self._pending.pop(id, None)

    def settle(self, response: Response) -> bool:
        """Give an answer to its request. False if none waits. A number out of range makes it unreadable."""
        error = response.error
        if error is not None:
            id = self._alone if response.id is None else response.id
            return self._set(id, RpcError(error.code, error.message, error.data))
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
