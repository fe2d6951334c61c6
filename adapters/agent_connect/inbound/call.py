"""One request and its answer, on ASGI itself: below are sockets (the server), above are the operations.

Endpoint objects are ASGI applications, which Starlette's router calls as they are: nothing of a request is parsed
unless an operation asks for it, and an answer is two messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from pydantic import TypeAdapter
from starlette.types import Receive, Scope, Send

from adapters.agent_connect import codec, codec_request
from gateway.access import challenge
from gateway.core.errors import InterlinguaError, Invalid, TooLarge, Unauthenticated, Unavailable, lookup

log = logging.getLogger(__name__)

T = TypeVar("T")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_JSON = (b"content-type", b"application/json")
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
INTERNAL = "internal error"


class ClientGone(Exception):
    """The client has closed the connection."""


class Reply(msgspec.Struct, frozen=True):
    """An answer. `body` is JSON; `headers` are added to its content type and length."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] | None = None

    async def send(self, send: Send) -> None:
        """Send all of it."""
        headers = [(b"content-length", b"%d" % len(self.body))] if self.status != 204 else []
        if self.body:
            headers.append(_JSON)
        if self.headers:
            headers += [(name.encode("latin-1"), text.encode("latin-1")) for name, text in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


NOTHING = Reply(status=204)


def refusal(error: InterlinguaError) -> Reply:
    """An error as `ErrorResponse`: a JSON string."""
    headers: Mapping[str, str] | None = None
    if isinstance(error, Unavailable):
        headers = {"retry-after": "1"}
    elif isinstance(error, Unauthenticated):
        headers = challenge(error)
    return Reply(msgspec.json.encode(codec.error_text(error)), lookup(codec.ERRORS, error), headers)


class Call:
    """One request as the operations see it."""

    __slots__ = ("_limit", "_query", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self._limit = limit
        self._query: dict[str, str] | None = None

    async def read(self, adapter: TypeAdapter[T]) -> T:
        """The body, validated. Raises Invalid, TooLarge, ClientGone."""
        return codec_request.read(adapter, await self.body())

    async def body(self) -> bytes:
        """The body as it came. Raises Invalid if it is compressed, TooLarge (before reading it, if its length was
        announced), ClientGone.
        """
        encoding = self.header(b"content-encoding")
        if encoding and encoding.lower() != "identity":
            raise Invalid(f"Content-Encoding: a body that is encoded ({encoding}) is not taken")
        announced = self.header(b"content-length")
        if announced and announced.isdigit() and int(announced) > self._limit:
            raise TooLarge(f"the body is larger than {self._limit} bytes")
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._limit:
                raise TooLarge(f"the body is larger than {self._limit} bytes")
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def header(self, name: bytes) -> str | None:
        """A request header; `name` in lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value).decode("latin-1")
        return None

    def name(self, parameter: str) -> str:
        """A path parameter as it is."""
        return str(self.scope["path_params"][parameter])

    def has(self, parameter: str) -> bool:
        """Whether the path has it."""
        return parameter in self.scope["path_params"]

    def uuid(self, parameter: str) -> str:
        """A path parameter that must be a UUID. Raises Invalid."""
        value = self.name(parameter)
        if _UUID.fullmatch(value) is None:
            raise Invalid(f"{parameter}: {value!r} is not a UUID")
        return value.lower()

    def query(self, name: str) -> str | None:
        """A query parameter, the last if it was given twice."""
        if self._query is None:
            raw = self.scope["query_string"].decode("latin-1")
            try:
                self._query = dict(parse_qsl(raw, keep_blank_values=True, max_num_fields=100)) if raw else {}
            except ValueError as error:
                raise Invalid(f"the query cannot be read: {error}") from None
        return self._query.get(name)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """A query parameter that is a whole number; `most` where it is more. Raises Invalid below `least`."""
        text = self.query(name)
        if text is None:
            return default
        value = int(text) if re.fullmatch(r"-?[0-9]{1,100}", text) else least - 1
        if value < least:
            raise Invalid(f"{name}: {text!r} is not an integer from {least} up")
        return min(value, most)

    def seconds(self, name: str) -> float | None:
        """A query parameter that is a time in seconds. Raises Invalid."""
        text = self.query(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise Invalid(f"{name}: {text!r} is not a number of seconds")
        return value

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false. Raises Invalid."""
        text = (self.query(name) or "false").lower()
        if text not in _TRUE | _FALSE:
            raise Invalid(f"{name}: {text!r} is not true or false")
        return text in _TRUE

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """A query parameter that is one of these, the first if it is not given. Raises Invalid."""
        text = self.query(name) or choices[0]
        if text not in choices:
            raise Invalid(f"{name}: {text!r} is none of {', '.join(choices)}")
        return text

    def link(self, path: str) -> str:
        """The address of another resource of this mount, without host."""
        return f"{self.scope.get('root_path', '')}{path}"


Operation = Callable[[Call], Awaitable[Reply | None]]


class Endpoint:
    """The operations of a path, by method: an ASGI application. One that has answered itself returns None."""

    def __init__(self, operations: Mapping[str, Operation], limit: int) -> None:
        self._operations = operations
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            return await self._undeclared(scope).send(send)
        try:
            reply = await operation(Call(scope, receive, send, self._limit))
        except InterlinguaError as error:
            if error.detail:
                log.info("%s %s: %s (%s)", scope["method"], scope["path"], error, error.detail)
            reply = refusal(error)
        except ClientGone:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            reply = Reply(msgspec.json.encode(INTERNAL), 500)
        if reply is not None:
            await reply.send(send)

    def _undeclared(self, scope: Scope) -> Reply:
        """405, with all the methods of the path."""
        told = f"{scope['method']} {scope['path']} is no operation of this protocol"
        return Reply(msgspec.json.encode(told), 405, {"allow": ", ".join(self._operations)})


PATIENCE = 0.25
"""Seconds after which somebody listens for the client's end; most requests are answered before, also under load."""


class WhileConnected:
    """`with WhileConnected(receive):` cancels its body when the client goes, and then raises ClientGone.

    Enter it after the request's body was read. Nothing is polled: one task waits for the server's word.
    """

    __slots__ = ("_before", "_gone", "_listener", "_receive", "_task", "_timer")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._listener: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)

    def _begin(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
        if self._gone and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise ClientGone from error
