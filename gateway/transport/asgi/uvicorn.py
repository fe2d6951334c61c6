"""uvicorn's HTTP protocol, with limits on memory and waiting, and a direct line for what takes no waiting.

uvicorn receives a body and sends a piece by coroutines and messages; here both are plain calls (`body`, `put`), and so
are the beginning and the end of an answer in pieces (`begin`, `end`). It writes the head of an answer and what follows
it one after the other; here a whole answer is one call and one write (`answer`). Its parser keeps a head or a trailer
that never ends, at a cost that grows with the square of its length, and waits for ever for the rest of a request; here
both have limits. It sets a timer after each answer; here one that fires too early is set anew. All else is uvicorn's,
also how long a connection is kept between requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Literal, cast

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.transport.asgi.request import EXTENSION, Headers, Reply, headers_of
from gateway.transport.waiting import CLOCK_SLACK, Flag, Timer

HEAD_LIMIT = 64 * 1024
"""Bytes of a head, or of trailers, after which the request is refused. One read is always taken whole."""

LOOK_SECONDS = 10.0
"""Seconds between two looks at a connection. A limit in seconds ends with the first look after it."""
HEAD_SECONDS = 60.0
"""For a whole head, and for a connection's first byte. As long as nginx and Node wait."""
SILENT_SECONDS = 120.0
"""For the next byte of a body that is not whole, however long the whole takes."""
PIPELINED = 16
"""Requests of one connection that wait for others of it, from which on no more is read."""

JOINED: Final = 64 * 1024
"""The longest body that is copied to go out with its head. The system is given no more at a time anyway."""
FOREVER: Final = 10 * 365 * 24 * 3600
"""Seconds that a worker keeps a connection on which nothing is asked: who opened it lets go of it."""
BODILESS: Final = (204, 304)
FRAMING: Final = frozenset((b"connection", b"content-length", b"transfer-encoding"))
"""Headers that say where an answer ends."""
PROXIED: Final = frozenset((b"x-forwarded-for", b"x-forwarded-proto"))
"""The headers that uvicorn's `proxy_headers` reads."""
FROM: Final = b"interlingua-from"
"""The header that has the origin of a request which another process of the gateway hands over."""


class AwaitedInput(Enum):
    """The input that the server waits for."""

    BEGINNING = "beginning"
    HEAD = "head"
    BODY = "body"

    @property
    def limit(self) -> float:
        """Seconds."""
        return SILENT_SECONDS if self is AwaitedInput.BODY else HEAD_SECONDS


