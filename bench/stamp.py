"""A chunk is the time at which it was said. No imports but this: agents start with it."""

from __future__ import annotations

import time

CHUNK = 20
"""Bytes."""


def stamp() -> bytes:
    """A chunk: ns by the clock that processes share (CLOCK_MONOTONIC), and a space."""
    return b"%019d " % time.monotonic_ns()
