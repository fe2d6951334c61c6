"""One request and its answer, on ASGI itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from starlette.types import Receive, Scope, Send

from gateway.core.errors import TooLarge

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

DISCARD_SECONDS = 10.0
"""For the rest of a body that is too large."""


class ClientGone(Exception):
    """The client has closed the connection before it was answered."""


class Reply(Exception):
    """An answer; raised where it ends what was going on. `body` is JSON, unless `kind` says otherwise."""

    def __init__(
        self, status: int, body: bytes = b"", headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers
        self.kind = kind


class Exchange:
    """One request. `extra` headers go on every answer to it."""

    __slots__ = ("_headers", "extra", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.extra: list[tuple[bytes, bytes]] = []
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    @property
    def method(self) -> str:
        """The method."""
        return str(self.scope["method"])

    @property
    def agent(self) -> str | None:
        """Whom the path names."""
        name: str | None = self.scope["path_params"].get("agent")
        return name

    def header(self, name: str) -> str | None:
        """A request header, None if it was not sent or is empty."""
        value = self._headers.get(name.lower().encode())
        return value.decode("latin-1").strip() or None if value is not None else None

    def twice(self, name: str) -> bool:
        """Whether a header was sent more than once. `header` tells the last."""
        wanted = name.lower().encode()
        return sum(1 for found, _ in self.scope["headers"] if found == wanted) > 1

    async def body(self, limit: int) -> bytes:
        """The body. Raises TooLarge if it is over the limit, ClientGone."""
        announced = self.header("content-length")
        if announced is not None and announced.isdigit() and int(announced) > limit:
            raise await self._too_large(limit)
        chunks: list[bytes] = []
        size = 0
        while True:
            chunk, more = await self._chunk()
            size += len(chunk)
            if size > limit:
                raise await self._too_large(limit, more=more)
            chunks.append(chunk)
            if not more:
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _chunk(self) -> tuple[bytes, bool]:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def _too_large(self, limit: int, *, more: bool = True) -> TooLarge:
        """The refusal, after the rest of the body, if there is `more` of it: a connection that is closed while its
        client still writes is reset, and most clients do not read the answer then. One that asks first (`Expect`) is
        told at once.
        """
        close = (b"connection", b"close")
        if self.header("expect") is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DISCARD_SECONDS):
                    while more:
                        _, more = await self._chunk()
                    return TooLarge(f"the message is larger than {limit} bytes")
        self.extra.append(close)
        return TooLarge(f"the message is larger than {limit} bytes")

    async def gone(self) -> None:
        """Return when the client has closed the connection. After the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(self, reply: Reply) -> None:
        """Send all of it."""
        headers = [*reply.headers, *self.extra]
        if reply.status != 204:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        if reply.body:
            headers.append((b"content-type", reply.kind))
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})
