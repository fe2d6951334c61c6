"""Counts how often a policy has allowed something: the state of `budget` (AIP-7).

Hours and days are those of UTC and begin at zero; nothing is carried over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.governance.manifests import Policy

HOUR: Final = 3600
DAY: Final = 86400
WINDOWS: Final = 64
"""Hours, and days, that are remembered. A call that claims to be older finds its budget spent."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a policy has allowed. `policy` is its slug, `cents` what was paid."""

    policy: str
    at: float
    cents: int = 0


class Budgets:
    """The counts of one set of rules. Not safe for threads of its own: `Rules.decide` holds a lock."""

    def __init__(self, spent: Iterable[Spent] = ()) -> None:
        """`spent` is what was allowed before, oldest first: of the audit log, where counts shall outlive a restart."""
        self._calls: dict[tuple[str, int], dict[int, int]] = {}
        self._cents: dict[str, dict[int, int]] = {}
        self._floor: dict[int, int] = {HOUR: 0, DAY: 0}
        for one in spent:
            self.restore(one)

    def restore(self, one: Spent) -> None:
        """Count something that was allowed before."""
        self._add(one.policy, one.at, one.cents)

    def why_not(self, policy: Policy, at: float, cents: int | None, currency: str) -> str:
        """Why one more call does not fit the policy's budget, or "". `cents` None: nobody knows what it costs."""
        budget = policy.budget
        if budget is None:
            return ""
        for length, most, name in ((HOUR, budget.per_hour, "hour"), (DAY, budget.per_day, "day")):
            window = int(at // length)
            if most is not None and (
                window < self._floor[length] or self._calls.get((policy.slug, length), {}).get(window, 0) >= most
            ):
                return f"its {most} calls of this {name} are used up"
        if budget.cents is None:
            return ""
        if cents is None:
            return "it limits an amount, and nobody knows what this costs"
        if currency != budget.currency:
            return f"it is kept in {budget.currency}, not {currency}"
        day = int(at // DAY)
        if day < self._floor[DAY] or self._cents.get(policy.slug, {}).get(day, 0) + max(cents, 0) > budget.cents:
            return f"its {budget.cents} cents of this day do not suffice"
        return ""

    def take(self, policy: Policy, at: float, cents: int | None) -> None:
        """Count a call that is allowed."""
        if policy.budget is not None:
            self._add(policy.slug, at, max(cents or 0, 0))

    def _add(self, slug: str, at: float, cents: int) -> None:
        for length in (HOUR, DAY):
            window = int(at // length)
            counts = self._calls.setdefault((slug, length), {})
            counts[window] = counts.get(window, 0) + 1
            self._forget(counts, length)
        amounts, day = self._cents.setdefault(slug, {}), int(at // DAY)
        amounts[day] = amounts.get(day, 0) + cents
        self._forget(amounts, DAY)

    def _forget(self, counts: dict[int, int], length: int) -> None:
        while len(counts) > WINDOWS:
            oldest = min(counts)
            del counts[oldest]
            self._floor[length] = max(self._floor[length], oldest + 1)
