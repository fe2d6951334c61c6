"""Chooses the agents that may have a task: those of the directory that match, take its payload and are not excluded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from adapters.agent_context.codec import content
from adapters.agent_context.codec.ranking import Candidate, Needs, Ranking, rank, rated
from adapters.agent_context.coordination.queue import TaskQueue
from adapters.agent_context.wire.constants import PROTOCOL
from gateway.contract import Gateway
from gateway.core import files
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.files import Attachment
from gateway.core.types import Agent, Json

PATIENCE: Final = 1.0
"""Seconds that choosing waits for an agent to be described; one that is not by then may be chosen later."""
FRESH: Final = 0.25
"""Seconds for which what the directory said holds, unless it has changed meanwhile."""
ENOUGH: Final = 3
"""So many of the best are known to take the payload; the others are asked when it comes to them."""
UNKNOWN: Final = "has not said yet what it takes"


class CandidateSource(Protocol):
    """The part of the directory that the coordination uses."""

    async def candidates(self) -> Sequence[Candidate]:
        """All agents of all protocols as they are now, in the order of the directory."""


class TakesPayload:
    """Which agents take one payload, each looked at once for as long as it is described in the same words."""

    def __init__(self, payload: Json) -> None:
        self._payload = payload
        self._known: dict[str, tuple[Agent, str | None]] = {}

    def why_not(self, agent: Agent) -> str | None:
        """Why the payload is no input of the agent; None if it is one."""
        known = self._known.get(agent.name)
        if known is None or (known[0] is not agent and known[0] != agent):
            try:
                begun = content.task_of(agent, self._payload)
                known = agent, _file_refusal(agent, begun.files)
            except Invalid as error:
                known = agent, f"does not take the payload: {error}"
            self._known[agent.name] = known
        return known[1]


class AgentChooser:
    """One per coordinator. `weights` by factor (see codec/ranking.py)."""

    def __init__(
        self, gateway: Gateway, directory: CandidateSource, weights: Mapping[str, float], per_agent: int
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._weights = weights
        self._describing: dict[str, asyncio.Task[Agent | InterlinguaError]] = {}
        self._reading: asyncio.Task[Sequence[Candidate]] | None = None
        self._read: tuple[int, float] = (-1, 0.0)  # which change it was read after, and when
        self.queue = TaskQueue(per_agent, self._score)

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
            ranking = rank(known, replace(needs, excluded={**needs.excluded, **out}), self._weights, self._load)
            next_ones = [one.candidate.id for one in ranking.ranked[:enough]] or list(ranking.away)
            ask = [name for name in next_ones if name not in fit and name not in slow]
            if not ask:
                return ranking
            enough *= 2  # where the best do not take it, the next may not either
            before = len(out) + len(slow)
            for name, agent in (await self._described(ask)).items():
                if agent is None:
                    slow.add(name)
                elif (reason := _refusal(agent, takes)) is None:
                    fit.add(name)
                else:
                    out[name] = reason
            if len(out) + len(slow) == before:
                return ranking

    async def why_not(self, name: str, takes: TakesPayload) -> str | None:
        """Why one agent does not take the payload; None if it does, as far as is known."""
        agent = (await self._described([name]))[name]
        return None if agent is None else _refusal(agent, takes)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _load(self, name: str) -> float:
        return self.queue.running(name)

    def _score(self, one: Candidate, running: int) -> float:
        return rated(one, self._weights, running).score

    async def _candidates(self) -> Sequence[Candidate]:
        """The candidates of the directory; many tasks that ask at the same time ask it once."""
        now = asyncio.get_running_loop().time()
        version, at = self._read
        if self._reading is None or version != self.queue.changes or (self._reading.done() and now - at > FRESH):
            self._read = self.queue.changes, now
            self._reading = asyncio.ensure_future(self._directory.candidates())
        return await asyncio.shield(self._reading)

    async def _described(self, names: Sequence[str]) -> Mapping[str, Agent | InterlinguaError | None]:
        """Each of them as described, or why it cannot be; None for one that has not answered within a moment."""
        tasks = {name: self._describe(name) for name in names}
        await asyncio.wait(tasks.values(), timeout=PATIENCE)
        return {name: task.result() if task.done() else None for name, task in tasks.items()}

    def _describe(self, name: str) -> asyncio.Task[Agent | InterlinguaError]:
        """The task that asks, the one under way if there is one: it goes on when nobody waits for it any more."""
        task = self._describing.get(name)
        if task is None:
            task = self._describing[name] = asyncio.create_task(self._agent(name))
            task.add_done_callback(lambda _: self._describing.pop(name, None))
        return task

    async def _agent(self, name: str) -> Agent | InterlinguaError:
        try:
            return await self._gateway.agents.get(name, PROTOCOL)
        except InterlinguaError as error:  # it has gone, or is not for this protocol's clients
            return error


def _file_refusal(agent: Agent, attached: Sequence[Attachment]) -> str | None:
    refused = [each for each in attached if not files.takes(agent, each.media_type)]
    return f"takes no such files: {refused[0].name} is {refused[0].media_type}" if refused else None


def _refusal(agent: Agent | InterlinguaError, takes: TakesPayload) -> str | None:
    return takes.why_not(agent) if isinstance(agent, Agent) else f"cannot be called: {agent}"
