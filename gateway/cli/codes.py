"""The program's exit codes, the one way to exit with a line to read, and numbers in it."""

from __future__ import annotations

import sys
from typing import NoReturn

OK = 0
FAILED = 1
USAGE = 2
NEEDS_ANSWER = 3
CANCELLED = 130


def leave(code: int, *lines: str) -> NoReturn:
    """Print the lines to stderr and exit."""
    for line in lines:
        print(line, file=sys.stderr)
    raise SystemExit(code)


def count(number: int, one: str, more: str = "") -> str:
    """`1 agent`, `2 agents`; `more` where the plural is no `s` behind."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"
