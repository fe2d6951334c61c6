"""routes.yaml: `load` reads one, `schema` describes one.

Composed from what the adapters understand (`serve_options` below `inbound:`, `target_options` below
`routes[].target`, chosen by `protocol`); names none of them. Every mistake in a file is told at once, each in one
line with its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway import registry
from gateway.config.check import build
from gateway.config.models import (
    BreakerOptions,
    Config,
    Limits,
    Match,
    Memory,
    Route,
    Telemetry,
)
from gateway.config.schema import schema
from gateway.registry import Registry
from gateway.yaml_document import Mistake, read

__all__ = [
    "BreakerOptions",
    "Config",
    "ConfigError",
    "Limits",
    "Match",
    "Memory",
    "Mistake",
    "Route",
    "Telemetry",
    "load",
    "loads",
    "schema",
]


class ConfigError(Exception):
    """A file that cannot be used. `mistakes` are its own in the order of the file, then those of files it names."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        files = list(dict.fromkeys(mistake.file for mistake in mistakes))
        order = sorted(mistakes, key=lambda mistake: (files.index(mistake.file), mistake.line, mistake.column))
        self.mistakes = tuple(dict.fromkeys(order))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


def load(
    path: str | os.PathLike[str], adapters: Registry | None = None, env: Mapping[str, str] | None = None
) -> Config:
    """Read a routes.yaml. Raises ConfigError; `adapters` default to all there are, `env` to the environment."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([Mistake(str(path), 0, "", reason[0].lower() + reason[1:])]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Mistake(str(path), 0, "", f"not UTF-8: byte {error.start} is wrong")]) from error
    return loads(text, adapters, env, path=path)


def loads(
    text: str, adapters: Registry | None = None, env: Mapping[str, str] | None = None, *, path: Path | None = None
) -> Config:
    """As `load`, from text. `path` is the file it stands for, which relative paths start from."""
    document = read(text, str(path or "routes.yaml"), os.environ if env is None else env)
    config = None
    if document.value is not None or not document.mistakes:
        config = build(document, registry.scan() if adapters is None else adapters, path and path.absolute())
    if config is None or document.mistakes:
        raise ConfigError(document.mistakes)
    return config
