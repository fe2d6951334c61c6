"""What a terminal is shown of an agent's text, and what a pipe is."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from gateway.cli import view
from gateway.cli.talk import AnswerText, PendingQuestion, shown
from gateway.cli.view import PlainView, TerminalView, table
from tests.support import aio

EVIL = "a\x1b[2Jb\x9b\u202ec\r\n"
MILD = "a\N{REPLACEMENT CHARACTER}[2Jb" + 2 * "\N{REPLACEMENT CHARACTER}" + "c\n"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_terminal_would_act_on_is_replaced_and_letters_stay() -> None:
    assert shown(EVIL) == MILD
    assert (
        shown("1\u202f000\u00a0\u20ac \N{MAN}\u200d\N{WOMAN}\t\u3000")
        == "1\u202f000\u00a0\u20ac \N{MAN}\u200d\N{WOMAN}\t\u3000"
    )


def test_nothing_that_an_agent_says_is_an_order_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def typed() -> str:
        return ""

    monkeypatch.setattr(view, "typed", typed)
    out = StringIO()
    console = Console(file=out, width=60, color_system=None)
    with TerminalView("parrot", console) as terminal:
        terminal.text(AnswerText(EVIL))
        terminal.note(EVIL)
        aio.run(terminal.ask(PendingQuestion(EVIL, {}, (EVIL,))))
    console.print(table(("agent",), [(EVIL,)]))
    assert "\x1b" not in out.getvalue() and out.getvalue().count(MILD.strip()) == 5


def test_a_pipe_gets_the_text_as_it_is_and_a_terminal_behind_a_pipe_does_not() -> None:
    for out, said in ((StringIO(), EVIL), (Terminal(), MILD)):
        with PlainView(out, out) as plain:
            plain.text(AnswerText(EVIL))
        assert out.getvalue() == said
