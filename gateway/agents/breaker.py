"""Ejects a target that cannot be reached, and looks when it is back."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway import tracing
from gateway.config import BreakerOptions
from gateway.core.errors import AgentBusy, AgentError, AgentForgot, AgentGone, AgentTimeout
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)
T = TypeVar("T")

UNREACHABLE = (AgentGone, AgentTimeout)
"""Errors that count against a target. An agent that answers, whatever it answers, is reachable."""
SILENT = "it did not answer in time"
LEAST_WAIT = 1.0
"""Seconds that a client is told to wait at least."""


class BreakerState(enum.IntEnum):
    """As `interlingua_target_state` says it."""

    CLOSED = 0
    TRIED = 1
    OPEN = 2


class Breaker:
    """Of one target. Closed: it gets runs. Open: it is ejected, each time in a row for twice as long. Then it is tried
    once, by asking it what it is; no run is risked for that.

    Failures to describe itself and failures of runs are counted apart: an agent that still says what it is and takes no
    run is ejected, too. The time grows until a run has come through.
    """

    def __init__(self, options: BreakerOptions, agent: str, target: str) -> None:
        """agent, target: for metrics and logs."""
        self.state = BreakerState.CLOSED
        self.closed = True
        self.reason = ""
        """The failure that opened it last."""
        self.told = ""
        """The same as far as all clients may know it: an error of a run that was taken may repeat what that run was."""
        self._options = options
        self._labels = tracing.metrics.agent(agent), target
        self._probe: Callable[[], Awaitable[object]] | None = None
        self._changed: list[Callable[[], None]] = []
        self._unanswered = self._lost = self._ejections = 0
        self.counting = False
        """Whether a failure of a run is remembered, which the next one that comes through ends."""
        self._until = 0.0
        self._told = True
        self._timer: asyncio.TimerHandle | None = None
        self._work = TaskSet()

    @property
    def wait(self) -> float:
        """Seconds until it is worth to ask again; 0 while it is closed."""
        if self.closed:
            return 0.0
        return max(LEAST_WAIT, self._until - asyncio.get_running_loop().time())

    def try_by(self, probe: Callable[[], Awaitable[object]]) -> None:
        """Set what asks the target what it is. Without it, time alone closes the breaker."""
        self._probe = probe

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever it opens or closes."""
        self._changed.append(changed)

    async def described(self, work: Awaitable[T]) -> T:
        """Await what asks the target what it is, and count how that ends."""
        try:
            found = await work
        except Exception as error:
            self._unanswered = self._counted(self._unanswered, error, str(error))
            raise
        self._unanswered = 0
        self._publish()
        return found

    def ran(self, error: Exception | None, *, last: bool = False) -> None:
        """Count how a run ended. Whatever an agent says itself is an answer.

        last: no other target of the route is there. Runs that it took and was silent on eject it then only if it does
        not say what it is either: what they hang on may be in the prompts of one client.
        """
        if error is None or not _away(error):
            self._lost = 0
            if self.closed:
                self._ejections = 0
                self.counting = False
        else:
            self.counting = True
            untaken = isinstance(error, AgentError) and error.untaken
            told = str(error) if untaken else "its runs were lost"
            if last and isinstance(error, AgentTimeout) and not untaken and self._probe is not None:
                self._lost += 1
                if self.closed and self._lost == self._options.failures:
                    self._work.start(self._doubt(self._probe, error, told))
            else:
                self._lost = self._counted(self._lost, error, told)

    def forget(self) -> None:
        """Say no more of the target in metrics: it is not of the route table any more."""
        self._told = False
        tracing.metrics.target_state.values.pop(self._labels, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._work.cancel()

    def _counted(self, before: int, error: Exception, told: str) -> int:
        if not (_away(error) or isinstance(error, TimeoutError)):
            return 0
        count, most = before + 1, self._options.failures
        if most is not None and count >= most and self.closed:
            self._eject(str(error), told)
        return count

    def _eject(self, why: str, told: str) -> None:
        self._ejections += 1
        self.counting = True
        self._unanswered = self._lost = 0
        longest = min(self._options.longest, self._options.first * 2.0 ** min(self._ejections - 1, 30))
        wait = longest * (0.75 + 0.25 * random.random())  # replicas do not come back at once
        loop = asyncio.get_running_loop()
        self._until = loop.time() + wait
        self._timer = loop.call_later(wait, lambda: self._work.start(self._try()))
        self.reason, self.told = why, told = why or SILENT, told or SILENT
        tracing.metrics.target_ejections.add(1, *self._labels)
        log.warning("agent %s: target %s is ejected, and tried again in %.1f s: %s", *self._labels, wait, why)
        self._turn(BreakerState.OPEN)

    async def _doubt(self, probe: Callable[[], Awaitable[object]], error: Exception, told: str) -> None:
        try:
            await probe()
        except Exception as silence:
            if self.closed and (_away(silence) or isinstance(silence, TimeoutError)):
                return self._eject(str(error), told)
        self._lost = 0
        log.info("agent %s: target %s stays, for it says what it is: %s", *self._labels, error)

    async def _try(self) -> None:
        self._turn(BreakerState.TRIED)
        try:
            if self._probe is not None:
                await self._probe()
        except Exception as error:
            if _away(error) or isinstance(error, TimeoutError):
                return self._eject(str(error), str(error))
            log.debug("agent %s: target %s answers %s", *self._labels, error)
        log.info("agent %s: target %s is back", *self._labels)
        self._lost = max(0, (self._options.failures or 1) - 1)  # it is out again if its first run fails
        self._turn(BreakerState.CLOSED)

    def _turn(self, state: BreakerState) -> None:
        self.state = state
        self.closed = state is BreakerState.CLOSED
        self._publish()
        for changed in self._changed:
            changed()

    def _publish(self) -> None:
        if self._told:
            tracing.metrics.target_state.set(float(self.state), *self._labels)


def _away(error: Exception) -> bool:
    """Whether an error says that the target cannot be reached. One that has forgotten something or is busy is there."""
    return isinstance(error, UNREACHABLE) and not isinstance(error, AgentForgot | AgentBusy)
