"""Newline-delimited JSON: one JSON text per line, no IO. For protocols whose frames are lines (stdio, streams)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import msgspec

from gateway.core.errors import AgentBroken
from gateway.wire.sse import escape_separators

LIMIT = 16 * 1024 * 1024
CR = 13
"""`int in bytes` is ten times faster than with a `bytes` of length one."""

_BOM = b"\xef\xbb\xbf"
_KEPT = 200
_STEP = 1024 * 1024


class Unreadable(msgspec.Struct, frozen=True):
    """A piece of input that was skipped because it is not a message. The stream goes on.

    `reason` says why (over the limit, not UTF-8), `start` is how it began, `end` how it ended, each at most 200 bytes.
    `size` in bytes.
    """

    reason: str
    start: bytes
    size: int
    end: bytes = b""

    @classmethod
    def of(cls, reason: str, data: bytes) -> Unreadable:
        """Make it of the whole input."""
        return cls(reason, data[:_KEPT], len(data), data[-_KEPT:])


class Splitter:
    """Splits bytes into lines, in order, in time proportional to the bytes however they are cut.

    A line of more than `limit` bytes, or one that is not UTF-8, becomes an Unreadable in its place; of the former
    only the start and the end are kept in memory. Blank lines, a CR before the line feed and a byte order mark before
    the first line are passed over.
    """

    __slots__ = ("_end", "_fresh", "_limit", "_rest", "_size", "_start")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._fresh = True  # nothing was completed yet: a byte order mark may come
        self._rest = bytearray()  # of an unfinished line; empty while one is skipped
        self._size = 0  # of the unfinished line
        self._start = self._end = b""  # of a line that is skipped

    def feed(self, chunk: bytes) -> list[bytes | Unreadable]:
        """The lines that `chunk` completes, without their ends."""
        lines: list[bytes] = chunk.split(b"\n")
        rest = lines.pop()
        done: list[bytes | Unreadable] = []
        if lines and (self._size or self._fresh):
            self._hold(lines[0])
            done = self._complete()
            del lines[0]
        if lines:
            if CR in chunk:
                lines = [line.removesuffix(b"\r") for line in lines]
            lines = [line for line in lines if line and not line.isspace()]
            if chunk.isascii() and len(chunk) <= self._limit:
                done += lines
            else:
                done += [self._judge(line) for line in lines]
        if rest:
            self._hold(rest)
        return done

    def close(self) -> list[bytes | Unreadable]:
        """The last line, if it lacks its end."""
        return self._complete()

    @property
    def skipping(self) -> bool:
        """Whether the unfinished line is already over the limit."""
        return bool(self._start)

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._rest += piece
            return
        if not self._start:
            self._start = bytes(self._rest[:_KEPT]) + piece[: max(0, _KEPT - len(self._rest))]
            self._end, self._rest = bytes(self._rest[-_KEPT:]), bytearray()
        self._end = (self._end + piece[-_KEPT:])[-_KEPT:]

    def _complete(self) -> list[bytes | Unreadable]:
        size, start, line = self._size, self._start, bytes(self._rest)
        self._size, self._start, self._rest = 0, b"", bytearray()
        if start:
            self._fresh = False
            return [Unreadable(self._too_long(size), start, size, self._end)]
        if self._fresh:
            self._fresh = False
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\r")
        return [self._judge(line)] if line and not line.isspace() else []

    def _judge(self, line: bytes) -> bytes | Unreadable:
        if len(line) > self._limit:
            return Unreadable.of(self._too_long(len(line)), line)
        if not line.isascii() and not _is_utf8(line):
            return Unreadable.of("a line that is not UTF-8", line)
        return line

    def _too_long(self, size: int) -> str:
        return f"a line of {size} bytes, over the limit of {self._limit}"


class NdjsonDecoder:
    """Splits streams that one bad line breaks: raises AgentBroken instead of returning an Unreadable."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._splitter = Splitter(limit)
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends."""
        lines = [_readable(line) for line in self._splitter.feed(chunk)]
        if self._splitter.skipping:  # its end may never come
            raise AgentBroken(f"a line of more than {self._limit} bytes")
        return lines

    def close(self) -> list[bytes]:
        """The last line, if it lacks its end."""
        return [_readable(line) for line in self._splitter.close()]


def encode(data: bytes) -> bytes:
    """Make one line. `data` is a JSON text without raw newlines, as every JSON encoder here makes it."""
    return data + b"\n"


def frame(messages: Sequence[bytes]) -> bytes:
    """Make a line for each JSON text, by any encoder, in one piece of bytes.

    Raw line ends, which JSON has only between tokens, become spaces; U+2028, U+2029 and U+0085, which it has only in
    strings, become escapes: readers exist that cut lines there (Node's readline, Python's splitlines).
    """
    data = b"\n".join((*messages, b""))
    if CR in data or data.count(b"\n") != len(messages):
        data = b"\n".join((*(m.replace(b"\r", b" ").replace(b"\n", b" ") for m in messages), b""))
    return escape_separators(data)


def _readable(line: bytes | Unreadable) -> bytes:
    if isinstance(line, Unreadable):
        raise AgentBroken(line.reason)
    return line


def _is_utf8(line: bytes) -> bool:
    try:
        if len(line) <= _STEP:
            line.decode()
            return True
        decoder = codecs.getincrementaldecoder("utf-8")()
        view = memoryview(line)  # piece by piece: a string may take four times the room
        for at in range(0, len(line), _STEP):
            decoder.decode(view[at : at + _STEP])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
