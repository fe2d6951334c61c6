"""A response's server-sent events as messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.transport.http import StreamResponse
from gateway.transport.pipe import Unreadable
from gateway.transport.websocket.limits import hard, judged
from gateway.wire import sse

FIRST_DELAY = 0.1
"""Seconds before a stream that dropped is opened again, doubled with each try in vain. A server may name another,"""
LEAST_DELAY = 0.01
"""which is doubled from here: one that says 0 and has nothing to say is not asked all the time."""


class Cursor:
    """Where one stream is, over all responses that it comes on. `id` is "" while it cannot be resumed.

    heard: events so far. retry: seconds to wait before going on with it, as the server said; None if it did not.
    """

    def __init__(self) -> None:
        self.id = ""
        self.heard = 0
        self.retry: float | None = None

    def delay(self, tries: int, most: float) -> float:
        """Seconds before it is opened again, after so many tries on which nothing came."""
        growth = 2.0 ** min(tries, 20)
        return min(most, FIRST_DELAY * growth if self.retry is None else max(self.retry, LEAST_DELAY * growth))


async def read(
    response: StreamResponse, cursor: Cursor, limit: int, take: Callable[[bytes | Unreadable], Awaitable[bool]]
) -> bool:
    """Hand over what comes on it, one message after the other, until `take` says that it was the last.

    Returns whether it did; the response may have more then. Raises AgentBroken for an event far over the limit, and
    what `StreamResponse.chunks` raises.
    """
    decoder = sse.SseDecoder(hard(limit))
    async for chunk in response.chunks():
        for frame in decoder.feed(chunk):
            cursor.heard += 1
            if frame.event == "message" and frame.data and await take(judged(frame.data, limit)):
                return True
        cursor.id = decoder.last_event_id or cursor.id
        if decoder.retry is not None:
            cursor.retry = decoder.retry / 1000
    decoder.close()
    return False
