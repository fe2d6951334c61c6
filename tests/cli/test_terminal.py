"""`run` on a terminal: questions, and the ways to answer none."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.cli.conftest import interlingua, statuses
from tests.support.processes import PROGRAM, ROOT, Gateway, environment, launch

WITHIN = 60.0


class Screen:
    """The program on a terminal of its own."""

    def __init__(self, arguments: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        try:
            with os.fdopen(theirs, "r+b", buffering=0) as end:
                argv = [*PROGRAM, *arguments]
                self._program = launch(argv, end, end, end, env=environment({"TERM": "xterm"}), cwd=ROOT)
        except BaseException:
            os.close(self._ours)
            raise
        self.shown = ""

    def until(self, text: str) -> None:
        """Returns once it shows the text."""
        deadline = time.monotonic() + WITHIN
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            assert self._read(1.0), f"ended without {text!r}: {self.shown!r}"

    def _read(self, within: float) -> bool:
        """What it says next, if it says something in time; False once it has ended."""
        if select.select([self._ours], [], [], within)[0]:
            with contextlib.suppress(OSError):  # Linux says so when nobody has the terminal any more
                said = os.read(self._ours, 65536)
                self.shown += said.decode(errors="replace")
                return bool(said)
            return False
        return True

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """What the terminal does at Ctrl-C."""
        self._program.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Its exit code."""
        deadline = time.monotonic() + WITHIN
        while self._read(1.0):
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
        return self._program.wait(WITHIN)

    def close(self) -> None:
        if self._program.poll() is None:
            self._program.send_signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._program.wait(WITHIN)
        os.close(self._ours)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Screen]:
    screen = Screen(list(arguments))
    try:
        yield screen
    finally:
        screen.close()


@pytest.mark.parametrize("way", ["Ctrl-C", "Ctrl-D"])
def test_ctrl_c_and_ctrl_d_at_a_question_cancel_the_run_at_once(
    way: str, where: list[str], request: pytest.FixtureRequest
) -> None:
    prompt = f"please send, or rather {way}"
    with terminal("run", "mailcomposer", prompt, *where) as screen:
        screen.until("> ")
        if way == "Ctrl-C":
            screen.interrupt()
        else:
            screen.type("\x04")
        assert screen.ended() == 130
        assert screen.shown.count("cancelled") == 1
        assert "Aborted" not in screen.shown and "Traceback" not in screen.shown
    if where[0] == "--gateway":
        gateway: Gateway = request.getfixturevalue("gateway")
        gateway.process.wait_until(lambda: statuses(where[1], prompt) == ["error"], "told of the cancel")


def test_a_table_of_runs_shows_of_each_id_what_names_the_run(gateway: Gateway) -> None:
    there = ["--gateway", gateway.url]
    assert interlingua("run", "mailcomposer", "hello", *there).returncode == 0
    run = json.loads(interlingua("runs", "--limit", "1", *there).stdout)["id"]
    with terminal("runs", "--limit", "1", *there) as screen:
        screen.until(run[-12:])
        assert screen.ended() == 0
    assert interlingua("watch", run[-12:], *there).returncode == 0


def test_a_question_is_asked_with_its_choices_until_its_answer_is_taken(where: list[str]) -> None:
    with terminal("run", "mailcomposer", "please send", *where) as screen:
        screen.until("> ")
        assert "Send this mail?" in screen.shown
        assert "yes, no" in screen.shown
        screen.shown = ""
        screen.type("perhaps\n")
        screen.until("does not take this answer")
        screen.until("> ")
        screen.type("no\n")
        assert screen.ended() == 0
        assert "(Kept as a draft.)" in screen.shown
        assert "Dear friend" not in screen.shown, "it was printed before the question"
