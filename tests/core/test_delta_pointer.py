"""JSON pointers: RFC 6901's own examples, and documents that share what has not changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.delta import ABSENT, escape, join, pointer_get, pointer_set, same, split
from gateway.core.errors import Invalid
from tests.core.json_values import json_values

# RFC 6901, section 5.
DOCUMENT = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_a_pointer_leads_where_the_rfc_says(pointer: str, value: Any) -> None:
    assert pointer_get(DOCUMENT, pointer) == value
    assert join(split(pointer)) == pointer


@pytest.mark.parametrize(
    "pointer", ["/bar", "/foo/2", "/foo/-1", "/foo/00", "/foo/1.0", "/foo/-", "/foo/0/0", "/foo/١"]
)
def test_where_there_is_nothing_there_is_nothing(pointer: str) -> None:
    assert pointer_get(DOCUMENT, pointer) is ABSENT


@pytest.mark.parametrize("pointer", ["foo", "foo/bar", "/~", "/a~2", "/~01~"])
def test_what_is_no_pointer_is_invalid(pointer: str) -> None:
    for act in (lambda: pointer_get(DOCUMENT, pointer), lambda: pointer_set(DOCUMENT, pointer, 1)):
        with pytest.raises(Invalid) as error:
            act()
        assert error.value.path == pointer


@given(st.lists(st.text(st.sampled_from("~/01ab "), max_size=4), max_size=4))
def test_any_path_survives_being_written_as_a_pointer(path: list[str]) -> None:
    assert split(join(path)) == path
    assert join(path) == "".join("/" + escape(step) for step in path)


def test_indexes_may_be_numbers() -> None:
    assert join(["a", 0, "b"]) == "/a/0/b"


def paths(value: Any) -> list[list[str]]:
    """Every path in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[], *([str(step), *rest] for step, part in items for rest in paths(part))]


@given(json_values(), json_values(), st.data())
def test_what_is_set_is_what_is_got_and_nothing_else_changes(document: Any, value: Any, data: st.DataObject) -> None:
    every = paths(document)
    path = data.draw(st.sampled_from(every))
    before = copy.deepcopy(document)
    changed = pointer_set(document, join(path), value)
    assert pointer_get(changed, join(path)) is value
    assert same(document, before)
    for other in every:
        if other[: len(path)] != path and path[: len(other)] != other:
            assert pointer_get(changed, join(other)) is pointer_get(document, join(other))


def test_keys_and_items_can_be_added() -> None:
    assert pointer_set({"a": [1]}, "/b", 2) == {"a": [1], "b": 2}
    assert pointer_set({"a": [1]}, "/a/-", 2) == pointer_set({"a": [1]}, "/a/1", 2) == {"a": [1, 2]}
    assert pointer_set(ABSENT, "", 1) == 1


@pytest.mark.parametrize("pointer", ["/a/b", "/x/y", "/l/2", "/l/-/a", "/l/x", "/s/0"])
def test_nothing_can_be_set_where_nothing_holds_it(pointer: str) -> None:
    with pytest.raises(Invalid) as error:
        pointer_set({"a": 1, "l": [1], "s": "text"}, pointer, 1)
    assert error.value.path == pointer
