"""One HTTP request and its answer, on ASGI itself: below is the server, above are the operations of a protocol, which
`RestEndpoint` chooses by the method of a path.

Nothing of a request is parsed unless an operation asks for it, and an answer is two messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.core.errors import InterlinguaError, Invalid, NotFound, TooLarge, Unavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

UNBUFFERED: Final[Headers] = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
"""Headers of a streamed answer: nothing on its way may keep it, change it or wait for more of it."""

EVENTS_HEADERS: Final[Headers] = ((b"content-type", b"text/event-stream; charset=utf-8"), *UNBUFFERED)

DISCARD_SECONDS = 10.0
"""How long the rest of a body is read that is too large."""
MAX_PARAMETERS = 100
"""Of a query."""
EXTENSION: Final = "interlingua.line"
"""The key in a scope's `extensions` for the connection's `DirectLine`, if the server has one (see uvicorn.py)."""
ANSWERED: Final = "interlingua.answered"
"""The key in a scope of what is called with the status of an answer that does not go out by ASGI."""
_HEADERS: Final = "interlingua.headers"
"""The key in a scope of its headers by name."""
_NONE: Final[Mapping[str, Any]] = {}


def headers_of(scope: Scope) -> Mapping[bytes, bytes]:
    """The headers of a request by their names in lower case; of one that was sent twice, the last. Read once."""
    found: Mapping[bytes, bytes] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = dict(scope["headers"])
    return found


def twice(scope: Scope, name: bytes) -> bool:
    """Whether a header, its name in lower case, was sent more than once."""
    return len(headers_of(scope)) != len(scope["headers"]) and [each for each, _ in scope["headers"]].count(name) > 1


class DirectLine(Protocol):
    """The connection of a request, past ASGI: without messages and coroutines, and each answer or piece of one by one
    write. What it does not do has to be done by ASGI.
    """

    def body(self, most: int) -> bytes | None:
        """Take the request's body, before any of it was received. None if it is not whole yet or larger than `most`."""

    def put(self, piece: bytes) -> bool:
        """Write a piece that is not empty, between the answer's head and its end. False if it has to be sent: the
        client is behind, has gone, or waits for another answer first.
        """

    def answer(self, reply: Reply, extra: Headers) -> bool:
        """Write a whole answer, with further headers. False if it has to be sent: also where the connection is not kept
        after it.
        """

    def begin(self, status: int, headers: Headers) -> bool:
        """Write the head of an answer in pieces whose length is not known. False as for `answer`."""

    def end(self, piece: bytes) -> bool:
        """Write the last piece, which may be empty, and the end. False as for `answer`."""

    def cut(self) -> None:
        """Close the connection, once what was written is sent."""

    def watch(self, told: Callable[[], None] | None) -> None:
        """Call `told`, once, when the client has closed the connection, or soon if it has already. None: no more."""


