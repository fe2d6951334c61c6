"""What ended runs leave in memory, collected by its size.

What adapters make of a run refers to itself, and the collector, which counts objects and not bytes, would let a
gigabyte of few and great messages lie about.
"""

from __future__ import annotations

import asyncio
import gc
import logging

import msgspec

from gateway.runs.live import LiveRun

log = logging.getLogger(__name__)

ENOUGH_BYTES = 32 * 1024 * 1024
LATER_SECONDS = 1.0
"""Before the collector is called: until who waited for the last run has seen its end."""


class Garbage:
    """One per engine."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, live: LiveRun) -> None:
        """A run has ended."""
        self._bytes += live.log.bytes
        try:
            self._bytes += len(msgspec.json.encode(live.run.request.input))
        except (ValueError, RecursionError):  # too deep: it is not counted
            log.debug("run %s: its input is not counted", live.run.id)
        if self._bytes > ENOUGH_BYTES:
            self._bytes = 0
            asyncio.get_running_loop().call_later(LATER_SECONDS, gc.collect)
