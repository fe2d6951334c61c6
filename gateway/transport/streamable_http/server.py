"""The server's end: requests of one endpoint, the sessions there are, and streams that outlive their responses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from gateway.core.errors import AgentGone
from gateway.transport.asgi import Headers, HttpRequest, Reply, origin
from gateway.transport.asgi.request import UNBUFFERED
from gateway.transport.streamable_http import EVENTS, JSON
from gateway.transport.waiting import CLOCK_SLACK
from gateway.wire import sse

log = logging.getLogger(__name__)

QUEUE_BYTES = 1024 * 1024
"""Unwritten bytes of a stream from which on `drain` waits."""
BATCH = 256 * 1024
END_SECONDS = 1.0
"""For a response to end that another takes the stream from, or whose client has gone."""
MOST_NEWS = 64
NEWS_BYTES = 256 * 1024

EVENTS_HEADERS: Final[Headers] = (
    (b"content-type", EVENTS.encode()),
    *UNBUFFERED,
)


# --- requests ---------------------------------------------------------------------------------------------------------


class Refuse(Protocol):
    """Makes the answer to a request that is not served, in the words of the protocol."""

    def __call__(self, status: int, why: str, *, headers: Headers = ()) -> Reply: ...


def admit(request: HttpRequest, origins: Collection[str], exposed: str, allowed: str, refuse: Refuse) -> Reply | None:
    """Refuse other methods and pages of other origins; the answer to a preflight, else None. Raises Reply, Denied.

    exposed: headers of answers that a page may read. allowed: the methods.
    """
    page = request.header("origin")
    origin.admit(page, request.scope, origins)
    if page is not None:
        request.extra.extend(origin.cors(page, exposed))
        if request.method == "OPTIONS":
            return Reply(204, headers=origin.preflight(request.header("access-control-request-headers")))
    if request.method not in allowed.split(", "):
        raise refuse(405, f"{request.method} is not served here", headers=[(b"allow", allowed.encode())])
    return None


async def posted(request: HttpRequest, limit: int, refuse: Refuse) -> bytes:
    """The message that was POSTed, or several. Raises Reply, TooLarge, ClientGone."""
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != JSON or request.header("content-encoding") not in (None, "identity"):
        raise refuse(415, f"the Content-Type must be {JSON}, not encoded")
    return await request.body(limit, "message")


# --- sessions ---------------------------------------------------------------------------------------------------------


class Identified(Protocol):
    """A session of either protocol."""

    @property
    def id(self) -> str:
        """Unguessable."""


S = TypeVar("S", bound=Identified)


class SessionTable(Generic[S]):
    """Sessions by id. A client says goodbye with DELETE; one that did not is taken to have gone when it was idle.

    A session is idle while no request of its client's is being answered, the GET of a stream included.
    """

    def __init__(self, idle: float, expire: Callable[[S], None]) -> None:
        """expire: called with a session that was idle for that many seconds."""
        self._idle = idle
        self._expire = expire
        self._sessions: dict[str, S] = {}
        self._using: dict[str, int] = {}
        self._whose: dict[str, str] = {}
        self._held: dict[str, int] = {}
        self._since: dict[str, float] = {}
        """When each became idle that is: the longest first."""
        self._timer: asyncio.TimerHandle | None = None
        """Set for the first of them, or earlier."""

    def get(self, id: str) -> S | None:
        return self._sessions.get(id)

    @property
    def all(self) -> list[S]:
        return list(self._sessions.values())

    @property
    def idle(self) -> Iterator[S]:
        """Those that are idle, the longest first."""
        return (self._sessions[id] for id in self._since)

    def held(self, whose: str | None) -> int:
        """How many sessions of a client there are; 0 for one that nobody knows."""
        return self._held.get(whose, 0) if whose is not None else 0

    def idle_of(self, whose: str) -> Iterator[S]:
        """Those of a client that are idle, the longest first."""
        return (self._sessions[id] for id in self._since if self._whose.get(id) == whose)

    def add(self, session: S, whose: str | None = None) -> None:
        """Add a session, idle from now on. whose: the client, if it is known."""
        self._sessions[session.id] = session
        if whose is not None:
            self._whose[session.id] = whose
            self._held[whose] = self._held.get(whose, 0) + 1
        self._wait(session)

    def remove(self, session: S) -> None:
        del self._sessions[session.id]
        if (whose := self._whose.pop(session.id, None)) is not None:
            self._held[whose] -= 1
            if not self._held[whose]:
                del self._held[whose]
        self._since.pop(session.id, None)

    @contextlib.contextmanager
    def used(self, session: S) -> Iterator[None]:
        """While the block lasts the session is not idle."""
        id = session.id
        self._using[id] = self._using.get(id, 0) + 1
        self._since.pop(id, None)
        try:
            yield
        finally:
            self._using[id] -= 1
            if not self._using[id]:
                del self._using[id]
                if id in self._sessions:
                    self._wait(session)

    def _wait(self, session: S) -> None:
        loop = asyncio.get_running_loop()
        self._since[session.id] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle, self._look)

    def _look(self) -> None:
        """End the first if it was idle for long enough, and look again when the next may be."""
        loop = asyncio.get_running_loop()
        self._timer, ended = None, None
        id, since = next(iter(self._since.items()), ("", math.inf))
        if since + self._idle < loop.time() + CLOCK_SLACK:
            del self._since[id]
            ended = self._sessions[id]
        for since in self._since.values():
            self._timer = loop.call_at(since + self._idle, self._look)
            break
        if ended is not None:
            self._expire(ended)


# --- streams ----------------------------------------------------------------------------------------------------------

Encode: TypeAlias = Callable[[int, bytes], bytes]
"""(number, message) -> the event."""


class MessageStream:
    """The messages of one stream, numbered from 1. It outlives the responses that carry it, one at a time.

    name: for its owner. over: nothing more is put in. opened: a response carries it, or has. some: there may be
    something to take, or the end.
    """

    def __init__(
        self,
        name: str,
        encode: Encode,
        *,
        keep: int | None = 0,
        news: bool = False,
        moved: Callable[[int], None] = lambda size: None,
    ) -> None:
        """keep: bytes of written messages that are kept, to go on behind the last that a client got (`rewind`).

        None: clients cannot say which that was. A write that nobody got is made again on the next response, as far as
        a server can tell.
        news: a client that does not read misses the oldest, but not those that are pinned.
        moved: told how many bytes have left for good, and of every other change (0).
        """
        self.name = name
        self.over = False
        self.opened = False
        self.some = asyncio.Event()
        self._encode = encode
        self._confirms = keep is None
        self._keep = keep or 0
        self._news = news
        self._moved = moved
        self._last = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._unwritten = 0
        self._taken: list[tuple[int, bytes]] = []
        self._written: deque[tuple[int, bytes]] = deque()
        self._kept = 0
        self._pinned: dict[int, bytes] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._writer: asyncio.Task[None] | None = None
        self._finishing = False

    @property
    def empty(self) -> bool:
        """Whether everything is written."""
        return not self._waiting and not self._taken

    @property
    def finished(self) -> bool:
        return self.over and self.empty

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return self._unwritten + self._kept

    @property
    def last(self) -> int:
        """The number of the message put last."""
        return self._last

    @property
    def read(self) -> bool:
        """Whether a response carries it."""
        return self._writer is not None

    @property
    def ending(self) -> bool:
        """Whether the response that carries it ends once everything is written."""
        return self.over or self._finishing

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
            self._drop_news()
        if self._unwritten > QUEUE_BYTES:
            self._room.clear()
        self.some.set()

    def _drop_news(self) -> None:
        """Drop the oldest, as many as there are too many. What is pinned stays, and does not count."""
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
        """Stop keeping a pinned message. True if it was not written: it is not now. Again: no effect."""
        message = self._pinned.pop(number, None)
        if message is None or not self.unwritten(number):
            return False
        self._waiting.remove((number, message))
        self._unwritten -= len(message)
        self._drained()
        return True

    def end(self) -> None:
        """That was all: whoever reads gets the rest, and the end."""
        self.over = True
        self._room.set()
        self.some.set()

    def finish(self) -> None:
        """The same for the response that carries it now; another may go on."""
        self._finishing = True
        self.some.set()

    def abort(self) -> None:
        """End it at once, without the rest."""
        self.end()
        size = sum(len(message) for _, message in self._waiting)
        self._waiting.clear()
        self._unwritten -= size
        self._moved(size)
        if self._writer is not None:
            self._writer.cancel()

    def pour(self, other: MessageStream) -> None:
        """Have another stream send what waits here. Not while a response carries this one."""
        for _, message in self._waiting:
            other.put(message)
        self._waiting.clear()
        self._unwritten = 0
        self._room.set()

    async def drain(self) -> None:
        """Wait while much is unwritten."""
        if not self._room.is_set():
            await self._room.wait()

    # --- what goes out ---------------------------------------------------------------------------------------------

    def take(self, most: int) -> list[bytes]:
        """The next events, about `most` bytes of them."""
        events: list[bytes] = []
        while self._waiting and most > 0:
            number, message = one = self._waiting.popleft()
            events.append(self._encode(number, message))
            most -= len(message)
            if self._confirms:
                self._taken.append(one)
                continue
            self._unwritten -= len(message)
            if self._keep and number not in self._pinned:
                self._written.append(one)
                self._kept += len(message)
        while self._kept > self._keep:
            self._kept -= len(self._written.popleft()[1])
        if not self._waiting and not self.ending:
            self.some.clear()
        self._drained()
        return events

    def _drained(self) -> None:
        if self._unwritten <= QUEUE_BYTES // 2:
            self._room.set()

    def _confirm(self, arrived: bool) -> None:
        """The events taken last are on their way, or go out again."""
        size = sum(len(message) for _, message in self._taken)
        if not arrived:
            self._waiting.extendleft(reversed(self._taken))
            self._taken = []
            self.some.set()
            return
        self._taken = []
        self._unwritten -= size
        self._drained()
        self._moved(size)

    def rewind(self, after: int) -> bool:
        """Go on behind the event with that number. False if there was none."""
        if not 0 <= after <= self._last:
            return False
        begun = self.next
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

    @property
    def next(self) -> int:
        """The number of the next message to be written."""
        return self._waiting[0][0] if self._waiting else self._last + 1

    # --- the response that carries it ------------------------------------------------------------------------------

    async def vacate(self) -> None:
        """Have the response end that carries it: a client opens a stream again when it has lost the first."""
        while (writer := self._writer) is not None:
            writer.cancel()
            await asyncio.wait([writer], timeout=END_SECONDS)
            self._left(writer)

    async def write(
        self,
        request: HttpRequest,
        keep_alive: float,
        *,
        first: bytes = b"",
        attached: Callable[[], None] = lambda: None,
        longest: float | None = None,
    ) -> None:
        """Answer a request with it, until it ends, is vacated, or the client goes. It was vacated before.

        first: said before anything else. attached: called before the first wait. keep_alive: seconds of silence after
        which a comment is sent. longest: seconds after which the response ends, and another goes on.
        """
        gone = asyncio.create_task(request.gone())
        writer = asyncio.create_task(self._write(request, keep_alive, first, gone))
        self._writer = writer
        self.opened = True
        self._moved(0)
        attached()
        timer = None if longest is None else asyncio.get_running_loop().call_later(longest, self.finish)
        tasks = [writer, gone]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done() or (self._confirms and gone.done()):
                return
            if not writer.cancelled() and (error := writer.exception()) is not None:
                log.error("a stream failed", exc_info=error)
            # What was written last is on its way to a slow reader still; one whose stream another took may be dead.
            patience = None if self.finished and not self._confirms else END_SECONDS
            self._left(writer)
            end = asyncio.create_task(self._finish(request))
            tasks = [end, gone]
            await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
            for task in (writer, *tasks):
                task.cancel()
            await asyncio.wait({writer, *tasks}, timeout=END_SECONDS)
            self._left(writer)

    async def _finish(self, request: HttpRequest) -> None:
        """Send the end of the response: its client knows then that nothing is missing."""
        await self._begin(request)
        await request.end()

    async def _begin(self, request: HttpRequest) -> None:
        """Send the head, if it was not sent: another may have taken the stream before its writer came to that."""
        if not request.begun:
            await request.begin(200, EVENTS_HEADERS)

    async def _write(
        self,
        request: HttpRequest,
        keep_alive: float,
        first: bytes,
        gone: asyncio.Task[None],
    ) -> None:
        await self._begin(request)
        if first:
            await request.sent(first)
        while not gone.done():
            if events := self.take(BATCH):
                written = b"".join(events)
                if not self._confirms:
                    await request.sent(written)
                    continue
                sent = False
                try:
                    await request.sent(written)
                    sent = True
                    await asyncio.sleep(0)  # a server says only a turn later that the client had gone
                finally:
                    self._confirm(sent and not gone.done())
            elif self.ending:
                return
            else:
                try:
                    async with asyncio.timeout(keep_alive):
                        await self.some.wait()
                except TimeoutError:
                    await request.sent(sse.KEEPALIVE)

    def _left(self, writer: asyncio.Task[None]) -> None:
        if self._writer is writer:
            self._writer = None
            self._finishing = False
            self._moved(0)
