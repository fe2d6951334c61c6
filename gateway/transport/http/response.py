"""The answers of agents: whole, or as the body arrives, with limits, an idle timeout and decompression."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gateway.core.errors import AgentBroken, AgentBusy, AgentGone, AgentTimeout, InterlinguaError
from gateway.transport.refusal import redirect_advice
from gateway.transport.waiting import Timer

if TYPE_CHECKING:
    from gateway.transport.tap import BodyNotes

_COMPRESSED = ("gzip", "x-gzip", "deflate")
PIECE = 256 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # told apart by their first bytes
_MAX_MEMBERS = 16  # a gzip file may be several; each one costs a copy of what follows it
HELD_BYTES = 128 * 1024
"""The socket is not read while more than this has arrived and not been taken."""
UNLIMITED = 1 << 62


class Unreachable(AgentGone):
    """No connection could be made and nothing was sent, so the call may be repeated."""

    untaken = True

    @classmethod
    def because(cls, error: OSError, name: str) -> Unreachable:
        """The error for an attempt to connect to `name` that failed with `error`."""
        detail = f"{type(error).__name__}: {error}"
        if isinstance(error, ssl.SSLError):
            why = "it does not speak TLS" if error.reason in _NO_TLS else getattr(error, "verify_message", "")
            return cls(f"no TLS connection could be made to {name}" + (f": {why}" if why else ""), detail=detail)
        if isinstance(error, socket.gaierror):  # its numbers are not the system's
            return cls(f"the name of {name} does not resolve", detail=detail)
        several = re.search(_ERRNO, str(error))  # one for each address of the name
        number = error.errno or (int(several[1]) if several else 0)
        why = os.strerror(number).lower() if number else ""
        return cls(f"no connection could be made to {name}" + (f": {why}" if why else ""), detail=detail)


_ERRNO = r"\[Errno (\d+)\]"
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_LATER = (429, 503)


def come_later(status: int, headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After` in an answer that says so: nothing of the request was taken. None in any other."""
    given = headers.get("Retry-After", "").strip() if status in _LATER else ""
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time()) if given else None
    except (ValueError, OverflowError):
        return None


def away(told: str, status: int, headers: Mapping[str, str]) -> AgentGone:
    """The error, with the words `told`, for an answer of an agent that takes no more requests now (429), or of a proxy
    that does not reach it.
    """
    later = come_later(status, headers)
    kind = AgentBusy if status == 429 else AgentGone
    return kind(told, untaken=later is not None, retry_after=later)


