"""Reads what a process prints without ever blocking it, at up to some 30 MB/s."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

BLOCK = 64 * 1024
PAUSE = 0.002
"""Seconds to pause after a full block, so that a flood leaves time to others."""


class OutputReader:
    """Reads `fd`, which it owns, until it ends or `finish`.

    `take` is given what comes, `ended` is called once after that. `most`: bytes that one `drain` takes.
    """

    def __init__(
        self, fd: int, take: Callable[[bytes], None], ended: Callable[[], None], *, most: int = 1024 * 1024
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._take = take
        self._ended = ended
        self._most = most
        self._open = True
        self._resume: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._readable)

    def drain(self) -> None:
        """Read what is in the pipe now."""
        left = self._most
        while self._open and left > 0:
            got = self._read()
            if not got:
                return
            left -= got

    def finish(self) -> None:
        """Read what is in the pipe, then end. Called when the writer is gone or its output does not matter any more."""
        self.drain()
        self._end()

    def _readable(self) -> None:
        if self._read() == BLOCK and self._open:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        """Read a block and return its size."""
        try:
            data = os.read(self._fd, BLOCK)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._end()
        return len(data)

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._ended()
