"""Reads an agent's stderr, logs it at a limited rate, and keeps its last lines for error messages."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import Sequence

from gateway.transport.stdio.reader import OutputReader

KEPT = 20
"""Lines that are shown."""
REMEMBERED = 200
"""Lines in which the error is looked for, below which a runtime prints the stack."""
LONGEST = 2000
BURST = 200
PER_SECOND = 20.0

# expressions: compiled when a program has ended with something to say
_ERROR = r"(?:Uncaught )?[\w.$]*(?:Error|Exception)\b|error: "
_VERSION = ("Node.js v", "Bun v")
"""The last line of what these print about an error."""
_TRACEBACK = "Traceback (most recent call last)"
_PANIC = r"panic: |fatal error: |error: Uncaught |Exception in thread |thread '.*' (?:\(\d+\) )?panicked at "
"""What Go, Deno, Java and Rust begin with."""
_HEADING = r"(?i)(?:caused by|stack backtrace|location):|\W*$"
"""What stands in a stack without being indented."""
_ESCAPES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
"""No branch reads past the next escape character: a line of nothing else would be read again from each of them."""


class StderrLog:
    """Reads `fd`, which it owns, until it ends or `finish`; logs each line as `interlingua.agent.NAME`.

    At most `BURST` lines at once and `PER_SECOND` in the long run are logged, the rest is counted; a line is cut at
    `LONGEST` bytes.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._log = logging.getLogger(f"interlingua.agent.{name}")
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._tail: deque[tuple[float, bytes]] = deque(maxlen=REMEMBERED)
        self._rest_at = 0.0
        self._credit = float(BURST)
        self._counted = self._loop.time()
        self._dropped = 0
        self._reader = OutputReader(fd, self._take, self._ended)

    def tail(self, seconds: float = math.inf) -> list[str]:
        """The last lines that are remembered, of so many seconds, oldest first."""
        lines = [*self._tail, (self._rest_at, self._rest)] if self._rest.strip() else list(self._tail)
        since = self._loop.time() - seconds
        return [shown(_uncovered(line)) for at, line in lines[-REMEMBERED:] if at > since]

    def drain(self) -> None:
        self._reader.drain()

    def finish(self) -> None:
        self._reader.finish()

    def _take(self, data: bytes) -> None:
        lines = data.split(b"\n")
        lines[0] = self._rest + lines[0]
        rest = lines.pop()
        self._rest = rest if len(rest) <= LONGEST else _uncovered(rest)[:LONGEST]
        self._rest_at = self._loop.time()
        self._keep(lines)

    def _keep(self, lines: list[bytes]) -> None:
        lines = [line for line in lines if line and not line.isspace()]
        now = self._loop.time()
        self._tail.extend((now, _uncovered(line)[:LONGEST]) for line in lines[-REMEMBERED:])
        self._credit = min(float(BURST), self._credit + (now - self._counted) * PER_SECOND)
        self._counted = now
        allowed = min(len(lines), int(self._credit))
        if allowed and self._dropped:
            self._tell_dropped()
        self._credit -= allowed
        self._dropped += len(lines) - allowed
        for line in lines[:allowed]:
            self._log.info("%s", shown(line))

    def _tell_dropped(self) -> None:
        self._log.warning("%d lines of its stderr were left out", self._dropped)
        self._dropped = 0

    def _ended(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            self._keep([rest])
        if self._dropped:
            self._tell_dropped()


def last_words(tail: Sequence[str]) -> str:
    """The line of the last ones that says most: the error that a runtime reports, else the last line with a letter.

    Rules and bars, as Python draws them around exceptions in a group, are left out.
    """
    if tail and tail[-1].startswith(_VERSION):
        tail = _near(tail, [at for at, line in enumerate(tail) if re.match(_ERROR, line)]) or tail[:-1]
    else:
        tail = _reported(tail) or tail
    words = (line.strip(" |+-") for line in reversed(tail))
    return next((line for line in words if any(map(str.isalnum, line))), "")


def _uncovered(line: bytes) -> bytes:
    """What a terminal would still show of a line: of a bar of progress what was written over it last."""
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]


def _near(tail: Sequence[str], places: Sequence[int]) -> Sequence[str]:
    """The last of the lines at `places` that is among the last that are shown, or stands above a stack: a third of its
    lines is indented.
    """
    for at in reversed(places):
        after = tail[at + 1 :]
        if len(after) < KEPT or 3 * sum(line[:1].isspace() for line in after) >= len(after):
            return tail[at : at + 1]
    return ()


def _reported(tail: Sequence[str]) -> Sequence[str]:
    """The line with the last error that Python or another runtime reports, though more of its message may follow."""
    found = [at for at, line in enumerate(tail) if line.startswith(_TRACEBACK) or re.match(_PANIC, line)]
    if _near(tail, found[-1:]):
        line, after = tail[found[-1]], tail[found[-1] + 1 :]
        if line.startswith(_TRACEBACK):
            return [line for line in after if not line[:1].isspace()][:1]
        return after[:1] if line.endswith(":") else [line]
    for at in reversed(range(len(tail))):  # an error that a program prints itself, with the stack or its causes below
        line, after = tail[at], tail[at + 1 :]
        if not line[:1].isspace() and not re.match(_HEADING, line):
            return [line] if after and re.match(_ERROR, line) else ()
    return ()


def shown(line: bytes) -> str:
    """Decode a line for a log or a terminal, without colours or cursor movements."""
    text = line[:LONGEST].decode("utf-8", "replace").rstrip()
    if not text.isprintable():
        text = re.sub(_ESCAPES, "", text)
        text = " " * text[:1].isspace() + " ".join(text.split())
        text = "".join(c if c.isprintable() else "�" for c in text)
    return text + " ..." if len(line) >= LONGEST else text
