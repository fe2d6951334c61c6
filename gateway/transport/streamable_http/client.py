"""The client's end: the events of a GET or of a POST's answer, as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gateway.core.errors import AgentBroken, AgentFailed, InterlinguaError
from gateway.transport.http import StreamResponse
from gateway.transport.pipe import Unreadable, hard, judged
from gateway.transport.refusal import SHOWN, refusal_reason
from gateway.transport.streamable_http import EVENTS
from gateway.wire import sse

AGAIN: Final = (0.1, 0.3, 0.9)
"""Seconds after each try to POST a message that was not taken; then there is one more."""
LATER: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of a GET that is worth another try. 409: the server has not noticed yet that the last stream has dropped."""
SLOWEST: Final = 100_000
"""Bytes in a second; a large message has more time."""


class EventTooLarge(AgentBroken):
    """An event far over the limit. Nobody knows where it ends, so the stream is of no more use.

    unreadable: what came instead of the message.
    """

    def __init__(self, why: AgentBroken, most: int) -> None:
        super().__init__(str(why), detail=why.detail)
        self.unreadable = Unreadable(str(why), b"", most)


class HttpRefused(AgentFailed):
    """A status that is no success. body: how that of the answer begins."""

    def __init__(self, told: str, status: int, body: bytes, location: str = "") -> None:
        self.status = status
        self.body = body[:SHOWN].decode("utf-8", "replace")
        super().__init__(f"{told} with status {status}{refusal_reason(status, body, location)}", detail=self.body)


class Cursor:
    """A place in one stream, over all responses that the stream comes on.

    id: of the last event, "" while the stream cannot be resumed. heard: events so far. retry: seconds to wait before
    the stream is resumed, as the server said; None if it did not.
    """

    __slots__ = ("heard", "id", "retry")

    def __init__(self) -> None:
        self.id = ""
        self.heard = 0
        self.retry: float | None = None

    def hear(self, events: int) -> None:
        self.heard += events

    def reach(self, id: str, retry: int | None) -> None:
        """Stand behind the event `id`, if there is one. retry: milliseconds, if the server said so."""
        self.id = id or self.id
        if retry is not None:
            self.retry = retry / 1000


def is_stream(response: StreamResponse) -> bool:
    """Whether a request was answered with a stream of events."""
    return response.status == 200 and response.content_type == EVENTS


async def read_events(
    response: StreamResponse,
    cursor: Cursor,
    limit: int,
    take: Callable[[Sequence[bytes | Unreadable]], Awaitable[bool]],
    *,
    named: bool = False,
) -> bool:
    """Hand over the messages of a response, those of one read together, until `take` returns that it has enough.

    Returns whether it has; the response may have more then. limit: bytes of a message; larger ones are Unreadable.
    named: events of any name are messages, and those without data; else only `message` with data.

    Raises EventTooLarge, and what `StreamResponse.chunks` and `take` raise.
    """
    decoder = sse.SseDecoder(hard(limit))

    def frames_of(chunk: bytes) -> list[sse.Frame]:
        try:
            return decoder.feed(chunk)
        except AgentBroken as error:
            raise EventTooLarge(error, hard(limit)) from None

    async for chunk in response.chunks():
        if frames := frames_of(chunk):
            cursor.hear(len(frames))
            messages = [
                judged(frame.data, limit) for frame in frames if named or (frame.event == "message" and frame.data)
            ]
            if messages and await take(messages):
                return True
        cursor.reach(decoder.last_event_id, decoder.retry)
    frames_of(b"")
    return False


async def refusal_body(response: StreamResponse, most: int, seconds: float) -> bytes:
    """The body of a refusal, as far as it can be had."""
    try:
        async with asyncio.timeout(seconds):
            return await response.read(most)
    except (InterlinguaError, TimeoutError):
        return b""
