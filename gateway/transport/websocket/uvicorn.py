"""uvicorn's WebSocket protocol, and a short way for messages: many of them in one write.

uvicorn itself sends a message by six calls and a system call of its own. Where messages are many and small, as the
chunks of a text are, that is most of what a connection costs. Handshake, pings, closing and everything that comes in
are uvicorn's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request

from gateway.transport.websocket.frames import in_blocks, text_frames
from gateway.transport.websocket.server import EXTENSION

log = logging.getLogger(__name__)

BLOCK = 64 * 1024
"""Bytes at once, after which the client is asked whether it keeps up."""


class MessageProtocol(WebSocketsSansIOProtocol):
    """For uvicorn's option `ws`. Used by `ServerSocket`, once the upgrade was answered; never compresses."""

    behind = False
    """Whether the client reads slowly."""

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self.behind = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has room again."""
        self.behind = False
        super().resume_writing()

    def send_receive_event_to_app(self) -> None:
        """Hand over a message. One of text that is not UTF-8 ends the connection (RFC 6455, 8.1): uvicorn logs that as
        its own error, with a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                for frame in self.frames if len(self.frames) == 1 else [b"".join(self.frames)]:
                    if not frame.isascii():
                        frame.decode()
            except UnicodeDecodeError as error:
                log.info("a client's message is not UTF-8 at byte %d: its connection is ended", error.start)
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        """Tell the application of the short way."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[object, object] = self.scope["extensions"]  # type: ignore[assignment]
            extensions[EXTENSION] = self

    async def send(self, message: ASGISendEvent) -> None:
        """An upgrade that is refused has been answered as well: uvicorn would log it as left without an answer."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write text messages now. False where the client is behind or nothing can be sent any more."""
        if self.behind or not self._connected:
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
        """Whether the upgrade was answered and neither end has begun to close."""
        over = self.close_sent or self.disconnected or self.transport.is_closing()
        return self.handshake_complete and not over
