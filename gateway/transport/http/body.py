"""A response whose body arrives: read with limits, an idle timeout and decompression."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from gateway.core.errors import AgentBroken, AgentTimeout
from gateway.transport.deadline import CLOCK_SLACK
from gateway.transport.http.response import media_type

if TYPE_CHECKING:
    from gateway.transport.http.connection import WireResponse
    from gateway.transport.tap import BodyNotes

_COMPRESSED = ("gzip", "x-gzip", "deflate")
PIECE = 256 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # told apart by their first bytes
_MAX_MEMBERS = 16  # a gzip file may be several; each one costs a copy of what follows it


class StreamResponse:
    """A response whose body is still arriving. Valid inside `async with client.stream(...)`, used by one task.

    Made by `HttpClient`. Raises AgentBroken at once for an encoding that was not asked for, or an announced length over
    `max_bytes`.
    """

    __slots__ = (
        "_gunzip",
        "_idle_timeout",
        "_left",
        "_loop",
        "_max_bytes",
        "_response",
        "_timer",
        "_waiting_since",
        "headers",
        "status",
    )

    def __init__(
        self,
        response: WireResponse,
        loop: asyncio.AbstractEventLoop,
        *,
        max_bytes: int,
        idle_timeout: float | None = None,
    ) -> None:
        self._response = response
        self._max_bytes = self._left = max_bytes
        self._idle_timeout = idle_timeout
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_since: float | None = None
        self._gunzip: Gunzip | None = None
        self.status = response.status
        headers = self.headers = response.headers
        encoding = headers.get("content-encoding")
        if encoding and encoding.lower() != "identity":
            if encoding.lower() not in _COMPRESSED:
                raise AgentBroken("the agent's answer is in a content encoding not asked for")
            self._gunzip = Gunzip()
        elif not response.whole and int(headers.get("content-length", 0)) > max_bytes:
            raise self._too_large(max_bytes)

    @property
    def whole(self) -> bool:
        """Whether nothing more will arrive than `chunks` gives without waiting."""
        return self._gunzip is None and self._response.whole

    @property
    def exhausted(self) -> bool:
        """Whether `chunks` has given the body to its end."""
        return self._gunzip is None and self._response.exhausted

    @property
    def content_type(self) -> str:
        """The content type in lower case without its parameters, "" if there is none."""
        return media_type(self.headers)

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, without delay and never b"".

        Bytes that arrived before an error are yielded before it is raised. Raises AgentTimeout if nothing arrives for
        the stream's `idle_timeout` (the time that the caller takes does not count), AgentGone if the
        agent closes before the end, AgentBroken if the body is malformed or over the limit. Leaving
        the loop early is fine: leaving the `async with` closes the connection.
        """
        return self

    def __aiter__(self) -> StreamResponse:
        return self

    async def __anext__(self) -> bytes:
        if self._gunzip is not None:
            chunk = await self._inflate(self._gunzip)
        else:
            chunk = await (self._response.receive() if self._idle_timeout is None else self._receive())
        if not chunk:
            raise StopAsyncIteration
        return self._counted(chunk)

    def _counted(self, chunk: bytes) -> bytes:
        self._left -= len(chunk)
        if self._left < 0:
            self.close()
            raise self._too_large(self._max_bytes)
        return chunk

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        """Give `take` the pieces that `chunks` would give, each from where it comes off the socket: no task is woken
        for it. True as soon as `take` has returned false, False at the end. What `take` raises is raised here; it
        runs in this task's context, and must not wait.
        """
        response = self._response
        if not response.over and self._gunzip is None and self._idle_timeout is None:
            stopped = self._loop.create_future()
            run = copy_context().run

            def arrived() -> None:
                try:
                    while not stopped.done() and (data := response.take()):
                        if not run(take, self._counted(data)):
                            stopped.set_result(True)
                    if response.over and not stopped.done():
                        stopped.set_result(False)
                except Exception as error:
                    stopped.set_exception(error)

            response.listen(arrived)
            try:
                arrived()
                if await stopped:
                    return True
            finally:
                response.listen(None)
        async for chunk in self:
            if not take(chunk):
                return True
        return False

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Read the rest of the body, e.g. of an error. Raises as `chunks` does.

        AgentBroken if it is larger than `max_bytes` (default: the stream's own limit).
        """
        if max_bytes is not None and max_bytes < self._left:
            self._left = self._max_bytes = max_bytes
        parts = [chunk async for chunk in self]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Release the connection: to the pool if the body is complete, otherwise close it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._response.close()

    async def _inflate(self, gunzip: Gunzip) -> bytes:
        while not (piece := gunzip.take()):
            chunk = await self._receive()
            if not chunk:
                gunzip.finish()
                return b""
            gunzip.feed(chunk)
        return piece

    async def _receive(self) -> bytes:
        """Return the bytes that have arrived, or wait for the next; b"" at the end."""
        if self._idle_timeout is None:
            return await self._response.receive()
        now = self._waiting_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._idle_timeout, self._on_idle)
        try:
            return await self._response.receive()
        finally:
            self._waiting_since = None

    def _on_idle(self) -> None:
        """Check the idle time now and then, which is cheaper than a timer for every chunk."""
        self._timer = None
        since, idle = self._waiting_since, self._idle_timeout
        if since is None or idle is None:
            return
        due = since + idle
        if self._loop.time() < due - CLOCK_SLACK:
            self._timer = self._loop.call_at(due, self._on_idle)
        else:
            self._response.fail(AgentTimeout(f"the agent sent nothing for {idle:g} s"))

    def _too_large(self, limit: int) -> AgentBroken:
        return AgentBroken(f"the agent's answer is larger than {limit} bytes")


class NotedResponse(StreamResponse):
    """The same, with notes taken of it."""

    __slots__ = ("_notes",)

    def __init__(self, notes: BodyNotes, response: WireResponse, loop: asyncio.AbstractEventLoop, **how: Any) -> None:
        super().__init__(response, loop, **how)
        self._notes = notes

    def _counted(self, chunk: bytes) -> bytes:
        self._notes.feed(chunk)
        return super()._counted(chunk)

    def close(self) -> None:
        self._notes.end()
        super().close()


class Gunzip:
    """Decompresses one gzip or zlib body: `feed` input, `take` until it returns nothing, `finish` at the end.

    Output comes in pieces of at most PIECE bytes, so a small body cannot fill the memory. A bad body raises
    AgentBroken.
    """

    __slots__ = ("_input", "_members", "_started", "_z")

    def __init__(self) -> None:
        self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._input = b""
        self._members = 1
        self._started = False

    def feed(self, data: bytes) -> None:
        """Add compressed input."""
        self._started = True
        self._input = self._input + data if self._input else data

    def take(self) -> bytes:
        """Return the next piece, at most PIECE bytes; b"" if more input is needed."""
        while self._input:
            if self._z.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise AgentBroken("the agent's answer is compressed in too many pieces")
                self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = self._z.decompress(self._input, PIECE)
            except zlib.error as exc:
                message = "the agent's answer cannot be decompressed"
                raise AgentBroken(message, detail=str(exc)) from exc
            self._input = self._z.unused_data if self._z.eof else self._z.unconsumed_tail
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """End the body. Raises AgentBroken if the compressed data is incomplete."""
        if self._started and not self._z.eof:
            raise AgentBroken("the agent's compressed answer ends too early")
