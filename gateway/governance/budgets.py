"""Counts how often policies have allowed something: the state of `budget` (AIP-7).

The store counts, for all processes on it. What is known here is what it said last, and what audit logs say. Hours and
days are those of UTC and begin at zero; nothing is carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gateway.governance.manifests import Policy
from gateway.store import Allowance, suffice

HOUR: Final = 3600
DAY: Final = 86400
WINDOWS: Final = 64
"""Hours, and days, that are remembered. A call that claims to be older finds its budget spent."""
NO_LIMIT: Final = 2**53
"""More than anybody counts, and not more than a store can count."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a policy has allowed. `policy` is its slug."""

    policy: str
    at: float


class Budgets:
    """The budgets of all policies in one scope."""

    def __init__(self, scope: str = "") -> None:
        """`scope` is the name by which processes share the counts, of one policy by its slug."""
        self._scope = scope
        self._used: dict[str, dict[int, int]] = {}
        """By what is counted (`_name`) and window."""
        self._floor: dict[str, int] = {}

    def restore(self, one: Spent) -> None:
        """Count something that was allowed before: where logs say so, it counts after a power cut, too."""
        for unit, length in (("hour", HOUR), ("day", DAY)):
            name, window = self._name(one.policy, unit), int(one.at // length)
            self._note(name, window, self._used.get(name, {}).get(window, 0) + 1)

    def why_not(self, policy: Policy, at: float) -> str:
        """Why one more call does not fit the policy's budget, as far as is known here, or ""."""
        budget = policy.budget
        if budget is None:
            return ""
        for length, most, unit in ((HOUR, budget.per_hour, "hour"), (DAY, budget.per_day, "day")):
            if most is not None and not self._fits(policy.slug, unit, int(at // length), most):
                return f"its {most} calls of this {unit} are used up"
        return "it limits an amount, and nobody knows what this costs" if budget.amount else ""

    def allowances(self, policies: Iterable[Policy], at: float) -> tuple[Allowance, ...]:
        """What a call uses of the budgets of these policies, if it is allowed."""
        return merged(part for policy in policies for part in self._parts(policy, at))

    def _parts(self, policy: Policy, at: float) -> Iterator[Allowance]:
        budget = policy.budget
        assert budget is not None, "only those that have one are counted"
        for unit, length, most in (("hour", HOUR, budget.per_hour), ("day", DAY, budget.per_day)):
            name, window = self._name(policy.slug, unit), int(at // length)
            yield Allowance(
                name=f"{name}/{window}",
                amount=1,
                limit=NO_LIMIT if most is None else min(most, NO_LIMIT),
                used=self._used.get(name, {}).get(window, 0),
                until=(window + 1) * length + DAY,  # a clock that was set back by up to a day goes on with it
            )

    def learn(self, allowances: Sequence[Allowance], used: Sequence[int]) -> bool:
        """Take in what `Store.spend` returned for these. Returns whether they are spent."""
        spent = suffice(allowances, used)
        for one, before in zip(allowances, used, strict=True):
            name, _, window = one.name.rpartition("/")
            self._note(name, int(window), before + (one.amount if spent else 0))
        return spent

    def _name(self, slug: str, unit: str) -> str:
        return f"{self._scope}/{slug}/{unit}"

    def _fits(self, slug: str, unit: str, window: int, most: int) -> bool:
        name = self._name(slug, unit)
        return window >= self._floor.get(name, 0) and self._used.get(name, {}).get(window, 0) < most

    def _note(self, name: str, window: int, used: int) -> None:
        counts = self._used.setdefault(name, {})
        counts[window] = max(used, counts.get(window, 0))
        while len(counts) > WINDOWS:
            oldest = min(counts)
            del counts[oldest]
            self._floor[name] = max(self._floor.get(name, 0), oldest + 1)


def merged(allowances: Iterable[Allowance]) -> tuple[Allowance, ...]:
    """Each once, by its name, with the strictest limit."""
    found: dict[str, Allowance] = {}
    for one in allowances:
        found[one.name] = min(one, found.get(one.name, one), key=lambda part: part.limit)
    return tuple(found.values())