class _AtOnce:
    """What is done when it is called."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


AT_ONCE: Final = _AtOnce()


class ClientGone(Exception):
    """The client has closed the connection before it was answered."""


class Reply(Exception):
    """An answer; raised where it ends what was going on. `body` is JSON, unless `kind` says otherwise."""

    def __init__(
        self, status: int, body: bytes = b"", headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.kind = kind

    def for_starlette(self) -> Response:
        """The same as a Starlette response."""
        headers = {name.decode(): value.decode("latin-1") for name, value in self.headers}
        return Response(self.body, self.status, headers, self.kind.decode())


class HttpRequest:
    """One request, and the way its answer goes out: `answer`, or `begin` and then `write` until `end`.

    `extra` headers go on every answer. `begun`: the head of the answer is sent, so that no other can be.
    """

    __slots__ = ("_headers", "_line", "_more", "_query", "begun", "extra", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.extra: list[tuple[bytes, bytes]] = []
        self.begun = False
        self._headers = headers_of(scope)
        self._more = True
        self._query: dict[str, str] | None = None
        self._line: DirectLine | None = scope.get("extensions", _NONE).get(EXTENSION)

    # --- what was asked --------------------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """The method."""
        return str(self.scope["method"])

    @property
    def path_params(self) -> dict[str, str]:
        """The parameters in the path, by name."""
        found: dict[str, str] = self.scope["path_params"]
        return found

    @property
    def agent(self) -> str | None:
        """The agent that the path names."""
        return self.path_params.get("agent")

    def header(self, name: str) -> str | None:
        """A request header, None if it was not sent or is empty. Of one that was sent twice, the last."""
        value = self._headers.get(name.lower().encode())
        return value.decode("latin-1").strip() or None if value is not None else None

    def query(self, name: str) -> str | None:
        """A query parameter, the last if it was given twice. Raises Invalid."""
        if self._query is None:
            raw = self.scope["query_string"].decode("latin-1")
            try:
                self._query = dict(parse_qsl(raw, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)) if raw else {}
            except ValueError as error:
                raise Invalid(f"the query cannot be read: {error}") from None
        return self._query.get(name)

    def link(self, path: str) -> str:
        """The address of another resource of the same mount, without host."""
        return f"{self.scope.get('app_root_path', '')}{self.scope.get('root_path', '')}{path}"

    # --- its body --------------------------------------------------------------------------------------------------

    async def body(self, limit: int, called: str = "body") -> bytes:
        """The body, as it came. Raises Invalid if it is compressed, TooLarge over `limit` bytes, ClientGone.

        called: the body's name in the TooLarge.
        """
        if b"content-encoding" in self._headers:
            self._check_encoding()
        if self._more and self._line is not None and (whole := self._line.body(limit)) is not None:
            self._more = False
            return whole
        small = self.announces(limit)
        chunks: list[bytes] = []
        size = 0
        while small and self._more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            self._more = message.get("more_body", False)
            size += len(chunk)
            small = size <= limit
            chunks.append(chunk)
        if not small:
            await self.discard()
            raise TooLarge(f"the {called} is larger than {limit} bytes")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _check_encoding(self) -> None:
        encoding = self.header("content-encoding")
        if encoding is not None and encoding.lower() != "identity":
            raise Invalid(f"Content-Encoding: a body that is encoded ({encoding}) is not taken")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, however large. Raises ClientGone."""
        while self._more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._more = message.get("more_body", False)
            yield message.get("body", b"")

    def announces(self, limit: int) -> bool:
        """Whether the length that was announced, if any was, is within a limit."""
        announced = self._headers.get(b"content-length", b"")
        return not announced.isdigit() or int(announced) <= limit

    async def discard(self) -> None:
        """Read the rest of the body before its refusal.

        A connection that is closed while its client still writes is reset, and most clients do not read the answer
        then. A client that asks first (`Expect`) is told at once.
        """
        if self.header("expect") is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DISCARD_SECONDS):
                    async for _ in self.chunks():
                        pass
                    return
        self.extra.append((b"connection", b"close"))

    def watch(self, told: Callable[[], None]) -> Callable[[], object]:
        """Call `told` when the client has closed the connection. Returns what ends that. The rest of the body is left
        out.
        """
        if self._line is not None:
            self._line.watch(told)
            return partial(self._line.watch, None)
        gone = asyncio.ensure_future(self.gone())
        gone.add_done_callback(lambda done: None if done.cancelled() else told())
        return gone.cancel

    async def gone(self) -> None:
        """Return when the client has closed the connection. After the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    # --- its answer ------------------------------------------------------------------------------------------------

    async def answer(self, reply: Reply) -> None:
        """Send all of it."""
        self.begun = True
        if self._line is not None and self._line.answer(reply, self.extra):
            if (answered := self.scope.get(ANSWERED)) is not None:
                answered(reply.status)
            return
        headers = [*reply.headers, *self.extra]
        if reply.status != 204:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        if reply.body:
            headers.append((b"content-type", reply.kind))
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})

    def begin(self, status: int, headers: Headers) -> Awaitable[None]:
        """Send the head of an answer whose body comes in pieces. Returns AT_ONCE if that is done."""
        self.begun = True
        headers = [*headers, *self.extra]
        if self._line is not None and self._line.begin(status, headers):
            if (answered := self.scope.get(ANSWERED)) is not None:
                answered(status)
            return AT_ONCE
        return self.send({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, piece: bytes) -> Awaitable[None] | None:
        """Send a piece of the body. Returns what is to be awaited before the next; None if the client keeps up."""
        if self._line is not None and piece and self._line.put(piece):
            return None
        return self.send({"type": "http.response.body", "body": piece, "more_body": True})

    async def sent(self, piece: bytes) -> None:
        """Write a piece, and wait until the next may be written."""
        if (waiting := self.write(piece)) is not None:
            await waiting

    def cut(self) -> None:
        """Close the connection in the middle of the body: its client sees that it is not whole."""
        if self._line is not None:
            self._line.cut()

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece of the body. Returns AT_ONCE if that is done."""
        if self._line is not None and self._line.end(piece):
            return AT_ONCE
        return self.send({"type": "http.response.body", "body": piece})


