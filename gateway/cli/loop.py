"""The event loop that commands work on."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GC_THRESHOLDS = 10_000, 20, 100
"""What is dropped without an error refers nowhere to itself, so the collector finds little. It looks at the runs
under way, some hundred objects each: at 64 it is seldom called. 20,000 objects take it 4 ms, for which every
stream waits.
"""

PATIENCE_SECONDS = 1.0
"""How long the work may take to stop before a terminal is told what it waits for."""
HURRY_SECONDS = 0.02


def run(work: Coroutine[Any, Any, T], *, signals: bool = True) -> T:
    """Run to the end, on uvloop if the platform has it.

    `signals`: Ctrl-C and SIGTERM cancel the work, as `_cancelled_by_signals` says. Otherwise it handles them itself.
    """
    settled()
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_cancelled_by_signals(work) if signals else work)


async def _cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """Run the work until Ctrl-C or SIGTERM cancels it. Raises KeyboardInterrupt then, unless the work returns a result.

    The second signal cancels also what the work does to stop in order; the third interrupts code that never waits.
    """
    running, task, told = asyncio.get_running_loop(), asyncio.current_task(), 0
    assert task is not None

    def first() -> None:
        task.cancel()
        if sys.stderr.isatty():
            line = "stopping; agents may take some seconds (Ctrl-C again does not wait for them)"
            running.call_later(PATIENCE_SECONDS, lambda: print(line, file=sys.stderr))

    def hurry() -> None:
        task.cancel()
        running.call_later(HURRY_SECONDS, hurry)

    def signalled(*_: object) -> None:
        nonlocal told
        told += 1
        if told > 2:
            raise KeyboardInterrupt
        running.call_soon_threadsafe(first if told == 1 else hurry)

    handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, signalled)) for number in handled]
    try:
        return await work
    except asyncio.CancelledError:
        if told:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def settled() -> None:
    """Exclude all current objects from collection, when everything is imported and made. Few of them are garbage, and
    looking for those takes as long as importing fifty modules.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
