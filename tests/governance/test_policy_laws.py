"""Laws of decisions that hold for any posture: no view loosens, a denial wins, order does not matter."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.budgets import HOUR
from gateway.governance.manifests import Budget, Signer
from gateway.governance.policy import Kind, PolicyRules
from gateway.governance.posture import Approver, Level, RegisteredPolicy
from tests.governance.postures import ANN, BOB, RANK, bound, level, operator, policy, posture


def pool() -> list[RegisteredPolicy]:
    """Policies of every kind in all sorts of combinations: drawn once, since drawing is slow."""
    draw = random.Random(7)
    found = []
    for _ in range(300):
        slug, decision = draw.choice(["pa", "pb", "pc", "pd"]), draw.choice([*Kind]).value
        one = policy(
            slug,
            decision,
            action=draw.choice(["tool.call", "tool.*", "file.write"]),
            subject=draw.choice([None, None, "x", "/a/**"]),
            risk_min=draw.choice([0, 0, 1, 3]),
            autonomy=draw.randrange(5),
            budget=draw.choice([None, Budget(per_hour=1), Budget(per_day=2)]),
            signers=(Signer(role=slug),) if decision == Kind.ASK else (),
        )
        severity, applies_to = draw.choice(["error", "error", "warn"]), draw.choice(["*", "tool.call", "mutates"])
        found.append(bound(one, severity=severity, applies_to=applies_to))
    return found


def as_level(drawn: tuple[list[RegisteredPolicy], int | None, str | None, tuple[Approver, ...]]) -> Level:
    policies, autonomy, default, approvers = drawn
    own = {one.id: one for one in policies}.values()
    return level(*own, autonomy=autonomy, default=default, approvers=approvers)


LEVELS = st.tuples(
    st.lists(st.sampled_from(pool()), max_size=4),
    st.sampled_from([None, 0, 1, 2, 3]),
    st.sampled_from([None, "auto", "on-mutate", "always"]),
    st.sampled_from([(), (Approver(id="one", may=("mutates",)),), (Approver(id="two", may=("tool.call",)),)]),
).map(as_level)
OPERATORS = st.sampled_from([None, "autonomous", "supervised", "gated"])
ASKED = st.lists(
    st.tuples(
        st.sampled_from(["tool.call", "tool.list", "file.write"]),
        st.sampled_from(["x", "y", "/a/b"]),
        st.integers(0, 3),
        st.sampled_from([0.0, 10.0, HOUR + 1.0]),
    ),
    min_size=1,
    max_size=5,
)


def rules(levels: list[Level], autonomy: str | None) -> PolicyRules:
    return PolicyRules(posture(*levels), operator(autonomy) if autonomy else None)


@settings(max_examples=150, deadline=None)
@given(levels=st.lists(LEVELS, min_size=2, max_size=4), autonomy=OPERATORS, asked=ASKED)
def test_a_descendant_never_loosens(levels: list[Level], autonomy: str | None, asked: list[Any]) -> None:
    """Neither the decision, nor who has to approve; compared on fresh rules, where no budget is spent."""
    for action, subject, risk, at in asked:
        parent = rules(levels[:-1], autonomy).decide(action, subject, risk=risk, at=at)
        child = rules(levels, autonomy).decide(action, subject, risk=risk, at=at)
        assert RANK[child.kind] >= RANK[parent.kind]
        if child.kind is not Kind.DENY:
            assert set(parent.needs) <= set(child.needs)


@settings(max_examples=100, deadline=None)
@given(levels=st.lists(LEVELS, min_size=1, max_size=2), autonomy=OPERATORS, asked=ASKED, seed=st.integers(0, 99))
def test_the_order_of_policies_does_not_matter(
    levels: list[Level], autonomy: str | None, asked: list[Any], seed: int
) -> None:
    draw = random.Random(seed)
    shuffled = [
        Level(
            effective=one.effective,
            policies=tuple(draw.sample(one.policies, len(one.policies))),
            approvers=one.approvers,
        )
        for one in levels
    ]
    first, second = rules(levels, autonomy), rules(shuffled, autonomy)
    for action, subject, risk, at in asked:
        one = first.decide(action, subject, risk=risk, at=at)
        other = second.decide(action, subject, risk=risk, at=at)
        assert (one.kind, one.policy, one.needs, one.notes) == (other.kind, other.policy, other.needs, other.notes)


@settings(max_examples=60, deadline=None)
@given(levels=st.lists(LEVELS, min_size=1, max_size=3), autonomy=OPERATORS, asked=ASKED, where=st.integers(0, 2))
def test_a_denial_anywhere_wins(levels: list[Level], autonomy: str | None, asked: list[Any], where: int) -> None:
    place = min(where, len(levels) - 1)
    no = bound(policy("no", "deny", action="tool.*"))
    levels[place] = Level(
        effective=levels[place].effective, policies=(*levels[place].policies, no), approvers=levels[place].approvers
    )
    for action, subject, risk, at in asked:
        found = rules(levels, autonomy).decide(action, subject, risk=risk, at=at)
        if action.startswith("tool."):
            assert found.kind is Kind.DENY and not found.released([ANN, BOB])
