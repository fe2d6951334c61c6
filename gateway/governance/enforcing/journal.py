"""A process's audit log with the states of its sessions and the budgets of its policies.

Another process has another log in the same folder. What one that has died left in its log, the process that takes its
runs over goes on with there; or in its own, where a process has come in the place of that one, which has its log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from pathlib import Path

from gateway.core.errors import InterlinguaError, Unavailable
from gateway.governance.audit import AuditEntry, AuditEvent, AuditLog, LogTaken, Terms
from gateway.governance.audit.aip44 import State
from gateway.governance.audit.files import log_path
from gateway.governance.budgets import DAY, Budgets
from gateway.governance.enforcing.restoring import AT_WORK, RestoredLog, UnfinishedSession, read
from gateway.store import Allowance

log = logging.getLogger(__name__)

MOST_STATES = 10_000
"""The most sessions whose state is remembered. An older one begins anew with its next transition."""


Spend = Callable[[Sequence[Allowance]], Awaitable[list[int]]]
"""`Store.spend`."""
Asked = Callable[[str], Awaitable[bool]]
"""Whether another process has a run of a session: one that has not ended, or one that was this process's."""


async def _first() -> Collection[int]:
    return (1,)


async def by_nobody(session: str) -> bool:
    return False


class Journal:
    """One per folder, for every route that the GOVERNANCE.md in it governs. Opened at start, closed at stop."""

    def __init__(
        self,
        make: Callable[[int], Awaitable[AuditLog]] | None,
        known: Callable[[], Awaitable[Collection[int]]] = _first,
        *,
        spend: Spend,
        folder: str = "",
        taken_over: Asked = by_nobody,
    ) -> None:
        """`make` makes the log of a number when it is to be opened; None: nothing is recorded here. `known`: the
        numbers of the logs in the folder. Processes with one `folder` and one store spend the same budgets.
        `taken_over`: whether another process goes on with a run that this one still has.
        """
        self.budgets = Budgets(folder)
        self._spend = spend
        self._make = make
        self._known = known
        self._taken_over = taken_over
        self._log: AuditLog | None = None
        self._number = 0
        self._inherited: dict[int, AuditLog] = {}
        """Logs of processes that have died, by number, while something that they left is not over."""
        self._places: dict[str, int] = {}
        """By session, the number of the log that it began in, of those."""
        self._closing: set[asyncio.Task[None]] = set()
        self._states: OrderedDict[str, State] = OrderedDict()
        self._left: dict[str, UnfinishedSession] = {}
        """By session, what an earlier process left and no run goes on with, until its end is recorded; those in which
        nothing is unfinished only until it is known which runs go on.
        """
        self._wanted: dict[Path, Terms] = {}
        self.told: dict[str, tuple[str, ...]] = {}
        """By session, the digests of the skills that its agent was told."""
        self.settled = make is None
        """Whether what was begun before it was opened is recorded as over, or nothing is recorded."""

    def want(self, who: Path, terms: Terms) -> None:
        """Set the terms of the log for a route, by its manifest. What one route keeps is kept.

        Takes effect with the next `open` or `forget_all_but`.
        """
        self._wanted[who] = terms

    def forget_all_but(self, who: Collection[Path]) -> None:
        """Keep the log for the routes that there still are. Raises Invalid."""
        self._wanted = {name: terms for name, terms in self._wanted.items() if name in who}
        self._keep()

    def _keep(self) -> None:
        if self._log is None or not self._wanted:
            return
        found = list(self._wanted.values())
        days = [terms.days for terms in found if terms.days is not None]
        self._log.keep(
            Terms(
                algorithm=found[-1].algorithm,
                days=max(days) if len(days) == len(found) else None,
                pointer=any(terms.pointer for terms in found),
            )
        )

    async def open(self) -> None:
        """Open the log, if it is not open, and restore the state from it. Raises Unavailable, AuditBroken, Invalid."""
        if self._make is None or self._log is not None:
            return
        opened, number = None, 0
        while opened is None:
            number += 1
            opened = await self._opened(self._make, number)
        try:
            past = await self._restored(opened)
        except BaseException:
            await opened.aclose()
            raise
        opened.follow(*past.newest.values())
        for one in past.spent:
            self.budgets.restore(one)
        self._log, self._number = opened, number
        for session, left in past.sessions.items():
            if past.places[session][-1] == opened.path:
                self._take(session, left)
            elif opened.path in past.places[session] and not left:
                self._take(session, UnfinishedSession(state=left.state))
        self._keep()

    async def inherit(self, sessions: Set[str] = frozenset()) -> None:
        """Take over what processes that have died left in their logs. Called when their runs are this process's, before
        these go on. `sessions`: those of the runs. Raises Unavailable, AuditBroken, Invalid.
        """
        if self._make is None or self._log is None:
            return
        found: dict[int, AuditLog] = {}
        try:
            for number in sorted({*await self._known()} - {self._number, *self._inherited}):
                if (opened := await self._opened(self._make, number)) is not None:
                    found[number] = opened
            past = await self._restored(self._log)
        except BaseException:
            for opened in found.values():
                await opened.aclose()
            raise
        self._log.follow(*past.newest.values())
        self._inherited |= found
        numbers = {opened.path: number for number, opened in self._inherited.items()}
        closed = dict.fromkeys(sessions & past.places.keys(), UnfinishedSession())
        for session, left in {**closed, **past.sessions}.items():
            last = past.places[session][-1]
            if self._outdated(session, last) if session in sessions else last in numbers:
                self._go_on(session, left, numbers.get(last))
        for number, opened in found.items():
            if taken := [*self._places.values()].count(number):
                log.info("%s: this process goes on with what another left: %d", opened.path, taken)
        self._release()
        await asyncio.gather(*self._closing)

    def _outdated(self, session: str, last: Path) -> bool:
        """Whether a session may have gone on elsewhere than this process knows: where one took its run over while a
        third had the log that it began in.
        """
        return bool(self._left.get(session)) or (self._log is not None and last != self._log.path)

    def _go_on(self, session: str, left: UnfinishedSession, number: int | None) -> None:
        """Go on with a session in the log of a process that has died, or in this process's own."""
        if self._states.get(session) in AT_WORK:  # this process knows better
            return
        for known in (self._left, self._states, self._places):
            known.pop(session, None)
        if number is not None and left:
            self._places[session] = number
        self._take(session, left)

    async def _opened(self, make: Callable[[int], Awaitable[AuditLog]], number: int) -> AuditLog | None:
        """An open log; None if another process writes it."""
        made = await make(number)
        try:
            await made.open()
        except LogTaken:
            return None
        return made

    async def _restored(self, own: AuditLog) -> RestoredLog:
        """What all logs of the folder say of before, as one, this process's own last. Raises Unavailable."""
        numbers = {*await self._known()}
        paths = dict.fromkeys([*(log_path(own.path.parent, number) for number in sorted(numbers)), own.path])
        paths[own.path] = paths.pop(own.path)
        try:
            return await asyncio.to_thread(read, [*paths], time.time())
        except Exception as error:
            where = ", ".join(map(str, paths))
            raise Unavailable(f"{where}: what was recorded cannot be read", detail=str(error)) from error

    def _take(self, session: str, left: UnfinishedSession) -> None:
        """Remember what was left in a session, or how it ended."""
        if left or left.ended:
            self._left[session] = left
        if left.state is not None:
            self.moved(session, "interrupted" if left.state in AT_WORK else left.state)

    def _over(self, session: str) -> None:
        """Nothing more of a session comes into the log of a process that has died: what does comes into this one's own,
        and later.
        """
        if self._left.get(session) or self._states.get(session) in AT_WORK:
            return
        if (number := self._places.pop(session, None)) is not None:
            if self._log is not None:
                self._log.follow(self._inherited[number].newest)
            self._release()

    def _release(self) -> None:
        """Let go of logs of processes that have died, of whose sessions none has anything left: they are for the next
        process.
        """
        for number in self._inherited.keys() - {*self._places.values()}:
            self._closing.add(closing := asyncio.create_task(self._inherited.pop(number).aclose()))
            closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Write what waits, and close the files."""
        for opened in (*self._inherited.values(), self._log):
            if opened is not None:
                await opened.aclose()
        await asyncio.gather(*self._closing)

    async def write(self, session: str, *events: AuditEvent) -> None:
        """Record events of a session in order, on disk. What an earlier process left in it is ended before.

        Raises Unavailable if they are not, whatever the reason.
        """
        if self._make is None:
            return
        if self._log is None:
            raise Unavailable("the audit log is not open")
        if await self._taken_over(session):
            self.moved(session, None)
            raise Unavailable("another gateway has taken the run over, and records what becomes of it")
        audit = self._inherited[self._places[session]] if session in self._places else self._log
        try:
            if self._left.get(session):
                await self._end(audit, session)
            await asyncio.gather(*[audit.append(event) for event in events])
        except InterlinguaError as error:
            log.error("%s: %s %s", audit.path, error, error.detail)
            raise Unavailable("what happens cannot be audited", detail=str(error)) from error
        self._over(session)

    async def spend(self, allowances: Sequence[Allowance]) -> bool:
        """Spend these parts of the budgets, all or none. Returns whether they are spent. Raises Unavailable."""
        return self.budgets.learn(allowances, await self._spend(allowances))

    # --- what an earlier process has begun -----------------------------------------------------------------------

    def left(self, session: str) -> UnfinishedSession:
        """A session as an earlier process left it, until its end is recorded."""
        return self._left.get(session, UnfinishedSession())

    def goes_on(self, session: str, calls: Collection[str]) -> None:
        """Go on with a run of an earlier process, with these of its calls."""
        left = self._left.get(session)
        if not left:
            return
        if left.state in AT_WORK:
            self.moved(session, left.state)
        left.go_on(calls)
        if not left:
            del self._left[session]

    async def settle(self, driven: Asked) -> None:
        """Record the end of everything that no run goes on with. Called when it is known which do here. Where another
        process has taken a run over, it records its end, or has done so in its own log.

        Raises Unavailable: what is not recorded then will be before its session's next event.
        """
        self._left = {session: left for session, left in self._left.items() if left}
        others = [session for session in [*self._left] if await driven(session)]
        for session in (*others, *await self._ended_elsewhere(self._left.keys() - others)):
            if self._left.pop(session, None) is not None:
                self.moved(session, None)
        done = await asyncio.gather(*[self.write(session) for session in self._left], return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        self.settled = True

    async def _ended_elsewhere(self, sessions: Collection[str]) -> Collection[str]:
        """Those of which another process's log has a later word. A run's end is recorded before the store has it, so
        that it is there once no run is driven any more.
        """
        if self._log is None or not sessions:
            return ()
        ours = {self._log.path, *(opened.path for opened in self._inherited.values())}
        before = {session: self._left[session].last for session in sessions}
        told = (await self._restored(self._log)).places
        return [session for session, last in before.items() if told.get(session, [last])[-1] not in {*ours, last}]

    async def _end(self, audit: AuditLog, session: str) -> None:
        left = self._left.pop(session)
        names = [*left.calls]
        done = await asyncio.gather(*[_appended(audit, event) for event in left.ends(session)], return_exceptions=True)
        for name, outcome in zip(names, done, strict=False):
            if not isinstance(outcome, BaseException):
                del left.calls[name]
        if not isinstance(done[-1], BaseException):
            left.closed()
        if left:
            self._left[session] = left
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome

    # --- states --------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time that rules go by, in seconds since the epoch: a clock that was set back refills no budget. One that
        is more than a day behind the log is taken for right, and to have been wrong before.
        """
        now, newest = time.time(), self._log.newest if self._log is not None else 0.0
        return newest if now < newest <= now + DAY else now

    def state(self, session: str) -> State | None:
        """The operator's last known state."""
        return self._states.get(session)

    def moved(self, session: str, state: State | None) -> None:
        """Remember the state of a session; None: it is over."""
        self._states.pop(session, None)
        if state is None:
            self.told.pop(session, None)
        else:
            self._states[session] = state
            while len(self._states) > MOST_STATES:
                self.told.pop(self._states.popitem(last=False)[0], None)
        self._over(session)


def _appended(audit: AuditLog, event: AuditEvent) -> Awaitable[AuditEntry]:
    """`append`, which raises nothing at once: of several events each has its own outcome."""
    try:
        return audit.append(event)
    except InterlinguaError as error:
        refused: asyncio.Future[AuditEntry] = asyncio.get_running_loop().create_future()
        refused.set_exception(error)
        return refused
