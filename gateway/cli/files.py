"""Reads a routes.yaml for a command. Mistakes are printed, one per line, and end the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.codes import USAGE, leave
from gateway.registry import BrokenAdapter

if TYPE_CHECKING:
    from gateway.config import Config

DEFAULT_ROUTES = Path("routes.yaml")


def read(path: Path, code: int = USAGE) -> Config:
    """Load the config. Exits with `code` and the mistakes."""
    from gateway.config import ConfigError, load

    try:
        return load(path)
    except ConfigError as error:
        leave(code, *(str(mistake) for mistake in error.mistakes))
    except BrokenAdapter as error:
        leave(code, *str(error).splitlines())


def allowed(config: Config, code: int = USAGE) -> None:
    """Exit with `code` and the mistakes if the table may be served to this machine only."""
    from gateway.config.exposure import exposed

    if mistakes := exposed(config):
        leave(code, *map(str, mistakes))


def shareable(config: Config, code: int = USAGE) -> None:
    """Exit with `code` and the mistakes if the table can't be served by several workers."""
    from gateway.config.exposure import alone

    if mistakes := alone(config):
        leave(code, *map(str, mistakes))


def chosen(routes: Path | None, gateway: str | None) -> Path | None:
    """Choose the route table to run here (./routes.yaml unless named); None with a gateway. Exits with USAGE."""
    if routes is not None and gateway is not None:
        leave(USAGE, "give --routes or --gateway, not both")
    if gateway is not None:
        return None
    if routes is None and not DEFAULT_ROUTES.exists():
        leave(USAGE, "there is no routes.yaml here; name one with --routes FILE, or a gateway with --gateway URL")
    return routes or DEFAULT_ROUTES
