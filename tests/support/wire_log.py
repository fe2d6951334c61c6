"""What goes over an HTTP connection, byte for byte, as text that a test compares with a file beside it.

The first run of a test whose file is missing writes it, and fails.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.raw_http import Exchange

WITHIN = 30.0
NOT_OURS = frozenset({"date", "server", "transfer-encoding", "host", "user-agent", "accept-encoding", "connection"})
"""Headers of the libraries, and of the machine."""
UUID = re.compile(rb"[0-9a-f]{32}")


class WireLog:
    """The text. Ids that are unguessable are numbered in the order in which they appear."""

    def __init__(self) -> None:
        self.text = b""
        self._ids: dict[bytes, bytes] = {}

    def add(self, *pieces: bytes) -> None:
        """Write down pieces, a line each."""
        for piece in pieces:
            self.text += UUID.sub(self._named, piece) + b"\n"

    def _named(self, found: re.Match[bytes]) -> bytes:
        return self._ids.setdefault(found[0], b"<id %d>" % (len(self._ids) + 1))

    def requested(self, exchange: Exchange) -> None:
        """Write down a request that a server of ours for tests got."""
        headers = [f"{name}: {value}" for name, value in sorted(exchange.headers.items()) if name not in NOT_OURS]
        self.add(f"> {exchange.method} {exchange.target}".encode(), *[one.encode() for one in headers], exchange.body)

    def matches(self, path: Path) -> None:
        """Compare with what was recorded."""
        if not path.exists():
            path.write_bytes(self.text)
            raise AssertionError(f"{path} was missing and is recorded now")
        assert self.text.decode() == path.read_bytes().decode()


class RawConnection:
    """One request on a socket of its own, and its answer as it comes: chunks are joined, nothing else is read."""

    def __init__(self, log: WireLog, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.headers: dict[str, str] = {}
        self._log = log
        self._reader = reader
        self._writer = writer

    @classmethod
    async def send(
        cls, log: WireLog, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> RawConnection:
        """Send a request; the head of its answer is read and written down."""
        parts = urlsplit(url)
        made = cls(log, *await asyncio.open_connection(parts.hostname, parts.port))
        sent = {"Host": "x", "Content-Length": str(len(body)), **headers}
        lines = [f"{method} {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        made._writer.write("\r\n".join(lines).encode() + body)
        log.add(f"> {method} {parts.path}".encode(), *[f"{name}: {value}".encode() for name, value in headers.items()])
        if body:
            log.add(body)
        async with asyncio.timeout(WITHIN):
            head = (await made._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        made.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        log.add(f"< {head[0]}".encode())
        log.add(*[f"{name}: {value}".encode() for name, value in made.headers.items() if name not in NOT_OURS])
        return made

    async def read(self, end: bytes = b"") -> bytes:
        """Write down the body up to its end, or until it ends with `end`. Returns it."""
        body = b""
        async with asyncio.timeout(WITHIN):
            if "content-length" in self.headers:
                body = await self._reader.readexactly(int(self.headers["content-length"]))
            elif "transfer-encoding" in self.headers:
                while (size := int(await self._reader.readline(), 16)) or not end:
                    body += await self._reader.readexactly(size)
                    await self._reader.readline()
                    if not size or (end and body.endswith(end)):
                        break
        self._log.add(body)
        return body

    def drop(self) -> None:
        """Close it, whatever comes."""
        self._writer.transport.abort()


async def told(
    log: WireLog, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", *, end: bytes = b""
) -> RawConnection:
    """A request whose answer is read to its end, or to `end`, whose connection is still open then."""
    connection = await RawConnection.send(log, method, url, headers, body)
    await connection.read(end)
    if not end:
        connection.drop()
    return connection
