"""An answer of server-sent events."""

from __future__ import annotations

import asyncio

from gateway.transport.asgi.request import UNBUFFERED, Headers, HttpRequest
from gateway.transport.asgi.uvicorn import PieceProtocol, short_way

HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), *UNBUFFERED)


class EventStream:
    """Frames, one write for all that are ready. The head goes out before the first: until then an error is a status.

    `ended`: the last frame is sent.
    """

    __slots__ = ("_clock", "_connection", "_headers", "_request", "_written_at", "ended")

    def __init__(self, request: HttpRequest, headers: Headers = ()) -> None:
        """headers: those of the answer, beside HEADERS."""
        self.ended = False
        self._request = request
        self._headers = headers
        self._connection: PieceProtocol | None = None
        self._clock = asyncio.get_running_loop().time
        self._written_at = self._clock()

    @property
    def started(self) -> bool:
        """Whether the head is sent."""
        return self._request.begun

    @property
    def ready(self) -> bool:
        """Whether a frame may be `put`: the answer has begun, the client keeps up, and its server takes calls."""
        connection = self._connection
        return connection is not None and connection.ready

    def silent(self, now: float) -> float:
        """Seconds since the last frame, at a time of the loop's clock."""
        return now - self._written_at

    def put(self, frame: bytes) -> None:
        """Write a frame by a call. Only while `ready`."""
        assert self._connection is not None
        self._written_at = self._clock()
        self._connection.put(frame)

    async def write(self, frames: bytes) -> None:
        """Write frames."""
        if not self._request.begun:
            await self._begin()
        self._written_at = self._clock()
        await self._request.write(frames)

    async def end(self, frames: bytes = b"") -> None:
        """Write the last frames."""
        if not self._request.begun:
            await self._begin()
        self.ended = True
        await self._request.end(frames)

    async def _begin(self) -> None:
        self._connection = short_way(self._request.scope)
        await self._request.begin(200, [*HEADERS, *self._headers])
