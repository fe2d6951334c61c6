"""Budgets: what is counted, and that none is ever exceeded."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.budgets import DAY, HOUR, WINDOWS, Spent
from gateway.governance.manifests import Budget
from gateway.governance.policy import Kind, PolicyRules
from tests.governance.postures import bound, level, policy, posture


def budgeted(*spent: Spent, **keys: Any) -> PolicyRules:
    return PolicyRules(posture(level(bound(policy("p", budget=Budget(**keys))))), spent=spent)


def test_a_budget_asks_when_it_is_used_up_and_begins_anew_with_the_hour() -> None:
    rules = budgeted(per_hour=2)

    def at(seconds: float) -> str:
        return rules.decide("tool.call", "x", risk=1, at=seconds).kind.value

    assert [at(0), at(HOUR - 1), at(HOUR - 1), at(HOUR)] == ["allow", "allow", "require-approval", "allow"]


def test_a_budget_remembers_what_was_spent_before() -> None:
    rules = budgeted(Spent(policy="p", at=5.0), Spent(policy="q", at=5.0), per_day=2)
    assert [rules.decide("tool.call", "x", risk=1, at=9.0).kind for _ in range(2)] == [Kind.ALLOW, Kind.ASK]
    paid = budgeted(Spent(policy="p", at=5.0), Spent(policy="p", at=5.0, cents=3), cents=5)
    assert [paid.decide("tool.call", "x", risk=1, at=9.0, cents=cents).kind for cents in (3, 2)] == [
        Kind.ASK,
        Kind.ALLOW,
    ]


def test_an_amount_counts_by_the_day_and_an_unknown_one_asks() -> None:
    rules = budgeted(cents=500)

    def pay(cents: int | None, at: float = 0.0, currency: str = "USD") -> Kind:
        return rules.decide("tool.call", "x", risk=1, at=at, cents=cents, currency=currency).kind

    assert [pay(300), pay(201), pay(200), pay(1)] == [Kind.ALLOW, Kind.ASK, Kind.ALLOW, Kind.ASK]
    assert [pay(None, DAY), pay(5, DAY, "EUR"), pay(500, DAY), pay(0, DAY)] == [
        Kind.ASK,
        Kind.ASK,
        Kind.ALLOW,
        Kind.ALLOW,
    ]
    assert pay(-500, DAY) is Kind.ALLOW and pay(1, DAY) is Kind.ASK
    assert rules.decide("tool.call", "x", risk=1, at=2 * DAY).kind is Kind.ASK


def test_what_is_not_allowed_in_the_end_costs_nothing() -> None:
    cheap, strict = policy("p", budget=Budget(per_day=1)), policy("q", "deny", subject="bad")
    rules = PolicyRules(posture(level(bound(cheap), bound(strict))))
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
    cents=st.integers(1, 900),
    calls=st.lists(st.tuples(st.integers(0, 3 * 24), st.integers(0, 400), st.sampled_from("ab")), max_size=60),
)
def test_a_budget_is_never_exceeded_in_whatever_order_calls_come(
    per_hour: int, per_day: int, cents: int, calls: list[tuple[int, int, str]]
) -> None:
    one = policy("p", subject="a", budget=Budget(per_hour=per_hour, per_day=per_day, cents=cents))
    two = policy("q", budget=Budget(per_day=7))
    rules = PolicyRules(posture(level(bound(one), bound(two)), level(bound(one), bound(two))))
    hours: Counter[int] = Counter()
    days: Counter[int] = Counter()
    paid: Counter[int] = Counter()
    both: Counter[int] = Counter()
    for hour, price, subject in calls:
        found = rules.decide("tool.call", subject, risk=1, at=hour * HOUR + 7.5, cents=price)
        if found.kind is not Kind.ALLOW:
            assert found.kind is Kind.ASK
            continue
        both[hour // 24] += 1
        if subject == "a":
            hours[hour] += 1
            days[hour // 24] += 1
            paid[hour // 24] += price
    assert max(hours.values(), default=0) <= per_hour
    assert max(days.values(), default=0) <= per_day
    assert max(paid.values(), default=0) <= cents
    assert max(both.values(), default=0) <= 7


def test_a_budget_is_never_exceeded_by_threads() -> None:
    rules = budgeted(per_day=50)
    allowed = itertools.count()
    gate = threading.Barrier(8)

    def work() -> None:
        gate.wait(10)
        for _ in range(25):
            if rules.decide("tool.call", "x", risk=1, at=1.0).kind is Kind.ALLOW:
                next(allowed)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert next(allowed) == 50
