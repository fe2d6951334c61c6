"""The event loop that commands work on."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GC_THRESHOLDS = 5_000, 80, 100
"""A run makes and drops some thousand objects. At the interpreter's own 700, collecting takes an eighth of our time; at
20,000 each time takes 4 ms, for which every stream waits.
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on uvloop if the platform has it."""
    settled()
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def settled() -> None:
    """Exclude all current objects from collection, when everything is imported and made. Few of them are garbage, and
    looking for those takes as long as importing fifty modules.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
