"""The program's exit codes, the one way to exit with lines to read, and the route table that a command reads or exits
with the mistakes of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from gateway.config import Config, Mistake

OK = 0
FAILED = 1
USAGE = 2
NEEDS_ANSWER = 3
CANCELLED = 130

DEFAULT_ROUTES = Path("routes.yaml")


def leave(code: int, *lines: str) -> NoReturn:
    for line in lines:
        print(line, file=sys.stderr)
    raise SystemExit(code)


def count(number: int, one: str, more: str = "") -> str:
    """`1 agent`, `2 agents`; `more` where the plural is no `s` behind."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def read(path: Path, code: int = USAGE) -> Config:
    """Load the config. Exits with `code` and the mistakes."""
    from gateway.config import DocumentError, load
    from gateway.registry import BrokenAdapter

    if path == DEFAULT_ROUTES and not path.exists():
        leave(
            code,
            'there is no routes.yaml here; name the route table that you mean, or see README.md, "Your own agents"',
        )
    try:
        return load(path)
    except DocumentError as error:
        leave(code, *map(str, error.mistakes))
    except BrokenAdapter as error:
        leave(code, *str(error).splitlines())


def without(mistakes: Iterable[Mistake], code: int = USAGE) -> None:
    """Exit with `code` and the mistakes, if there are any."""
    if lines := [str(mistake) for mistake in mistakes]:
        leave(code, *lines)


def chosen(routes: Path | None, gateway: str | None) -> Path | None:
    """Choose the route table to run here (./routes.yaml unless named); None with a gateway. Exits with USAGE."""
    if routes is not None and gateway is not None:
        leave(USAGE, "give --routes or --gateway, not both")
    if gateway is not None:
        return None
    if routes is None and not DEFAULT_ROUTES.exists():
        leave(USAGE, "there is no routes.yaml here; name one with --routes FILE, or a gateway with --gateway URL")
    return routes or DEFAULT_ROUTES
