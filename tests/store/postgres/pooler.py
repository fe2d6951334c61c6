"""A pooler as PgBouncer in transaction mode: every transaction goes to the next connection to the server.

Nothing of a session is kept from one to the other, and what a client prepares on one is not known on the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tests.store.postgres.between import SSL_REQUEST

BACKENDS = 3
OWN_PROCESS = b"K" + (12).to_bytes(4) + (4_000_000_000).to_bytes(4) + bytes(4)
READY = b"Z" + (5).to_bytes(4) + b"I"


class Backend:
    """One connection to the server, which is always at the beginning of a transaction when nobody has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.parameters = b""
        """What the server said of itself."""

    @classmethod
    async def made(cls, host: str, port: int, database: str) -> Backend:
        one = cls(*await asyncio.open_connection(host, port))
        words = b"user\0postgres\0database\0" + database.encode() + b"\0\0"
        one.writer.write((8 + len(words)).to_bytes(4) + (3 << 16).to_bytes(4) + words)
        while (message := await one.message())[:1] != b"Z":
            if message[:1] == b"S":
                one.parameters += message
        return one

    async def message(self) -> bytes:
        head = await self.reader.readexactly(5)
        return head + await self.reader.readexactly(int.from_bytes(head[1:]) - 4)


class Pooler:
    """Serves one database. `transactions` counts what went through."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._free: asyncio.Queue[Backend] = asyncio.Queue()
        self._parameters = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.transactions = 0

    @property
    def url(self) -> str:
        return self._target._replace(netloc=f"postgres@127.0.0.1:{self.port}").geturl()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Pooler]:
        assert self._target.hostname is not None and self._target.port is not None
        database = self._target.path.removeprefix("/")
        backends = [await Backend.made(self._target.hostname, self._target.port, database) for _ in range(BACKENDS)]
        self._parameters = backends[0].parameters
        for one in backends:
            self._free.put_nowait(one)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for one in backends:
                one.writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            await self._serve(reader, writer)
        self._tasks.discard(task)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(4))
            if (await reader.readexactly(length - 4))[:4] != SSL_REQUEST:
                break
            writer.write(b"N")
        writer.write(b"R" + (8).to_bytes(4) + bytes(4) + self._parameters + OWN_PROCESS + READY)
        while True:
            first = await reader.readexactly(1)
            if first == b"X":
                return
            backend = await self._free.get()
            self.transactions += 1
            asks = asyncio.ensure_future(self._forward(first, reader, backend))
            try:
                while (message := await backend.message()) != READY:
                    writer.write(message)
            finally:
                asks.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asks
            self._free.put_nowait(backend)
            writer.write(READY)

    async def _forward(self, first: bytes, reader: asyncio.StreamReader, backend: Backend) -> None:
        """Pass on what the client says. Cancelled between two messages, since it waits for an answer then."""
        while True:
            length = await reader.readexactly(4)
            backend.writer.write(first + length + await reader.readexactly(int.from_bytes(length) - 4))
            first = await reader.readexactly(1)
