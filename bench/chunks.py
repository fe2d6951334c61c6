"""What a load notes of one stream, and what figures are made of that."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from bench.http import Failed
from bench.stamp import CHUNK

Result = dict[str, Any]
_STAMP = re.compile(rb"(?<![0-9])([0-9]{19}) ")
MESSAGE = b'"message":"'


def quantile(values: list[float], share: float) -> float:
    """By rank; 0 of no values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Chunks:
    """When each chunk of one stream was sent, by the time it carries, and in ms how long it was under way.

    snapshots: the events they came in; bytes: of the whole stream.
    """

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.latency: list[float] = []
        self.snapshots = 0
        self.bytes = 0
        self.began = time.monotonic_ns()
        self.first_at = 0

    def _note(self, data: bytes, start: int, count: int, now: int) -> None:
        """`count` chunks, one behind the other from `start`."""
        self.snapshots += 1
        if not self.first_at:
            self.first_at = now
        for at in range(start, start + count * CHUNK, CHUNK):
            sent = int(data[at : at + CHUNK - 1])
            self.sent.append(sent)
            self.latency.append((now - sent) / 1e6)


class Snapshots(Chunks):
    """Reads a stream of `values`, each of which has all chunks until then."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = b""

    def feed(self, piece: bytes) -> None:
        """A piece of the body."""
        now = time.monotonic_ns()
        self.bytes += len(piece)
        data = self._buffer + piece if self._buffer else piece
        at = 0
        while (end := data.find(b"\n\n", at)) >= 0:
            self._event(data, at, end, now)
            at = end + 2
        self._buffer = data[at:]

    def _event(self, data: bytes, start: int, end: int, now: int) -> None:
        text = data.find(MESSAGE, start, end)
        if text < 0:
            if data.find(b'"error"', start, end) >= 0:
                raise Failed(f"the stream says {data[start:end][:300]!r}")
            return
        text += len(MESSAGE)
        count = (data.find(b'"', text, end) - text) // CHUNK
        known = len(self.sent)
        self._note(data, text + known * CHUNK, max(0, count - known), now)


class Stamps(Chunks):
    """Reads a stream of any form for the chunks in it; one that comes again is not counted again."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._last = 0

    def feed(self, piece: bytes) -> None:
        """A piece of the body."""
        now = time.monotonic_ns()
        self.bytes += len(piece)
        data = self._rest + piece
        end = 0
        for found in _STAMP.finditer(data):
            end = found.end()
            if (sent := int(found[1])) > self._last:
                self._last = sent
                self._note(data, found.start(), 1, now)
        self._rest = data[max(end, len(data) - CHUNK + 1) :]


class Pieces(Chunks):
    """Reads text that comes piece by piece, each of one or more whole chunks."""

    def piece(self, message: bytes, start: int, end: int, now: int) -> None:
        """What lies from `start` to `end` of `message`."""
        self.bytes += len(message)
        count, rest = divmod(end - start, CHUNK)
        if rest:
            raise Failed(f"a piece of {end - start} bytes: {message[:300]!r}")
        self._note(message, start, count, now)


def steady(streams: Iterable[Chunks]) -> list[float]:
    """Latencies of the chunks sent while every stream was open: after the last had its first, before one had its end.

    Of all chunks if there never was such a time.
    """
    streams = list(streams)
    since = max((s.first_at for s in streams), default=0)
    until = min((s.sent[-1] for s in streams if s.sent), default=0)
    pairs = [pair for s in streams for pair in zip(s.sent, s.latency, strict=True)]
    return [ms for sent, ms in pairs if since <= sent <= until] or [ms for _, ms in pairs]


def times(values: list[float]) -> Result:
    """How many, and how long in the middle and at worst."""
    return {"count": len(values), "p50": quantile(values, 0.5), "p99": quantile(values, 0.99)}


def counts(streams: Iterable[Chunks]) -> Result:
    """What came in all of them."""
    streams = list(streams)
    return {
        "chunks": sum(len(s.sent) for s in streams),
        "snapshots": sum(s.snapshots for s in streams),
        "bytes": sum(s.bytes for s in streams),
    }


def paced(streams: Iterable[Chunks]) -> Result:
    """The same, and how long chunks were under way; `first`: from the beginning of a stream to its first chunk."""
    streams = list(streams)
    first = quantile([(s.first_at - s.began) / 1e6 for s in streams], 0.5)
    return {**counts(streams), **times(steady(streams)), "first": first}
