"""routes.yaml: `load` reads one, `schema` describes one.

Composed from what the adapters understand (`serve_options` below `inbound:`, `target_options` below
`routes[].target`, chosen by `protocol`); names none of them. Every mistake in a file is told at once, each in one
line with its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from gateway.yaml_document import DocumentError, Mistake, read, text_of


def load(
    path: str | os.PathLike[str], adapters: Registry | None = None, env: Mapping[str, str] | None = None
) -> Config:
    """Read a routes.yaml. Raises DocumentError; `adapters` default to all there are, `env` to the environment."""
    path = Path(path)
    text = text_of(str(path), path.read_bytes)
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
        raise DocumentError(document.mistakes)
    return config
