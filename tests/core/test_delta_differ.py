"""`Differ` and `changes`: snapshots in, deltas out, and back again."""

from __future__ import annotations

import copy
import json
from importlib import import_module
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.delta import (
    ABSENT,
    NO_DIFF,
    UNCHANGED,
    Change,
    Differ,
    Fold,
    Replaced,
    changes,
    combine,
    decode,
    diff,
    pointer_set,
    same,
    sound,
)
from gateway.core.errors import AgentBroken
from tests.core.json_values import FLOATS, HALVED, INTEGERS, SERIALIZERS, deltas_for, json_values, weight

NUMBERS = INTEGERS | FLOATS


def put(document: Any, change: Change) -> Any:
    """The document after the change, by the pure functions."""
    if change.delta is not ABSENT:
        document = combine(document, change.delta)
    for part in change.replaced:
        document = pointer_set(document, part.pointer, part.value)
    return document


def put_into(fold: Fold, change: Change) -> None:
    """The same by a fold."""
    if change.delta is not ABSENT:
        assert fold.apply(change.delta) is change.delta  # already sound
    for part in change.replaced:
        fold.replace(part.pointer, part.value)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Snapshots of one document, most of them grown from the last, some of them anything."""
    document = draw(json_values(HALVED, NUMBERS))
    snapshots = [document]
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 9)) == 0:
            document = draw(json_values(HALVED, NUMBERS))
        else:
            try:
                document = combine(document, draw(deltas_for(document, HALVED, NUMBERS)))
            except ValueError:
                continue
        snapshots.append(document)
    return snapshots


@given(histories(), st.sampled_from(sorted(SERIALIZERS)), st.data())
def test_values_to_deltas_to_values_is_the_identity_whatever_the_serializer(
    snapshots: list[Any], serializer: str, data: st.DataObject
) -> None:
    differ, fold, output = Differ(), Fold(), ABSENT
    for snapshot in snapshots:
        name = data.draw(st.sampled_from(sorted(SERIALIZERS))) if data.draw(st.integers(0, 9)) == 0 else serializer
        try:
            raw = SERIALIZERS[name](snapshot)
        except UnicodeEncodeError:  # one that writes no half characters
            raw = SERIALIZERS["ascii"](snapshot)
        seen = sound(snapshot)
        change = differ.feed(raw)
        assert bool(change) == (output is ABSENT or not same(output, seen))
        output = put(output, change)
        put_into(fold, change)
        assert same(output, seen)
        assert same(json.loads(fold.encoded()), seen)
        if data.draw(st.booleans()):
            assert same(differ.document(), seen)
    assert differ.feed(raw) == UNCHANGED


TEXT = 'say "hi" \\ / \n\u2028 é€😀 \x85 #0 \\u00e9 {"a": 1}, "b": ['


@pytest.mark.parametrize("shape", ["alone", "in an object", "twice", "last in arrays", "first in an array"])
@pytest.mark.parametrize("serializer", sorted(SERIALIZERS))
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, len(TEXT) + 2), max_size=12), other=st.lists(st.integers(0, 40), max_size=12))
def test_a_text_that_grows_by_any_chunks_comes_out_as_those_chunks(
    serializer: str, shape: str, cuts: list[int], other: list[int]
) -> None:
    units = TEXT.encode("utf-16-le")  # cut where JavaScript would: between halves too
    ends = [*sorted(2 * cut for cut in cuts), len(units)]
    others = [*sorted(other), 40][: len(ends)] + [40] * max(0, len(ends) - len(other) - 1)
    differ, fold = Differ(), Fold()
    for end, more in zip(ends, others, strict=True):
        text = units[:end].decode("utf-16-le", "surrogatepass")
        document: Any = {
            "alone": text,
            "in an object": {"é": 1, "text": text, "z": [True]},
            "twice": {"a": {"t": text}, "b": [1, {"t": TEXT[:more]}], "c": {}},
            "last in arrays": [1, {"messages": ["x", {"content": text}]}],
            "first in an array": {"messages": [{"content": text}, {"content": ""}]},
        }[shape]
        try:
            raw = SERIALIZERS[serializer](document)
        except UnicodeEncodeError:
            raw = SERIALIZERS["ascii"](document)
        change = differ.feed(raw)
        assert shape == "first in an array" or not change.replaced
        put_into(fold, change)
        assert same(fold.document(), sound(document))


PIECES = [
    "x",
    "#0",
    '"',
    '","',
    '","k":"',
    "\\",
    '\\"',
    "\\\\",
    "\\u00e9",
    "\\ud83d",
    "\\ude00",
    "\\u00",
    " ",
    "\n",
    "é",
    "\udcff",
    "1",
    "}",
]


class Parses:
    """Counts the bytes that are parsed as whole documents."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        module = import_module("gateway.core.delta.changes")  # the package has a function of this name
        decode = module.decode

        def counted(raw: bytes) -> Any:
            self.bytes += len(raw)
            return decode(raw)

        monkeypatch.setattr(module, "decode", counted)


