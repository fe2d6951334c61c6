"""How a run looks: plain chunks where the output is a pipe, a live view where it is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.prompt import Prompt
from rich.spinner import Spinner
from rich.text import Text as Styled

from gateway.cli.talk import Question


class View(Protocol):
    """Entered for one run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def text(self, whole: str) -> None:
        """The answer so far."""

    def note(self, line: str) -> None:
        """Something that happened on the way."""

    def ask(self, question: Question) -> str | None:
        """What a person answers; None where there is nobody to ask. Blocks."""


class Plain:
    """Writes what is new to stdout as it comes; everything else goes to stderr."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_line()

    def text(self, whole: str) -> None:
        """See `View.text`. An answer that was taken back is written again below, whole."""
        if whole.startswith(self._said):
            self._out.write(whole[len(self._said) :])
        else:
            self._end_line()
            self._out.write(whole)
        self._said = whole
        self._out.flush()

    def note(self, line: str) -> None:
        """See `View.note`."""
        print(line, file=self._err, flush=True)

    def ask(self, question: Question) -> str | None:
        """See `View.ask`: there is nobody."""
        return None

    def _end_line(self) -> None:
        if self._said and not self._said.endswith("\n"):
            self._out.write("\n")
            self._out.flush()


class Terminal:
    """The answer grows in place below the notes, with a sign of life; questions are asked in between."""

    def __init__(self, agent: str, console: Console | None = None) -> None:
        self._console = console or Console()
        self._waiting = Spinner("dots", f" {escape(agent)} is at work", style="dim")
        self._said = ""
        self._live = self._new()

    def _new(self) -> Live:
        return Live(console=self._console, refresh_per_second=12, transient=True, get_renderable=self._renderable)

    def _renderable(self) -> Group:
        """The end of the answer, as much as fits: all of it is printed when the run stops."""
        room = max(3, self._console.height - 3)
        lines = self._said.splitlines()
        shown = lines if len(lines) <= room else ["...", *lines[-room:]]
        return Group(Styled("\n".join(shown)), self._waiting)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        self._print()

    def text(self, whole: str) -> None:
        """See `View.text`."""
        self._said = whole

    def note(self, line: str) -> None:
        """See `View.note`."""
        self._live.console.print(Styled(line, style="dim"))

    def ask(self, question: Question) -> str | None:
        """See `View.ask`."""
        self._live.stop()
        self._print()
        choices = question.schema.get("enum")
        answer = Prompt.ask(
            f"[bold]{escape(question.text)}[/bold]",
            console=self._console,
            choices=[str(choice) for choice in choices] if isinstance(choices, list) else None,
        )
        self._live = self._new()
        self._live.start()
        return answer

    def _print(self) -> None:
        if self._said:
            self._console.print(Styled(self._said))


def view(agent: str) -> View:
    """The view that fits where the output goes."""
    return Terminal(agent) if sys.stdout.isatty() and sys.stdin.isatty() else Plain()
