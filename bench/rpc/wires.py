"""What an editor's messages go over: the pipes of a process that it starts, or a WebSocket.

Not for anything else: what a peer sends is believed, and nothing is copied that need not be (see bench/http.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from bench.http import Failed

Take = Callable[[Sequence[bytes]], None]
"""Gets the messages that have come, as they come."""
Lost = Callable[[str], None]
"""Called once when no more will come, with the reason."""
END_SECONDS = 10.0
KILL_SECONDS = 5.0


class Wire(Protocol):
    """One open connection."""

    pid: int | None
    """Of the process at the other end, if it was started for this connection."""

    def send(self, message: bytes) -> None:
        """One message."""

    async def close(self) -> None:
        """End it, and what it started."""


class Program(asyncio.SubprocessProtocol):
    """A process of ours, a message a line."""

    def __init__(self, take: Take, lost: Lost) -> None:
        self.pid: int | None = None
        self._take = take
        self._lost = lost
        self._rest = b""
        self._process: asyncio.SubprocessTransport | None = None
        self._input: asyncio.WriteTransport | None = None
        self._ended = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, command: Sequence[str], cwd: str, take: Take, lost: Lost) -> Program:
        """Its stderr is ours."""
        loop = asyncio.get_running_loop()
        _, program = await loop.subprocess_exec(lambda: cls(take, lost), *command, stderr=None, cwd=cwd)
        return program

    def send(self, message: bytes) -> None:
        assert self._input is not None
        self._input.write(message + b"\n")

    async def close(self) -> None:
        """End of input; who does not leave then is told to, and made to."""
        self._lost = _nothing
        if self._input is not None:
            self._input.close()
        assert self._process is not None
        try:
            await self._left(self._process)
        finally:
            self._process.close()

    async def _left(self, process: asyncio.SubprocessTransport) -> None:
        for seconds, then in ((END_SECONDS, process.terminate), (KILL_SECONDS, process.kill)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._ended), seconds)
                return
            with contextlib.suppress(ProcessLookupError):
                then()
        await asyncio.wait_for(self._ended, KILL_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))
        self.pid = self._process.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data if self._rest else data).split(b"\n")
        if lines:
            self._take(lines)

    def process_exited(self) -> None:
        code = self._process.get_returncode() if self._process is not None else None
        if not self._ended.done():
            self._ended.set_result(code)
        self._lost(f"the program ended with {code}")


class Socket(asyncio.Protocol):
    """A WebSocket's client end (RFC 6455). Its mask is of zeros, which changes nothing."""

    def __init__(self, take: Take, lost: Lost, url: str) -> None:
        self.pid: int | None = None
        self._take = take
        self._lost = lost
        self._rest = b""
        self._open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        parts = urlsplit(url)
        self._hello = (
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: YmVuY2gtYmVuY2gtYmVuYw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    @classmethod
    async def open(cls, url: str, take: Take, lost: Lost) -> Socket:
        """Connected and upgraded. Raises Failed."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(lambda: cls(take, lost, url), parts.hostname, parts.port)
        await socket._open
        return socket

    def send(self, message: bytes) -> None:
        self._frame(0x81, message)

    async def close(self) -> None:
        self._lost = _nothing
        if self._transport is not None:
            self._frame(0x88, b"\x03\xe8")
            self._transport.close()

    def _frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes((kind, 0x80 | size))
        elif size < 1 << 16:
            head = bytes((kind, 0xFE)) + size.to_bytes(2, "big")
        else:
            head = bytes((kind, 0xFF)) + size.to_bytes(8, "big")
        assert self._transport is not None
        self._transport.write(head + b"\0\0\0\0" + data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end("the socket was closed")

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        if not self._open.done():
            head, blank, rest = data.partition(b"\r\n\r\n")
            if not blank:
                self._rest = data
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                self._end(f"the upgrade was answered {data[:300]!r}")
                return
            self._open.set_result(None)
            data = rest
        self._frames(data)

    def _frames(self, data: bytes) -> None:
        messages, at, end = [], 0, len(data)
        while end - at >= 2:
            kind, size, start = data[at], data[at + 1], at + 2
            if size >= 126:
                start += 2 if size == 126 else 8
                size = int.from_bytes(data[at + 2 : start], "big")
            if start + size > end or start > end:
                break
            payload = data[start : start + size]
            at = start + size
            if kind == 0x81:
                messages.append(payload)
            else:
                self._control(kind, payload)
        self._rest = data[at:]
        if messages:
            self._take(messages)

    def _control(self, kind: int, payload: bytes) -> None:
        if kind == 0x89:
            self._frame(0x8A, payload)
        elif kind == 0x88:
            self._end(f"the socket was closed: {payload!r}")
        elif kind != 0x8A:
            self._end(f"a frame of kind {kind:#x}, which is not read here")

    def _end(self, why: str) -> None:
        if not self._open.done():
            self._open.set_exception(Failed(why))
        lost, self._lost = self._lost, _nothing
        lost(why)


def _nothing(why: str) -> None:
    """Nobody wants to know any more."""


async def connect(place: dict[str, Any], take: Take, lost: Lost) -> Wire:
    """`place`: `{"url": ws://...}`, or `{"command": [...], "cwd": folder}`. Raises Failed."""
    if "url" in place:
        return await Socket.open(place["url"], take, lost)
    return await Program.start(place["command"], place.get("cwd", os.curdir), take, lost)
