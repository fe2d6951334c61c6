"""Reads and writes whole lines on the two ends of a pipe, without an extra buffer."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from gateway.wire.ndjson import Splitter, Unreadable

BLOCK = 64 * 1024  # below what malloc maps and unmaps each time
BLOCKS = 2
"""Blocks to read at a time. More cost less per line in a flood, and make all others wait longer."""
HELD = 1024 * 1024
LAST = 1024 * 1024
JOINED = 64
LONGEST = 2000
"""Bytes that are kept of a line which is no message."""


class LineReader:
    """Reads a pipe as it fills and gives its lines to one taker. Stops reading while a mebibyte is not taken.

    Owns `fd`. Made on the running loop.
    """

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(limit)
        self._lines: list[bytes | Unreadable] = []
        self._held = 0
        self._taker: asyncio.Future[None] | None = None
        self._first: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]] | None = None
        self._paused = False
        self._discarding = False
        self.printed = b""
        """The first line, while nothing that may be a message has come."""
        self._spoken = False
        self.ended = False
        """Whether the pipe has ended."""
        self._loop.add_reader(fd, self._readable)

    async def take(self) -> list[bytes | Unreadable]:
        """Take all lines read so far, waiting for the first. Empty at the end."""
        while not self._lines and not self.ended and not self._discarding:
            if self._taker is not None:
                raise RuntimeError("a pipe has one reader")
            self._taker = self._loop.create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        lines, self._lines, self._held = self._lines, [], 0
        if self._paused and not self.ended:
            self._paused = False
            self._loop.add_reader(self._fd, self._readable)
        return lines

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        self._first = take

    def discard(self) -> None:
        """Read on, so that the writer is not blocked, and drop everything."""
        self._discarding = True
        self._lines = []
        if self._paused and not self.ended:
            self._paused = False
            self._loop.add_reader(self._fd, self._readable)
        self._wake()

    def finish(self) -> None:
        """Read what is in the pipe, then end, even if another process holds it open. For a writer that is gone."""
        left = LAST
        while not self.ended and left > 0:
            got = self._read()
            if not got:
                break
            left -= got
        self._end()

    def _readable(self) -> None:
        self._read()
        if self._lines and self._held >= HELD and not self.ended:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def _read(self) -> int:
        """Read a block. Returns its size; 0 if nothing is there now, or at the end."""
        blocks: list[bytes] = []
        try:
            while len(blocks) < BLOCKS and (not blocks or len(blocks[-1]) == BLOCK):
                blocks.append(os.read(self._fd, BLOCK))
        except (BlockingIOError, InterruptedError):
            if not blocks:
                return 0
        except OSError:
            blocks.append(b"")  # if there is more before it, it comes again
        data = b"".join(blocks)
        if not data:
            self._end()
        elif not self._discarding:
            self._keep(self._splitter.feed(data), len(data))
        return len(data)

    def _keep(self, lines: Sequence[bytes | Unreadable], size: int) -> None:
        self._held += size
        if not lines:
            return
        if not self._spoken:
            self._watch(lines)
        if self._first is not None and self._taker is not None and not self._taker.done():
            lines = self._first(lines)
            if not lines:
                self._held = 0
                return
        self._lines += lines
        self._wake()

    def _watch(self, lines: Sequence[bytes | Unreadable]) -> None:
        for line in lines:
            if isinstance(line, Unreadable) or b'"jsonrpc"' in line or line.lstrip()[:2] == b'{"':
                self._spoken, self.printed = True, b""
                return
            self.printed = self.printed or line[:LONGEST]

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if not self._discarding:
            self._keep(self._splitter.close(), 0)
        self._wake()

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)


class _Waiting(msgspec.Struct, eq=False):
    data: memoryview
    size: int
    done: asyncio.Future[bool]

    def sent(self, count: int) -> None:
        """The pipe has taken so many bytes of it."""
        self.data = self.data[count:]


class LineWriter:
    """Writes to a pipe in order. `write` waits until the pipe has taken all, `offer` does not wait. Owns `fd`."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._closed = False

    def offer(self, data: bytes) -> bool:
        """Write now, and keep for later what the pipe does not take. False if it takes nothing, or others wait."""
        if self._closed or self._waiting:
            return False
        try:
            written = self._begin(data)
        except OSError:
            return False
        if 0 < written < len(data):
            self._wait(data, written)
        return written > 0

    async def write(self, data: bytes) -> None:
        """Write all of it. Raises OSError when the reader is gone. If cancelled, it writes all or nothing."""
        if self._closed:
            raise BrokenPipeError
        written = 0 if self._waiting else self._begin(data)
        if written == len(data):
            return
        turn = self._wait(data, written)
        try:
            if not await turn.done:
                raise BrokenPipeError
        except asyncio.CancelledError:
            if len(turn.data) == turn.size and turn in self._waiting:
                self._waiting.remove(turn)
                self._rest()
            raise

    def _begin(self, data: bytes) -> int:
        """Write once and return the number of bytes taken. Raises OSError when the reader is gone."""
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.close()
            raise

    def _wait(self, data: bytes, written: int) -> _Waiting:
        """Write the bytes after the first `written` when the pipe has room."""
        if not self._waiting:
            self._loop.add_writer(self._fd, self._writable)
        turn = _Waiting(memoryview(data)[written:], len(data), self._loop.create_future())
        self._waiting.append(turn)
        return turn

    async def flush(self) -> None:
        """Wait until the pipe has taken all, or the reader is gone."""
        if self._waiting:
            await asyncio.wait([turn.done for turn in self._waiting])

    def close(self) -> None:
        """Close the pipe. Writers that wait get BrokenPipeError."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_writer(self._fd)
        os.close(self._fd)
        for turn in self._waiting:
            if not turn.done.done():
                turn.done.set_result(False)
        self._waiting.clear()

    def _writable(self) -> None:
        turns = self._waiting
        try:
            count = os.writev(self._fd, [turns[at].data for at in range(min(len(turns), JOINED))])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        while turns and count >= len(turns[0].data):
            turn = turns.popleft()
            count -= len(turn.data)
            if not turn.done.done():
                turn.done.set_result(True)
        if count:
            turns[0].sent(count)
        self._rest()

    def _rest(self) -> None:
        if not self._waiting and not self._closed:
            self._loop.remove_writer(self._fd)
