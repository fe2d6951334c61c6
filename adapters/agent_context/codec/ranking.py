"""Which agent is the best for a task: who may have it at all, and in what order.

    score = sum(weight[f] * factor[f]) / sum(weight)      each factor f is 0..1, more is better:

    quality    score / 10             of evaluations, else what the agent or its route says; unknown: 0.5
    security   rating / 10            lowest of its dependencies (section 7.3: rankings MUST take it in); unknown: 0.5
    cost       1 / (1 + cost/0.001)   cost per token; unknown: as 0.001
    load       1 / (1 + tasks)        tasks that it has now
    speed      s / (s + 50)           tokens a second; unknown: as 50

A score depends on the agent alone, not on who else is there: the same agent in the same state has the same score in
every explanation. Agents of the same score stay in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from adapters.agent_context.codec.agents import KINDS
from gateway.access.patterns import fits
from gateway.core.types import JsonObject, Standing

NEUTRAL: Final = 0.5
MIDDLE_COST: Final = 0.001
MIDDLE_SPEED: Final = 50.0
BEST: Final = 10.0
AWAY: Final = frozenset(("inactive", "offline", "busy"))
"""Statuses of agents that match but get no work now; they may come back."""
SHOWN: Final = 10
"""How many agents an explanation lists of each kind."""

UNKNOWN: Final = Standing()


class Candidate(msgspec.Struct, frozen=True, dict=True):
    """One agent of the directory.

    `standing` is what the agent or its route says of it; `quality` (0..10) and `speed` (tokens a second) are what was
    found here and win over that, None where nothing was found yet. `load` counts the tasks it has now. `status` is the
    directory's (active, busy, inactive, offline, revoked); `why_not` says, to a person, why it gets no work now.
    """

    id: str
    labels: Mapping[str, Sequence[str]] = {}
    standing: Standing = UNKNOWN
    load: float = 0
    quality: float | None = None
    speed: float | None = None
    status: str = "active"
    why_not: str | None = None

    @property
    def active(self) -> bool:
        return self.status == "active" and self.why_not is None

    @property
    def rated(self) -> float | None:
        """Its quality as far as anybody knows, 0..10."""
        return self.standing.quality if self.quality is None else self.quality

    @cached_property
    def can(self) -> frozenset[str]:
        return frozenset(word.casefold() for kind in KINDS for word in self.labels.get(kind, ()))


class Needs(msgspec.Struct, frozen=True):
    """The requirements of a task.

    `excluded`: agents that are out for a reason of the task's own, by id, and the reason. `only`: the one agent that
    the client named. `allowed`: patterns, of which an agent's id must fit one: those its client may give tasks.
    """

    capabilities: Sequence[str] = ()
    min_score: float | None = None
    max_cost: float | None = None
    only: str | None = None
    excluded: Mapping[str, str] = {}
    allowed: Sequence[str] = ("*",)


class Ranked(msgspec.Struct, frozen=True):
    """A candidate that fits. `factors` are 0..1 each, by name, before their weights."""

    candidate: Candidate
    score: float
    factors: Mapping[str, float]


class Ranking(msgspec.Struct, frozen=True):
    """The agents that fit, best first; those that fit and are away now; and the others, each with the reason."""

    ranked: tuple[Ranked, ...]
    away: Mapping[str, str]
    left_out: Mapping[str, str]
    weights: Mapping[str, float]

    def explanation(self, chosen: str | None = None) -> JsonObject:
        """For `_meta`: the weights, the best agents with their factors, and why others were left out."""
        told: JsonObject = {} if chosen is None else {"agent": chosen}
        told["weights"] = dict(self.weights)
        told["ranked"] = [
            {
                "agent": one.candidate.id,
                "score": one.score,
                "factors": {name: round(factor, 4) for name, factor in one.factors.items()},
            }
            for one in self.ranked[:SHOWN]
        ]
        out = {**self.away, **self.left_out}
        told["leftOut"] = [{"agent": name, "reason": out[name]} for name in list(out)[:SHOWN]]
        if len(self.ranked) > SHOWN or len(out) > SHOWN:
            told["considered"] = len(self.ranked) + len(out)
        return told

    def why_nobody(self) -> str:
        out = {**self.away, **self.left_out}
        if not out:
            return "no agent is there"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(out.items())[:SHOWN])
        more = f"; and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
        return f"no agent matches: {reasons}{more}"


def rank(
    candidates: Iterable[Candidate],
    needs: Needs,
    weights: Mapping[str, float],
    load: Callable[[str], float] | None = None,
) -> Ranking:
    """Rank the agents that may have a task with these needs.

    `weights` by factor, at least one of them above 0. `load`: how many tasks an agent is known to have at least.
    """
    fitting: list[Ranked] = []
    away: dict[str, str] = {}
    left_out: dict[str, str] = {} if needs.only is None else {needs.only: "is not there"}
    for one in candidates:
        if needs.only is not None and one.id != needs.only:
            continue
        if not fits(one.id, needs.allowed):
            continue  # whoever may not give it tasks is not told that it is there
        left_out.pop(one.id, None)
        if (reason := why_not(one, needs)) is not None:
            left_out[one.id] = reason
        elif not one.active:
            (away if one.status in AWAY else left_out)[one.id] = one.why_not or f"is {one.status}"
        else:
            fitting.append(rated(one, weights, 0.0 if load is None else load(one.id)))
    fitting.sort(key=lambda one: -one.score)
    return Ranking(ranked=tuple(fitting), away=away, left_out=left_out, weights=weights)


def why_not(one: Candidate, needs: Needs) -> str | None:
    """Why an agent does not match, whatever its state; None if it does."""
    if one.id in needs.excluded:
        return needs.excluded[one.id]
    missing = [word for word in needs.capabilities if word.casefold() not in one.can]
    if missing:
        return f"lacks {', '.join(missing)}"
    if needs.min_score is not None:
        if one.rated is None:
            return "has no quality score"
        if one.rated < needs.min_score:
            return f"quality {one.rated:g} is below {needs.min_score:g}"
    if needs.max_cost is not None:
        cost = one.standing.cost
        if cost is None:
            return "does not say what it costs"
        if cost > needs.max_cost:
            return f"costs {cost:g} per token, above {needs.max_cost:g}"
    return None


def rated(one: Candidate, weights: Mapping[str, float], load: float = 0) -> Ranked:
    """A candidate with its score (see the top of this file), rounded to six places so that equals are equal.

    `load`: how many tasks it has at least.
    """
    factors = factors_of(one, load)
    total = score = 0.0
    for name, factor in factors.items():
        weight = weights.get(name, 0.0)
        total += weight
        score += weight * factor
    return Ranked(one, round(score / total, 6) if total else NEUTRAL, factors)


def factors_of(one: Candidate, load: float = 0) -> dict[str, float]:
    """The factors of a score by name, each 0..1. An unknown factor counts as the middle."""
    cost = MIDDLE_COST if one.standing.cost is None else max(0.0, one.standing.cost)
    speed = one.speed if one.speed is not None else one.standing.speed
    speed = MIDDLE_SPEED if speed is None else max(0.0, speed)
    return {
        "quality": _of_ten(one.rated),
        "security": _of_ten(one.standing.security),
        "cost": MIDDLE_COST / (MIDDLE_COST + cost),
        "load": 1 / (1 + max(0.0, one.load, load)),
        "speed": speed / (speed + MIDDLE_SPEED),
    }


def _of_ten(value: float | None) -> float:
    return NEUTRAL if value is None else min(max(value / BEST, 0.0), 1.0)
