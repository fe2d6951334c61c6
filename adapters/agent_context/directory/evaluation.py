"""How good agents are: votes, what the gateway measured of their runs, and what they do that is unusual (section 7.3).

Votes are scores from 0 to 10, one of each voter for each task, of which the newest counts. Votes on an agent under one
owner are not those on the next owner's agent of the same id. Two replicas may write at the same moment: each remembers
what it wrote until it has seen it kept, and writes it again where another's record has replaced it.

Measurements are numbers and times: no inputs, outputs, metadata, names of clients, ids of runs or threads (section 7.2:
no user data in metrics).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from adapters.agent_context.directory.registered import digest, time_of
from adapters.agent_context.options import Conduct as Limits
from gateway.contract import Gateway
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, AgentTimeout
from gateway.core.types import ENDED, JsonObject, Run, RunQuery, RunStatus

log = logging.getLogger(__name__)

# --- votes ------------------------------------------------------------------------------------------------------------


ENOUGH: Final = 3
"""So many votes replace what an agent says of itself."""
MOST_VOTES: Final = 200
"""Votes on one agent that are kept one by one; older ones are summed."""
MOST_REVIEWS: Final = 10
REVIEW_LENGTH: Final = 500


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One vote. `voter` stands for a principal and its task, and names neither. `at`: epoch seconds."""

    voter: str
    score: float
    at: float
    review: str = ""


class Votes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All votes on one agent, oldest first. `count` and `total` are of those that are not kept one by one any more."""

    owner: str = ""
    votes: tuple[Vote, ...] = ()
    count: int = 0
    total: float = 0.0

    @property
    def number(self) -> int:
        return self.count + len(self.votes)

    @property
    def mean(self) -> float | None:
        """Mean of all scores, to two places; None without any."""
        return round((self.total + sum(vote.score for vote in self.votes)) / self.number, 2) if self.number else None

    @property
    def last(self) -> float:
        """When the newest came, epoch seconds; 0 without any."""
        return max((vote.at for vote in self.votes), default=0.0)

    @property
    def reviews(self) -> list[str]:
        return [vote.review for vote in reversed(self.votes) if vote.review][:MOST_REVIEWS]


NONE: Final = Votes()


def vote(principal: str, task: str | None, score: float, at: float, review: str | None = None) -> Vote:
    """A principal's vote on a task. A longer review is cut."""
    text = " ".join((review or "").split())
    if len(text) > REVIEW_LENGTH:
        text = text[: REVIEW_LENGTH - 1] + "…"
    return Vote(voter=digest(f"{principal}\n{task or ''}"), score=float(score), at=at, review=text)


def merged(kept: Votes, *mine: Vote) -> Votes:
    """The votes with others among them: of two by the same voter the newer counts, the first if they are as old."""
    by_voter = {each.voter: each for each in kept.votes}
    for each in mine:
        known = by_voter.get(each.voter)
        if known is None or known.at < each.at:
            by_voter[each.voter] = each
    votes = sorted(by_voter.values(), key=lambda each: (each.at, each.voter))
    over = votes[: max(0, len(votes) - MOST_VOTES)]
    return Votes(
        owner=kept.owner,
        votes=tuple(votes[len(over) :]),
        count=kept.count + len(over),
        total=kept.total + sum(each.score for each in over),
    )


def lacks(kept: Votes, mine: Vote) -> bool:
    """Whether a vote has not come in, or not stayed."""
    known = next((each for each in kept.votes if each.voter == mine.voter), None)
    if known is not None:
        return known.at < mine.at
    return len(kept.votes) < MOST_VOTES or mine.at >= kept.votes[0].at


def measured(votes: Votes, *, claimed: bool) -> float | None:
    """The mean, where it counts: there are enough votes, or the agent has claimed nothing."""
    return votes.mean if votes.number >= ENOUGH or not claimed else None


