"""Recovers the runs that a dead gateway left: re-attached where possible, ended with a reason otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import repeat

from gateway.agents.entry import Entry
from gateway.agents.hosts import HostedEntry
from gateway.agents.roster import Roster
from gateway.config import Route
from gateway.contract import RunContext, TargetOptions
from gateway.core import events as e
from gateway.core.errors import NotFound, OutcomeUnknown, Unavailable
from gateway.core.types import Agent, Failure, Outcome, Run, RunStatus
from gateway.runs.live import LiveRun
from gateway.runs.run_record import of_error
from gateway.runs.starting import Starter
from gateway.store import Recovered, Store, TakenOver

log = logging.getLogger(__name__)

DESCRIBED_SECONDS = 10.0
"""How long the start waits for agents to describe themselves whose runs are to go on, for all of them together."""
Claimed = Callable[[Sequence[Run]], Awaitable[None]]
RECOVERED_AT_ONCE = 16
"""Runs of dead processes that are read at a time: one after the other they would wait for the store as often."""


class Recovery:
    """Takes up what dead processes left. One per engine."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        starter: Starter,
        events: Callable[[str], Awaitable[Sequence[tuple[int, e.Event]]]],
    ) -> None:
        """events: reads a run's log."""
        self._store = store
        self._roster = roster
        self._starter = starter
        self._events = events
        self._left: dict[str, Recovered] = {}
        """Runs of dead processes that are this one's now, and are not taken up yet."""

    @property
    def waits(self) -> bool:
        """Whether there are claimed runs that are not taken up yet: the store tells nobody of them again."""
        return bool(self._left)

    async def take_up(self, claimed: Claimed) -> bool:
        """Whether there was a run to take up: then `claimed` is awaited with all before any goes on. One call at a
        time.
        """
        self._claiming = asyncio.ensure_future(self._claim())
        await asyncio.shield(self._claiming)  # what is claimed is this process's, whoever goes away meanwhile
        left = list(self._left.values())
        if not left:
            return False
        await claimed([found.run for found in left])
        entries: list[Entry] = []
        places, hosted = asyncio.Semaphore(RECOVERED_AT_ONCE), list[LiveRun]()
        try:
            for found in left:
                entries.append(entry := await self._entry_of(found.run))
                entry.begin()
            agents = await asyncio.gather(*(entry.describe(DESCRIBED_SECONDS) for entry in entries))
            each = map(self._take_up, left, entries, agents, repeat(places), repeat(hosted))
            done = await asyncio.gather(*each, return_exceptions=True)
        finally:
            for live in hosted:
                self._go_on(live)
            for found, entry in zip(left, entries, strict=False):
                if found.run.id in self._left:
                    self._roster.let_go(entry)
        for error in done:
            if error is not None:
                raise error
        return True

    async def _claim(self) -> None:
        for found in await self._store.claim():
            self._left[found.run.id] = found
            if (before := self._starter.live.get(found.run.id)) is not None:  # it was another's in between
                before.hand_over(TakenOver(found.run.id))

    async def _take_up(
        self, found: Recovered, entry: Entry, agent: Agent, places: asyncio.Semaphore, hosted: list[LiveRun]
    ) -> None:
        """Let the run go on; if its agent is hosted, add it there, known again. What cannot be read stays claimed."""
        async with places:
            try:
                live = await self._recover(found, entry, agent)
            except Unavailable:
                raise
            except Exception as error:  # whatever it is, the others go on
                del self._left[found.run.id]
                live = self._starter.make(found.run, agent, entry, None, reserved=found.reserved, last=found.reserved)
                self._starter.begin(live, live.finish(of_error(error, f"run {found.run.id}, taken up again")))
                return
        del self._left[found.run.id]
        if isinstance(entry.host or entry, HostedEntry):
            self._starter.live[live.run.id] = live
            hosted.append(live)
        else:
            self._go_on(live)

    async def _entry_of(self, run: Run) -> Entry:
        try:
            return await self._roster.find(run.agent, run.request.protocol, run.request.metadata)
        except NotFound as error:  # its route is no longer in the table
            return Entry(Route(name=run.agent, target=TargetOptions(protocol="none")), Missing(str(error)))

    async def _recover(self, found: Recovered, entry: Entry, agent: Agent) -> LiveRun:
        """The run in memory, where its log on disk ends. Its events go on above what was reserved before."""
        run = found.run
        thread = await self._store.thread(run.thread) if run.thread is not None else None
        live = self._starter.make(run, agent, entry, thread, reserved=found.reserved, last=found.reserved)
        events = [event for _, event in await self._events(run.id)]
        for event in events:
            live.log.opener.replay(event)
            live.log.output.apply(event)
            if isinstance(event, e.Resumed) and event.answer.outcome is not Outcome.CANCELLED:
                live.questions.given[event.interrupt] = event.answer
            elif isinstance(event, e.ArtifactAdded):
                live.artifacts.append(event.artifact)
        await live.log.reserve()
        log.info("run %s of %s: taken up again (%s)", live.run.id, live.agent.name, live.run.status)
        if live.interceptor is not None:
            live.interceptor.replay(events)
        return live

    def _go_on(self, live: LiveRun) -> None:
        waits = live.run.status is RunStatus.PENDING and not live.cancelled
        self._starter.begin(live, self._starter.wait_and_drive(live, turn=False) if waits else goes_on(live))


class Missing:
    """The target of a route that is no longer in the table."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def describe(self) -> Agent:
        """Raises NotFound."""
        raise NotFound(self._why)

    async def run(self, context: RunContext) -> None:
        """Raises NotFound."""
        raise NotFound(self._why)

    attach = cancel = run

    async def aclose(self) -> None:
        """Nothing to close."""


def goes_on(live: LiveRun) -> Coroutine[None, None, None]:
    """Find a run again that had been started, or end it with a reason. Never sends it twice."""
    if not live.run.dispatched:
        return live.finish(e.RunCancelled(reason=live.run.cancel_reason)) if live.run.cancel_reason else live.drive()
    if live.run.upstream is None:
        return live.finish(e.RunFailed(failure=Failure.of(OutcomeUnknown())))
    if live.run.cancel_reason is not None:
        return _cancelled(live)
    return live.drive(attach=True)


async def _cancelled(live: LiveRun) -> None:
    """The cancel was stored; whether the agent heard of it is not known, so it is told again."""
    await live.call_cancel()
    await live.finish(e.RunCancelled(reason=live.run.cancel_reason or ""))
