"""The program `interlingua`: prepares the process before the commands are imported."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """The program's entry point. Garbage is collected from `loop.run` on: what is imported before is nearly all
    kept, and looking through it time and again is a sixth of a start.
    """
    gc.disable()
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGTERM, _go)
    _open_streams()
    from gateway.cli.commands import app

    app(prog_name="interlingua")


def _go(number: int, frame: object) -> None:
    """SIGTERM while all is being imported, which the first process of a container would not notice. There is nothing
    yet to be put in order, and an exception might meet somebody who catches it.
    """
    os._exit(0)


def _open_streams() -> None:
    """Read nothing from, and write to nowhere, what we were started without (`>&-`). Else the next file that is
    opened, the store perhaps, is standard output for whoever writes there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so the one that is missing
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, errors="backslashreplace"))  # noqa: SIM115 - for good
