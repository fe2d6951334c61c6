"""What a container asks of `interlingua serve`: to heed SIGTERM as its first process, and logs that a program reads."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import sys
from pathlib import Path

from gateway.cli.commands import JsonFormatter
from tests.support.processes import PROGRAM, ROOT, Gateway, Process, ProcessFailed, start

DEAF = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]
"""Begins a program as the first process of a container begins: SIGTERM does nothing to it until it says otherwise."""


def opened(fifo: Path) -> bool:
    """Whether somebody waits to read it: gives it nothing, and keeps it open."""
    try:
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
        return False
    return True


def ended(process: Process) -> int:
    """The exit code after SIGTERM. It is repeated: Python notices one that comes just before a read only after that."""
    for _ in range(5):
        process.signal(signal.SIGTERM)
        with contextlib.suppress(ProcessFailed):
            return process.wait(12)
    return process.wait(12)


def test_sigterm_before_it_is_up_ends_it_in_order(tmp_path: Path) -> None:
    table = tmp_path / "routes.yaml"
    os.mkfifo(table)  # who reads it waits for whoever writes it, so it is in the middle of its start
    with start([*DEAF, *PROGRAM, "serve", str(table), "--port", "0"], fresh=True) as process:
        process.wait_until(lambda: opened(table), "reading its routes")
        assert ended(process) == 0
        assert process.stdout() + process.stderr() == ""


def test_sigterm_ends_it_before_it_has_imported_what_it_needs(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    (tmp_path / "click.py").write_text(f"open({str(held)!r}).read()")  # the first thing of others that it imports
    env = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    with start([*DEAF, *PROGRAM, "serve", str(tmp_path / "none.yaml")], env, fresh=True) as process:
        process.wait_until(lambda: opened(held), "importing")
        assert ended(process) == 0
        assert process.stdout() + process.stderr() == ""


def test_its_log_is_an_object_a_line_if_that_is_asked_for(tmp_path: Path) -> None:
    with Gateway("routes: []\n", tmp_path, args=["--log-format", "json"]) as gateway:
        gateway.rewrite("routes: 3\n")
        gateway.process.wait_until(lambda: "should be a list" in gateway.process.stderr(), "told of the mistake")
        gateway.process.signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
        assert gateway.process.stdout() == ""
        lines = [json.loads(line) for line in gateway.process.stderr().splitlines()]
    assert {tuple(line) for line in lines} == {("time", "level", "logger", "message")}
    assert [line["message"] for line in (lines[0], lines[-1])] == [
        f"up at 127.0.0.1:{gateway.port}; routes: none",
        "stopped",
    ]
    assert {line["level"] for line in lines} == {"info", "error"}


def test_an_exception_in_such_a_log_is_one_line_too() -> None:
    record = logging.LogRecord("x", 40, "", 0, "it %s", ("failed",), None)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record.exc_info = sys.exc_info()
    (line,) = JsonFormatter(None).format(record).splitlines()
    said = json.loads(line)
    assert said["message"] == "it failed"
    assert said["exception"].endswith("ValueError: two\nlines")