@pytest.mark.parametrize("serializer", ["compact", "spaced", "ascii", "indented", "keys sorted"])
@pytest.mark.parametrize("leaves", [1, 4])
def test_a_large_document_is_parsed_only_until_it_is_known_which_strings_grow(
    serializer: str, leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parses = Parses(monkeypatch)
    differ, write = Differ(), SERIALIZERS[serializer]
    document = {
        "before": ["x" * 1000, 1.5],
        "texts": {str(i): "é\n" * 5000 for i in range(leaves)},
        "after": {"q": None},
    }
    differ.feed(write(document))
    for turn in range(200):
        leaf = str(turn % leaves)
        document["texts"][leaf] += f'"{turn}\\'  # type: ignore[index, call-overload]
        assert differ.feed(write(document)) == Change({"texts": {leaf: f'"{turn}\\'}})
    assert parses.bytes <= len(write(document)) * (1 + leaves)
    assert same(differ.document(), document)
    parses.bytes = 0
    document["after"] = {"q": 1}
    assert differ.feed(write(document)) == Change({"after": {"q": 1}})
    assert parses.bytes == len(write(document))


def test_several_strings_may_grow_in_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    parses = Parses(monkeypatch)
    differ = Differ()
    for i in range(50):
        change = differ.feed(msgspec.json.encode({"a": "x" * i, "b": [{"c": "y" * i}], "d": 1}))
        if i:
            assert change == Change({"a": "x", "b": [{"c": "y"}]})
    assert parses.bytes < 100


def test_more_growing_strings_than_are_watched_still_come_out_right() -> None:
    differ, fold = Differ(), Fold()
    document = {str(i): "" for i in range(30)}
    for turn in range(120):
        document[str(turn * 7 % 30)] += "x"
        put_into(fold, differ.feed(msgspec.json.encode(document)))
        assert fold.document() == document
        assert differ.document() == document


@pytest.mark.parametrize(
    ("first", "second", "third", "delta"),
    [
        # the text ends in what looks like the mark that finds it
        (b'{"t":"a#0"}', b'{"t":"a#0#0"}', b'{"t":"a#0#0#0"}', {"t": "#0"}),
        # half an escape is not the end of a string
        (b'"a"', b'"a\\\\"', b'"a\\\\\\""', '"'),
        (b'"a"', b'"a\\""', b'"a\\"\\u0022"', '"'),
        # something behind the text changes with it
        (b'{"t":"a","n":1}', b'{"t":"ab","n":1}', b'{"t":"abc","n":2}', {"t": "c", "n": 1}),
        # the other half of a character, escaped
        (b'"a\\ud83d"', b'"a\\ud83d\\ude00"', b'"a\\ud83d\\ude00b"', "b"),
        (b'"a"', b'"ab\\ud83d"', b'"ab\\ud83d\\ude00"', "😀"),
        (b'"a"', b'"ab\\ud83d"', b'"ab\\ud83dc"', "\ufffdc"),
        (b'"a"', b'"ab"', b'"ab\\ud83d"', ABSENT),
        # the same text, written otherwise
        (b'{"t":"a"}', b'{"t":"ab"}', b'{"t":"a\\u0062"}', ABSENT),
        (b'{"t":"a"}', b'{"t":"ab"}', b'{ "t" : "ab" }', ABSENT),
        (b'{"t":"a","n":1}', b'{"t":"ab","n":1}', b'{"n":1,"t":"abc"}', {"t": "c"}),
        # keys that come twice: the last one is the value
        (b'{"t":"a","t":"a"}', b'{"t":"a","t":"ab"}', b'{"t":"a","t":"abc"}', {"t": "c"}),
        (b'{"t":"a","t":"a"}', b'{"t":"ab","t":"a"}', b'{"t":"abc","t":"a"}', ABSENT),
        (b'{"t":"a"}', b'{"t":"ab"}', b'{"t":"abc","t":"abcd"}', {"t": "cd"}),
        (b'{"x":"1","x":""}', b'{"x":"1","x":"1"}', b'{"x":"1","xy":"1"}', {"xy": "1"}),
        # a key grows: another key
        (b'{"t":"a","t":"a"}', b'{"t":"a","tt":"a"}', b'{"t":"a","tt":"ab"}', {"tt": "b"}),
        # what is inserted is JSON, not text
        (b'["a"]', b'["ab"]', b'["ab","c"]', [None, "c"]),
        (b'{"t":"a"}', b'{"t":"ab"}', b'{"t":"abc","u":"d"}', {"t": "c", "u": "d"}),
    ],
)  # fmt: skip
def test_a_change_of_bytes_is_read_as_a_parser_reads_it(first: bytes, second: bytes, third: bytes, delta: Any) -> None:
    differ = Differ()
    differ.feed(first)
    before = differ.document()
    second_change = differ.feed(second)
    assert same(put(before, second_change), sound(json.loads(second)))
    assert differ.feed(third) == Change(delta)
    assert same(differ.document(), sound(json.loads(third)))


@given(
    st.sampled_from([name for name in sorted(SERIALIZERS) if name != "keys sorted"]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), st.sampled_from(PIECES)), min_size=1, max_size=3),
)
def test_bytes_changed_anywhere_are_read_as_a_parser_reads_them(
    serializer: str, edits: list[tuple[int, int, str]]
) -> None:
    differ = Differ()
    for text in ("a", "a#", 'a#"é\\'):
        raw = SERIALIZERS[serializer]({"k": text, "n": [1, {"t": text, "u": "é"}]})
        differ.feed(raw)
    for place, gone, piece in edits:
        at = min(place, len(raw))
        raw = raw[:at] + piece.encode("utf-8", "surrogateescape") + raw[at + gone :]
        before = differ.document()
        try:
            document = sound(decode(raw))
        except AgentBroken:
            with pytest.raises(AgentBroken):
                differ.feed(raw)
            continue
        assert same(put(before, differ.feed(raw)), document)
        assert same(differ.document(), document)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"t":"abc',
        b'{"t":"ab"c"}',
        b'{"t":"ab\nc"}',
        b'{"t":"ab\\"}',
        b'{"t":"ab\\x"}',
        b'{"t":"ab\\u12"}',
        b'{"t":"ab\xff"}',
        b'{"t":"ab\xed\xa0\xbd"}',
        b'{"t":"ab\\ud83d\xff"}',
        b"",
        b"NaN",
        b'["\\ud83d", NaN]',
        b'["\\ud83d", "\xed\xa0\xbd"]',
        b'["\\ud83d", 1e999]',
        b"1e999",
        b"[" * 100_000,
        b'"\\ud83d' + b"[" * 100_000,
    ],
)
def test_what_is_not_json_is_the_agents_fault_and_changes_nothing(bad: bytes) -> None:
    differ = Differ()
    for good in (b'{"t":"a"}', b'{"t":"ab"}', b'{"t":"abb"}'):
        differ.feed(good)
        with pytest.raises(AgentBroken):
            differ.feed(bad)
    assert differ.feed(b'{"t":"abbc"}') == Change({"t": "c"})


