"""Access that is revoked, and given back (section 7.1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.metrics import ACTIVE_RUNS
from adapters.agent_context.directory.records import EVERYBODY, GONE, Revocation
from adapters.agent_context.wire.constants import PROTOCOL
from gateway.core.errors import InterlinguaError
from gateway.core.types import RunQuery

log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Runs of one agent that are looked for at a time."""
REASON: Final = "the agent's access was revoked"


class Revoking:
    """One per directory. `changed` is told the agents that are others now."""

    def __init__(self, members: Members, changed: Callable[[Iterable[str]], None]) -> None:
        self._members = members
        self._changed = changed
        self._work: set[asyncio.Task[Any]] = set()

    async def revoke(self, agent: str, reason: str) -> None:
        """See `Directory.revoke`. It holds here even if it cannot be written down; then that is raised."""
        members, name = self._members, GONE + agent
        async with members.lock(name):
            members.marks.touch(name)
            how = Revocation(at=members.now(), reason=reason)
            members.revoke(agent, how)
            self._changed((agent,))
            try:
                await members.gateway.keep(PROTOCOL, name, msgspec.to_builtins(how), owner=EVERYBODY)
            finally:
                members.marks.touch(name)
                await members.announce()
                await self._stop(agent)

    async def restore(self, agent: str) -> None:
        """See `Directory.restore`."""
        members, name = self._members, GONE + agent
        async with members.lock(name):
            if agent not in members.revoked:
                return
            members.marks.touch(name)
            await members.gateway.forget(PROTOCOL, name)
            members.marks.touch(name)
            members.restore(agent)
        await members.announce()
        self._changed((agent,))

    def stop(self, agent: str) -> None:
        """Another process has revoked it: its runs here end."""
        task = asyncio.create_task(self._stop(agent))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def settled(self) -> None:
        """Until they have been told to."""
        while self._work:
            await asyncio.wait(self._work)

    async def _stop(self, agent: str) -> None:
        gateway = self._members.gateway
        offset = 0
        while True:
            query = RunQuery(agent=agent, statuses=ACTIVE_RUNS, limit=AT_ONCE, offset=offset)
            try:
                runs = await gateway.runs(query)
            except InterlinguaError as error:
                log.warning("runs of agent %s go on: %s", agent, error)
                return
            for run in runs:
                with contextlib.suppress(InterlinguaError):  # another process's: that one cancels it
                    await gateway.cancel(run.id, reason=REASON)
            if len(runs) < AT_ONCE:
                return
            offset += AT_ONCE
