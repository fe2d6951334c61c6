"""Reads a routes.yaml for a command. Mistakes are printed, one per line, and end the program."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.codes import USAGE, leave
from gateway.registry import BrokenAdapter

if TYPE_CHECKING:
    from gateway.config import Config, Mistake

DEFAULT_ROUTES = Path("routes.yaml")


def read(path: Path, code: int = USAGE) -> Config:
    """Load the config. Exits with `code` and the mistakes."""
    from gateway.config import DocumentError, load

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
