"""An agent's stderr: always read, logged within measure, its last lines kept for error messages."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import deque

BLOCK = 64 * 1024
KEPT = 20
LONGEST = 2000
BURST = 200
PER_SECOND = 20.0
PAUSE = 0.002
LAST = 1024 * 1024

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\].*?(?:\x07|\x1b\\)")


class Complaints:
    """Reads `fd`, which it owns, until it ends or `finish`; logs each line as `interlingua.agent.NAME`.

    At most `BURST` lines at once and `PER_SECOND` in the long run are logged, the rest is counted; a line is cut at
    `LONGEST` bytes. An agent that floods is read at some 30 MB/s: it is held up for milliseconds, never stuck.
    """

    def __init__(self, fd: int, name: str) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._log = logging.getLogger(f"interlingua.agent.{name}")
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._resume: asyncio.TimerHandle | None = None
        self._rest = b""
        self._tail: deque[bytes] = deque(maxlen=KEPT)
        self._credit = float(BURST)
        self._counted = self._loop.time()
        self._dropped = 0
        self._loop.add_reader(fd, self._readable)

    def tail(self) -> list[str]:
        """The last lines, oldest first."""
        lines = [*self._tail, self._rest] if self._rest.strip() else list(self._tail)
        return [_text(line) for line in lines[-KEPT:]]

    def drain(self) -> None:
        """Take what is in the pipe now."""
        left = LAST
        while not self._ended and left > 0:
            got = self._read()
            if not got:
                break
            left -= got

    def finish(self) -> None:
        """Nobody is left to write: take what is in the pipe, then end."""
        self.drain()
        self._end()

    def _readable(self) -> None:
        if self._read() == BLOCK and not self._ended:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        try:
            data = os.read(self._fd, BLOCK)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        if not data:
            self._end()
            return 0
        lines = data.split(b"\n")
        lines[0] = self._rest + lines[0][:LONGEST]
        self._rest = lines.pop()[:LONGEST]
        self._keep(lines)
        return len(data)

    def _keep(self, lines: list[bytes]) -> None:
        lines = [line for line in lines if line and not line.isspace()]
        self._tail.extend(line[:LONGEST] for line in lines[-KEPT:])
        now = self._loop.time()
        self._credit = min(float(BURST), self._credit + (now - self._counted) * PER_SECOND)
        self._counted = now
        allowed = min(len(lines), int(self._credit))
        if allowed and self._dropped:
            self._tell_dropped()
        self._credit -= allowed
        self._dropped += len(lines) - allowed
        for line in lines[:allowed]:
            self._log.info("%s", _text(line))

    def _tell_dropped(self) -> None:
        self._log.warning("%d lines of its stderr were left out", self._dropped)
        self._dropped = 0

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if self._rest:
            rest, self._rest = self._rest, b""
            self._keep([rest])
        if self._dropped:
            self._tell_dropped()


def _text(line: bytes) -> str:
    """For a log or a terminal: no colours, nothing that moves the cursor."""
    text = line[:LONGEST].decode("utf-8", "replace").rstrip()
    if not text.isprintable():
        text = " ".join(_ESCAPES.sub("", text).split())
        text = "".join(c if c.isprintable() else "�" for c in text)
    return text + " ..." if len(line) >= LONGEST else text
