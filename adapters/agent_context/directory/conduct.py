"""How agents behave, and what is unusual (section 7.3): their requests, refusals and failures in windows of time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from adapters.agent_context.options import Conduct as Limits
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, AgentTimeout
from gateway.core.types import JsonObject

log = logging.getLogger(__name__)

REQUESTS: Final = "requests"
REFUSALS: Final = "refusals"
FAILURES: Final = "failures"
UNUSUAL: Final = "unusual"
"""Counted once for each window in which one of the others was over its limit."""
FAILED: Final = frozenset(each.code for each in (AgentFailed, AgentBroken, AgentGone, AgentTimeout))
"""Failures of a run (codes of the error tree) that are its agent's."""
MOST: Final = 10_000
"""Agents whose windows are known; beyond that the oldest windows are forgotten."""


class ConductMonitor:
    """One per directory; windows are of the event loop's clock, and each begins with an agent's first act.

    noticed: told the agent and what it did, for metrics.
    suspend: called with the agent and the reason when a limit is passed, if the options say that it is suspended.
    """

    def __init__(
        self, limits: Limits, noticed: Callable[[str, str], None], suspend: Callable[[str, str], None]
    ) -> None:
        self._limits = limits
        self._most = {REQUESTS: limits.requests, REFUSALS: limits.refusals, FAILURES: limits.failures}
        self._noticed = noticed
        self._suspend = suspend
        self._windows: dict[str, tuple[float, Counter[str]]] = {}

    def did(self, agent: str, what: str) -> None:
        """Count one of REQUESTS, REFUSALS and FAILURES. A limit that is passed is logged once in its window."""
        self._noticed(agent, what)
        counts = self._window(agent)
        counts[what] += 1
        if counts[what] != self._most[what] + 1:
            return
        self._noticed(agent, UNUSUAL)
        said = f"more than {self._most[what]} {what} within {self._limits.window:g} s"
        log.warning("agent %s behaves unusually: %s", agent, said)
        if self._limits.suspend is not None:
            self._suspend(agent, said)

    def failed(self, agent: str, code: str) -> None:
        """Count a run of the agent that failed with an error of the tree, if that is the agent's fault."""
        if code in FAILED:
            self.did(agent, FAILURES)

    def of(self, agent: str) -> JsonObject:
        """Counts of the current window: `{requests, refusals, failures, window}`, the last in seconds."""
        began, counts = self._windows.get(agent, (0.0, Counter()))
        fresh = self._now() - began < self._limits.window
        return {**{what: counts[what] if fresh else 0 for what in self._most}, "window": self._limits.window}

    def _window(self, agent: str) -> Counter[str]:
        now = self._now()
        known = self._windows.get(agent)
        if known is not None and now - known[0] < self._limits.window:
            return known[1]
        self._windows.pop(agent, None)  # the new one is the youngest
        if len(self._windows) >= MOST:
            del self._windows[next(iter(self._windows))]
        self._windows[agent] = now, (counts := Counter[str]())
        return counts

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
