"""`Fold`: what it shows is what `combine` gives, sound and encoded, and costs no more than it should."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.delta import ABSENT, DeltaError, Fold, combine, pointer_set, same, sound
from gateway.core.delta import fold as fold_module
from gateway.core.errors import Invalid
from tests.core.json_values import FLOATS, HALVED, INTEGERS, deltas_for, json_values

NUMBERS = INTEGERS | FLOATS
MEGABYTE = 1_000_000


def read(fold: Fold) -> Any:
    """The document, after checking that the bytes say the same and can be sent anywhere."""
    document = fold.document()
    encoded = fold.encoded()
    assert same(json.loads(encoded.decode()), document)
    assert len(encoded.decode().splitlines()) == 1
    assert fold.size == len(encoded)
    return document


@given(st.data())
def test_folding_deltas_one_by_one_gives_what_combining_them_gives(data: st.DataObject) -> None:
    fold, output, passed_on = Fold(), ABSENT, ABSENT
    for _ in range(data.draw(st.integers(1, 6))):
        delta = data.draw(deltas_for(output, HALVED) if output is not ABSENT else json_values(HALVED))
        given_delta = copy.deepcopy(delta)
        clean = fold.apply(delta)
        assert same(delta, given_delta)
        output = combine(output, delta)
        passed_on = combine(passed_on, clean)
        msgspec.json.encode(clean)  # can be sent
        if data.draw(st.booleans()):
            assert same(read(fold), passed_on)
    assert same(read(fold), passed_on)


@given(st.data())
def test_folding_sound_deltas_gives_exactly_the_combined_document(data: st.DataObject) -> None:
    fold, output = Fold(), ABSENT
    for _ in range(data.draw(st.integers(1, 6))):
        delta = data.draw(deltas_for(output, numbers=NUMBERS) if output is not ABSENT else json_values(numbers=NUMBERS))
        try:
            output = combine(output, delta)
        except DeltaError:
            with pytest.raises(DeltaError):
                fold.apply(delta)
            return
        assert fold.apply(delta) is delta
        if data.draw(st.booleans()):
            assert same(read(fold), output)
    assert same(read(fold), output)


@given(st.data())
def test_a_delta_that_does_not_fit_changes_nothing(data: st.DataObject) -> None:
    value = data.draw(json_values())
    fold = Fold(value)
    fold.apply(data.draw(deltas_for(value)))
    before = read(fold)
    wrong = data.draw(json_values())
    try:
        expected = combine(before, wrong)
    except DeltaError as error:
        with pytest.raises(DeltaError) as raised:
            fold.apply(wrong)
        assert (raised.value.path, str(raised.value)) == (error.path, str(error))
        expected = before
    else:
        fold.apply(wrong)
    assert same(read(fold), expected)


@given(st.data())
def test_replacing_at_a_pointer_gives_what_pointer_set_gives(data: st.DataObject) -> None:
    document = data.draw(json_values())
    fold = Fold(document)
    for _ in range(3):
        delta = data.draw(deltas_for(document))
        fold.apply(delta)
        document = combine(document, delta)
        step = st.sampled_from(["", "/a", "/b", "/0", "/1", "/-", "/é", "/a~1b", "/text"])
        pointer = "".join(data.draw(st.lists(step, max_size=3)))
        value = data.draw(json_values())
        try:
            document = pointer_set(document, pointer, value)
        except Invalid:
            with pytest.raises(DeltaError):
                fold.replace(pointer, value)
        else:
            fold.replace(pointer, value)
        assert same(read(fold), document)


def test_what_is_set_or_replaced_keeps_its_leading_nulls() -> None:
    fold = Fold([None, 1])
    assert fold.document() == [None, 1]
    fold.set({"a": 0})
    fold.replace("/a", [None, [None]])
    assert read(fold) == {"a": [None, [None]]}


def test_values_given_and_taken_are_not_touched_by_later_deltas() -> None:
    given_value: dict[str, Any] = {"a": [{"t": "x"}], "n": 1}
    fold = Fold(given_value)
    taken = fold.document()
    encoded = fold.encoded()
    delta = {"a": [{"t": "y"}, {"t": "z"}], "n": 1, "new": {"deep": ["q"]}}
    fold.apply(delta)
    taken_later = fold.document()
    fold.apply({"new": {"deep": ["r"]}, "a": [{"t": "!"}]})
    assert given_value == taken == {"a": [{"t": "x"}], "n": 1}
    assert encoded == b'{"a":[{"t":"x"}],"n":1}'
    assert delta["new"] == {"deep": ["q"]}
    assert taken_later == {"a": [{"t": "xy"}, {"t": "z"}], "n": 2, "new": {"deep": ["q"]}}
    assert read(fold) == {"a": [{"t": "xy"}, {"t": "z!"}], "n": 2, "new": {"deep": ["qr"]}}


def test_half_a_character_is_held_back_until_the_other_half_comes() -> None:
    fold = Fold()
    assert fold.apply({"t": "a\ud83d"}) == {"t": "a"}
    assert read(fold) == {"t": "a"}
    assert fold.apply({"n": 1}) == {"n": 1}
    assert fold.apply({"t": "\ude00b"}) == {"t": "😀b"}
    assert read(fold) == {"t": "a😀b", "n": 1}
    assert fold.apply({"t": "\ud83d"}) == {"t": ""}
    assert fold.apply({"t": None}) == {"t": None}
    assert fold.apply({"t": "c"}) == {"t": "\ufffdc"}
    assert fold.apply({"t": "\ude00é"}) == {"t": "\ufffdé"}
    assert read(fold) == {"t": "a😀b\ufffdc\ufffdé", "n": 1}


def test_half_a_character_at_the_end_of_a_whole_document_is_held_back_too() -> None:
    fold = Fold({"t": ["x\ud83d"], "k\ud83d": 1})
    assert read(fold) == {"t": ["x"], "k\ufffd": 1}
    fold.apply({"t": ["\ude00"], "k\ud83d": 1})
    assert read(fold) == {"t": ["x😀"], "k\ufffd": 2}
    fold.replace("/t/0", "y\ud83d")
    fold.apply({"t": ["\ude00", "new\ud83d"]})
    fold.apply({"t": ["\ude00"]})
    assert read(fold) == {"t": ["y😀", "new😀"], "k\ufffd": 2}


def test_separators_that_some_clients_take_for_ends_of_lines_are_escaped() -> None:
    fold = Fold({"\x85": "\u2028"})
    fold.apply({"\x85": "\u2029"})
    assert fold.encoded() == b'{"\\u0085":"\\u2028\\u2029"}'
    assert fold.document() == {"\x85": "\u2028\u2029"}


def test_there_is_nothing_to_encode_before_the_first_delta() -> None:
    fold = Fold()
    assert fold.absent
    assert fold.document() is ABSENT
    assert fold.size == 0
    assert fold.encoded() == b"null"
    fold.apply(None)
    assert not fold.absent
    assert read(fold) is None
    assert not Fold(None).absent


@pytest.mark.parametrize("pointer", ["/x/y", "/t/0", "/l/3", "/l/01", "/l/-1"])
def test_replacing_where_nothing_can_be_is_an_error_that_says_where(pointer: str) -> None:
    fold = Fold({"t": "", "l": [1]})
    fold.apply({"t": "x"})
    with pytest.raises(DeltaError) as error:
        fold.replace(pointer, 1)
    assert pointer.startswith(error.value.path)
    assert read(fold) == {"t": "x", "l": [1]}
    with pytest.raises(DeltaError):
        Fold().replace("/a", 1)
    with pytest.raises(Invalid):
        fold.replace("t", 1)


def test_nesting_deeper_than_any_document_is_refused_and_changes_nothing() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"a": deep}
    fold = Fold({"a": 1, "t": ""})
    for act in (lambda: fold.apply({"t": "x", "b": deep}), lambda: fold.set(deep), lambda: fold.replace("/b", deep)):
        with pytest.raises(DeltaError, match="too deep"):
            act()
    assert read(fold) == {"a": 1, "t": ""}


ITEMS: tuple[list[Any], ...] = (
    [None, "x", 2, [None, {"a": [None, 1]}], None, {"t": "é"}],
    [None, [], {"\ud83d": "y"}, "z"],
    [None],
    [None, "x\ud83d"],
    ["\ude00", "more"],
    [None, "!"],
)


@pytest.mark.parametrize("route", [lambda d: d, lambda d: {"a": d}, lambda d: {"a": [{"b": d}]}])
def test_items_that_are_added_to_an_array_are_what_combining_gives(route: Any) -> None:
    fold, output = Fold(route(["first"])), route(["first"])
    for items in ITEMS:
        delta = route(items)
        given_delta = copy.deepcopy(delta)
        clean = fold.apply(delta)
        assert same(delta, given_delta)
        output = combine(output, clean)
        assert same(fold.document(), output)
        assert abs(fold.size - len(fold.encoded())) < 16
        read(fold)


def test_items_that_are_added_are_not_touched_by_later_deltas() -> None:
    item = {"t": ["x"]}
    fold = Fold([0])
    fold.apply([None, item])
    fold.apply([{"t": ["y"]}])
    assert item == {"t": ["x"]}
    assert read(fold) == [0, {"t": ["xy"]}]


@pytest.mark.parametrize(("outer", "inner"), [(0, 200), (100, 100), (199, 1)])
def test_items_are_not_added_deeper_than_any_document(outer: int, inner: int) -> None:
    def nest(value: Any, depth: int) -> Any:
        for _ in range(depth):
            value = {"a": value}
        return value

    fold = Fold(nest([0], outer))
    with pytest.raises(DeltaError, match="too deep"):
        fold.apply(nest([None, 1, nest(1, inner)], outer))
    assert read(fold) == nest([0], outer)
    fold.apply(nest([None, 1, nest(1, inner - 1)], outer))
    assert read(fold) == nest([0, 1, nest(1, inner - 1)], outer)


@pytest.mark.parametrize("leaves", [200, 3])
def test_any_number_of_strings_may_grow_by_turns(leaves: int) -> None:
    fold = Fold({"list": [], "map": {}})
    for turn in range(4):
        for i in range(leaves):
            fold.apply({"map": {str(i): f"{turn}é"}})
            fold.apply({"list": [None, "x"] if turn == 0 else ["y"]})
    expected = {"list": ["x"] * (leaves - 1) + ["x" + "y" * leaves * 3], "map": {}}
    expected["map"] = {str(i): "0é1é2é3é" for i in range(leaves)}  # type: ignore[assignment]
    assert read(fold) == expected
    assert len(fold._hot) <= 64  # as many are kept apart, and no more


def test_any_number_of_strings_may_wait_for_the_other_half_of_a_character() -> None:
    fold = Fold({str(i): "" for i in range(200)})
    for half in ("x\ud83d", "\ude00"):
        for i in range(200):
            fold.apply({str(i): half})
    assert read(fold) == {str(i): "x😀" for i in range(200)}


@pytest.mark.parametrize("shape", [lambda t: t, lambda t: {"a": [t]}, lambda t: [{"t": t}]])
def test_the_document_is_up_to_date_after_every_chunk(shape: Any) -> None:
    fold, text = Fold(), ""
    for i in range(600):
        chunk = "xé😀"[i % 3]
        text += chunk
        fold.apply(shape(chunk))
        assert fold.document() == shape(text)
        assert fold.document() is fold.document()


def test_the_size_is_about_right_between_encodings() -> None:
    fold = Fold()
    for delta in ({"t": "né" * 10, "n": 1}, {"t": "\u2028x"}, {"t": 'q"'}, {"l": [1, 2, {"a": "b"}]}, {"n": 5}):
        fold.apply(delta)
    assert abs(fold.size - len(fold.encoded())) < 40
    for _ in range(1000):
        fold.apply({"t": "日本"})
    assert abs(fold.size - len(fold.encoded())) < 40


class Copies:
    """Counts the bytes that go through the encoder of growing texts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.encoded = 0
        encode = msgspec.json.Encoder().encode

        def counted(text: str) -> bytes:
            self.encoded += len(text)
            return encode(text)

        monkeypatch.setattr(fold_module, "_encode", counted)


@pytest.mark.parametrize("leaves", [1, 3])
@pytest.mark.parametrize("size", [64_000, MEGABYTE])
def test_a_document_grown_in_small_chunks_and_read_after_each_growth_encodes_each_byte_once(
    size: int, leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Copies(monkeypatch)
    fold = Fold({"head": "h", "texts": {str(i): "" for i in range(leaves)}})
    sent, last, chunk = 0, 0, "0123456789 \u00e9\n789012345"
    for i in range(size // len(chunk)):
        fold.apply({"texts": {str(i % leaves): chunk}})
        if fold.size > last * 1.02:
            last = fold.size
            sent += len(fold.encoded())
    assert read(fold)["texts"]["0"].startswith(chunk * 100)
    assert copies.encoded <= size * 1.01
    assert sent < size * 60  # a geometric series: 1 / 0.02, and some


@given(json_values(HALVED))
def test_a_document_that_is_set_is_shown_sound(value: Any) -> None:
    assert same(read(Fold(value)), sound(value))