def shown(claim: Any, votes: Votes) -> JsonObject | None:
    """An agent's `evaluation` for all to see; `claim` is its own. None where there is neither."""
    said: JsonObject = dict(claim) if isinstance(claim, dict) else {}
    if isinstance(reviews := said.get("reviews"), list):
        said["reviews"] = [str(each)[:REVIEW_LENGTH] for each in reviews[:MOST_REVIEWS]]
    if not votes.number:
        return said or None
    score = said.get("qualityScore")
    claimed = isinstance(score, int | float) and not isinstance(score, bool)
    if (mean := measured(votes, claimed=claimed)) is not None:
        said = {"qualityScore": mean, "evaluationCount": votes.number, "lastEvaluated": time_of(votes.last)}
    reviews = [*votes.reviews, *said.get("reviews", ())][:MOST_REVIEWS]
    return {**said, "reviews": reviews} if reviews else said


# --- measurements -----------------------------------------------------------------------------------------------------


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
ENOUGH_RUNS: Final = 3
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
    return max(0.0, run.updated_at - max(run.created_at, run.request.start_at or 0.0))


def times_of(runs: Sequence[Run]) -> JsonObject:
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
        size, took = memoryview(run.output).nbytes, seconds_of(run)
        if size >= SPOKEN and took > 0:
            said.setdefault(run.agent, []).append((size, took))
    return {
        agent: sum(size for size, _ in those) / BYTES_PER_TOKEN / sum(took for _, took in those)
        for agent, those in said.items()
        if len(those) >= ENOUGH_RUNS
    }


# --- what is unusual (section 7.3) ------------------------------------------------------------------------------------


REQUESTS: Final = "requests"
REFUSALS: Final = "refusals"
FAILURES: Final = "failures"
UNUSUAL: Final = "unusual"
"""Counted once for each window in which one of the others was over its limit."""
FAILED: Final = frozenset(each.code for each in (AgentFailed, AgentBroken, AgentGone, AgentTimeout))
"""Failures of a run (codes of the error tree) that are its agent's."""
MOST: Final = 10_000
"""Agents whose windows are known; beyond that the oldest windows are forgotten."""


class ConductMonitor:
    """One per directory; windows are of the event loop's clock, and each begins with an agent's first act.

    noticed: told the agent and what it did, for metrics.
    suspend: called with the agent, the reason and the seconds when a limit is passed, if the options have some.
    """

    def __init__(
        self, limits: Limits, noticed: Callable[[str, str], None], suspend: Callable[[str, str, float], None]
    ) -> None:
        self._limits = limits
        self._most = {REQUESTS: limits.requests, REFUSALS: limits.refusals, FAILURES: limits.failures}
        self._noticed = noticed
        self._suspend = suspend
        self._windows: dict[str, tuple[float, Counter[str]]] = {}

    def did(self, agent: str, what: str) -> None:
        """Count one of REQUESTS, REFUSALS and FAILURES. A limit that is passed is logged once in its window."""
        self._noticed(agent, what)
        counts = self._window(agent)
        counts[what] += 1
        if counts[what] != self._most[what] + 1:
            return
        self._noticed(agent, UNUSUAL)
        said = f"more than {self._most[what]} {what} within {self._limits.window:g} s"
        log.warning("agent %s behaves unusually: %s", agent, said)
        if self._limits.suspend is not None:
            self._suspend(agent, said, self._limits.suspend)

    def failed(self, agent: str, code: str) -> None:
        """Count a run of the agent that failed with an error of the tree, if that is the agent's fault."""
        if code in FAILED:
            self.did(agent, FAILURES)

    def of(self, agent: str) -> JsonObject:
        """Counts of the current window: `{requests, refusals, failures, window}`, the last in seconds."""
        began, counts = self._windows.get(agent, (0.0, Counter()))
        fresh = self._now() - began < self._limits.window
        return {**{what: counts[what] if fresh else 0 for what in self._most}, "window": self._limits.window}

    def _window(self, agent: str) -> Counter[str]:
        now = self._now()
        known = self._windows.get(agent)
        if known is not None and now - known[0] < self._limits.window:
            return known[1]
        self._windows.pop(agent, None)  # the new one is the youngest
        if len(self._windows) >= MOST:
            del self._windows[next(iter(self._windows))]
        self._windows[agent] = now, (counts := Counter[str]())
        return counts

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