class OneWrite:
    """A connection's transport. An answer's head goes out with what is written in the same turn of the loop.

    The cost of a write is the system's, nearly whatever it holds.
    """

    __slots__ = ("_loop", "_transport", "head", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self._loop = loop
        self.head = b""

    def write(self, data: bytes) -> None:
        """Write, or hold a head until the next write."""
        if data.startswith(b"HTTP/") and not self.head:
            self.head = data
            self._loop.call_soon(self.flush)
        else:
            self.whole(data)

    def whole(self, data: bytes) -> None:
        """Write what is no head alone."""
        head, self.head = self.head, b""
        self._transport.write(head + data if head else data)

    def flush(self) -> None:
        """Write a head that is held."""
        if self.head:
            self.whole(b"")

    def close(self) -> None:
        """Close after what was written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Pipeline(list[Any]):
    """The requests that wait for others of their connection. A deque has 600 bytes while it is empty."""

    __slots__ = ()

    def appendleft(self, waiting: Any) -> None:
        """See `collections.deque`."""
        self.insert(0, waiting)


class Flow(FlowControl):
    """uvicorn's, without the queue that an event of asyncio has from the outset. Reads no further while many
    requests wait: each takes a hundred times what its client sends for it.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Pipeline) -> None:
        super().__init__(transport)
        self._is_writable_event = Flag()  # type: ignore[assignment]
        self._is_writable_event.set()
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Called whenever a request is answered, or waits for its client to go."""
        if len(self._pipeline) <= PIPELINED:
            super().resume_reading()


class PieceProtocol(HttpToolsProtocol):
    """For uvicorn's option `http`. Our attributes are slots: an object with more than thirty others has a table of its
    own for them, of 1.5 KB.
    """

    __slots__ = (
        *("_bare", "_earlier", "_ended", "_idle_since", "_idle_timer"),
        *("_kept", "_looks", "_one_write", "_owed", "_timer", "_told"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept = 0
        """Bytes that came since the parser last gave some on."""
        self._looks = 0
        """Looks in a row at which the same was owed, with no byte of it between."""
        self._owed: AwaitedInput | None = None
        """At the last look."""
        self._ended = False
        """Whether the client was given up."""
        self._timer: Timer | None = None
        self._idle_since: float | None = None
        """The loop's time, between an answer and the next byte."""
        self._idle_timer: Timer | None = None
        self._told: Callable[[], None] | None = None
        """See `watch`."""
        self._earlier: list[RequestResponseCycle] = []
        """Requests before `cycle` that may not be answered yet. uvicorn itself forgets the one that is being served."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer that looks at the connection. No request has to set one."""
        super().connection_made(transport)
        self.transport = self._one_write = OneWrite(transport, self.loop)  # type: ignore[assignment]
        self.pipeline, self.flow = (waiting := Pipeline()), Flow(transport, waiting)  # type: ignore[assignment]
        self._bare = transport
        self._timer = Timer(self.loop, LOOK_SECONDS, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and tell the application, whichever of the client's requests it serves."""
        self._stop_looking()
        super().connection_lost(exc)
        for cycle in self._earlier:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._tell()

    def handle_websocket_upgrade(self) -> None:
        """Refuse an upgrade before the last request was answered: it would be written into that answer.

        After it the connection is another protocol's, and not looked at.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.logger.warning("An upgrade was asked for before the request before it was answered.")
            self.transport.close()
            return
        self._stop_looking()
        self.transport = self._bare
        super().handle_websocket_upgrade()

    def _stop_looking(self) -> None:
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._idle_timer = None

    def look(self) -> None:
        """End the connection if its client has owed something for too long."""
        self._timer = Timer(self.loop, LOOK_SECONDS, self.look)
        if self._ended:  # it does not take what was sent to it either
            self.transport.abort()
        if self.transport.is_closing():
            return
        if self._told is not None and len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()  # a request that came meanwhile has paused it: nobody would see the end
        owed = self._owes()
        self._looks = self._looks + 1 if owed is self._owed else 1
        self._owed = owed
        if owed is None or (self._looks - 1) * LOOK_SECONDS < owed.limit:
            return
        self._ended = True
        if owed is AwaitedInput.BEGINNING:  # browsers connect in advance: an answer would be read as a later one
            self.transport.close()
        elif owed is AwaitedInput.HEAD:
            self._refuse(f"The request's head was not whole after {owed.limit:g} seconds.")
        else:
            self._refuse(f"Nothing more of the request's body came for {owed.limit:g} seconds.")

    def _owes(self) -> AwaitedInput | None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if self.scope is not None and (cycle is None or cycle.scope is not self.scope):
                return AwaitedInput.HEAD
            # Between requests the idle timer runs, unless bytes have come since that begin none.
            return AwaitedInput.BEGINNING if self._idle_since is None else None
        # In the pipeline it is if another answer comes first, which may take its time.
        ours = cycle.response_started or cycle.waiting_for_100_continue or self.flow.read_paused or self.pipeline
        return AwaitedInput.BODY if cycle.more_body and not ours else None

    def _refuse(self, said: str) -> None:
        """Answer 408 in plain text, and close."""
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(said)
        self.transport.write(STATUS_LINE[408] + head + said.encode("ascii"))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Refuse a head that does not end."""
        self._kept += len(data)
        self._idle_since = None
        super().data_received(data)
        if self._kept > HEAD_LIMIT and not self.transport.is_closing():
            said = f"A head of more than {HEAD_LIMIT} bytes."
            self.logger.warning(said)
            self.send_400_response(said)

    def on_body(self, body: bytes) -> None:
        """Start counting anew: the parser keeps nothing of a body."""
        self._kept = self._looks = 0
        if self._told is None or self.pipeline:
            super().on_body(body)  # else nobody reads it, and kept it would stop the reading

    def on_message_complete(self) -> None:
        """Start counting anew: the request is whole."""
        self._kept = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin the next request of a pipeline, or note since when there is none. None is counted: no limit is set."""
        if self.pipeline or self.transport.is_closing():
            return super().on_response_complete()
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = Timer(self.loop, self.timeout_keep_alive, self.look_whether_idle)

    def look_whether_idle(self) -> None:
        """Close the connection if nothing was asked on it for its time."""
        self._idle_timer = None
        if self._idle_since is None:
            return
        due = self._idle_since + self.timeout_keep_alive
        if self.loop.time() < due - CLOCK_SLACK:
            self._idle_timer = Timer(self.loop, due - self.loop.time(), self.look_whether_idle)
        else:
            self.timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        """Put this protocol into the scope, for `HttpRequest`."""
        self._looks = 0
        if self.cycle is not None and not self.cycle.response_complete:
            while self._earlier and self._earlier[0].response_complete:
                self._earlier.pop(0)
            self._earlier.append(self.cycle)
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]

    def body(self, most: int) -> bytes | None:
        """See `DirectLine`."""
        cycle = self.cycle
        if cycle.more_body or self.pipeline or self.flow.read_paused or len(cycle.body) > most:
            return None
        body = bytes(cycle.body)
        cycle.body.clear()
        return body

    def put(self, piece: bytes) -> bool:
        """See `DirectLine`."""
        cycle = self.cycle
        if not cycle.chunked_encoding or self.flow.write_paused or cycle.disconnected or self.pipeline:
            return False
        transport = self._one_write if self._one_write.head else self._bare
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def answer(self, reply: Reply, extra: Headers) -> bool:
        """See `DirectLine`."""
        body = reply.body
        content = self._head(reply.status, (*reply.headers, *extra) if reply.headers or extra else ())
        if content is None:
            return False
        if not body:
            content += b"\r\n" if reply.status == 204 else b"content-length: 0\r\n\r\n"
        else:
            content += b"content-length: %d\r\ncontent-type: %b\r\n\r\n" % (len(body), reply.kind)
            if len(body) > JOINED:
                self._one_write.whole(content)
                content = body
            else:
                content += body
        self._last(content)
        return True

    def begin(self, status: int, headers: Headers) -> bool:
        """See `DirectLine`."""
        content = None if status in BODILESS else self._head(status, headers)
        if content is None:
            return False
        self.cycle.chunked_encoding = True
        self._one_write.write(content + b"transfer-encoding: chunked\r\n\r\n")
        return True

    def end(self, piece: bytes) -> bool:
        """See `DirectLine`."""
        if self._unusual() or not self.cycle.chunked_encoding or self.cycle.response_complete:
            return False
        self._last(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n")
        return True

    def _unusual(self) -> bool:
        """Whether the answer is out of the ordinary at this moment: it is left to uvicorn."""
        cycle = self.cycle
        waits = cycle.disconnected or self.pipeline or self.flow.write_paused
        return bool(waits or cycle.scope["method"] == "HEAD")

    def _last(self, content: bytes) -> None:
        """Write what ends an answer."""
        cycle = self.cycle
        cycle.response_complete = True
        cycle.message_event.set()
        self._one_write.whole(content)
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _head(self, status: int, headers: Headers) -> bytes | None:
        """Begin an answer: its head, but for what says how long it is. None for what is left to uvicorn."""
        cycle = self.cycle
        if self._unusual() or cycle.response_started or cycle.access_log or cycle.waiting_for_100_continue:
            return None
        content = STATUS_LINE[status]
        for name, value in cycle.default_headers:
            content += b"%b: %b\r\n" % (name, value)
        for name, value in headers:
            if name.lower() in FRAMING or HEADER_VALUE_RE.search(value):
                return None
            content += b"%b: %b\r\n" % (name, value)
        if not cycle.keep_alive:
            content += b"connection: close\r\n"
        cycle.response_started = True
        return content

    def cut(self) -> None:
        """See `DirectLine`."""
        self.transport.close()

    def watch(self, told: Callable[[], None] | None) -> None:
        """See `DirectLine`. One request is served at a time, so there is one to tell. Its body is not kept any more."""
        self._told = told
        if told is not None:
            if not self.pipeline:
                self.cycle.body.clear()
            self.flow.resume_reading()
            if self._bare.is_closing():
                self.loop.call_soon(self._tell)

    def _tell(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told()


def behind_proxies(app: ASGIApp) -> ASGIApp:
    """uvicorn's `proxy_headers`, for requests that have such headers: it would judge the address of every client."""
    proxied = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")))

    def asked(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (app if PROXIED.isdisjoint(headers_of(scope)) else proxied)(scope, receive, send)

    return asked


class RequestOrigin(msgspec.Struct, frozen=True, array_like=True):
    """The client of a request, the address at which it came in, and whether by TLS: as in ASGI."""

    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    scheme: Literal["http", "https"]


_origin = msgspec.json.Decoder(RequestOrigin)


class HandedProtocol(PieceProtocol):
    """A connection that another worker has opened. Its requests go to `app`, and no further."""

    _begun = False
    """Whether a header of the request has come."""

    def __init__(self, app: ASGIApp, **of_server: Any) -> None:
        super().__init__(**of_server)
        self.app = app
        self.timeout_keep_alive = FOREVER

    def on_message_begin(self) -> None:
        """See PieceProtocol."""
        self._begun = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take the first header for the origin, if it has that name."""
        first, self._begun = not self._begun, True
        if not first or name != FROM:
            super().on_header(name, value)
            return
        origin = _origin.decode(value)
        self.scope["client"], self.scope["server"], self.scope["scheme"] = origin.client, origin.server, origin.scheme