def media_type(headers: Mapping[str, str]) -> str:
    """The content type in lower case without its parameters, "" if there is none."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


class ResponseHeaders(Mapping[str, str]):
    """Headers by name, in any case. A name that came several times has its first value; `getall` has all."""

    __slots__ = ("_values",)

    def __init__(self, lines: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """lines: names and values, as they came."""
        found: dict[str, list[str]] = {}
        for name, value in lines:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                text = value.decode("latin-1")
            found.setdefault(name.decode("latin-1").lower(), []).append(text)
        self._values = found

    def getall(self, name: str) -> list[str]:
        """Every value, in the order in which they came."""
        return self._values.get(name.lower(), [])

    def get(self, name: str, default: Any = None) -> Any:
        found = self._values.get(name.lower())
        return default if found is None else found[0]

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class BodySource(Protocol):
    """The connection on which an answer arrives, see `CallConnection`."""

    loop: asyncio.AbstractEventLoop

    def wait(self) -> None: ...
    def read_on(self) -> None: ...
    def fail(self, error: InterlinguaError) -> None: ...


class StreamResponse:
    """An answer whose head has arrived, and its body as it arrives: for one task, in `async with client.stream(...)`.

    Its connection makes it and calls `feed` and `end`; who has asked calls `begin` before reading it.
    """

    whole = False
    """Whether the end of the body has arrived: nothing more will come than can be taken without waiting."""
    error: InterlinguaError | None = None
    """The reason for which no more will arrive, if that is not the end."""
    _size = 0
    _listener: Callable[[bytes], bool] | None = None
    """Given the bytes that arrive, b"" when the end or an error has. Returns whether it takes them."""
    _left = _max_bytes = UNLIMITED
    _gunzip: Gunzip | None = None
    _notes: BodyNotes | None = None
    _idle_timeout: float | None = None

    def __init__(self, connection: BodySource, status: int, headers: ResponseHeaders) -> None:
        self.status = status
        self.headers = headers
        self._connection: BodySource | None = connection
        """Until the answer is over."""
        self._loop = connection.loop
        self._held: list[bytes] = []

    # --- for its connection ----------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes of the body have arrived."""
        if self.error is not None:
            return
        if self._listener is None or not self._listener(data):
            self._held.append(data)
            self._size += len(data)
            if self._size > HELD_BYTES and self._connection is not None:
                self._connection.wait()

    def end(self, error: InterlinguaError | None) -> None:
        """The end has arrived, or there is none, for this reason. The connection is no longer this answer's."""
        self._connection = None
        if error is not None:
            self.fail(error)
        elif self.error is None:
            self.whole = True
            if self._listener is not None:
                self._listener(b"")

    def fail(self, error: InterlinguaError) -> None:
        """Make the current or next read raise `error`, after what has arrived. No effect at the end."""
        if not self.whole and self.error is None:
            self.error = error
            if self._listener is not None:
                self._listener(b"")

    # --- for who has asked -----------------------------------------------------------------------------------------

    def begin(self, max_bytes: int, idle_timeout: float | None) -> None:
        """Set the limits of `chunks`, and decompress what comes compressed. Raises AgentBroken at once, and closes, for
        an encoding that was not asked for, or an announced length over `max_bytes`.
        """
        self._left = self._max_bytes = max_bytes
        self._idle_timeout = idle_timeout
        encoding = self.headers.get("content-encoding")
        if encoding and encoding.lower() != "identity":
            if encoding.lower() not in _COMPRESSED:
                self.close()
                raise AgentBroken("the agent's answer is in a content encoding not asked for")
            self._gunzip = Gunzip()
        elif not self.whole and int(self.headers.get("content-length", 0)) > max_bytes:
            self.close()
            raise self._too_large()

    def note(self, notes: BodyNotes) -> None:
        """Take notes of what is taken from now on."""
        self._notes = notes

    @property
    def exhausted(self) -> bool:
        """Whether `chunks` has given the body to its end. False for a compressed one, whose end is judged after it."""
        return self.whole and not self._held and self._gunzip is None

    @property
    def content_type(self) -> str:
        """The content type in lower case without its parameters, "" if there is none."""
        return media_type(self.headers)

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, without delay and never b"".

        Bytes that arrived before an error are yielded before it is raised. Raises AgentTimeout if nothing arrives for
        the stream's `idle_timeout` (the time that the caller takes does not count), AgentGone if the
        agent closes before the end, AgentBroken if the body is malformed or over the limit. Leaving
        the loop early is fine: leaving the `async with` closes the connection.
        """
        return self

    def __aiter__(self) -> StreamResponse:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self.receive():
            return chunk
        raise StopAsyncIteration

    def take(self) -> bytes:
        """Return what has arrived since the last time, b"" if nothing has. Raises AgentBroken as `chunks` does."""
        gunzip = self._gunzip
        data = b"" if gunzip is None else gunzip.take()
        if not data and (held := self._held):
            data = held[0] if len(held) == 1 else b"".join(held)
            held.clear()
            if self._size > HELD_BYTES and self._connection is not None:
                self._connection.read_on()
            self._size = 0
            if gunzip is not None:
                gunzip.feed(data)
                data = gunzip.take()
        return self._counted(data) if data else b""

    def _counted(self, data: bytes) -> bytes:
        if self._notes is not None:
            self._notes.feed(data)
        self._left -= len(data)
        if self._left < 0:
            self.close()
            raise self._too_large()
        return data

    async def receive(self) -> bytes:
        """Return what has arrived, or wait for it; b"" at the end. Raises as `chunks` does."""
        while not (data := self.take()):
            if self.error is not None:
                raise self.error
            if self.whole:
                if self._gunzip is not None:
                    self._gunzip.finish()
                return b""
            await self._wait()
        return data

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        """Give `take` the pieces that `chunks` would give, each from where it comes off the socket: no task is woken
        for it. True as soon as `take` has returned false, False at the end. What `take` raises is raised here; it
        runs in this task's context, and must not wait.
        """
        if (data := self.take()) and not take(data):
            return True
        if not (self.whole or self.error or self._gunzip or self._idle_timeout):
            stopped = self._loop.create_future()
            run = copy_context().run

            def arrived(data: bytes) -> bool:
                if stopped.done():
                    return False
                try:
                    if not data:
                        stopped.set_result(False)
                    elif not run(take, self._counted(data)):
                        stopped.set_result(True)
                except Exception as error:
                    stopped.set_exception(error)
                return True

            self._listener = arrived
            try:
                if await stopped:
                    return True
            finally:
                self._listener = None
        async for chunk in self:
            if not take(chunk):
                return True
        return False

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Read the rest of the body, e.g. of an error. Raises as `chunks` does.

        AgentBroken if it is larger than `max_bytes` (default: the stream's own limit).
        """
        if max_bytes is not None and max_bytes < self._left:
            self._left = self._max_bytes = max_bytes
        parts = [self.take()]
        while not self.exhausted and (piece := await self.receive()):
            parts.append(piece)
        return b"".join(parts)

    def close(self) -> None:
        """Stop reading. Closes the connection unless the body is complete, which tells the agent that we have gone."""
        self._listener = None
        if self._notes is not None:
            self._notes.end()
        if self._connection is not None:
            self._connection.fail(AgentGone("the gateway closed the connection"))

    async def _wait(self) -> None:
        """Return when something has arrived, or the body is over."""
        waiter = self._loop.create_future()

        def arrived(data: bytes) -> bool:
            if not waiter.done():
                waiter.set_result(None)
            return False

        self._listener = arrived
        silence = None if self._idle_timeout is None else Timer(self._loop, self._idle_timeout, self._silent)
        try:
            await waiter
        finally:
            self._listener = None
            if silence is not None:
                silence.cancel()

    def _silent(self) -> None:
        self.fail(AgentTimeout(f"the agent sent nothing for {self._idle_timeout:g} s"))

    def _too_large(self) -> AgentBroken:
        return AgentBroken(f"the agent's answer is larger than {self._max_bytes} bytes")


