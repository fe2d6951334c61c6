"""Whether a JSON document has what a search wants of it."""

from __future__ import annotations

from gateway.core.types import Json, JsonObject


def contains(document: Json, wanted: JsonObject) -> bool:
    """True if the object has all keys of `wanted` with equal values, as JSON counts them: 1 is 1.0 but never true."""
    if not wanted:
        return True
    if not isinstance(document, dict):
        return False
    return all(key in document and _same(document[key], value) for key, value in wanted.items())


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
