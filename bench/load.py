"""The load: a process that does one job at a time. Jobs are lines of JSON on standard input, results lines on standard
output: `{"ok": ...}` or `{"error": text}`.

| job | does | result |
|---|---|---|
| `requests` | POSTs `body`, one after the other on each of `connections`, for `seconds` | count, seconds, p50, p99 |
| `streams` | opens `streams` at once, reads each to its end | chunks, snapshots, bytes, p50, p99, first |
| `saturate` | keeps `streams` open, one run after the other on each, for `seconds` | the same, within the time |
| `turns` | makes `threads` threads and runs one turn on each | count |
| `hold` | opens `streams` and leaves them open once each has had `chunks` | held |
| `release` | closes them | held |
| `whole` | one request whose answer is read piece by piece | bytes, events, seconds, largest event |

Times are in ms, but `seconds`. Latency of a chunk: from the time it carries to its arrival here (see agent.py).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from bench.agent import CHUNK
from bench.http import ClientConnection, Failed

Result = dict[str, Any]
JOB_SECONDS = 120.0
_MESSAGE = b'"message":"'


def quantile(values: list[float], share: float) -> float:
    """By rank; 0 of no values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Chunks:
    """Reads one stream of snapshots and notes when each of its chunks came, in whichever snapshot it came."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.latency: list[float] = []
        self.snapshots = 0
        self.bytes = 0
        self.began = time.monotonic_ns()
        self.first_at = 0
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
        text = data.find(_MESSAGE, start, end)
        if text < 0:
            if data.find(b'"error"', start, end) >= 0:
                raise Failed(f"the stream says {data[start:end][:300]!r}")
            return
        text += len(_MESSAGE)
        self.snapshots += 1
        if not self.first_at:
            self.first_at = now
        count = (data.find(b'"', text, end) - text) // CHUNK
        for number in range(len(self.sent), count):
            sent = int(data[text + number * CHUNK : text + number * CHUNK + CHUNK - 1])
            self.sent.append(sent)
            self.latency.append((now - sent) / 1e6)


def steady(streams: Iterable[Chunks]) -> list[float]:
    """Latencies of the chunks sent while every stream was open: after the last had its first, before one had its end.

    Of all chunks if there never was such a time.
    """
    streams = list(streams)
    since = max((s.first_at for s in streams), default=0)
    until = min((s.sent[-1] for s in streams if s.sent), default=0)
    pairs = [pair for s in streams for pair in zip(s.sent, s.latency, strict=True)]
    return [ms for sent, ms in pairs if since <= sent <= until] or [ms for _, ms in pairs]


class Load:
    """Does the jobs. Connections are kept from one job to the next."""

    def __init__(self) -> None:
        self._kept: dict[int, list[ClientConnection]] = {}
        self._held: list[ClientConnection] = []
        self._holding: list[asyncio.Future[bytes]] = []

    async def do(self, job: dict[str, Any]) -> Result:
        """One job; its kind is the method's name."""
        kind = job.pop("kind")
        used = time.process_time()
        began = time.monotonic()
        result: Result = await getattr(self, kind)(**job)
        return result | {"wall": time.monotonic() - began, "cpu": time.process_time() - used}

    async def requests(self, port: int, path: str, body: str, connections: int, seconds: float) -> Result:
        """See the module."""
        data = body.encode()
        times: list[float] = []
        began = time.monotonic()

        async def one(connection: ClientConnection) -> None:
            while (at := time.perf_counter()) and time.monotonic() - began < seconds:
                await connection.request("POST", path, data)
                times.append((time.perf_counter() - at) * 1e3)

        await self._each(port, connections, one)
        return _times(times) | {"seconds": time.monotonic() - began}

    async def streams(self, port: int, path: str, body: str, streams: int, chunks: int) -> Result:
        """See the module. Fails if one of them does not bring all its chunks."""
        data, took = body.encode(), [Chunks() for _ in range(streams)]
        queue = iter(took)
        began = time.monotonic()

        async def one(connection: ClientConnection) -> None:
            reader = next(queue)
            reader.began = time.monotonic_ns()
            await connection.request("POST", path, data, reader.feed)
            if len(reader.sent) != chunks:
                raise Failed(f"{len(reader.sent)} chunks came of {chunks}")

        await self._each(port, streams, one)
        latency = steady(took)
        return _counts(took) | {
            "seconds": time.monotonic() - began,
            "count": len(latency),
            "p50": quantile(latency, 0.5),
            "p99": quantile(latency, 0.99),
            "first": quantile([(s.first_at - s.began) / 1e6 for s in took], 0.5),
        }

    async def saturate(self, port: int, path: str, body: str, streams: int, seconds: float) -> Result:
        """See the module. What comes after the time is read, but not counted."""
        data, open_now, done = body.encode(), set[Chunks](), list[Chunks]()
        began = time.monotonic()

        async def one(connection: ClientConnection) -> None:
            while time.monotonic() - began < seconds:
                reader = Chunks()
                open_now.add(reader)
                await connection.request("POST", path, data, reader.feed)
                open_now.discard(reader)
                done.append(reader)

        work = asyncio.ensure_future(self._each(port, streams, one))
        await asyncio.wait([work], timeout=seconds)
        counted = _counts([*done, *open_now]) | {"seconds": time.monotonic() - began, "runs": len(done)}
        used = time.process_time()
        await work
        return counted | {"after": time.process_time() - used}

    async def turns(self, port: int, prefix: str, body: str, threads: int, connections: int) -> Result:
        """See the module."""
        left = iter(range(threads))

        async def one(connection: ClientConnection) -> None:
            for _ in left:
                made = msgspec.json.decode(await connection.request("POST", f"{prefix}/threads", b"{}"))
                path = f"{prefix}/threads/{made['thread_id']}/runs/wait"
                await connection.request("POST", path, body.encode())

        await self._each(port, connections, one)
        return {"count": threads}

    async def hold(self, port: int, path: str, body: str, streams: int, chunks: int) -> Result:
        """See the module."""
        readers = []
        for _ in range(streams):
            connection = await ClientConnection.open("127.0.0.1", port)
            reader = Chunks()
            self._held.append(connection)
            self._holding.append(connection.request("POST", path, body.encode(), reader.feed))
            readers.append(reader)
        while min(len(reader.sent) for reader in readers) < chunks:
            for broken in self._holding:
                if broken.done():
                    raise Failed("a held stream ended")
            await asyncio.sleep(0.02)
        return {"held": len(self._held)}

    async def release(self) -> Result:
        """See the module."""
        held = len(self._held)
        for connection in self._held:
            connection.close()
        await asyncio.gather(*self._holding, return_exceptions=True)
        self._held, self._holding = [], []
        return {"held": held}

    async def whole(self, port: int, path: str, body: str) -> Result:
        """See the module. Events are what a blank line ends; `last` is the length of the last one's `message`."""
        size = events = largest = open_bytes = 0
        parts: list[bytes] = []
        last = b""

        def feed(piece: bytes) -> None:
            nonlocal size, events, largest, open_bytes, last
            size += len(piece)
            ends = piece.split(b"\n\n")
            for end in ends[:-1]:
                events += 1
                largest = max(largest, open_bytes + len(end))
                parts.append(end)
                last = b"".join(parts)
                parts.clear()
                open_bytes = 0
            parts.append(ends[-1])
            open_bytes += len(ends[-1])

        began = time.monotonic()
        connection = await ClientConnection.open("127.0.0.1", port)
        await connection.request("POST", path, body.encode(), feed)
        connection.close()
        text = last.partition(_MESSAGE)[2].partition(b'"')[0]
        seconds = time.monotonic() - began
        return {"bytes": size, "events": events, "seconds": seconds, "largest": largest, "last": len(text)}

    async def forget(self, port: int) -> Result:
        """Close the connections kept to a process that is to go."""
        for connection in self._kept.pop(port, []):
            connection.close()
        return {}

    async def _each(self, port: int, count: int, work: Any) -> None:
        """`work` on so many kept connections at once."""
        kept = self._kept[port] = [one for one in self._kept.get(port, []) if one.fresh]
        while len(kept) < count:
            kept.append(await ClientConnection.open("127.0.0.1", port))
        async with asyncio.TaskGroup() as group:
            for connection in kept[:count]:
                group.create_task(work(connection))


def _times(times: list[float]) -> Result:
    return {"count": len(times), "p50": quantile(times, 0.5), "p99": quantile(times, 0.99)}


def _counts(streams: list[Chunks]) -> Result:
    return {
        "chunks": sum(len(s.sent) for s in streams),
        "snapshots": sum(s.snapshots for s in streams),
        "bytes": sum(s.bytes for s in streams),
    }


def _why(error: BaseException) -> str:
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return f"{type(inner).__name__}: {inner}"


async def serve() -> None:
    """Jobs until standard input ends."""
    loop, load = asyncio.get_running_loop(), Load()
    gc.collect()
    gc.freeze()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            async with asyncio.timeout(JOB_SECONDS):
                answer: Result = {"ok": await load.do(msgspec.json.decode(line))}
        except Exception as error:
            answer = {"error": _why(error)}
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    from bench.stage import run

    run(serve())
