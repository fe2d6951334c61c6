"""Passes on the engine's own contexts and watches: wrappers override what they change."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Wrapped(Generic[T]):
    """Says what another object says. Wrappers may also add to it: what one has added, those around it have, too."""

    def __init__(self, inner: T) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not yet made
            raise AttributeError(name)
        return getattr(self._inner, name)
