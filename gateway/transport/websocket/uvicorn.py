"""uvicorn's WebSocket protocol with a fast path for text messages, both ways.

uvicorn sends each message with six calls and a system call of its own. When messages are many and small, as the
chunks of a text are, that is most of a connection's cost. It stops reading for each message that it receives, until the
application has taken it from a queue. The handshake, pings and closing are left to uvicorn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request

from gateway.transport.waiting import Flag, Timer
from gateway.transport.websocket.server import EXTENSION

log = logging.getLogger(__name__)

BLOCK = 64 * 1024
"""The most bytes to write before checking that the client keeps up."""
TEXT = 0x81
"""The first byte of a frame that is a whole text message."""

_SHORT, _LONG = 126, 1 << 16
_middling = Struct("!BBH").pack
_long = Struct("!BBQ").pack


class MessageProtocol(WebSocketsSansIOProtocol):
    """The class for uvicorn's option `ws`. `ServerSocket` uses it after the upgrade. Never compresses.

    The slots are uvicorn's attributes: an object with more than thirty others has a table of its own for them.
    """

    __slots__ = (
        *("behind", "_take", "close_timeout", "close_timer", "curr_msg_data_type", "frames", "initial_response"),
        *("last_ping_rtt", "pending_ping_payload", "ping_sent_at", "pong_timer", "request", "response", "scope"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue: ReceivedEvents = ReceivedEvents()  # type: ignore[assignment]
        self.writable: Flag = Flag()  # type: ignore[assignment]
        self.writable.set()
        self.behind = False
        """Whether the client reads too slowly."""
        self._take: Callable[[bytes], bool] | None = None

    def schedule_ping(self) -> None:
        """With a timer that is small while it waits."""
        assert self.ping_interval is not None
        delay = max(0.0, self.ping_interval - self.last_ping_rtt)
        self.ping_timer = Timer(self.loop, delay, self.send_keepalive_ping)  # type: ignore[assignment]

    def direct(self, take: Callable[[bytes], bool]) -> None:
        self._take = take

    def when_left(self, receive: Callable[[], None]) -> None:
        self.queue.when_filled(receive)

    def pause_writing(self) -> None:
        """Called when the transport's buffer is full."""
        self.behind = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Called when the transport's buffer has room again."""
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
            if self._take is not None and self.queue.empty() and self._take(b"".join(self.frames)):
                self.frames = []
                return
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        """Put this object into the scope of an accepted upgrade."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[object, object] = self.scope["extensions"]  # type: ignore[assignment]
            extensions[EXTENSION] = self

    async def send(self, message: ASGISendEvent) -> None:
        """Mark a refused upgrade as answered, since uvicorn would log it as one without an answer."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True
        elif message["type"] == "websocket.accept":
            self.request.headers.clear()  # the library's parser keeps the request as long as the connection
            del self.request, self.response

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write text messages now. False if the client is behind or nothing can be sent any more."""
        if self.behind or not self._connected:
            return False
        self.transport.write(text_frames(messages))
        return True

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Write text messages as fast as the client reads them. Raises ClientDisconnected, an OSError."""
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


class ReceivedEvents:
    """As `asyncio.Queue`, which is 4 KB of a connection: most messages come by `direct`."""

    __slots__ = ("_events", "_filled", "_there")

    def __init__(self) -> None:
        self._events: deque[ASGIReceiveEvent] | None = None
        self._filled: Callable[[], None] | None = None
        self._there = Flag()

    def when_filled(self, filled: Callable[[], None]) -> None:
        """Call `filled` once there is an event."""
        if self._events is None:
            self._filled = filled
        else:
            filled()

    def put_nowait(self, event: ASGIReceiveEvent) -> None:
        if self._events is None:
            self._events = deque()
        self._events.append(event)
        self._there.set()
        if self._filled is not None:
            filled, self._filled = self._filled, None
            filled()

    def empty(self) -> bool:
        """Whether `get` would wait."""
        return self._events is None

    async def get(self) -> ASGIReceiveEvent:
        """Take the first event, once there is one. Never called twice at once."""
        while self._events is None:
            self._there.clear()
            await self._there.wait()
        event = self._events.popleft()
        if not self._events:
            self._events = None
        return event


def text_frames(messages: Iterable[bytes]) -> bytes:
    """Encode each UTF-8 message as a whole, unmasked text frame (RFC 6455, section 5), all in one piece of bytes."""
    pieces: list[bytes] = []
    for message in messages:
        size = len(message)
        if size < _SHORT:
            head = bytes((TEXT, size))
        elif size < _LONG:
            head = _middling(TEXT, 126, size)
        else:
            head = _long(TEXT, 127, size)
        pieces += (head, message)
    return b"".join(pieces)


def in_blocks(messages: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Split messages in order into blocks of at most `most` bytes, or a single larger message."""
    start = size = 0
    for at, message in enumerate(messages):
        size += len(message)
        if size > most and at > start:
            yield messages[start:at]
            start, size = at, len(message)
    if start < len(messages):
        yield messages[start:]
