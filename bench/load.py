"""The load: a process that does one job at a time. Jobs are lines of JSON on standard input, results lines on standard
output: `{"ok": ...}` or `{"error": text}`.

| job | does | result |
|---|---|---|
| `requests` | POSTs `body` (or `method`) again and again on `connections`, for `seconds` | count, seconds, p50, p99 |
| `posts` | POSTs `body` `count` times, on `connections` at once | count |
| `streams` | opens `streams` at once, reads each to its end | chunks, snapshots, bytes, p50, p99, first |
| `saturate` | keeps `streams` open again and again for `seconds`, read by `reader` | the same; `all`: also later |
| `turns` | makes `threads` threads and runs one turn on each | count |
| `thread` | makes one | thread: its id |
| `hold` | opens `streams` and leaves them open once each has had `chunks` | held |
| `release` | closes them | held |
| `whole` | one request whose answer is read piece by piece | bytes, events, seconds, largest event |

Those of editors are in agent_client/jobs.py, those of callers in agent_communication/jobs.py and
agent_communication/tools.py.

Times are in ms, but `seconds`. Latency of a chunk: from the time it carries to its arrival here (see stamp.py).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bench.agent_client.jobs import Editors
from bench.agent_communication.jobs import Callers
from bench.agent_communication.tools import Clients
from bench.chunks import MESSAGE, Result, Snapshots, Stamps, counts, paced
from bench.http import ClientConnection, Failed
from bench.rpc.turns import timed

JOB_SECONDS = 120.0
READERS: dict[str, Callable[[], Snapshots | Stamps]] = {"snapshots": Snapshots, "stamps": Stamps}


class Load:
    """Does the jobs. Connections are kept from one job to the next."""

    def __init__(self) -> None:
        self._doers = (self, Editors(), Callers(), Clients())
        self._kept: dict[int, list[ClientConnection]] = {}
        self._held: list[ClientConnection] = []
        self._holding: list[asyncio.Future[bytes]] = []

    async def do(self, job: dict[str, Any]) -> Result:
        """One job; its kind is the method's name."""
        kind = job.pop("kind")
        used = time.process_time()
        began = time.monotonic()
        doer = next(one for one in self._doers if hasattr(one, kind))
        result: Result = await getattr(doer, kind)(**job)
        return result | {"wall": time.monotonic() - began, "cpu": time.process_time() - used}

    async def requests(
        self, port: int, path: str, body: str, *, connections: int, seconds: float, method: str = "POST"
    ) -> Result:
        """See the module."""
        data = body.encode()
        kept = await self._connected(port, connections)
        return await timed([partial(connection.request, method, path, data) for connection in kept], seconds)

    async def posts(self, port: int, path: str, body: str, connections: int, count: int) -> Result:
        """See the module."""
        data, left = body.encode(), iter(range(count))

        async def one(connection: ClientConnection) -> None:
            for _ in left:
                await connection.request("POST", path, data)

        await self._each(port, connections, one)
        return {"count": count}

    async def streams(self, port: int, path: str, body: str, streams: int, chunks: int) -> Result:
        """See the module. Fails if one of them does not bring all its chunks."""
        data, took = body.encode(), [Snapshots() for _ in range(streams)]
        queue = iter(took)
        began = time.monotonic()

        async def one(connection: ClientConnection) -> None:
            reader = next(queue)
            reader.began = time.monotonic_ns()
            await connection.request("POST", path, data, reader.feed)
            if len(reader.sent) != chunks:
                raise Failed(f"{len(reader.sent)} chunks came of {chunks}")

        await self._each(port, streams, one)
        return paced(took) | {"seconds": time.monotonic() - began}

    async def saturate(
        self, port: int, path: str, body: str, *, streams: int, seconds: float, reader: str = "snapshots"
    ) -> Result:
        """See the module. What comes after the time is read, but not counted."""
        data, open_now, done = body.encode(), set[Snapshots | Stamps](), list[Snapshots | Stamps]()
        began = time.monotonic()

        async def one(connection: ClientConnection) -> None:
            while time.monotonic() - began < seconds:
                stream = READERS[reader]()
                open_now.add(stream)
                await connection.request("POST", path, data, stream.feed)
                open_now.discard(stream)
                done.append(stream)

        work = asyncio.ensure_future(self._each(port, streams, one))
        await asyncio.wait([work], timeout=seconds)
        counted = counts([*done, *open_now]) | {"seconds": time.monotonic() - began, "runs": len(done)}
        used = time.process_time()
        await work
        return counted | {"after": time.process_time() - used, "all": counts(done)["chunks"]}

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

    async def thread(self, port: int, prefix: str) -> Result:
        """Makes a thread of Agent Connect: its id."""
        (connection,) = await self._connected(port, 1)
        made = msgspec.json.decode(await connection.request("POST", f"{prefix}/threads", b"{}"))
        return {"thread": made["thread_id"]}

    async def hold(self, port: int, path: str, body: str, streams: int, chunks: int) -> Result:
        """See the module."""
        readers = []
        for _ in range(streams):
            connection = await ClientConnection.open("127.0.0.1", port)
            reader = Snapshots()
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
        text = last.partition(MESSAGE)[2].partition(b'"')[0]
        seconds = time.monotonic() - began
        return {"bytes": size, "events": events, "seconds": seconds, "largest": largest, "last": len(text)}

    async def forget(self, port: int) -> Result:
        """Close the connections kept to a process that is to go."""
        for connection in self._kept.pop(port, []):
            connection.close()
        return {}

    async def _each(self, port: int, count: int, work: Any) -> None:
        """`work` on so many kept connections at once."""
        async with asyncio.TaskGroup() as group:
            for connection in await self._connected(port, count):
                group.create_task(work(connection))

    async def _connected(self, port: int, count: int) -> list[ClientConnection]:
        kept = self._kept[port] = [one for one in self._kept.get(port, []) if one.fresh]
        while len(kept) < count:
            kept.append(await ClientConnection.open("127.0.0.1", port))
        return kept[:count]


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
