"""The event loop that long-running commands work on."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GC_THRESHOLDS = 20_000, 20, 100
"""A run makes and drops some thousand objects: at the interpreter's own 700, an eighth of our time is collecting."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on uvloop where there is one."""
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def settled() -> None:
    """Everything is imported and made: what is there now stays, and the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
