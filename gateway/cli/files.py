"""Reading a routes.yaml for a command: mistakes are printed, one a line, and end the program."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.codes import USAGE, leave
from gateway.config import Config, ConfigError, load
from gateway.registry import BrokenAdapter


def read(path: Path, code: int = USAGE) -> Config:
    """The config. Leaves with `code` and the mistakes."""
    try:
        return load(path)
    except ConfigError as error:
        leave(code, *(str(mistake) for mistake in error.mistakes))
    except BrokenAdapter as error:
        leave(code, *str(error).splitlines())
