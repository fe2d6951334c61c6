"""The `Out` of a call that came by POST: its messages go onto the stream of the response."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.core.errors import Unsupported
from gateway.mcp.server.http.stream import Stream
from gateway.mcp.server.pipe import given_up
from gateway.transport.rpc.asking import OutgoingRequests


class ResponseOut:
    """An Out. `asking`: where the answers to its questions come in; None for a client that is not asked."""

    def __init__(self, stream: Stream, asking: OutgoingRequests | None = None) -> None:
        self.can_ask = asking is not None
        self._stream = stream
        self._asking = asking

    @property
    def full(self) -> bool:
        """See `Out`."""
        return self._stream.full

    def put(self, message: bytes) -> None:
        """See `Out`."""
        self._stream.put(message)

    async def drain(self) -> None:
        """See `Out`."""
        await self._stream.drain()

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        """See `Out`."""
        if self._asking is None:
            raise Unsupported(f"{method} cannot be asked over this connection")
        return await self._asking.request(method, params, timeout, given_up, None, sink=self._stream)
