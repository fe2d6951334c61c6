"""Hypothesis strategies for JSON values, deltas, and ways of writing JSON down."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

# A small alphabet, so that strings meet, extend one another, and need every kind of escape.
ALPHABET = 'ab"\\/\n\t\0\x7f\x85\u2028\u2029é€😀#u'
KEYS = st.sampled_from(["a", "b", "text", "é", 'q"', "", "a/b", "~"])
SOUND = st.text(ALPHABET, max_size=6)
HALVED = st.text(ALPHABET + "\ud83d\ude00\udbff", max_size=6).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
INTEGERS = st.integers(-3, 3) | st.integers(-(2**80), 2**80)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 0.1, 0.2, 1e16])


@cache
def json_values(text: st.SearchStrategy[str] = SOUND, numbers: st.SearchStrategy[Any] = INTEGERS) -> Any:
    """Any JSON value, small, with much in it that looks alike."""
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=8,
    )


def deltas_for(value: Any, text: st.SearchStrategy[str] = SOUND, numbers: st.SearchStrategy[Any] = INTEGERS) -> Any:
    """A delta that `value` can take."""
    if value is None:
        return json_values(text, numbers)
    if isinstance(value, bool):
        own = st.just(value)
    elif isinstance(value, int | float):
        own = numbers
    elif isinstance(value, str):
        own = text
    elif isinstance(value, list):
        last = deltas_for(value[-1], text, numbers) if value else json_values(text, numbers)
        more = st.lists(json_values(text, numbers), max_size=3)
        own = st.just([]) | st.tuples(last, more).map(lambda parts: [parts[0], *parts[1]])
    else:
        fresh = st.dictionaries(KEYS.filter(lambda key: key not in value), json_values(text, numbers), max_size=2)
        known = st.fixed_dictionaries(
            {}, optional={key: deltas_for(part, text, numbers) for key, part in value.items()}
        )
        own = st.tuples(known, fresh).map(lambda parts: {**parts[0], **parts[1]})
    return st.none() | own


def _escape_all(value: Any) -> bytes:
    """Every character of every string as \\uXXXX, keys too."""

    def written(part: Any) -> str:
        if isinstance(part, str):
            units = part.encode("utf-16-be", "surrogatepass")
            return '"' + "".join(f"\\u{units[i]:02X}{units[i + 1]:02x}" for i in range(0, len(units), 2)) + '"'
        if isinstance(part, list):
            return "[" + ",".join(map(written, part)) + "]"
        if isinstance(part, dict):
            return "{" + ",".join(f"{written(k)}:{written(v)}" for k, v in part.items()) + "}"
        return json.dumps(part)

    return written(value).encode()


SERIALIZERS: dict[str, Callable[[Any], bytes]] = {
    "compact": msgspec.json.encode,
    "spaced": lambda value: json.dumps(value, ensure_ascii=False).encode(),
    "ascii": lambda value: json.dumps(value).encode(),
    "indented": lambda value: json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n",
    "all escaped": _escape_all,
    "slashes escaped": lambda value: json.dumps(value, separators=(",", ":")).replace("/", "\\/").encode(),
    "keys sorted": lambda value: msgspec.json.encode(value, order="sorted"),
}


def weight(value: Any) -> int:
    """A size of a JSON value: one for each node, key and character."""
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, list):
        return 1 + sum(map(weight, value))
    if isinstance(value, dict):
        return 1 + sum(1 + len(key) + weight(part) for key, part in value.items())
    return 1
