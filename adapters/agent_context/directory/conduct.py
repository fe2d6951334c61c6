"""How agents behave, what is unusual (section 7.3), and access that is revoked and given back (section 7.1).

Requests, refusals and failures are counted in windows of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from adapters.agent_context.directory.evaluation import ACTIVE_RUNS
from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.registered import GONE, Revocation, time_of
from adapters.agent_context.options import Conduct as Limits
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, AgentTimeout, InterlinguaError
from gateway.core.types import JsonObject, RunQuery
from gateway.transport.tasks import TaskSet

# --- access that is revoked, and given back (section 7.1) -------------------------------------------------------------


log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Runs of one agent that are looked for at a time."""
REASON: Final = "the agent's access was revoked"


class Revoking:
    """One per directory. `changed` is called with the agents that have changed."""

    def __init__(self, members: Members, changed: Callable[[Iterable[str]], None]) -> None:
        self._members = members
        self._changed = changed
        self._work = TaskSet()

    async def revoke(self, agent: str, reason: str = "", until: float | None = None) -> None:
        """Nothing is sent to an agent any more, here at once, elsewhere with the next refresh; its runs are cancelled.

        It may be any id, also of nobody: it is refused when it registers. An agent of the route table is refused to
        clients of this protocol. It holds here even if it cannot be written down; then that is raised.

        reason: shown to those who may revoke. until: epoch seconds at which it is given back by `sweep`.
        """
        members, name = self._members, GONE + agent
        async with members.lock(name):
            how = Revocation(at=members.now(), reason=reason, until=until)
            members.revoke(agent, how)
            self._changed((agent,))
            try:
                await members.write(name, how)
            finally:
                await members.announce()
                await self._stop(agent)

    async def restore(self, agent: str) -> None:
        """Give an agent's access back. No error if it was not revoked."""
        members, name = self._members, GONE + agent
        async with members.lock(name):
            if agent not in members.revoked:
                return
            await members.erase(name)
            members.restore(agent)
        await members.announce()
        self._changed((agent,))

    def suspend(self, agent: str, reason: str, seconds: float) -> None:
        """Revoke it for a while, in the background. One that is revoked already stays as it is."""
        if agent not in self._members.revoked:
            self._work.start(self._suspend(agent, reason, seconds))

    async def sweep(self) -> None:
        """Give back what was taken for a while. Called about once a second."""
        now = self._members.now()
        over = [agent for agent, how in self._members.revoked.items() if how.until is not None and how.until <= now]
        for agent in over:
            log.warning("the access of agent %s is given back: its suspension is over", agent)
            await self.restore(agent)

    def stop(self, agent: str) -> None:
        """Another process has revoked it: its runs here end."""
        self._work.start(self._stop(agent))

    async def settled(self) -> None:
        """Until they have been told to."""
        await self._work.settled()

    async def _suspend(self, agent: str, reason: str, seconds: float) -> None:
        until = self._members.now() + seconds
        log.warning("the access of agent %s is suspended until %s: %s", agent, time_of(until), reason)
        try:
            await self.revoke(agent, reason, until)
        except InterlinguaError as error:
            log.warning("that agent %s is suspended could not be written down: %s", agent, error)

    async def _stop(self, agent: str) -> None:
        gateway = self._members.gateway
        offset = 0
        while True:
            query = RunQuery(agent=agent, statuses=ACTIVE_RUNS, limit=AT_ONCE, offset=offset)
            try:
                runs = await gateway.runs.list(query)
            except InterlinguaError as error:
                log.warning("runs of agent %s go on: %s", agent, error)
                return
            for run in runs:
                with contextlib.suppress(InterlinguaError):  # another process's: that one cancels it
                    await gateway.runs.cancel(run.id, reason=REASON)
            if len(runs) < AT_ONCE:
                return
            offset += AT_ONCE


# --- what is unusual (section 7.3) ------------------------------------------------------------------------------------


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
    suspend: called with the agent, the reason and the seconds when a limit is passed, if the options have some.
    """

    def __init__(
        self, limits: Limits, noticed: Callable[[str, str], None], suspend: Callable[[str, str, float], None]
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
            self._suspend(agent, said, self._limits.suspend)

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
