"""Which Interlingua this is."""

from __future__ import annotations

import functools


@functools.cache
def version() -> str:
    """The version that is installed, as clients and agents are told; "0.0.0" where it runs from its source."""
    from importlib import metadata  # reads a file, and is not imported for `--help`

    try:
        return metadata.version("interlingua")
    except metadata.PackageNotFoundError:
        return "0.0.0"