class Gunzip:
    """Decompresses one gzip or zlib body: `feed` input, `take` until it returns nothing, `finish` at the end.

    Output comes in pieces of at most PIECE bytes, so a small body cannot fill the memory. A bad body raises
    AgentBroken.
    """

    __slots__ = ("_input", "_members", "_started", "_z")

    def __init__(self) -> None:
        self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._input = b""
        self._members = 1
        self._started = False

    def feed(self, data: bytes) -> None:
        """Add compressed input."""
        self._started = True
        self._input = self._input + data if self._input else data

    def take(self) -> bytes:
        """Return the next piece, at most PIECE bytes; b"" if more input is needed."""
        while self._input:
            if self._z.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise AgentBroken("the agent's answer is compressed in too many pieces")
                self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = self._z.decompress(self._input, PIECE)
            except zlib.error as exc:
                message = "the agent's answer cannot be decompressed"
                raise AgentBroken(message, detail=str(exc)) from exc
            self._input = self._z.unused_data if self._z.eof else self._z.unconsumed_tail
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """End the body. Raises AgentBroken if the compressed data is incomplete."""
        if self._started and not self._z.eof:
            raise AgentBroken("the agent's compressed answer ends too early")


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response, of any status."""

    status: int
    headers: ResponseHeaders
    body: bytes

    @property
    def content_type(self) -> str:
        """The content type in lower case without its parameters, "" if there is none."""
        return media_type(self.headers)

    @property
    def redirected(self) -> str:
        """See `redirect_advice`."""
        return redirect_advice(self.status, self.headers.get("Location", ""))

    def json(self) -> Any:
        """Decode the body as JSON, whatever its content type. Raises AgentBroken if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as exc:  # msgspec's errors, and bytes that are no text
            raise AgentBroken("the agent's answer is not JSON", detail=str(exc)) from exc
