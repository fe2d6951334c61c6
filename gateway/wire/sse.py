"""Server-sent events without IO: decodes bytes to events and encodes events (WHATWG HTML, section 9.2).

The decoder takes events out of a chunk whole where they look as nearly all do, and else splits it into
all of its lines at once: agents send bursts, and most events are one or three lines. Carriage returns are
turned into line feeds first, a chunk at a time, so that all that follows knows one line end.

`Frame.data` stays bytes: the next thing that happens to it is a JSON decoder, which wants bytes and
reports bad UTF-8 itself.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile

import msgspec

from gateway.core.errors import AgentBroken

DEFAULT_LIMIT = 16 * 1024 * 1024
KEEPALIVE = b": keep-alive\n\n"
CLOSING = b"\n\n"
NUL, LF, CR = 0, 10, 13
"""`int in bytes` is ten times faster than with a `bytes` of length one."""

_BOM = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS = 15
_names: dict[bytes, str] = {}
"""Names by the "event: x" lines already met, as far as they are few and short."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event. `id` is None if this event itself did not set it.

    `event` is "message" where the sender named none. `data` joins its data lines with LF. The id that outlives an event
    is `SseDecoder.last_event_id`.
    """

    event: str
    data: bytes
    id: str | None = None


class SseDecoder:
    """Decodes one stream: `feed` it every chunk, `close` it once at the end.

    `limit` is the greatest size in bytes of one line, and of one event's data lines together; what is
    larger raises AgentBroken. Events that were complete before the oversized one are returned first
    and the next call raises. After it has raised, the decoder is of no more use.

    last_event_id: the last id of an event that is complete ("" before the first), what `Last-Event-ID` has to say. It
        begins with what a stream before this one left.
    retry: the last reconnection time the stream asked for, in milliseconds, or None.
    """

    retry: int | None = None
    _head: bytes | None = b""  # None once the place of the byte order mark is behind us
    _skip_lf = False  # the last chunk ended in CR: a LF that follows belongs to it
    _between = True  # no event is unfinished
    _size = 0  # of the unfinished event's data, once that has a second line
    _event = "message"
    _ident: str | None = None
    _error: AgentBroken | None = None

    def __init__(self, limit: int = DEFAULT_LIMIT, *, last_event_id: str = "") -> None:
        self._limit = limit
        self._tail = bytearray()  # an unfinished line
        self._data: list[bytes] = []  # of the unfinished event
        self.last_event_id = last_event_id

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the events that `chunk` completes, in order. Raises AgentBroken over the limit."""
        if self._error is not None:
            raise self._error
        if self._head is not None:
            head = self._head + chunk
            if len(head) < len(_BOM) and _BOM.startswith(head):
                self._head = head
                return []
            self._head = None
            chunk = head.removeprefix(_BOM)
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if CR in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        frames: list[Frame] = []
        if self._between and len(chunk) <= self._limit:
            chunk = self._take_plain(chunk, frames)
            if not chunk:
                return frames
        lines = chunk.split(b"\n")
        tail = self._tail
        if tail:
            tail += lines[0]
            lines[0] = bytes(tail) if len(lines) > 1 else b""
        rest = lines.pop()
        if lines:
            tail.clear()
        tail += rest
        broken = len(tail) > self._limit
        if len(chunk) > self._limit or (lines and len(lines[0]) > self._limit):
            whole = list(takewhile(lambda line: len(line) <= self._limit, lines))
            broken = broken or len(whole) < len(lines)
            lines = whole
        frames += self._read(lines)
        if broken:
            self._error = self._too_large()
        if self._error is not None and not frames:
            raise self._error
        self._between = not (tail or self._data or self._event != "message" or self._ident is not None)
        return frames

    def close(self) -> bool:
        """End the stream. Returns whether that was inside an event, which is dropped. Raises AgentBroken as `feed`."""
        if self._error is not None:
            raise self._error
        return bool(self._tail or self._data or self._head)

    def _take_plain(self, chunk: bytes, frames: list[Frame]) -> bytes:
        """Events as nearly all are sent, in one piece and with a line each of id, event and data: read without looking
        at every line. Returns the chunk from the first event on that is not one of those. Called between two events.
        """
        at, find, names = 0, chunk.find, _names
        while chunk.startswith(b"id: ", at):
            start = find(b"\ndata: ", at) + 7
            end = find(b"\n", start)  # of one byte: a search for two is many times slower through a long line
            if start < 7 or not chunk.startswith(b"\n", end + 1):
                break
            ident, _, event = chunk[at + 4 : start - 7].partition(b"\n")
            if NUL in ident or not ident.isascii():
                break
            if (name := names.get(event)) is None:
                if not event.startswith(b"event: ") or LF in event:
                    break
                name = _name(event)
            self.last_event_id = last = ident.decode()
            frames.append(Frame(name, chunk[start:end], last))
            at = end + 2
        return chunk[at:] if at else chunk

    def _read(self, lines: list[bytes]) -> list[Frame]:
        """Process finished lines as the standard says, the most common kinds first."""
        frames: list[Frame] = []
        data, event, names = self._data, self._event, _names
        for line in lines:
            if not line:
                if data:
                    whole = data[0] if len(data) == 1 else b"\n".join(data)
                    frames.append(Frame(event, whole, self._ident))
                    data.clear()
                if self._ident is not None:
                    self.last_event_id = self._ident
                event = "message"
                self._ident = None
            elif line[:6] == b"data: ":
                if data and not self._room_for(line):
                    break
                data.append(line[6:])
            elif line in names:
                event = names[line]
            elif line[:4] == b"id: " and NUL not in line:
                try:
                    ident = line[4:].decode()
                except UnicodeDecodeError:  # rare, and naming an error handler costs as much again
                    ident = line[4:].decode("utf-8", "replace")
                self._ident = ident
            elif line.startswith(b"event:") or line == b"event":
                event = _name(line)
            elif not self._other(line):
                break
        self._event = event
        return frames

    def _other(self, line: bytes) -> bool:
        """Process an uncommon line. Returns False if it makes the event too large."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._data and not self._room_for(line):
                return False
            self._data.append(value)
        elif name == b"id":
            if NUL not in value:
                self._ident = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self.retry = int(value)
        return True

    def _room_for(self, line: bytes) -> bool:
        """Whether an event may have this further data line."""
        if len(self._data) == 1:
            self._size = len(self._data[0])
        self._size += len(line)
        if self._size > self._limit:
            self._error = self._too_large()
        return self._error is None

    def _too_large(self) -> AgentBroken:
        return AgentBroken(f"the agent sent an event of more than {self._limit} bytes")


def _name(line: bytes) -> str:
    name = line[6:].removeprefix(b" ").decode("utf-8", "replace") or "message"
    if len(_names) < 64 and len(line) < 64:
        _names[line] = name
    return name


def encode(data: bytes, *, event: str | None = None, id: str | None = None, one_line: bool = False) -> bytes:
    """Encode one event. `data` with line ends becomes several data lines.

    CR and CRLF inside `data` arrive as LF: the grammar has no way to carry them. Raises ValueError
    for an `event` or `id` with a line end, or an `id` with NUL, none of which can be said.

    `one_line`: the caller knows that `data` has no line ends, which are then not looked for.
    """
    if not one_line and (LF in data or CR in data):
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    head = _event_line(event) if event else b""
    if id is not None:
        head = _field("id", id) + head
    return b"".join((head, b"data: ", data, CLOSING))


def opening(event: str) -> bytes:
    """How a frame of this name goes on after its id, up to its data, which is one line and is followed by `CLOSING`.

    For those who put together many frames of one kind.
    """
    return _event_line(event) + b"data: "


@lru_cache(maxsize=64)
def _event_line(event: str) -> bytes:
    return _field("event", event)


def _field(name: str, value: str) -> bytes:
    if not value.isprintable() and not {"\n", "\r", "\0"}.isdisjoint(value):
        raise ValueError(f"an SSE {name} cannot hold {value!r}")
    return f"{name}: {value}\n".encode()


def escape_separators(data: bytes) -> bytes:
    """Escape raw U+2028, U+2029 and U+0085 in JSON bytes.

    Clients exist that cut lines with `str.splitlines()`, which cuts there too. `data` must be JSON:
    these characters can then only stand inside strings.
    """
    if data.isascii():
        return data
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2\x85" in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data
