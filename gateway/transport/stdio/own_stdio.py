"""This program's own standard input and output as a pipe, for a gateway that a client started as its agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence

from gateway.core.errors import AgentGone
from gateway.transport.pipe import LIMIT, Unreadable
from gateway.transport.stdio.lines import LineReader, LineWriter
from gateway.wire.ndjson import frame

BLOCK = 64 * 1024
FLUSH_SECONDS = LAST_SECONDS = 5.0


class OwnPipe:
    """A `gateway.transport.pipe.Pipe`. Make it once, on the running loop, before anything is printed.

    From then on nothing but messages goes to standard output: whatever else prints there prints to standard error.
    """

    name = "the client on standard input"

    def __init__(self, limit: int = LIMIT) -> None:
        sys.stdout.flush()
        self._copying: threading.Thread | None = None
        output = os.dup(1)
        os.dup2(2, 1)
        if not _ours_alone(output) or _same(output, 2):
            inner, outer = os.pipe()
            self._copying = _copy(inner, output)
            output = outer
        source = os.dup(0)
        if not _ours_alone(source):
            inner, outer = os.pipe()
            _copy(source, outer)
            source = inner
        self._reader = LineReader(source, limit)
        self._writer = LineWriter(output)

    async def send(self, messages: Sequence[bytes]) -> None:
        try:
            await self._writer.write(frame(messages))
        except OSError as error:
            raise AgentGone(f"{self.name} does not read any more") from error

    def offer(self, messages: Sequence[bytes]) -> bool:
        return self._writer.offer(frame(messages))

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        self._reader.direct(take)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        return await self._reader.take()

    async def aclose(self) -> None:
        """Close, after the reader has got all of our output, if it reads."""
        self._reader.discard()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._writer.flush()
        self._writer.close()
        if self._copying is not None:
            self._copying.join(LAST_SECONDS)


def _ours_alone(fd: int) -> bool:
    """Whether a descriptor can be polled and set non-blocking. A file cannot, and a terminal is shared with others."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _same(one: int, other: int) -> bool:
    """Whether both are the same open pipe, as after `2>&1`, so that the log would become non-blocking too."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def _copy(source: int, sink: int) -> threading.Thread:
    """Copy in a thread until one of them ends, then close both."""

    def work() -> None:
        with os.fdopen(source, "rb", buffering=0) as reader, os.fdopen(sink, "wb", buffering=0) as writer:
            try:
                while data := reader.read(BLOCK):
                    writer.write(data)
            except OSError:
                return  # one end has gone: the other sees it by this one's closing

    thread = threading.Thread(target=work, name="standard input and output", daemon=True)
    thread.start()
    return thread
