"""Which run a task is, without asking the store each time: runs cannot be looked up by whose task they are."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from msgspec.structs import replace

from adapters.agent_context.wire.constants import PROTOCOL
from gateway.contract import Gateway
from gateway.core.types import Run, RunQuery

Key = tuple[str | None, str]
"""(principal, task id)"""

TASK: Final = "task"
"""Key of a task's run's metadata: the task's id; and of its input: the task."""
PAGE: Final = 200
"""Runs that are read at a time."""
MOST: Final = 100_000
"""Tasks that are remembered; older ones are looked for in the store each time."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at what other processes on the store have started: as often as they look for each other."""
OVERLAP: Final = 10.0
"""Seconds by which runs may come into the store later than they say."""


class TaskIndex:
    """Index of the runs of one agent. Those of this process are there at once, those of others a second later."""

    def __init__(self, gateway: Gateway, agent: str) -> None:
        self._gateway = gateway
        self._agent = agent
        self._runs: OrderedDict[Key, str] = OrderedDict()
        self._forgotten = False
        self._until = 0.0  # of the newest run that was read
        self._due = 0.0
        self._looking: asyncio.Future[None] | None = None

    def add(self, key: Key, run: Run) -> None:
        """A task was started, or found."""
        self._runs[key] = run.id
        self._runs.move_to_end(key)
        if len(self._runs) > MOST:
            self._runs.popitem(last=False)
            self._forgotten = True

    def forget(self, key: Key) -> None:
        """Its run is no more."""
        self._runs.pop(key, None)

    async def find(self, key: Key) -> str | None:
        """The id of the task's run; None if there is none. It may be gone by now."""
        if key not in self._runs:
            await self._look()
        if key not in self._runs and self._forgotten:
            await self._search(key)
        return self._runs.get(key)

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read what was started since the last look; one look at a time."""
        if self._looking is None or self._looking.done():
            if asyncio.get_running_loop().time() < self._due:
                return
            self._looking = asyncio.ensure_future(self._read())
        await asyncio.shield(self._looking)

    async def _read(self) -> None:
        query, newest = RunQuery(agent=self._agent, limit=PAGE), self._until
        until = newest - OVERLAP
        while runs := await self._gateway.runs.list(query):
            for run in runs:
                key = _key(run)
                if key is not None and key not in self._runs:
                    self.add(key, run)
                newest = max(newest, run.created_at)
            if runs[-1].created_at < until:
                break
            query = replace(query, offset=query.offset + PAGE)
        self._until = newest
        self._due = asyncio.get_running_loop().time() + LOOK_SECONDS

    async def _search(self, key: Key) -> None:
        query = RunQuery(agent=self._agent, metadata={TASK: key[1]}, limit=PAGE)
        while runs := await self._gateway.runs.list(query):
            for run in runs:
                if _key(run) == key:
                    self.add(key, run)
                    return
            query = replace(query, offset=query.offset + PAGE)


def _key(run: Run) -> Key | None:
    request = run.request
    task_id = request.metadata.get(TASK) if request.protocol == PROTOCOL else None
    return (request.principal, task_id) if isinstance(task_id, str) else None
