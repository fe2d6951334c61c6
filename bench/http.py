"""HTTP/1.1 for the two ends of a measurement: a server and a client connection on bare asyncio protocols.

Not for anything else: what a peer sends is believed. httptools parses, nothing is copied that need not be, so that the
agent and the load take as little as possible of the processors they share with the gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self, cast

import httptools

Handler = Callable[["ServerConnection", str, str, bytes], None]
"""(connection, method, path, body): answers with `answer`, or with `begin`, `chunk` and `end`."""


class ServerConnection(asyncio.Protocol):
    """One client's connection; the next request is read when the last was answered."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self.closed = False
        self.full = False
        """The client does not read as fast as we write."""
        self.on_room: Callable[[], None] | None = None
        """Called once when there is room again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.resume_writing()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        waiting, self.on_room = self.on_room, None
        if waiting is not None:
            waiting()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        self._handler(self, self._parser.get_method().decode(), self._url.decode(), body)

    def answer(self, body: bytes, status: int = 200) -> None:
        """A whole answer, JSON."""
        head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self.write(head + body)

    def begin(self, content_type: bytes, *, at_once: bool = True) -> None:
        """The head of an answer in chunks; written with the first of them where it is not `at_once`."""
        self._head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % content_type
        if at_once:
            self._write_chunk(b"")

    def chunk(self, data: bytes, *, last: bool = False) -> None:
        """A piece of it, with its end where it is the `last`: what is written in one piece arrives in one."""
        self._write_chunk(b"%x\r\n%b\r\n%b" % (len(data), data, b"0\r\n\r\n" if last else b""))

    def end(self) -> None:
        """Its end."""
        self._write_chunk(b"0\r\n\r\n")

    def _write_chunk(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.write(head + data)

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        if not self.closed and self._transport is not None:
            self._transport.write(data)


FRESH_SECONDS = 3.0
"""Servers close connections that were idle for 5."""


class Failed(Exception):
    """The peer did not answer as a measurement needs."""


class ClientConnection(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[bytes] | None = None
        self._body: list[bytes] = []
        self._on_piece: Callable[[bytes], None] | None = None

        self._used_at = 0.0

    @property
    def fresh(self) -> bool:
        """Still open, and not idle for so long that the server may be about to close it."""
        return self._transport is not None and time.monotonic() - self._used_at < FRESH_SECONDS

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """A new connection."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def close(self) -> None:
        """Let it go."""
        if self._transport is not None:
            self._transport.close()

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        on_piece: Callable[[bytes], None] | None = None,
        headers: bytes = b"",
    ) -> asyncio.Future[bytes]:
        """Send; the future has the answer's body, empty if `on_piece` took it piece by piece. Fails unless 2xx.

        headers: further ones, a line each.
        """
        assert self._transport is not None and self._done is None
        self._done = asyncio.get_running_loop().create_future()
        self._on_piece = on_piece
        self._transport.write(
            b"%b %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (method.encode(), path.encode(), headers, len(body), body)
        )
        return self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._used_at = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(Failed("the connection was closed in the middle of an answer"))

    def _fail(self, error: Exception) -> None:
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_exception(error)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        if self._on_piece is None or self._parser.get_status_code() >= 300:
            self._body.append(piece)
            return
        try:
            self._on_piece(piece)
        except Exception as error:
            self._fail(error)
            self._on_piece = _ignore

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        body = b"".join(self._body)
        self._body.clear()
        self._parser = httptools.HttpResponseParser(self)
        self._used_at = time.monotonic()
        done, self._done = self._done, None
        if done is None or done.done():
            return
        if 200 <= status < 300:
            done.set_result(body)
        else:
            done.set_exception(Failed(f"answered {status}: {body[:200]!r}"))


def _ignore(piece: bytes) -> None:
    """Where the answer has failed already."""
