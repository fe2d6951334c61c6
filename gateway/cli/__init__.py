"""The program `interlingua`: prepares the process before the commands are imported."""

from __future__ import annotations

import os
import signal
import sys  # what else is needed is imported when Ctrl-C is handled: until then Python answers it with a traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """The program's entry point. Garbage is collected from `loop.run` on: what is imported before is nearly all
    kept, and looking through it time and again is a sixth of a start.
    """
    serving = sys.argv[1:2] == ["serve"]
    if serving:
        signal.signal(signal.SIGTERM, _go)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _go if serving else _cancelled)
    import gc

    gc.disable()
    _open_streams()
    try:
        from gateway.cli.commands import app

        try:
            app(prog_name="interlingua")
        finally:
            sys.stdout.flush()
    except OSError as error:
        _fail(error)


def _fail(error: OSError) -> NoReturn:
    """Say what the system refused, in a line; nothing where the reader of our output has gone."""
    import contextlib
    import errno

    from gateway.cli.codes import FAILED

    with contextlib.suppress(OSError):
        if error.errno != errno.EPIPE:
            print(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error, file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # at its end the program would try again, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(FAILED)


def _go(number: int, frame: object) -> None:
    """A signal before a gateway handles it; the first process of a container would not notice SIGTERM. There is nothing
    yet to be put in order, and an exception might meet somebody who catches it, as Python does when it makes a class.
    """
    os._exit(0)


def _cancelled(number: int, frame: object) -> None:
    """Ctrl-C before `loop.run` handles it: see `_go`."""
    try:
        os.write(2, b"cancelled\n")  # standard error
    finally:
        os._exit(128 + number)


def _open_streams() -> None:
    """Read nothing from, and write to nowhere, what we were started without (`>&-`). Else the next file that is
    opened, the store perhaps, is standard output for whoever writes there. A character that the terminal's encoding
    does not have is written as its number.
    """
    from io import TextIOWrapper

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so the one that is missing
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, errors="backslashreplace"))  # noqa: SIM115 - for good
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
