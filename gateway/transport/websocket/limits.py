"""How large a message may be, and how long the other end may be silent."""

from __future__ import annotations

from gateway.transport.pipe import LIMIT, Unreadable

HARD_LIMIT = LIMIT + LIMIT // 2
"""What a server must be told to let through (uvicorn: `ws_max_size`), so that what is between can be answered."""
PING_INTERVAL = 20.0
PING_TIMEOUT = 120.0
"""A pong waits behind the message that is on its way: 16 MiB take a minute and more on a slow line."""
CLOSE_SECONDS = 5.0
"""For the closing handshake."""

_START = 200


def hard(limit: int) -> int:
    """The hard limit that goes with `limit`."""
    return limit + limit // 2


def judged(data: bytes, limit: int) -> bytes | Unreadable:
    """`data` if it is within the limit."""
    if len(data) <= limit:
        return data
    return Unreadable(f"a message of more than {limit} bytes", data[:_START], len(data))


def binary(data: bytes) -> Unreadable:
    """What a binary message is to us."""
    return Unreadable("a binary message", b"", len(data))
