"""Names that are meant by pattern: the agents and tools that somebody may use."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

Patterns = tuple[Annotated[str, Field(min_length=1)], ...]
"""Names, with the wildcards of `fnmatch`. Case counts."""


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one that the patterns mean. No patterns mean none."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
