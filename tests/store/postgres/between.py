"""A wire between a store and its server that a test cuts, stops or slows down."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

COMMIT = b"COMMIT\0"
AT_ONCE = re.compile(rb"(__asyncpg_stmt_\w+__)\0WITH lease AS \(UPDATE interlingua\.leases SET batch\b")
"""A statement is prepared that is a transaction by itself. It is executed where its name is bound."""
SSL_REQUEST = (80877103).to_bytes(4)


class Wire:
    """Forwards connections to the server of a URL."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        """tls: how to speak it to who asks for it, which the server of the tests cannot."""
        self._tls = tls
        self.encrypted = 0
        """Connections that are."""
        self._target = urlsplit(url)
        self._open: set[asyncio.StreamWriter] = set()
        self._going = asyncio.Event()
        self._going.set()
        self.holds = asyncio.Event()
        """It has stopped something."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.refuses = False
        """New connections are closed at once."""
        self.delay = 0.0
        """Seconds for which each packet is held."""
        self.cut_at_commit = ""
        """Cut everything once at the next COMMIT: "before" the server has it, "after" it is done, or before, and the
        server has it "late", at `deliver`.
        """
        self.cuts = 0
        self._committing = False
        self._at_once: set[bytes] = set()
        self._late = asyncio.Event()
        self._answered = asyncio.Event()

    @property
    def url(self) -> str:
        return self._target._replace(netloc=f"postgres@127.0.0.1:{self.port}").geturl()

    @contextlib.asynccontextmanager
    async def laid(self) -> AsyncIterator[Wire]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Let nothing through, and tell nobody."""
        self._going.clear()

    def go(self) -> None:
        self._going.set()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def deliver(self) -> None:
        """Give the server what it is to have late, and wait for its answer."""
        self._late.set()
        await self._answered.wait()

    def _commits(self, data: bytes) -> bool:
        self._at_once.update(AT_ONCE.findall(data))
        return COMMIT in data or any(b"\0" + name + b"\0" in data for name in self._at_once)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        if self._tls is not None and (await reader.readexactly(8))[4:] == SSL_REQUEST:
            writer.write(b"S")
            try:
                await writer.start_tls(self._tls)
            except OSError:
                return
            self.encrypted += 1
        there, forth = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._open |= {writer, forth}
        for source, sink, asks in ((reader, forth, True), (there, writer, False)):
            task = asyncio.ensure_future(self._forward(source, sink, asks))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not self._going.is_set():
                    self.holds.set()
                await self._going.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if asks and self._commits(data) and self.cut_at_commit:
                    if self.cut_at_commit == "before":
                        self._cut_once()
                        return
                    if self.cut_at_commit == "late":
                        self._open.discard(sink)
                        self._cut_once()
                        await self._late.wait()
                    else:
                        self._committing = True
                elif not asks and self._committing:  # the answer
                    self._cut_once()
                    return
                elif not asks and self._late.is_set():
                    self._answered.set()
                sink.write(data)
                await sink.drain()
        sink.close()

    def _cut_once(self) -> None:
        self.cut_at_commit, self._committing = "", False
        self.cuts += 1
        self.cut()
