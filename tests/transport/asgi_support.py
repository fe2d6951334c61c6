"""A connection to a server of `PieceProtocol`, seen from both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.transport.asgi import uvicorn as ours
from gateway.transport.asgi.uvicorn import PieceProtocol
from tests.support.scripted import until
from tests.support.serving import serving

LOOK, HEAD, SILENT = 1000.0, 6000.0, 12000.0
HEAD_LOOKS, BODY_LOOKS, MANY = 7, 13, 50
"""The look that finds so much time gone, counted from the first; and more than any of them."""

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
OK: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens because time goes by is set to times that no test lasts: `look` is called as its timer would."""
    for name, seconds in (("LOOK", LOOK), ("HEAD", HEAD), ("SILENT", SILENT)):
        monkeypatch.setattr(ours, f"{name}_SECONDS", seconds)


class Client:
    """A connection, and the server's end of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Seen) -> None:
        self.reader = reader
        self.writer = writer
        self.server = server
        self.sent = 0

    async def send(self, data: bytes) -> None:
        """Returns once the server has it."""
        self.sent += len(data)
        self.writer.write(data)
        await until(lambda: self.server.got == self.sent)

    def looks(self, times: int) -> bool:
        """Let so much time go by; whether the connection is still open."""
        for _ in range(times):
            self.server.look()
        return not self.server.transport.is_closing()

    async def rest(self) -> bytes:
        """All that comes before the end."""
        return await asyncio.wait_for(self.reader.read(), 60)


class Seen(PieceProtocol):
    """Tells how many bytes it got, and whether its connection is lost."""

    made: list[Seen]
    got = 0
    lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made.append(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.got += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost = True


@asynccontextmanager
async def connected(application: ASGIApp, ws: str = "none") -> AsyncIterator[Client]:
    made: list[Seen] = []
    protocol = type("Seen", (Seen,), {"made": made})
    async with serving(application, log_config=None, access_log=False, http=protocol, ws=ws) as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
        try:
            await until(lambda: bool(made))
            yield Client(reader, writer, made[0])
        finally:
            writer.close()
            for each in made:  # one that reads nothing notices no end, for which a server of Python 3.12 waits
                each.transport.abort()


class Application:
    """Reads the body, if it `reads`, then answers once it is `told`."""

    def __init__(self, *, reads: bool = True, body: bytes = b"ok") -> None:
        self.told = asyncio.Event()
        self.heard: list[str] = []
        self.asked = asyncio.Event()
        self._reads = reads
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        while self._reads:
            message = await receive()
            self.heard.append(message["type"])
            if message["type"] == "http.disconnect":
                return
            if not message.get("more_body"):
                break
        await self.told.wait()
        await send({**OK, "headers": [(b"content-length", b"%d" % len(self._body))]})
        await send({"type": "http.response.body", "body": self._body})
