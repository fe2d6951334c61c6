"""Brings each request to the worker that keeps what it names, whichever worker its client connects to.

The ids that a worker gives to sessions over HTTP and the like (`gateway.contract.Gateway.new_id`) end in its number. A
request with such an id as the value of a header, in its path or in its query goes on to the worker of that number, over
a Unix socket in the folder that only the workers' user can enter: HTTP/1.1, one request at a time on a connection, kept
for the next. The first header says from which client it comes. What that client sent under the same name comes later
and is no more than a header.

A request is served where it ends: identified, limited, traced, counted. Bodies and answers pass in pieces, as fast as
the other end takes them, and whichever end goes takes the other one along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.core.errors import AgentGone, InterlinguaError, NotFound, Unavailable
from gateway.transport.asgi import ClientGone, HttpRequest
from gateway.transport.asgi.uvicorn import FROM, RequestOrigin
from gateway.transport.http import StreamResponse
from gateway.transport.http.connection import CallConnection
from gateway.transport.http.outgoing import ONE_WRITE, Pieces
from gateway.workers.link import MARK, WorkerLink

log = logging.getLogger("interlingua")

ID_BYTES: Final = 32
KEPT_CONNECTIONS: Final = 32
"""To each other worker, while nothing is asked of it."""
_IN_URL = re.compile(rf"[0-9a-f]{{{ID_BYTES}}}{MARK}([0-9]{{1,4}})")
_IN_HEADER = re.compile(_IN_URL.pattern.encode())
_MARK = MARK.encode()
_MARK_END = ID_BYTES + len(MARK)
_FRAMING = frozenset((b"connection", b"transfer-encoding", b"expect"))
"""Headers of a request that are between the two ends of one connection."""
_ITS_OWN = frozenset(("transfer-encoding", "date"))
"""Headers of an answer that the server adds."""


def named_worker(scope: Scope) -> int | None:
    """The worker that keeps what a request names."""
    for _, value in scope["headers"]:
        if value[ID_BYTES:_MARK_END] == _MARK and (found := _IN_HEADER.fullmatch(value)) is not None:
            return int(found[1])
    path, query = scope["path"], scope["query_string"]
    if MARK in path and (there := _IN_URL.search(path)) is not None:
        return int(there[1])
    if query and (asked := _IN_HEADER.search(query)) is not None:
        return int(asked[1])
    return None


class SessionRouter:
    """ASGI middleware of one worker. What it cannot hand over, since its worker has ended, `inner` refuses.

    refusal: (path, error) -> the answer, in the words of the protocol at that path.
    """

    def __init__(self, inner: ASGIApp, refusal: Callable[[str, InterlinguaError], Response], link: WorkerLink) -> None:
        self._inner = inner
        self._refusal = refusal
        self._socket = link.socket_of
        self._own = link.number
        self._idle: defaultdict[int, list[CallConnection]] = defaultdict(list)
        self._streams: set[StreamResponse] = set()
        self._quiet = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        number = named_worker(scope) if scope["type"] == "http" else None
        if number is not None and number != self._own and not (self._quiet and scope["method"] == "GET"):
            return self._hand_over(number, scope, receive, send)
        return self._inner(scope, receive, send)

    def quiet(self) -> None:
        """This worker stops: end the streams that would go on for ever. Their clients come back to another one."""
        self._quiet = True
        for response in list(self._streams):
            response.fail(_Stopping("this worker stops"))

    def close(self) -> None:
        """Nothing is handed over any more: close the connections on which nothing is asked."""
        for connection in [each for idle in self._idle.values() for each in idle]:
            connection.fail(AgentGone("this worker has stopped"))

    async def _hand_over(self, number: int, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            connection = await self._connected(number)
        except (FileNotFoundError, ConnectionRefusedError):
            return await self._inner(scope, receive, send)
        except OSError as error:
            log.error("worker %d cannot be reached: %s", number, error)
            busy = Unavailable("the gateway is busy; try again later")
            return await self._refusal(scope["path"], busy)(scope, receive, send)
        client = _Client(HttpRequest(scope, receive, send))
        with client.staying():
            try:
                body = await client.body()
            except BaseException:
                connection.fail(AgentGone("the client has gone"))
                raise
            try:
                response = await connection.exchange(*client.asked, body, chunked=client.chunked)
            except InterlinguaError as error:
                log.info("worker %d ended before it answered %s: %s", number, scope["path"], error)
                ended = NotFound("no such session: it has ended with the process that had it")
                return await self._refusal(scope["path"], ended)(scope, receive, send)
            try:
                if scope["method"] == "GET":
                    self._streams.add(response)
                await client.answer(response)
            except _Stopping:
                await client.request.end()
            except InterlinguaError as error:
                log.info("worker %d ended while it answered %s: %s", number, scope["path"], error)
                await client.cut_off()
            finally:
                self._streams.discard(response)
                response.close()

    # --- connections to others -------------------------------------------------------------------------------------

    async def _connected(self, number: int) -> CallConnection:
        """A connection to a worker on which nothing is asked. Raises OSError."""
        idle = self._idle[number]
        while idle:
            if (kept := idle.pop()).open:
                return kept
        loop = asyncio.get_running_loop()
        over, name = partial(self._over, idle), f"worker {number}"
        _, made = await loop.create_unix_connection(
            lambda: CallConnection(loop, name, over=over, lost=lambda _: None), self._socket(number)
        )
        return made

    def _over(self, idle: list[CallConnection], connection: CallConnection, keep: bool) -> None:
        if keep and len(idle) < KEPT_CONNECTIONS:
            idle.append(connection)
        elif keep:
            connection.fail(AgentGone("there are enough connections"))


class _Stopping(AgentGone):
    """The worker that hands a request over is told to stop."""


class _Client:
    """The client whose request is handed over."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request
        self.chunked = request.header("transfer-encoding") is not None
        self._left = False
        self._watcher: asyncio.Task[None] | None = None
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    @contextlib.contextmanager
    def staying(self) -> Iterator[None]:
        """Leave the block when the client goes."""
        before = self._task.cancelling()
        try:
            yield
        except ClientGone:
            pass
        except asyncio.CancelledError:
            if not self._left or self._task.uncancel() > before:
                raise
        finally:
            if self._watcher is not None:
                self._watcher.cancel()

    @property
    def asked(self) -> tuple[str, bytes]:
        """The method, and the head of the request as the other worker gets it."""
        scope = self.request.scope
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        origin = msgspec.json.encode(RequestOrigin(scope["client"], scope["server"], scope["scheme"]))
        lines = [
            b"%b %b%b HTTP/1.1" % (scope["method"].encode(), scope["raw_path"], query),
            b"%b: %b" % (FROM, origin),
            *(b"%b: %b" % line for line in scope["headers"] if line[0] not in _FRAMING),
        ]
        if self.chunked:
            lines.append(b"transfer-encoding: chunked")
        return self.request.method, b"\r\n".join((*lines, b"", b""))

    async def body(self) -> bytes | Pieces:
        """All of it if that is little, else piece after piece. Raises ClientGone."""
        if self.chunked or int(self.request.header("content-length") or 0) > ONE_WRITE:
            return self._pieces()
        whole = b"".join([piece async for piece in self.request.chunks()])
        self._watch()
        return whole

    async def _pieces(self) -> Pieces:
        try:
            async with contextlib.aclosing(self.request.chunks()) as pieces:
                async for piece in pieces:
                    yield piece
        except ClientGone:
            self._go()
            raise
        self._watch()

    def _watch(self) -> asyncio.Task[None]:
        """The body was read: the next that is heard of the client is that it goes."""
        self._watcher = task = asyncio.create_task(self._gone())
        return task

    async def _gone(self) -> None:
        await self.request.gone()
        self._go()

    def _go(self) -> None:
        self._left = True
        self._task.cancel()

    async def cut_off(self) -> None:
        """Close the connection in mid-answer. Raises CancelledError once it is closed, when the client has gone."""
        self.request.cut()
        await asyncio.wait([self._watcher or self._watch()])

    async def answer(self, response: StreamResponse) -> None:
        """Pass an answer on. Raises an error of the tree if it does not come whole."""
        names = (name for name in response.headers if name not in _ITS_OWN)
        lines = [(name.encode(), value.encode()) for name in names for value in response.headers.getall(name)]
        await self.request.begin(response.status, lines)
        while piece := await response.receive():
            await self.request.sent(piece)
        await self.request.end()
