"""One HTTP/1.1 connection to an agent: an asyncio protocol around httptools' parser, one exchange at a time.

`exchange` sends a request and returns when the head of its response has arrived. A head and a small body are one write;
a larger body goes out as fast as the agent reads it, while the response is awaited. Heads with a status below 200 are
skipped. What has arrived waits in the `StreamResponse`; the socket is not read while more than HELD_BYTES wait there.

A connection serves the next request only after a response that ended where its framing says, with nothing after it:
bytes that nobody asked for close it, so they cannot become the next request's response. A head is refused if its
framing is ambiguous (`Content-Length` beside `Transfer-Encoding`, repeated lengths, a transfer encoding other than
chunked), if it has control characters or folded lines, or if it is longer than HEAD_BYTES. Its lines may end with a
bare line feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import lru_cache
from typing import cast

import httptools

from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.transport.http.outgoing import Pieces
from gateway.transport.http.response import ResponseHeaders, StreamResponse

HEAD_BYTES = 64 * 1024
"""The longest head, and the most bytes of trailers, of interim responses or of chunk extensions in one go."""

QUIET_BYTES = 2 * HEAD_BYTES
"""The most bytes between two of the body."""


_read_before = lru_cache(maxsize=64)(ResponseHeaders)
"""Most heads of an agent are alike, but for a date each second."""


class StaleConnection(AgentGone):
    """A kept connection was closed before a byte of the response came: the agent has likely not seen the request."""


class CallConnection(asyncio.Protocol):
    """`name` is the agent's host:port, for errors. `over` is told once for each exchange that it has ended, and whether
    the connection can serve another; `lost` that the connection is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        *,
        over: Callable[[CallConnection, bool], None],
        lost: Callable[[CallConnection], None],
    ) -> None:
        self.loop = loop
        self._name = name
        self._tell_over = over
        self._tell_lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._exchanges = 0
        self._busy = False  # a response is awaited, or its end
        self.paused = False
        """Whether the socket is not read for now."""
        self._writable: asyncio.Future[None] | None = None  # while the agent reads too slowly
        self._sending: asyncio.Task[None] | None = None
        self._start("")

    def _start(self, method: str) -> None:
        self._method = method
        self._head: asyncio.Future[StreamResponse] | None = None  # until the head has come
        self._named = 0  # bytes of headers and trailers
        self._quiet = 0  # bytes since the last one of the body
        self._headers: list[tuple[bytes, bytes]] | None = []  # None after the head
        self._interim = False
        self._until_close = False
        self._response: StreamResponse | None = None
        self._body: list[bytes] = []  # of this read
        self._ended = False
        self._keep = False
        self._fault: str | None = None

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, method: str, head: bytes, body: bytes | Pieces, *, chunked: bool) -> StreamResponse:
        """Send a request, and return when the head of its response has arrived.

        Raises AgentGone, AgentBroken, or what kept the body from being sent. Afterwards, and if this is cancelled, the
        connection is closed.
        """
        transport = self._transport
        self._start(method)
        self._exchanges += 1
        number = self._exchanges
        self._busy = True
        future: asyncio.Future[StreamResponse] = self.loop.create_future()
        self._head = future
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            self._parser.set_dangerous_leniencies(
                lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
            )
        try:
            if transport is None or transport.is_closing():
                raise self._gone(None)
            if isinstance(body, bytes):
                transport.write(head + body)
            else:
                transport.write(head)
                self._sending = self.loop.create_task(self._send(transport, body, chunked))
            return await future
        except BaseException:
            if future.done() and not future.cancelled():
                future.exception()  # this task was cancelled after it was set
            if self._busy and self._exchanges == number:  # else the connection is another request's by now
                self._head = None
                self.fail(AgentGone(f"the connection to {self._name} was closed"))
            raise

    async def _send(self, transport: asyncio.Transport, pieces: Pieces, chunked: bool) -> None:
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if piece:
                        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    if self._writable is not None:
                        await self._writable
            if chunked:
                transport.write(b"0\r\n\r\n")
        except InterlinguaError as error:
            self.fail(error)
        except Exception as error:
            self.fail(AgentGone(f"the request to {self._name} could not be sent whole", detail=repr(error)))
        finally:
            self._sending = None

    def fail(self, error: InterlinguaError) -> None:
        """Close the connection. The exchange under way ends with `error`."""
        if self._transport is not None:
            self._transport.abort()
        if self._busy:
            self._finish(error)

    # -- of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        parser = self._parser
        if not self._busy or parser is None:
            if self._transport is not None:
                self._transport.abort()
            return
        self._quiet += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._ended:
                self._keep = False
            elif self._fault is None:
                self._fault = str(error)
        if self._quiet > QUIET_BYTES and not self._ended:
            self._fault = self._fault or "a head without end"
        response = self._response
        if response is not None:
            if (head := self._head) is not None:
                self._head = None
                if not head.done():
                    head.set_result(response)
            if self._body:
                body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                self._body.clear()
                response.feed(body)
                if response is not self._response:
                    return  # who took the bytes has closed it
        if self._fault is not None:
            message = "did not answer in HTTP" if response is None else "sent a malformed body"
            self.fail(AgentBroken(f"{self._name} {message}", detail=self._fault))
        elif self._ended:
            self._finish(None)

    def eof_received(self) -> None:
        """See asyncio."""
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if self._busy:
            self._finish(None if self._until_close and exc is None and self._response else self._gone(exc))
        self.resume_writing()
        self._parser = None  # it refers to this object
        self._tell_lost(self)

    def pause_writing(self) -> None:
        """See asyncio."""
        if self._writable is None:
            self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """See asyncio."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def wait(self) -> None:
        """Stop reading the socket until `read_on`, or until the exchange is over."""
        if not self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read the socket again."""
        if self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = False
            self._transport.resume_reading()

    def _gone(self, exc: Exception | None) -> AgentGone:
        """The reason for which a response is not whole when the connection has ended."""
        detail = repr(exc) if exc is not None else ""
        if self._response is not None:
            return AgentGone(f"{self._name} closed the connection in mid-answer", detail=detail)
        kind = StaleConnection if self._exchanges > 1 and not self._quiet else AgentGone
        if exc is not None:
            return kind(f"the connection to {self._name} was lost", detail=detail)
        return kind(f"{self._name} closed the connection without an answer")

    def _finish(self, error: InterlinguaError | None) -> None:
        """End the exchange. The connection is kept if nothing speaks against it."""
        self._busy = False
        transport = self._transport
        keep = error is None and self._keep and self._sending is None
        if not keep or transport is None or transport.is_closing():
            keep = False
            if transport is not None:
                transport.abort()
            if self._sending is not None:
                self._sending.cancel()
        if self.paused:  # the end may have come in the read that filled it
            self.read_on()
        head, self._head = self._head, None
        response, self._response = self._response, None
        self._tell_over(self, keep)
        if head is not None and not head.done() and error is not None:
            head.set_exception(error)
        if response is not None:
            response.end(error)

    # -- of the parser

    def on_message_begin(self) -> None:
        """A response begins."""
        if self._ended:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer has come."""
        self._named += len(name) + len(value) + 4
        if self._named > HEAD_BYTES and not self._ended:
            self._fault = self._fault or "a head that is too long"
        if self._headers is not None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head has come."""
        parser, lines = self._parser, self._headers
        if self._ended or self._fault is not None or parser is None or lines is None:
            return
        status = parser.get_status_code()
        version = parser.get_http_version()
        if 100 <= status < 200 and status != 101:
            self._interim, self._headers = True, []
            return
        headers = _read_before(tuple(lines))
        encodings = headers.getall("transfer-encoding")
        if version not in ("1.1", "1.0"):
            self._fault = f"HTTP/{version}"
        elif status < 200:
            self._fault = f"status {status}, which was not asked for"
        elif encodings and (len(encodings) > 1 or encodings[0].lower() != "chunked" or version == "1.0"):
            self._fault = "a transfer encoding other than chunked"
        if self._fault is not None:
            return
        self._headers = None
        self._response = StreamResponse(self, status, headers)
        if self._method == "HEAD":
            self._ended = True
            self._keep = parser.should_keep_alive()
            self._parser = None  # it expects a body
        else:
            bodiless = status in (204, 304)
            self._until_close = not bodiless and not encodings and "content-length" not in headers

    def on_body(self, data: bytes) -> None:
        """Bytes of the body have come."""
        if self._ended:
            self._keep = False
        elif self._fault is None:
            self._quiet = 0
            self._body.append(data)

    def on_message_complete(self) -> None:
        """A response has come whole."""
        if self._interim:
            self._interim = False
        elif self._parser is not None and not self._ended:
            self._ended = True
            self._keep = self._parser.should_keep_alive()
