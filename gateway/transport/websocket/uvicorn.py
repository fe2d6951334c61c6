"""uvicorn's WebSocket protocol, and a short way for messages: many of them in one write.

uvicorn itself sends a message by six calls and a system call of its own. Where messages are many and small, as the
chunks of a text are, that is most of what a connection costs. Handshake, pings, closing and everything that comes in
are uvicorn's.
"""

from __future__ import annotations

from collections.abc import Sequence

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from gateway.transport.websocket.frames import in_blocks, text_frames
from gateway.transport.websocket.server import EXTENSION

BLOCK = 64 * 1024
"""Bytes at once, after which the client is asked whether it keeps up."""


class MessageProtocol(WebSocketsSansIOProtocol):
    """For uvicorn's option `ws`. Used by `ServerSocket`, once the upgrade was answered; never compresses."""

    def handle_connect(self, event: Request) -> None:
        """Tell the application of the short way."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[object, object] = self.scope["extensions"]  # type: ignore[assignment]
            extensions[EXTENSION] = self

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write text messages now. False where the client is behind or nothing can be sent any more."""
        if not (self._connected and self.writable.is_set()):
            return False
        self.transport.write(text_frames(messages))
        return True

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Write text messages as fast as the client takes them. Raises ClientDisconnected, an OSError."""
        for block in in_blocks(messages, BLOCK):
            await self.writable.wait()
            if not self._connected:
                raise ClientDisconnected
            self.transport.write(text_frames(block))

    @property
    def _connected(self) -> bool:
        """Whether neither end has begun to close."""
        return self.conn.state is State.OPEN and self.handshake_complete and not self.disconnected
