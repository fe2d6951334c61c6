"""Shows a run, as plain chunks on a pipe and live on a terminal, and tables."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text as Styled

from gateway.cli.talk import AnswerText, PendingQuestion, shown


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """A table of agents' texts, for a terminal."""
    made = Table(*heads, box=None, header_style="bold")
    for row in rows:
        made.add_row(*(escape(shown(cell)) for cell in row))
    return made


class View(Protocol):
    """Entered for one run."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def text(self, said: AnswerText) -> None:
        """The answer so far."""

    def note(self, line: str) -> None:
        """Show an event on the way."""

    async def ask(self, question: PendingQuestion) -> str | None:
        """Ask the user; None if there is none. May be cancelled. Raises EOFError for Ctrl-D."""


class PlainView:
    """Writes new output to stdout as it arrives, JSON when it is complete; everything else goes to stderr."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._said = self._document = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(self._document or self._said)
        if self._said and not self._said.endswith("\n"):
            self._write(self._said + "\n")

    def text(self, said: AnswerText) -> None:
        self._document = said.whole if said.document else ""
        if not said.document:
            self._write(said.whole)

    def _write(self, whole: str) -> None:
        """Write the answer. One that was taken back is written again below, as a whole."""
        whole = shown(whole) if self._out.isatty() else whole
        if whole.startswith(self._said):
            self._out.write(whole[len(self._said) :])
        else:
            self._out.write(whole if self._said.endswith("\n") else f"\n{whole}")
        self._said = whole
        self._out.flush()

    def note(self, line: str) -> None:
        print(shown(line) if self._err.isatty() else line, file=self._err, flush=True)

    async def ask(self, question: PendingQuestion) -> str | None:
        """Return None: there is no user."""
        return None


class TerminalView:
    """Shows the answer growing in place below the notes, with a spinner. Questions are asked in between."""

    def __init__(self, agent: str, console: Console | None = None) -> None:
        self._console = console or Console()
        self._waiting = Spinner("dots", f" {escape(agent)} is at work", style="dim")
        self._said = self._printed = ""
        self._live = self._new()

    def _new(self) -> Live:
        return Live(console=self._console, refresh_per_second=12, transient=True, get_renderable=self._renderable)

    def _renderable(self) -> Group:
        """Return as much of the answer's end as fits. All of it is printed when the run asks or stops."""
        room = max(3, self._console.height - 3)
        lines = self._unprinted().splitlines()
        shown = lines if len(lines) <= room else ["...", *lines[-room:]]
        return Group(Styled("\n".join(shown)), self._waiting)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._print()

    def text(self, said: AnswerText) -> None:
        self._said = shown(said.whole)

    def note(self, line: str) -> None:
        self._live.console.print(Styled(shown(line), style="dim"))

    async def ask(self, question: PendingQuestion) -> str | None:
        self._live.stop()
        self._print()
        self._console.print(Styled(shown(question.text), style="bold"))
        if question.choices:
            self._console.print(Styled(shown(", ".join(question.choices)), style="dim"))
        self._console.print("> ", end="")
        try:
            answer = await typed()
        except BaseException:
            self._console.print()  # what comes next has a line of its own
            raise
        self._live = self._new()
        self._live.start()
        return answer

    def _unprinted(self) -> str:
        """Return the answer without the part printed before a question, unless that was taken back."""
        return self._said.removeprefix(self._printed)

    def _print(self) -> None:
        if new := self._unprinted().strip("\n"):
            self._console.print(Styled(new))
        self._printed = self._said


async def typed() -> str:
    """Read a line of standard input, without its end. Raises EOFError if there is none.

    A read of a terminal cannot be interrupted. So a thread reads that neither a cancelled wait nor the program's end
    waits for, and it reads past Python's own buffer, whose lock the end of the program would wait for.
    """
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()

    def settle(line: bytes) -> None:
        if not read.done():
            read.set_result(line)

    def work() -> None:
        line = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            while not line.endswith(b"\n") and (more := os.read(sys.stdin.fileno(), 65536)):
                line += more
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(settle, line)

    threading.Thread(target=work, daemon=True).start()
    if not (line := await read):
        raise EOFError
    return line.decode(sys.stdin.encoding, errors="replace").rstrip("\r\n")


def view(agent: str) -> View:
    return TerminalView(agent) if sys.stdout.isatty() and sys.stdin.isatty() else PlainView()
