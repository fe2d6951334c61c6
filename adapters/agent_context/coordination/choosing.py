"""Chooses the agents that may have a task: those of the directory that match, take its payload and are not excluded.

Where all of them have as many tasks as they may, the task waits in line. Higher priority comes first, then age. A task
takes any agent that is free of those that it may have, the best at that moment. An agent that becomes free goes to the
first task in line that may have it. One process of those on a store has the line (`Coordinator.process`).
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from adapters.agent_context.codec import content
from adapters.agent_context.codec.ranking import Candidate, Needs, Ranking, rank, rated
from adapters.agent_context.directory import Directory
from adapters.agent_context.wire import PROTOCOL
from gateway.contract import Gateway
from gateway.core import files
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.types import Agent, Json

PATIENCE: Final = 1.0
"""Seconds that choosing waits for an agent to be described."""
FRESH: Final = 0.25
"""Seconds for which what the directory said holds, unless it has changed meanwhile."""
ENOUGH: Final = 3
"""So many of the best are known to take the payload; the others are asked when it comes to them."""
UNKNOWN: Final = "has not said yet what it takes"


class TakesPayload:
    """Which agents take one payload, each looked at once for as long as it is described in the same words."""

    def __init__(self, payload: Json) -> None:
        self._payload = payload
        self._known: dict[str, tuple[Agent, str | None]] = {}

    def why_not(self, agent: Agent | InterlinguaError) -> str | None:
        """Why the payload is no input of the agent; None if it is one."""
        if not isinstance(agent, Agent):
            return f"cannot be called: {agent}"
        known = self._known.get(agent.name)
        if known is None or (known[0] is not agent and known[0] != agent):
            known = self._known[agent.name] = agent, self._why_not(agent)
        return known[1]

    def _why_not(self, agent: Agent) -> str | None:
        try:
            attached = content.task_of(agent, self._payload).files
        except Invalid as error:
            return f"does not take the payload: {error}"
        refused = [each for each in attached if not files.takes(agent, each.media_type)]
        return f"takes no such files: {refused[0].name} is {refused[0].media_type}" if refused else None


class AgentChooser:
    """One per coordinator. `weights` by factor (see codec/ranking.py)."""

    def __init__(self, gateway: Gateway, directory: Directory, weights: Mapping[str, float], per_agent: int) -> None:
        self._gateway = gateway
        self._directory = directory
        self._weights = weights
        self._reading: asyncio.Task[Sequence[Candidate]] | None = None
        self._read: tuple[int, float] = (-1, 0.0)  # which change it was read after, and when
        self.queue = TaskQueue(per_agent, lambda one, running: rated(one, weights, running).score)

    async def rank(self, needs: Needs, takes: TakesPayload) -> Ranking:
        """Rank the agents that may have the task now. The first few take its payload; the others may, too."""
        candidates = await self._candidates()
        out: dict[str, str] = {}
        slow: set[str] = set()
        fit: set[str] = set()
        enough = ENOUGH
        while True:
            known = candidates
            if slow:
                known = [replace(one, status="inactive", why_not=UNKNOWN) if one.id in slow else one for one in known]
            ranking = rank(known, replace(needs, excluded={**needs.excluded, **out}), self._weights, self.queue.running)
            next_ones = [one.candidate.id for one in ranking.ranked[:enough]] or list(ranking.away)
            ask = [name for name in next_ones if name not in fit and name not in slow]
            if not ask:
                return ranking
            enough *= 2  # where the best do not take it, the next may not either
            before = len(out) + len(slow)
            for name, agent in zip(ask, await asyncio.gather(*map(self._described, ask)), strict=True):
                if agent is None:
                    slow.add(name)
                elif (reason := takes.why_not(agent)) is None:
                    fit.add(name)
                else:
                    out[name] = reason
            if len(out) + len(slow) == before:
                return ranking

    async def why_not(self, name: str, takes: TakesPayload) -> str | None:
        """Why one agent does not take the payload; None if it does, as far as is known."""
        agent = await self._described(name)
        return None if agent is None else takes.why_not(agent)

    async def _candidates(self) -> Sequence[Candidate]:
        """The candidates of the directory; many tasks that ask at the same time ask it once."""
        now = asyncio.get_running_loop().time()
        version, at = self._read
        if self._reading is None or version != self.queue.changes or (self._reading.done() and now - at > FRESH):
            self._read = self.queue.changes, now
            self._reading = asyncio.ensure_future(self._directory.candidates())
        return await asyncio.shield(self._reading)

    async def _described(self, name: str) -> Agent | InterlinguaError | None:
        """An agent as described, or why it cannot be; None for one that has not answered within a moment. It is asked
        on: it may be chosen later.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._gateway.agents.get(name, PROTOCOL)
        except TimeoutError:
            return None
        except InterlinguaError as error:  # it has gone, or is not for this protocol's clients
            return error


