"""Who is the best for a task: the laws that the score keeps, and the reasons that are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.agent_context.codec.ranking import Candidate, Needs, factors_of, rank, rated
from adapters.agent_context.options import Weights
from gateway.core.types import Standing

WEIGHTS = Weights().model_dump()

ratings = st.none() | st.floats(0, 10)
costs = st.none() | st.floats(0, 10)
speeds = st.none() | st.floats(0, 1e6)
standings = st.builds(Standing, quality=ratings, cost=costs, speed=speeds, security=ratings)
candidates = st.builds(
    Candidate, id=st.text(min_size=1), standing=standings, load=st.integers(0, 50), quality=ratings, speed=speeds
)
weights = st.fixed_dictionaries({name: st.floats(0, 10) for name in WEIGHTS}).filter(
    lambda each: sum(each.values()) > 0
)


def score(one: Candidate, weighing: dict[str, float] | None = None) -> float:
    return rated(one, weighing or WEIGHTS).score


@settings(max_examples=40)
@given(candidates, weights)
def test_a_score_and_its_factors_are_between_nothing_and_one(one: Candidate, weighing: dict[str, float]) -> None:
    assert 0 <= score(one, weighing) <= 1
    assert all(0 <= factor <= 1 for factor in factors_of(one).values()) and set(factors_of(one)) == set(WEIGHTS)


@settings(max_examples=40)
@given(candidates, weights, st.floats(0, 10), st.floats(0, 10))
def test_better_quality_and_security_never_lower_a_score(
    one: Candidate, weighing: dict[str, float], a: float, b: float
) -> None:
    low, high = sorted((a, b))
    assert score(replace(one, quality=low), weighing) <= score(replace(one, quality=high), weighing)
    secure = [replace(one, standing=replace(one.standing, security=each)) for each in (low, high)]
    assert score(secure[0], weighing) <= score(secure[1], weighing)


@settings(max_examples=40)
@given(candidates, weights, st.floats(0, 100), st.floats(0, 100))
def test_greater_cost_and_load_never_raise_a_score_and_speed_never_lowers_it(
    one: Candidate, weighing: dict[str, float], a: float, b: float
) -> None:
    low, high = sorted((a, b))
    dear = [replace(one, standing=replace(one.standing, cost=each)) for each in (low, high)]
    assert score(dear[0], weighing) >= score(dear[1], weighing)
    assert score(replace(one, load=low), weighing) >= score(replace(one, load=high), weighing)
    assert score(replace(one, speed=low), weighing) <= score(replace(one, speed=high), weighing)


@settings(max_examples=40)
@given(st.lists(candidates, max_size=8, unique_by=lambda one: one.id))
def test_ranking_sorts_by_score_and_keeps_the_order_of_equals(found: list[Candidate]) -> None:
    ranked = [one.candidate for one in rank(found, Needs(), WEIGHTS).ranked]
    assert ranked == sorted(found, key=lambda one: (-score(one), found.index(one)))


@settings(max_examples=40)
@given(candidates, st.lists(candidates, max_size=5))
def test_a_score_does_not_depend_on_who_else_is_there(one: Candidate, others: list[Candidate]) -> None:
    ranked = rank([replace(one, id="the one"), *others], Needs(), WEIGHTS).ranked
    assert next(each.score for each in ranked if each.candidate.id == "the one") == score(one)


def test_what_is_not_known_counts_as_the_middle() -> None:
    nothing = Candidate(id="x")
    middle = Candidate(id="x", standing=Standing(quality=5, security=5, cost=0.001, speed=50))
    assert score(nothing) == score(middle)
    assert factors_of(nothing) == {"quality": 0.5, "security": 0.5, "cost": 0.5, "load": 1.0, "speed": 0.5}


@pytest.mark.parametrize("factor", list(WEIGHTS))
def test_every_factor_counts(factor: str) -> None:
    better: dict[str, Any] = {
        "quality": {"quality": 9.0},
        "security": {"standing": Standing(security=9)},
        "cost": {"standing": Standing(cost=0.0001)},
        "load": {"load": 0},
        "speed": {"speed": 500.0},
    }
    plain = Candidate(id="plain", load=1)
    best = replace(Candidate(id="best", load=1), **better[factor])
    assert [one.candidate.id for one in rank([plain, best], Needs(), WEIGHTS).ranked] == ["best", "plain"]
    off = {**WEIGHTS, factor: 0.0}
    assert [one.candidate.id for one in rank([plain, best], Needs(), off).ranked] == ["plain", "best"]


def test_what_was_found_here_wins_over_what_an_agent_says() -> None:
    says = Standing(quality=10, speed=1000)
    assert factors_of(Candidate(id="x", standing=says))["quality"] == 1.0
    found = factors_of(Candidate(id="x", standing=says, quality=2, speed=50))
    assert (found["quality"], found["speed"]) == (0.2, 0.5)


LABELS = {"tools": ["Excel"], "models": ["gpt"], "specializations": ["sums", "Analysis"]}


@pytest.mark.parametrize(
    ("one", "needs", "reason"),
    [
        (Candidate(id="x", labels=LABELS), Needs(["excel", "GPT", "analysis"]), None),
        (Candidate(id="x", labels=LABELS), Needs(["excel", "verse", "song"]), "lacks verse, song"),
        (Candidate(id="x", labels={"protocols": ["sums"]}), Needs(["sums"]), "lacks sums"),
        (Candidate(id="x"), Needs(min_score=5), "has no quality score"),
        (Candidate(id="x", quality=4.9), Needs(min_score=5), "quality 4.9 is below 5"),
        (Candidate(id="x", quality=5), Needs(min_score=5), None),
        (Candidate(id="x"), Needs(max_cost=0.1), "does not say what it costs"),
        (Candidate(id="x", standing=Standing(cost=0.2)), Needs(max_cost=0.1), "costs 0.2 per token, above 0.1"),
        (Candidate(id="x", standing=Standing(cost=0.1)), Needs(max_cost=0.1), None),
        (Candidate(id="x"), Needs(excluded={"x": "asked for it"}), "asked for it"),
        (Candidate(id="x", status="revoked", why_not="access was revoked"), Needs(), "access was revoked"),
        (Candidate(id="x"), Needs(only="y"), None),
    ],
)
def test_who_does_not_match_is_left_out_with_the_reason(one: Candidate, needs: Needs, reason: str | None) -> None:
    ranking = rank([one], needs, WEIGHTS)
    fits = reason is None and needs.only in (None, "x")
    assert [each.candidate for each in ranking.ranked] == ([one] if fits else [])
    assert ranking.left_out.get("x") == reason and not ranking.away


@pytest.mark.parametrize("status", ["inactive", "offline", "busy"])
def test_who_matches_and_is_away_may_come_back(status: str) -> None:
    ranking = rank([Candidate(id="x", status=status)], Needs(), WEIGHTS)
    assert ranking.away == {"x": f"is {status}"} and not ranking.ranked
    unable = rank([Candidate(id="x", status=status)], Needs(["sums"]), WEIGHTS)
    revoked = rank([Candidate(id="x", status="revoked")], Needs(), WEIGHTS)
    assert not (unable.ranked or unable.away or revoked.ranked or revoked.away)


def test_an_agent_that_was_named_and_is_not_there_is_missed_by_name() -> None:
    assert rank([Candidate(id="x")], Needs(only="y"), WEIGHTS).left_out == {"y": "is not there"}
    assert rank([], Needs(), WEIGHTS).why_nobody() == "no agent is there"


@settings(max_examples=20)
@given(st.integers(0, 30), st.integers(0, 30))
def test_an_explanation_is_short_however_many_agents_there_are(fit: int, unfit: int) -> None:
    found = [Candidate(id=f"a{n}", labels=LABELS) for n in range(fit)] + [Candidate(id=f"b{n}") for n in range(unfit)]
    told = rank(found, Needs(["sums"]), WEIGHTS).explanation("a0")
    assert told["agent"] == "a0" and told["weights"] == dict(WEIGHTS)
    assert len(told["ranked"]) == min(fit, 10) and len(told["leftOut"]) == min(unfit, 10)
    assert ("considered" in told) == (fit > 10 or unfit > 10) and told.get("considered", fit + unfit) == fit + unfit