def test_a_closing_quote_is_not_taken_for_an_escaped_one() -> None:
    differ = Differ()
    for good in (b'"a"', b'"a\\""'):
        differ.feed(good)
    with pytest.raises(AgentBroken):
        differ.feed(b'"a\\"')
    assert differ.feed(b'"a\\"b"') == Change("b")


def test_numbers_survive() -> None:
    differ = Differ()
    big = 2**200 + 1
    differ.feed(b"[%d,0.1]" % big)
    assert differ.feed(b"[%d,0.1,1.0,-0.0,1e300,-1]" % big) == Change([None, 1.0, -0.0, 1e300, -1])
    assert same(differ.document(), [big, 0.1, 1.0, -0.0, 1e300, -1])
    assert same(differ.feed(b"[%d,0.1,1,-0.0,1e300,-1]" % big).replaced[0].value, 1)


@given(json_values(numbers=NUMBERS), json_values(numbers=NUMBERS))
@example({"a": 1, "flag": True, "t": "x"}, {"a": 2, "flag": False, "t": "xy"})
@example([1, "a", {"t": ""}], [2, "b", {"t": "c"}, None])
def test_any_document_can_become_any_other(before: Any, after: Any) -> None:
    kept = copy.deepcopy((before, after))
    change = changes(before, after)
    assert same(put(before, change), after)
    fold = Fold(before)
    put_into(fold, change)
    assert same(fold.document(), after)
    assert same([before, after], [*kept])
    if diff(before, after) is not NO_DIFF:
        assert not change.replaced
    assert sum(weight(part.value) for part in change.replaced) <= weight(after) + 4
    pointers = [part.pointer + "/" for part in change.replaced]
    assert not any(a != b and a.startswith(b) for a in pointers for b in pointers)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"done": False, "t": "a" * 99}, {"done": True, "t": "a" * 99}, Change(ABSENT, (Replaced("/done", True),))),
        (
            {"done": False, "t": "a" * 99, "n": 1},
            {"done": True, "t": "a" * 99 + "b", "n": 3},
            Change({"t": "b", "n": 2}, (Replaced("/done", True),)),
        ),
        ([["a" * 99, 1], 2], [["a" * 99, 2], 2], Change(ABSENT, (Replaced("/0/1", 2),))),
        ([["a" * 99, 1], "x"], [["a" * 99, 2], "xy"], Change(["y"], (Replaced("/0/1", 2),))),
        ({"a/b": [1, 2]}, {"a/b": [1]}, Change(ABSENT, (Replaced("/a~1b", [1]),))),
        ({"a": 1, "b": 2}, {"a": 1}, Change(ABSENT, (Replaced("", {"a": 1}),))),
        ({"t": "one"}, {"t": "two"}, Change(ABSENT, (Replaced("/t", "two"),))),
        ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4], Change(ABSENT, (Replaced("", [0, 1, 2, 3, 4]),))),
        ([True, False, 1], [False, True, 1], Change(ABSENT, (Replaced("", [False, True, 1]),))),
        (
            {"a": True, "b": 1, "c": False},
            {"a": 1, "b": 1, "c": True},
            Change(ABSENT, (Replaced("", {"a": 1, "b": 1, "c": True}),)),
        ),
        (1.0, 1, Change(ABSENT, (Replaced("", 1),))),
        ({"a": 1}, None, Change(ABSENT, (Replaced("", None),))),
        ({}, {}, UNCHANGED),
        (None, None, UNCHANGED),
        (ABSENT, None, Change(None)),
    ],
)
def test_what_a_delta_cannot_say_replaces_the_smallest_part(before: Any, after: Any, change: Change) -> None:
    assert changes(before, after) == change
    assert bool(change) == (change is not UNCHANGED)