# --- who waits, and how much each agent has to do ---------------------------------------------------------------------


CALM_SECONDS = 0.05
"""Between a change of the directory and the next look of those who wait: many changes come together."""
AGAIN_SECONDS = 2.0
"""Seconds after which waiting tasks choose again anyway: not every change is told."""
CROWD = 100
"""More than so many look less often."""


class QueuePlace:
    """One task's place in the line: `want` somebody, wait for `news`, take the agent, or want again."""

    def __init__(self, queue: TaskQueue, order: tuple[int, float, int], key: str) -> None:
        self.order = order
        self.key = key
        self.wants: Sequence[Candidate] = ()
        self.agent: str | None = None
        """The agent that it was given, at most one."""
        self._queue = queue
        self._news = asyncio.Event()

    def want(self, candidates: Sequence[Candidate]) -> None:
        self.wants = candidates
        self._queue.wanted(self)

    async def news(self, timeout: float | None) -> bool:
        """Until there is an agent, or something has changed (then choose and `want` again). False after `timeout`
        seconds, if that is not None.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
        told = self._news.is_set()
        self._news.clear()
        return told

    def give(self, agent: str) -> None:
        self.agent = agent
        self.wake()

    def taken(self) -> str | None:
        """The agent, which is the caller's to release from now on."""
        agent, self.agent = self.agent, None
        return agent

    def wake(self) -> None:
        self._news.set()


class TaskQueue:
    """One per coordinator. `score` says how good an agent is that has so many tasks: the best free one is taken."""

    def __init__(self, per_agent: int, score: Callable[[Candidate, int], float]) -> None:
        self._per_agent = per_agent
        self._score = score
        self._running: Counter[str] = Counter()
        self._line: list[QueuePlace] = []
        self._choosing: set[QueuePlace] = set()
        """Those that were told to choose again, and have not said since whom they want."""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self.changes = 0
        """How often `changed` was called."""

    # --- for tasks -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def enter(self, priority: int, since: float, key: str) -> Iterator[QueuePlace]:
        """A place in the line until the block is left. An agent that was not taken out of it then is given back.

        `key` is what `wake` knows it by.
        """
        self._count += 1
        place = QueuePlace(self, (-priority, since, self._count), key)
        bisect.insort(self._line, place, key=lambda one: one.order)
        self._look_within(AGAIN_SECONDS)
        try:
            yield place
        finally:
            self._line.remove(place)
            self._chose(place)
            if place.agent is not None:
                self.release(place.agent)

    def take(self, agent: str) -> None:
        """One more task for an agent, however many it has: it has this one already."""
        self._running[agent] += 1

    def release(self, agent: str) -> None:
        """An agent has one task less."""
        self._running[agent] -= 1
        if self._running[agent] <= 0:
            del self._running[agent]
        if self._choosing:
            return
        for place in self._line:
            if any(one.id == agent for one in place.wants) and self._offer(place):
                return

    def running(self, agent: str) -> int:
        return self._running[agent]

    @property
    def waiting(self) -> int:
        """How many tasks wait for an agent, or choose one."""
        return len(self._line)

    def wake(self, key: str) -> None:
        for place in self._line:
            if place.key == key:
                place.wake()

    def changed(self) -> None:
        """The directory has changed: every waiting task chooses anew, soon."""
        self.changes += 1
        if self._line:
            self._look_within(CALM_SECONDS)

    def wanted(self, place: QueuePlace) -> None:
        """A place has said whom it wants. While one chooses anew nobody gets anything: it may be before them."""
        if place in self._choosing:
            self._chose(place)
        elif not self._choosing:
            self._offer(place)

    def _chose(self, place: QueuePlace) -> None:
        if place not in self._choosing:
            return
        self._choosing.remove(place)
        if not self._choosing:
            for waiting in self._line:
                self._offer(waiting)

    def _offer(self, place: QueuePlace) -> bool:
        """Give it the best agent of those it wants that are free. Whether there was one."""
        if place.agent is not None:
            return False
        free = [one for one in place.wants if self._running[one.id] < self._per_agent]
        if not free:
            return False
        best = max(free, key=lambda one: self._score(one, self._running[one.id]))  # of equals the first
        self.take(best.id)
        place.give(best.id)
        return True

    def _look_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        for place in self._line:
            if place.agent is None and place not in self._choosing:
                self._choosing.add(place)
                place.wake()
        if self._line:
            self._look_within(AGAIN_SECONDS * max(1.0, len(self._line) / CROWD))
