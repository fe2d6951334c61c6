"""Reading a routes.yaml for a command: mistakes are printed, one a line, and end the program."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.codes import USAGE, leave
from gateway.config import Config, ConfigError, load
from gateway.config.exposure import exposed
from gateway.registry import BrokenAdapter

DEFAULT_ROUTES = Path("routes.yaml")


def read(path: Path, code: int = USAGE) -> Config:
    """The config. Leaves with `code` and the mistakes."""
    try:
        return load(path)
    except ConfigError as error:
        leave(code, *(str(mistake) for mistake in error.mistakes))
    except BrokenAdapter as error:
        leave(code, *str(error).splitlines())


def allowed(config: Config, code: int = USAGE) -> None:
    """Leaves with `code` and the mistakes of what may not be served to others than this machine."""
    if mistakes := exposed(config):
        leave(code, *map(str, mistakes))


def chosen(routes: Path | None, gateway: str | None) -> Path | None:
    """The route table to run here (./routes.yaml unless named); None where a gateway is. Leaves with USAGE."""
    if routes is not None and gateway is not None:
        leave(USAGE, "give --routes or --gateway, not both")
    if gateway is not None:
        return None
    if routes is None and not DEFAULT_ROUTES.exists():
        leave(USAGE, "there is no routes.yaml here; name one with --routes FILE, or a gateway with --gateway URL")
    return routes or DEFAULT_ROUTES
