"""Access that is revoked, and given back (section 7.1)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec

from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.metrics import ACTIVE_RUNS
from adapters.agent_context.directory.records import EVERYBODY, GONE, Revocation, time_of
from adapters.agent_context.wire.constants import PROTOCOL
from gateway.core.errors import InterlinguaError
from gateway.core.types import RunQuery
from gateway.transport.tasks import TaskSet

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

    async def revoke(self, agent: str, reason: str, until: float | None = None) -> None:
        """See `Directory.revoke`. It holds here even if it cannot be written down; then that is raised.

        until: epoch seconds at which it is given back by `sweep`.
        """
        members, name = self._members, GONE + agent
        async with members.lock(name):
            members.marks.touch(name)
            how = Revocation(at=members.now(), reason=reason, until=until)
            members.revoke(agent, how)
            self._changed((agent,))
            try:
                await members.gateway.records.keep(PROTOCOL, name, msgspec.to_builtins(how), owner=EVERYBODY)
            finally:
                members.marks.touch(name)
                await members.announce()
                await self._stop(agent)

    async def restore(self, agent: str) -> None:
        members, name = self._members, GONE + agent
        async with members.lock(name):
            if agent not in members.revoked:
                return
            members.marks.touch(name)
            await members.gateway.records.forget(PROTOCOL, name)
            members.marks.touch(name)
            members.restore(agent)
        await members.announce()
        self._changed((agent,))

    def suspend(self, agent: str, reason: str, seconds: float) -> None:
        """Revoke it for a while, in the background. One that is revoked already stays as it is."""
        if agent not in self._members.revoked:
            self._do(self._suspend(agent, reason, seconds))

    async def sweep(self) -> None:
        """Give back what was taken for a while. Called about once a second."""
        now = self._members.now()
        over = [agent for agent, how in self._members.revoked.items() if how.until is not None and how.until <= now]
        for agent in over:
            log.warning("the access of agent %s is given back: its suspension is over", agent)
            await self.restore(agent)

    def stop(self, agent: str) -> None:
        """Another process has revoked it: its runs here end."""
        self._do(self._stop(agent))

    async def settled(self) -> None:
        """Until they have been told to."""
        await self._work.settled()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.start(work)

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
