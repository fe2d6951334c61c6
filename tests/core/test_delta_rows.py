"""Snapshots that come together: a row in which only texts grow is one delta, and says what they say one by one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.delta import Differ, Fold, decode, same, sound
from tests.core.json_values import SERIALIZERS

TEXT = 'a "\\\n\u2028é€😀\x85'
DOCUMENTS = st.fixed_dictionaries(
    {"a": st.integers(0, 9), "b": st.integers(0, 9), "items": st.integers(0, 2), "n": st.integers(0, 1)}
)


def document(seed: dict[str, int]) -> Any:
    return {"a": TEXT[: seed["a"]], "items": [*(["x"] * seed["items"]), {"b": TEXT[: seed["b"]]}], "n": seed["n"]}


def grown_texts(before: Any, after: Any) -> set[str] | None:
    """Which texts have grown from one document to the other; None where something else has changed."""
    one, two = json.dumps(before["items"][:-1]), json.dumps(after["items"][:-1])
    texts = {"a": (before["a"], after["a"]), "b": (before["items"][-1]["b"], after["items"][-1]["b"])}
    if one != two or before["n"] != after["n"] or not all(new.startswith(old) for old, new in texts.values()):
        return None
    return {name for name, (old, new) in texts.items() if new != old}


def grow(differ: Differ, data: bytes, start: int = 0, end: int | None = None) -> bool:
    """Whether a snapshot is taken by its bytes."""
    return differ.segments is not None and differ.segments.grow(data, start, len(data) if end is None else end)


def grown(differ: Differ) -> Any:
    """What the snapshots that were taken add."""
    return differ.segments.told() if differ.segments is not None else None


def row(differ: Differ, raws: list[bytes]) -> int:
    """How many of the snapshots are taken."""
    return next((at for at, raw in enumerate(raws) if not grow(differ, raw)), len(raws))


def replay(raws: list[bytes], fold: Fold) -> list[int]:
    """Feed all, as many at once as go; what each step took. The fold has each step's last document."""
    differ, took, at = Differ(), [], 0
    while at < len(raws):
        taken = row(differ, raws[at:])
        if taken:
            delta = grown(differ)
            if delta is not None:
                fold.apply(delta)
        else:
            change = differ.feed(raws[at])
            if change:
                fold.set(differ.document())
        at += taken or 1
        took.append(taken)
        assert same(fold.document(), sound(decode(raws[at - 1])))
        assert same(differ.document(), fold.document())
    return took


@given(st.lists(DOCUMENTS, min_size=1, max_size=12), st.booleans(), st.sampled_from(sorted(SERIALIZERS)))
def test_a_row_says_what_its_snapshots_say_one_by_one(
    seeds: list[dict[str, int]], growing: bool, serializer: str
) -> None:
    if growing:  # mostly texts that grow
        seeds = [{**seed, "items": 1, "n": 0} for seed in sorted(seeds, key=lambda seed: (seed["a"], seed["b"]))]
    documents = [document(seed) for seed in seeds]
    at = 0
    for taken in replay([SERIALIZERS[serializer](one) for one in documents], Fold()):
        grown = [grown_texts(*pair) for pair in pairwise(documents[at - 1 : at + taken])] if taken else []
        assert None not in grown, "more than texts have grown"
        assert len({frozenset(names) for names in grown if names}) <= 1, "another text has its own delta"
        at += taken or 1


def test_a_text_that_grows_is_one_step_however_often() -> None:
    raws = [json.dumps({"message": "word " * n, "more": [1, {}]}).encode() for n in range(20)]
    assert replay(raws, Fold()) == [0, 0, 18]


def test_snapshots_that_say_nothing_new_belong_to_the_row() -> None:
    raws = [json.dumps({"message": "x" * n}).encode() for n in (1, 2, 2, 3, 3, 4)]
    assert replay(raws, Fold()) == [0, 5], "and of one text alone it is known from the first on that it may grow"


@pytest.mark.parametrize(
    "first", [b'{"m":"a\\ud83d"}', b'{"m":"a"}\n', b'{"m":"a","m":1}', b'{"m":"a","n":"b","m":"c"}']
)
def test_a_text_whose_end_is_not_certain_is_not_taken_by_its_bytes_at_first(first: bytes) -> None:
    fold = Fold()
    assert replay([first, first.replace(b'"}', b'bc"}'), first], fold)[1] == 0
    assert same(fold.document(), sound(decode(first)))


def test_a_list_that_grows_is_no_row() -> None:
    raws = [json.dumps({"items": ["x"] * n, "message": "y"}).encode() for n in range(1, 6)]
    assert replay(raws, Fold()) == [0] * 5


@pytest.mark.parametrize(
    "bad", [b'{"m":"abc\\"}', b'{"m":"abc\\u00"}', b'{"m":"abc\xc3"}', b'{"m":"ab\nc"}', b"", b"x"]
)
def test_a_row_ends_before_what_is_no_json_even_if_what_follows_is(bad: bytes) -> None:
    differ = Differ()
    differ.feed(b'{"m":"a"}')
    differ.feed(b'{"m":"ab"}')
    whole = bad.removesuffix(b'"}') + b'\xa9000"}' if bad.endswith(b'"}') else b'{"m":"abcd"}'
    assert row(differ, [b'{"m":"abc"}', bad, whole]) == 1
    assert grown(differ) == {"m": "c"}
    assert differ.document() == {"m": "abc"}


def test_a_snapshot_may_be_a_part_of_what_has_come() -> None:
    differ = Differ()
    differ.feed(b'{"m":"a"}')
    differ.feed(b'{"m":"ab"}')
    assert not grow(differ, b'{"m":"abc"}', 1, 11) and not grow(differ, b'{"m":"abc"}', 0, 10)
    assert not grow(differ, b'{"m":"ab"}', 0, 9) and not grow(differ, b'{"m":"ab"}', 2, 10)
    assert grow(differ, b'==={"m":"abc"}===', 3, 14) and grown(differ) == {"m": "c"}


def test_before_a_text_has_grown_nothing_is_a_row() -> None:
    differ = Differ()
    assert not grow(differ, b'"a"', 0, 3) and grown(differ) is None
    differ.feed(b'"a"')
    assert not grow(differ, b'"ab"', 0, 4) and grown(differ) is None