class EventStream:
    """Frames, one write for all that are ready. The head goes out before the first: until then an error is a status.

    `ended`: the last frame is sent.
    """

    __slots__ = ("_clock", "_headers", "_request", "_written_at", "ended")

    def __init__(self, request: HttpRequest, headers: Headers = ()) -> None:
        """headers: those of the answer, beside EVENTS_HEADERS."""
        self.ended = False
        self._request = request
        self._headers = headers
        self._clock = asyncio.get_running_loop().time
        self._written_at = self._clock()

    @property
    def started(self) -> bool:
        """Whether the head is sent."""
        return self._request.begun

    def silent(self, now: float) -> float:
        """Seconds since the last frame, at a time of the loop's clock."""
        return now - self._written_at

    def write(self, frames: bytes) -> Awaitable[None] | None:
        """Write frames. Returns what is to be awaited before the next, if there is anything."""
        self._written_at = self._clock()
        if not self._request.begun and (begins := self._begins()) is not AT_ONCE:
            return self._begun(begins, frames)
        return self._request.write(frames)

    async def sent(self, frames: bytes) -> None:
        """Write frames, and wait until the next may be written."""
        if (waiting := self.write(frames)) is not None:
            await waiting

    async def end(self, frames: bytes = b"") -> None:
        """Write the last frames."""
        if not self._request.begun:
            await self._begins()
        self.ended = True
        await self._request.end(frames)

    def _begins(self) -> Awaitable[None]:
        return self._request.begin(200, (*EVENTS_HEADERS, *self._headers))

    async def _begun(self, begins: Awaitable[None], frames: bytes) -> None:
        await begins
        await self._request.sent(frames)


class WhileConnected:
    """`with WhileConnected(request):` cancels its body when the client goes, and then raises ClientGone.

    Enter it after the request's body was read, and no other for the same request within it.
    """

    __slots__ = ("_before", "_end", "_gone", "_request", "_task")

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._gone = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._end = self._request.watch(self._leave)

    def _leave(self) -> None:
        self._gone = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._gone and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise ClientGone from error


UNDECLARED = "{method} {path} is no operation of this protocol"

RestOperation: TypeAlias = Callable[[T, HttpRequest], Awaitable[Reply | None]]
"""Called with what serves the client, and its request. Returns None where it has answered itself.

Raises errors of the tree, ClientGone.
"""


async def respond(
    request: HttpRequest,
    serve: Callable[[HttpRequest], Awaitable[Reply | None]],
    refusal: Callable[[InterlinguaError], Reply],
    failed: Callable[[], Reply] | None = None,
) -> None:
    """Answer a request with what `serve` returns or raises: a Reply, ClientGone, an error of the tree.

    serve: returns None where it has answered itself. refusal: the answer to an error. failed: the answer to a fault of
    ours, if that is not the refusal of an InterlinguaError. An answer that has begun is broken off: the server ends the
    connection, and its client sees that something is missing.
    """
    try:
        reply = await serve(request)
    except Reply as raised:
        reply = raised
    except ClientGone:
        return
    except InterlinguaError as error:
        if request.begun:
            raise
        if error.detail:
            log.info("%s %s: %s (%s)", request.method, request.scope["path"], error, error.detail)
        reply = refusal(error)
    except asyncio.CancelledError:  # by the server: the gateway stops, and the request has had its time
        if not request.begun:
            await request.answer(refusal(Unavailable("the gateway is stopping; its runs go on at its next start")))
        raise
    except Exception:
        if request.begun:
            raise
        log.exception("%s %s failed", request.method, request.scope["path"])
        reply = refusal(InterlinguaError("internal error")) if failed is None else failed()
    if reply is not None:
        await request.answer(reply)


class Everybody(NamedTuple, Generic[T]):
    """What serves all clients alike."""

    service: T


class RestEndpoint:
    """An ASGI application, which Starlette's router calls as it is."""

    def __init__(
        self,
        operations: Mapping[str, RestOperation[T]],
        serving: Callable[[Scope], T] | Everybody[T],
        refusal: Callable[[InterlinguaError], Reply],
        *,
        undeclared: str = UNDECLARED,
    ) -> None:
        """operations: by method. serving: what serves the client of a request; may raise errors of the tree.

        refusal: the answer to an error. undeclared: the text of a 405, with `{method}` and `{path}`.
        """
        self._operations = {method: _bound(operation, serving) for method, operation in operations.items()}
        self._refusal = refusal
        self._undeclared = undeclared

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # no coroutine of its own
        method = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        request = HttpRequest(scope, receive, send)
        if operation is None:
            return request.answer(self._not_allowed(request))
        return respond(request, operation, self._refusal)

    def _not_allowed(self, request: HttpRequest) -> Reply:
        """405, with all the methods of the path."""
        told = self._undeclared.format(method=request.method, path=request.scope["path"])
        allowed = ", ".join(self._operations).encode()
        return Reply(405, self._refusal(NotFound(told)).body, [(b"allow", allowed)])


def _bound(
    operation: RestOperation[T], serving: Callable[[Scope], T] | Everybody[T]
) -> Callable[[HttpRequest], Awaitable[Reply | None]]:
    if isinstance(serving, Everybody):
        return partial(operation, serving.service)
    return lambda request: operation(serving(request.scope), request)
