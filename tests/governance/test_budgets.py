"""Budgets: what is counted, and that none is ever exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.budgets import DAY, HOUR, WINDOWS, Budgets, Spent
from gateway.governance.manifests import Budget
from gateway.governance.policy import Decision, Kind, PolicyRules, strictest
from gateway.governance.posture import Level
from gateway.store import Allowance, suffice
from tests.governance.postures import bound, level, policy, posture


class Process:
    """Rules whose decisions are carried out, and a `store`, which other processes may have as well."""

    def __init__(self, *levels: Level, store: Counter[str] | None = None, spent: Iterable[Spent] = ()) -> None:
        self.store: Counter[str] = Counter() if store is None else store
        self.asked = 0
        """How often the store was."""
        self.budgets = Budgets("here")
        for one in spent:
            self.budgets.restore(one)
        self.rules = PolicyRules(posture(*levels), budgets=self.budgets)

    def decide(self, *about: Any, **more: Any) -> Decision:
        while (found := self.rules.decide(*about, **more)).allowances:
            assert found.kind is Kind.ALLOW
            if self.budgets.learn(found.allowances, self._spend(found.allowances)):
                break
        return found

    def _spend(self, allowances: tuple[Allowance, ...]) -> list[int]:
        self.asked += 1
        used = [max(self.store[one.name], one.used) for one in allowances]
        if suffice(allowances, used):
            self.store.update(
                {
                    one.name: before + one.amount - self.store[one.name]
                    for one, before in zip(allowances, used, strict=True)
                }
            )
        return used


def budgeted(*spent: Spent, store: Counter[str] | None = None, **keys: Any) -> Process:
    return Process(level(bound(policy("p", budget=Budget(**keys)))), spent=spent, store=store)


def test_what_other_processes_use_is_known_as_soon_as_the_store_was_asked() -> None:
    one = budgeted(per_hour=2, per_day=9)
    two = budgeted(store=one.store, per_hour=2, per_day=9)

    def at(process: Process, seconds: float) -> str:
        return process.decide("tool.call", "x", risk=1, at=seconds).kind.value

    assert [at(one, 0), at(two, 0), at(two, 0), at(one, 0), at(one, HOUR)] == [
        "allow",
        "allow",
        "require-approval",
        "require-approval",
        "allow",
    ]
    assert (one.asked, two.asked) == (3, 1), "one had to ask to know of the other's, and two knew"
    assert sorted(one.store.values()) == [1, 2, 3]


def test_what_cannot_be_counted_is_asked_if_it_has_a_budget() -> None:
    rules = budgeted(per_day=9).rules
    found = rules.decide("tool.call", "x", risk=1, at=0.0, countable=False)
    assert (found.kind, found.allowances, found.counted) == (Kind.ASK, (), ())
    assert found.why == "p asks: it has a budget, and nobody knows what is left of it"
    free = Process(level(bound(policy("p")))).rules.decide("tool.call", "x", risk=1, at=0.0, countable=False)
    assert free.kind is Kind.ALLOW


def test_the_stricter_budget_of_two_levels_counts_and_a_call_uses_it_once() -> None:
    strict, loose = policy("p", budget=Budget(per_day=1)), policy("p", budget=Budget(per_day=5))
    for levels in ((strict, loose), (loose, strict)):
        process = Process(*(level(bound(one)) for one in levels))
        found = [process.rules.decide("tool.call", "x", risk=1, at=0.0) for _ in range(2)]
        both = strictest(found)
        assert both.counted == ("p",)
        assert {one.name: (one.amount, one.limit, one.until) for one in both.allowances} == {
            "here/p/hour/0": (1, 2**53, HOUR + DAY),
            "here/p/day/0": (1, 1, 2 * DAY),
        }
        assert len(both.allowances) == 2 and both.allowances == found[0].allowances


def test_a_call_that_was_said_to_be_of_several_tools_uses_the_budgets_of_all_and_none_if_one_is_not_allowed() -> None:
    names = ("x", "y", "z")
    process = Process(level(*(bound(policy(name, subject=name, budget=Budget(per_day=1))) for name in names)))
    found = [process.rules.decide("tool.call", name, risk=1, at=0.0) for name in names]
    all_of_them = strictest(found)
    assert (all_of_them.kind, all_of_them.counted, len(all_of_them.allowances)) == (Kind.ALLOW, names, 6)
    denied = Decision(kind=Kind.DENY, policy=None, why="")
    assert strictest([*found, denied]) is denied


def test_a_budget_asks_when_it_is_used_up_and_begins_anew_with_the_hour() -> None:
    rules = budgeted(per_hour=2)

    def at(seconds: float) -> str:
        return rules.decide("tool.call", "x", risk=1, at=seconds).kind.value

    assert [at(0), at(HOUR - 1), at(HOUR - 1), at(HOUR)] == ["allow", "allow", "require-approval", "allow"]


def test_a_budget_remembers_what_was_spent_before() -> None:
    rules = budgeted(Spent(policy="p", at=5.0), Spent(policy="q", at=5.0), per_day=2)
    assert [rules.decide("tool.call", "x", risk=1, at=9.0).kind for _ in range(2)] == [Kind.ALLOW, Kind.ASK]
    hourly = budgeted(Spent(policy="p", at=5.0), per_hour=2)
    assert [hourly.decide("tool.call", "x", risk=1, at=9.0).kind for _ in range(2)] == [Kind.ALLOW, Kind.ASK]


def test_what_cannot_be_spent_together_costs_nothing() -> None:
    mine, all_of_us = policy("p", subject="a", budget=Budget(per_day=1)), policy("q", budget=Budget(per_hour=1))
    levels = level(bound(mine), bound(all_of_us))
    one = Process(levels)
    two = Process(levels, store=one.store)
    assert one.decide("tool.call", "b", risk=1, at=0.0).kind is Kind.ALLOW
    assert [two.decide("tool.call", "a", risk=1, at=at).kind for at in (0.0, HOUR)] == [Kind.ASK, Kind.ALLOW]


def test_what_is_not_allowed_in_the_end_costs_nothing() -> None:
    cheap, strict = policy("p", budget=Budget(per_day=1)), policy("q", "deny", subject="bad")
    rules = Process(level(bound(cheap), bound(strict)))
    assert rules.decide("tool.call", "bad", risk=1, at=0.0).kind is Kind.DENY
    assert rules.decide("tool.call", "good", risk=1, at=0.0).kind is Kind.ALLOW


@pytest.mark.parametrize(("length", "limit"), [(HOUR, "per_hour"), (DAY, "per_day")])
def test_a_call_from_before_what_is_remembered_is_asked(length: int, limit: str) -> None:
    rules = budgeted(**{limit: 2})

    def at(window: int) -> Kind:
        return rules.decide("tool.call", "x", risk=1, at=window * length).kind

    assert {at(window) for window in range(10, 10 + WINDOWS)} == {Kind.ALLOW}
    assert [at(10), at(10)] == [Kind.ALLOW, Kind.ASK]
    assert at(10 + WINDOWS) is Kind.ALLOW  # 10 is forgotten
    assert [at(3), at(10), at(11), at(11)] == [Kind.ASK, Kind.ASK, Kind.ALLOW, Kind.ASK]


@settings(max_examples=60, deadline=None)
@given(
    per_hour=st.integers(1, 4),
    per_day=st.integers(1, 8),
    calls=st.lists(st.tuples(st.integers(0, 3 * 24), st.sampled_from("ab"), st.integers(0, 1)), max_size=60),
)
def test_a_budget_is_never_exceeded_in_whatever_order_and_of_whatever_process_calls_come(
    per_hour: int, per_day: int, calls: list[tuple[int, str, int]]
) -> None:
    one = policy("p", subject="a", budget=Budget(per_hour=per_hour, per_day=per_day))
    two = policy("q", budget=Budget(per_day=7))
    levels = (level(bound(one), bound(two)), level(bound(one), bound(two)))
    first = Process(*levels)
    processes = (first, Process(*levels, store=first.store))
    hours: Counter[int] = Counter()
    days: Counter[int] = Counter()
    both: Counter[int] = Counter()
    for hour, subject, which in calls:
        found = processes[which].decide("tool.call", subject, risk=1, at=hour * HOUR + 7.5)
        if found.kind is not Kind.ALLOW:
            assert found.kind is Kind.ASK
            continue
        both[hour // 24] += 1
        if subject == "a":
            hours[hour] += 1
            days[hour // 24] += 1
    assert max(hours.values(), default=0) <= per_hour
    assert max(days.values(), default=0) <= per_day
    assert max(both.values(), default=0) <= 7
