"""Limits of messages, and timeouts."""

from __future__ import annotations

from gateway.transport.pipe import LIMIT, Unreadable

HARD_LIMIT = LIMIT + LIMIT // 2
"""The limit for the server itself (uvicorn: `ws_max_size`), so that messages between both limits get an answer."""
PING_INTERVAL = 20.0
PING_TIMEOUT = 120.0
"""A pong waits behind a message in transit: 16 MiB take a minute or more on a slow line."""
CLOSE_SECONDS = 5.0
"""The time for the closing handshake."""


def hard(limit: int) -> int:
    """Return the hard limit for `limit`."""
    return limit + limit // 2


def judged(data: bytes, limit: int) -> bytes | Unreadable:
    """Return `data`, or an Unreadable if it is over the limit."""
    if len(data) <= limit:
        return data
    return Unreadable.of(f"a message of more than {limit} bytes", data)


def binary(data: bytes) -> Unreadable:
    """Make the Unreadable of a binary message."""
    return Unreadable("a binary message", b"", len(data))
