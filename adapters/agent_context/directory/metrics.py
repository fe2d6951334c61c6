"""Measures agents by their runs: numbers and times, and nothing that anybody said.

No inputs, outputs, metadata, names of clients, ids of runs or threads (section 7.2: no user data in metrics).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from adapters.agent_context.directory.records import time_of
from gateway.contract import Gateway
from gateway.core.types import ENDED, JsonObject, Run, RunQuery, RunStatus

T = TypeVar("T")

FRESH: Final = 1.0
"""Seconds for which an answer is given again."""
SPEED_FRESH: Final = 10.0
LAST: Final = 100
"""Runs whose times count."""
ACTIVE_RUNS: Final = tuple(status for status in RunStatus if status not in ENDED)
MOST_ACTIVE: Final = 2000
"""Runs that are looked at for the loads of all agents."""
MOST_CACHED: Final = 1000

BYTES_PER_TOKEN: Final = 4
SPOKEN: Final = 200
"""Bytes of output below which a run says nothing about speed."""
ENOUGH: Final = 3
"""Runs that a speed is measured from."""


class Metrics:
    """One per directory. What is asked for often is looked up once a second."""

    def __init__(self, gateway: Gateway, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._now = monotonic
        self._cache: dict[str, tuple[float, asyncio.Future[Any]]] = {}

    async def of(self, agent: str) -> JsonObject:
        """`runs`: how many, by status; `successRate`, and of the last hundred `averageExecutionTime` and its spread in
        seconds, `lastActive`. What there is no run for is left out.
        """
        return dict(await self._cached(f"of/{agent}", FRESH, lambda: self._of(agent)))

    async def loads(self) -> Mapping[str, int]:
        """Runs under way, by agent."""
        return await self._cached("loads", FRESH, self._loads)

    async def speeds(self) -> Mapping[str, float]:
        """Tokens a second, by agent, estimated from the size of what was answered in the last runs of all."""
        return await self._cached("speeds", SPEED_FRESH, self._speeds)

    async def _of(self, agent: str) -> JsonObject:
        counts = await asyncio.gather(
            *(self._gateway.runs.count(RunQuery(agent=agent, statuses=(status,))) for status in RunStatus)
        )
        by_status = {status: count for status, count in zip(RunStatus, counts, strict=True)}
        out: JsonObject = {
            "runs": {"total": sum(counts), **{status.value: count for status, count in by_status.items()}},
            "activeRuns": sum(by_status[status] for status in ACTIVE_RUNS),
        }
        done = [by_status[each] for each in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.TIMEOUT)]
        if any(done):
            out["successRate"] = round(done[0] / sum(done), 4)
        if sum(counts):
            out |= times_of(await self._gateway.runs.list(RunQuery(agent=agent, limit=LAST)))
        return out

    async def _loads(self) -> Mapping[str, int]:
        if not await self._gateway.runs.count(RunQuery(statuses=ACTIVE_RUNS)):
            return {}
        runs = await self._gateway.runs.list(RunQuery(statuses=ACTIVE_RUNS, limit=MOST_ACTIVE))
        return Counter(run.agent for run in runs)

    async def _speeds(self) -> Mapping[str, float]:
        return speeds_of(await self._gateway.runs.list(RunQuery(statuses=(RunStatus.SUCCESS,), limit=LAST)))

    async def _cached(self, key: str, fresh: float, look: Callable[[], Awaitable[T]]) -> T:
        now = self._now()
        known = self._cache.get(key)
        if known is None or known[0] <= now or (known[1].done() and (known[1].cancelled() or known[1].exception())):
            if len(self._cache) >= MOST_CACHED:
                self._cache = {name: kept for name, kept in self._cache.items() if kept[0] > now}
            known = self._cache[key] = (now + fresh, asyncio.ensure_future(look()))
        found: T = await asyncio.shield(known[1])
        return found


def seconds_of(run: Run) -> float:
    """How long a run took, from the time it was to start."""
    return max(0.0, run.updated_at - max(run.created_at, run.request.start_at or 0.0))


def times_of(runs: Sequence[Run]) -> JsonObject:
    """Times of the last runs, and when the newest was."""
    out: JsonObject = {"lastActive": time_of(max(run.updated_at for run in runs))} if runs else {}
    took = sorted(seconds_of(run) for run in runs if run.status is RunStatus.SUCCESS)
    if took:
        out["averageExecutionTime"] = round(sum(took) / len(took), 3)
        out["executionTime"] = {
            "runs": len(took),
            "p50": round(took[len(took) // 2], 3),
            "p95": round(took[min(len(took) - 1, len(took) * 95 // 100)], 3),
            "max": round(took[-1], 3),
        }
    return out


def speeds_of(runs: Sequence[Run]) -> dict[str, float]:
    """Tokens a second, by agent, where enough runs said enough."""
    said: dict[str, list[tuple[int, float]]] = {}
    for run in runs:
        size, took = len(bytes(run.output)), seconds_of(run)
        if size >= SPOKEN and took > 0:
            said.setdefault(run.agent, []).append((size, took))
    return {
        agent: sum(size for size, _ in those) / BYTES_PER_TOKEN / sum(took for _, took in those)
        for agent, those in said.items()
        if len(those) >= ENOUGH
    }
