"""What is written fast is what RFC 8785 wants, and what is hashed can be hashed again by whoever reads it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.audit.canonical import LARGEST, canonical, digest

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | text
numbers = whole | st.floats(allow_nan=False, allow_infinity=False)


def objects(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    below = st.recursive(
        leaves, lambda each: st.lists(each, max_size=3) | st.dictionaries(text, each, max_size=3), max_leaves=8
    )
    return st.dictionaries(text, below, max_size=4)


@given(objects(whole))
@settings(max_examples=60, deadline=None)
def test_without_floats_the_fast_way_writes_what_the_library_writes(value: dict[str, Any]) -> None:
    assert canonical(value, simple=True) == rfc8785.dumps(value)


@given(objects(numbers))
@settings(max_examples=60, deadline=None)
def test_what_was_read_is_written_as_it_was(value: dict[str, Any]) -> None:
    written = canonical(value)
    assert canonical(msgspec.json.decode(written)) == written


def test_keys_outside_the_basic_plane_sort_as_utf_16() -> None:
    assert canonical({"\ufb33": 1, "\U0001f600": 2}, simple=True) == '{"\U0001f600":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize("high", ["\U00010000", "\U00040000", "\U00080000", "\U000c0000", "\U0010ffff"])
def test_a_key_of_any_plane_is_written_as_the_library_writes_it(high: str) -> None:
    for value in ({"\uffff": 1, high: 2}, {"a": {"\ufb33": high, high: "\uffff"}}, {"\u00ff": 1, "b": 2}):
        assert canonical(value, simple=True) == rfc8785.dumps(value)


def test_an_integer_that_no_float_holds_is_written_as_the_float_that_others_read() -> None:
    assert (
        canonical({"n": [2**53 + 1], "m": {"k": -(2**60)}})
        == b'{"m":{"k":-1152921504606847000},"n":[9007199254740992]}'
    )


@pytest.mark.parametrize(("algorithm", "length"), [("sha256", 64), ("sha512", 128), ("blake2b-256", 64)])
def test_hashes_are_hex_of_their_length(algorithm: str, length: int) -> None:
    assert len(digest(b"", algorithm)) == length
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
