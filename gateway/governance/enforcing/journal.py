"""One audit log at work: what is recorded in it, the states of the sessions in it, the budgets of its policies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.core.errors import InterlinguaError, Unavailable
from gateway.governance.audit import AuditLog, Event
from gateway.governance.audit.aip44 import State
from gateway.governance.budgets import Budgets
from gateway.governance.enforcing.spent import spent

log = logging.getLogger(__name__)

MOST_STATES = 10_000
"""Sessions whose state is remembered; one that is older begins anew, which its next transition shows."""


class Journal:
    """One per folder, for every route that the GOVERNANCE.md in it governs. Opened at start, closed at stop."""

    def __init__(self, make: Callable[[], Awaitable[AuditLog]] | None) -> None:
        """`make` makes the log when it is to be opened; None: nothing is recorded here."""
        self.budgets = Budgets()
        self._make = make
        self._log: AuditLog | None = None
        self._states: OrderedDict[str, State] = OrderedDict()

    @property
    def path(self) -> Path | None:
        """The file that is being written; None if there is none."""
        return self._log.path if self._log is not None else None

    async def open(self) -> None:
        """Open the log, unless it is, and read back what was spent. Raises Unavailable, AuditBroken, Invalid."""
        if self._make is None or self._log is not None:
            return
        opened = await self._make()
        await opened.open()
        try:
            for one in await asyncio.to_thread(spent, opened.path, time.time()):
                self.budgets.restore(one)
        except Exception as error:
            await opened.aclose()
            raise Unavailable(f"{opened.path}: what was spent cannot be read", detail=str(error)) from error
        self._log = opened

    async def aclose(self) -> None:
        """Write what waits, and let go of the files."""
        if self._log is not None:
            await self._log.aclose()

    async def write(self, *events: Event) -> None:
        """Record events, in order; they are on disk then. Raises Unavailable if they are not, whatever the reason."""
        if self._make is None:
            return
        if self._log is None:
            raise Unavailable("the audit log is not open")
        try:
            await asyncio.gather(*[self._log.append(event) for event in events])
        except InterlinguaError as error:
            log.error("%s: %s %s", self._log.path, error, error.detail)
            raise Unavailable("what happens cannot be audited", detail=str(error)) from error

    def state(self, session: str) -> State | None:
        """What its operator was last doing, as far as is remembered."""
        return self._states.get(session)

    def moved(self, session: str, state: State | None) -> None:
        """Remember another state; None: the session is over."""
        self._states.pop(session, None)
        if state is not None:
            self._states[session] = state
            while len(self._states) > MOST_STATES:
                self._states.popitem(last=False)
