"""`combine`, `diff`, `compose`: the protocol's own examples word for word, and the laws they follow."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.delta import ABSENT, NO_COMPOSE, NO_DIFF, DeltaError, combine, compose, diff, same
from gateway.core.errors import AgentBroken
from tests.core.json_values import FLOATS, HALVED, INTEGERS, deltas_for, json_values, weight

NUMBERS = INTEGERS | FLOATS

# Seed 004, "Delta Algorithm", every example; then its prose with values put in.
EXAMPLES: list[tuple[Any, Any, Any]] = [
    (1, 2, 3),
    ("hello", "there", "hellothere"),
    ({"a": 1, "b": "hello"}, {"b": "world", "c": 2}, {"a": 1, "b": "helloworld", "c": 2}),
    (["hello", "there"], ["general", "Kenobi"], ["hello", "theregeneral", "Kenobi"]),
    (["hello", "there"], [None, "general", "Kenobi"], ["hello", "there", "general", "Kenobi"]),
    ([], ["general", "Kenobi"], ["general", "Kenobi"]),
    ([], [None, "general", "Kenobi"], ["general", "Kenobi"]),
    (["array"], [], ["array"]),
    ([], ["array"], ["array"]),
    *[(value, None, value) for value in (1, True, "value", {"a": 1}, ["array"], [], {})],
    *[(None, value, value) for value in (1, True, "value", {"a": 1}, ["array"], [], {})],
    (None, None, None),
]


@pytest.mark.parametrize(("output", "delta", "result"), EXAMPLES)
def test_the_protocol_says_what_a_value_and_a_delta_combine_to(output: Any, delta: Any, result: Any) -> None:
    assert same(combine(output, delta), result)


def test_the_protocol_says_that_different_types_cannot_be_combined() -> None:
    with pytest.raises(DeltaError):
        combine(1, ["hello"])


@pytest.mark.parametrize("output", [[], None, ABSENT])
def test_a_leading_null_is_dropped_where_there_is_no_item_to_meet(output: Any) -> None:
    assert combine(output, [None, "general", "Kenobi"]) == ["general", "Kenobi"]
    assert combine(output, [None]) == []
    assert combine(output, [None, None, 1]) == [None, 1]  # one of them says "append", the next is an item


def test_leading_nulls_are_dropped_wherever_there_was_no_value_and_object_nulls_stay() -> None:
    assert combine(ABSENT, {"a": [None, [None, 1]], "b": None}) == {"a": [[1]], "b": None}
    assert combine({"a": [1]}, {"c": [None, 2], "a": [None, [None, 3]]}) == {"a": [1, [3]], "c": [2]}
    assert combine({"a": None}, {"a": {"b": [None, 1]}}) == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("output", "delta"),
    [
        *[
            (a, b)
            for a in (1, "a", [1], {"a": 1}, True)
            for b in (2, "a", [1], {"a": 1}, True)
            if type(a) is not type(b)
        ],
        (True, False),
        (1e308, 1e308),
        (10**400, 0.5),
    ],
)
def test_what_cannot_be_combined_is_an_error(output: Any, delta: Any) -> None:
    with pytest.raises(DeltaError) as error:
        combine(output, delta)
    assert isinstance(error.value, ValueError | AgentBroken)
    assert error.value.path == ""
    with pytest.raises(DeltaError) as error:
        combine({"a/b": [0, {"~": output}]}, {"a/b": [{"~": delta}]})
    assert error.value.path == "/a~1b/1/~0"
    assert "/a~1b/1/~0" in str(error.value)


def test_nesting_without_end_is_a_delta_error_and_no_diff() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DeltaError):
        combine(ABSENT, deep)
    assert diff(ABSENT, deep) is NO_DIFF
    assert compose(deep, deep) is NO_COMPOSE


@given(st.data())
def test_combining_and_comparing_change_no_argument(data: st.DataObject) -> None:
    a = data.draw(json_values(HALVED, NUMBERS))
    d = data.draw(deltas_for(a, HALVED, INTEGERS))
    before = copy.deepcopy((a, d))
    b = combine(a, d)
    compose_with = data.draw(deltas_for(b, HALVED, INTEGERS))
    diff(a, b)
    compose(d, compose_with)
    assert same([a, d], [*before])


@given(st.data(), st.booleans())
def test_diff_finds_a_delta_that_leads_there_and_is_no_larger_than_any_other_by_more_than_its_keys(
    data: st.DataObject, absent: bool
) -> None:
    a = ABSENT if absent else data.draw(json_values(HALVED, NUMBERS))
    d = data.draw(json_values(HALVED, NUMBERS) if absent else deltas_for(a, HALVED, NUMBERS))
    try:
        b = combine(a, d)
    except DeltaError:  # a sum too large
        return
    found = diff(a, b)
    assert found is not NO_DIFF
    assert same(combine(a, found), b)
    assert weight(found) <= weight(d)


@given(json_values(HALVED, NUMBERS), json_values(HALVED, NUMBERS))
def test_a_delta_between_any_two_values_leads_exactly_there_or_there_is_none(a: Any, b: Any) -> None:
    found = diff(a, b)
    assert found is NO_DIFF or same(combine(a, found), b)


@given(json_values(HALVED, NUMBERS))
def test_every_value_has_a_delta_from_nothing_and_null_to_itself(value: Any) -> None:
    assert same(combine(ABSENT, diff(ABSENT, value)), value)
    assert same(combine(None, diff(None, value)), value)
    assert diff(value, copy.deepcopy(value)) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"b": 1}),
        ([1, 2], [1]),
        ([1], []),
        ([1, 2, 3], [1, 9, 3]),
        ([True, 2], [1, 2]),
        ([1.0, 2], [1, 2]),
        (True, False),
        (False, 0),
        (1, True),
        (1.0, 1),
        (0.0, -0.0),
        ("a", None),
        ({"a": "x"}, {"a": None}),
        ("ab", "a"),
        ("ab", "cb"),
        (0.1, 1e-320),
        (1e308, -1e308),
        (10**400, 0.5),
        ("\ud83d", "\ud83d\ude00"),  # never one character, as no decoder makes it
        (1, ABSENT),
    ],
)
def test_there_is_no_delta_for_what_deltas_cannot_say(a: Any, b: Any) -> None:
    assert diff(a, b) is NO_DIFF


@pytest.mark.parametrize(
    ("a", "b", "delta"),
    [
        (1, 1.0, 0.0),
        (-0.0, 0.0, 0.0),
        ([], [None], [None, None]),
        ([1], [1, None], [None, None]),
        ([1], [1, [None]], [None, [None, None]]),
        ({"a": [1, 2], "b": "x"}, {"a": [1, 5, 9], "b": "xy"}, {"a": [3, 9], "b": "y"}),
        ({"a": 1}, {"a": 1, "b": None}, {"b": None}),
        ({"a": 1}, {"a": 1, "b": []}, {"b": []}),
        ("a\ud83d", "a😀b", "\ude00b"),
        ("", "a", "a"),
    ],
)
def test_the_delta_is_the_one_expected(a: Any, b: Any, delta: Any) -> None:
    assert same(diff(a, b), delta)


def test_two_halves_of_a_character_meet() -> None:
    assert combine("a\ud83d", "\ude00b") == "a😀b"
    assert compose({"t": "a\ud83d"}, {"t": "\ude00b"}) == {"t": "a😀b"}


@given(st.data(), st.booleans())
def test_two_deltas_in_one_do_what_they_do_one_after_the_other(data: st.DataObject, absent: bool) -> None:
    o = ABSENT if absent else data.draw(json_values(HALVED))
    d1 = data.draw(json_values(HALVED) if absent else deltas_for(o, HALVED))
    middle = combine(o, d1)
    d2 = data.draw(deltas_for(middle, HALVED))
    assert same(combine(o, compose(d1, d2)), combine(middle, d2))


@given(st.data())
def test_a_composed_delta_does_the_same_to_every_document_that_can_take_the_two(data: st.DataObject) -> None:
    d1 = data.draw(json_values(HALVED))
    d2 = data.draw(deltas_for(combine(ABSENT, d1), HALVED) | json_values(HALVED))
    o = data.draw(deltas_for(combine(ABSENT, d1), HALVED) | json_values(HALVED))
    try:
        expected = combine(combine(o, d1), d2)
    except DeltaError:
        return
    assert same(combine(o, compose(d1, d2)), expected)


@pytest.mark.parametrize(
    ("d1", "d2"), [(1, 0.5), (0.5, 1), (0.5, 0.5), (1, "a"), ("a", 1), ([], {}), ({}, []), (True, False), (True, 1)]
)
def test_what_no_one_delta_can_say_is_not_composed(d1: Any, d2: Any) -> None:
    for first, second in ((d1, d2), ({"a": [0, d1]}, {"a": [d2]})):
        assert compose(first, second) is NO_COMPOSE


def test_a_float_beside_the_meeting_place_is_no_hindrance() -> None:
    assert compose({"a": [0.5, 1]}, {"a": [2, 0.5], "b": 0.5}) == {"a": [0.5, 3, 0.5], "b": 0.5}


def test_composing_keeps_leading_nulls() -> None:
    assert compose([None], [None, "x"]) == [None, "x"]
    assert compose([None, "a"], [None, "b"]) == [None, "a", "b"]
    assert compose(None, [None, 1]) == [None, 1]
    assert compose([1], [2, [None, None, 1]]) == [3, [None, None, 1]]
    assert compose([1, [None, [None]]], [None, [None]]) == [1, [None, [None]], [None]]


def test_combining_is_not_associative_but_composing_stands_for_it() -> None:
    d1, d2 = [None], [None, "x"]
    assert combine([], combine(d1, d2)) == combine([], compose(d1, d2)) == ["x"]
    assert combine(combine(ABSENT, d1), d2) == ["x"]


@given(json_values(HALVED, NUMBERS), json_values(HALVED, NUMBERS))
def test_same_means_the_same_json(a: Any, b: Any) -> None:
    def written(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    assert same(a, b) == (written(a) == written(b))
    assert same(a, copy.deepcopy(a))
