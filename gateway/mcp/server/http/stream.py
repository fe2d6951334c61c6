"""What goes out for one request: numbered, kept a while, written as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from gateway.core.errors import AgentGone
from gateway.transport.asgi import Exchange
from gateway.transport.streamable_http import EVENTS
from gateway.wire import sse

log = logging.getLogger(__name__)

QUEUE_BYTES = 1024 * 1024
"""Unwritten bytes from which on who says much waits."""
BATCH = 256 * 1024
END_SECONDS = 1.0
MOST_NEWS = 64
NEWS_BYTES = 256 * 1024

EVENTS_HEADERS = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Stream:
    """The messages of one stream. It outlives the responses that carry it, of which there is one at a time.

    name: what its events' ids begin with; "" for a stream that nobody can come back to.
    keep: bytes of written messages that are kept for a client that lost its connection.
    news: whether it is for news, of which a client that does not read misses the oldest.
    """

    def __init__(self, name: str, keep: int, *, news: bool = False) -> None:
        self.name = name
        self.over = False
        """Nothing more is put in."""
        self.opened = False
        """A response has carried it, or does."""
        self.some = asyncio.Event()
        """There may be something to take, or the end."""
        self._keep = keep if name else 0
        self._news = news
        self._last = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._unwritten = 0
        self._written: deque[tuple[int, bytes]] = deque()
        self._kept = 0
        self._pinned: dict[int, bytes] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._reader: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether all of it was written."""
        return self.over and not self._waiting

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return self._unwritten + self._kept

    @property
    def read(self) -> bool:
        """Whether a client has it open."""
        return self._reader is not None

    @property
    def full(self) -> bool:
        """Whether much is unwritten."""
        return not self._room.is_set()

    # --- what goes in ----------------------------------------------------------------------------------------------

    def put(self, message: bytes) -> None:
        """Send it when somebody reads."""
        if self.over:
            return
        self._last += 1
        self._waiting.append((self._last, message))
        self._unwritten += len(message)
        if self._news and (len(self._waiting) > MOST_NEWS or self._unwritten > NEWS_BYTES):
            self._make_room()
        if self._unwritten > QUEUE_BYTES:
            self._room.clear()
        self.some.set()

    def _make_room(self) -> None:
        """Drop the oldest news, as many as there are too many. What is pinned stays, and does not count."""
        loose = deque(one for one in self._waiting if one[0] not in self._pinned)
        size = sum(len(message) for _, message in loose)
        dropped = set[int]()
        while len(loose) > MOST_NEWS or size > NEWS_BYTES:
            number, message = loose.popleft()
            dropped.add(number)
            size -= len(message)
            self._unwritten -= len(message)
        self._waiting = deque(one for one in self._waiting if one[0] not in dropped)

    def pin(self, message: bytes) -> int:
        """Send what may not be missed: it is kept, written or not, until it is withdrawn. Its number."""
        if self.over:
            raise AgentGone("the client's session has ended")
        number = self._last + 1
        self._pinned[number] = message
        self.put(message)
        return number

    def unwritten(self, number: int) -> bool:
        """Whether a message waits to be written, for the first time or again."""
        return any(waiting == number for waiting, _ in self._waiting)

    def withdraw(self, number: int) -> bool:
        """What was pinned is not to be kept. True if it was not written: it is not now. Again: no effect."""
        message = self._pinned.pop(number, None)
        if message is None or not self.unwritten(number):
            return False
        self._waiting.remove((number, message))
        self._unwritten -= len(message)
        self._drained()
        return True

    def end(self) -> None:
        """That was all."""
        self.over = True
        self._room.set()
        self.some.set()

    async def drain(self) -> None:
        """Wait while much is unwritten."""
        if not self._room.is_set():
            await self._room.wait()

    # --- what goes out ---------------------------------------------------------------------------------------------

    def take(self, most: int) -> list[bytes]:
        """The next events, about `most` bytes of them, as they are written."""
        frames: list[bytes] = []
        while self._waiting and most > 0:
            number, message = one = self._waiting.popleft()
            frames.append(self._frame(number, message))
            most -= len(message)
            self._unwritten -= len(message)
            if self._keep and number not in self._pinned:
                self._written.append(one)
                self._kept += len(message)
        while self._kept > self._keep:
            self._kept -= len(self._written.popleft()[1])
        if not self._waiting and not self.over:
            self.some.clear()
        self._drained()
        return frames

    def _drained(self) -> None:
        if self._unwritten <= QUEUE_BYTES // 2:
            self._room.set()

    def rewind(self, after: int) -> bool:
        """Go on behind the event with that number. False if there was none."""
        if not 0 <= after <= self._last:
            return False
        begun = self._waiting[0][0] if self._waiting else self._last + 1
        again = [*self._written, *(one for one in self._pinned.items() if one[0] < begun)]
        again = sorted(one for one in again if one[0] > after)
        self._waiting.extendleft(reversed(again))
        self._unwritten += sum(len(message) for _, message in again)
        if self._waiting and self._waiting[0][0] > after + 1:
            missed = self._waiting[0][0] - after - 1
            log.warning("a client comes back too late: %d messages of its stream are not kept any more", missed)
        self._written.clear()
        self._kept = 0
        self.some.set()
        return True

    def primer(self) -> bytes:
        """An event without a message: from its id on the rest can be asked for."""
        begun = self._waiting[0][0] - 1 if self._waiting else self._last
        return sse.encode(b"", id=f"{self.name}-{begun}")

    def _frame(self, number: int, message: bytes) -> bytes:
        id = f"{self.name}-{number}" if self.name else None
        return sse.encode(sse.escape_separators(message), event="message", id=id, one_line=True)

    # --- who reads -------------------------------------------------------------------------------------------------

    async def vacate(self) -> None:
        """Have whoever reads stop: a client opens a stream a second time when it has lost the first."""
        while (reader := self._reader) is not None:
            reader.cancel()
            await asyncio.wait([reader], timeout=END_SECONDS)
            self._left(reader)

    async def write(self, exchange: Exchange, keep_alive: float, *, first: bytes = b"") -> None:
        """Answer a request with it, until it ends, is vacated, or the client goes.

        first: what is said before anything else. keep_alive: seconds of silence after which a comment is sent.
        """
        begun = asyncio.Event()
        gone = asyncio.create_task(exchange.gone())
        writer = asyncio.create_task(self._write(exchange, keep_alive, first, begun))
        self._reader = writer
        self.opened = True
        tasks = [writer, gone]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done():
                return
            if not writer.cancelled() and (error := writer.exception()) is not None:
                log.error("a stream failed", exc_info=error)
            self._left(writer)
            end = asyncio.create_task(self._finish(exchange, begun))
            tasks = [end, gone]
            # What was written last is on its way to a slow reader still; one whose stream another took may be dead.
            patience = None if self.finished else END_SECONDS
            await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writer, *tasks):
                task.cancel()
            await asyncio.wait({writer, *tasks}, timeout=END_SECONDS)
            self._left(writer)

    async def _finish(self, exchange: Exchange, begun: asyncio.Event) -> None:
        """Send the end of the response: its client knows then that nothing is missing."""
        await self._begin(exchange, begun)
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _begin(self, exchange: Exchange, begun: asyncio.Event) -> None:
        """Send the head, if it was not sent: another may have taken the stream before its writer came to that."""
        if not begun.is_set():
            begun.set()
            headers = [*EVENTS_HEADERS, *exchange.extra]
            await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self, exchange: Exchange, keep_alive: float, first: bytes, begun: asyncio.Event) -> None:
        await self._begin(exchange, begun)
        send = exchange.send
        if first:
            await send({"type": "http.response.body", "body": first, "more_body": True})
        while True:
            if frames := self.take(BATCH):
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
            elif self.over:
                return
            else:
                try:
                    async with asyncio.timeout(keep_alive):
                        await self.some.wait()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": sse.KEEPALIVE, "more_body": True})

    def _left(self, reader: asyncio.Task[None]) -> None:
        if self._reader is reader:
            self._reader = None


class Answering(Stream):
    """The stream of a POST: what is said on the way, and the answers, `wanted` of them."""

    def __init__(self, name: str, keep: int, wanted: int = 1) -> None:
        super().__init__(name, keep)
        self.answers: list[bytes] = []
        self._wanted = wanted
        self._said = False

    def put(self, message: bytes) -> None:
        """See `Stream`."""
        self._said = True
        super().put(message)

    def reply(self, message: bytes) -> None:
        """Put an answer. The last ends the stream."""
        self.answers.append(message)
        super().put(message)
        if len(self.answers) == self._wanted:
            self.end()

    async def silent(self, seconds: float | None) -> bool:
        """Wait for all answers. True if nothing else was said, and they came in time: then they can be a JSON body.

        None: however long they take.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._said and not self.over:
                    self.some.clear()
                    await self.some.wait()
        return self.over and not self._said

    def answer(self) -> Sequence[bytes]:
        """Take the answers, which go out another way."""
        return self.answers
