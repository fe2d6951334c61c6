"""The algebra of deltas: the pre-alpha Agent Communication Protocol's, its inverse, and the composition of two deltas.

All functions are pure: they never change an argument, and what they return may share parts with it.
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

from gateway.core.delta.pointer import join
from gateway.core.delta.values import (
    ABSENT,
    NO_COMPOSE,
    NO_DIFF,
    Json,
    Sentinel,
    join_text,
    rest_of_text,
    same,
)
from gateway.core.errors import AgentBroken


class DeltaError(AgentBroken, ValueError):
    """A delta does not fit the value it is for. `path` is the JSON pointer to where they part."""

    code = "bad_delta"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"delta at {path!r}: {message}")
        self.path = path


class Clash(Exception):
    """Unwinding to the root, gathering the path on the way (innermost step first)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.steps: list[str | int] = []

    def error(self) -> DeltaError:
        """The public form of it."""
        return DeltaError(str(self), path=join(reversed(self.steps)))


TOO_DEEP = "nested too deep"


def combine(output: Json | Sentinel, delta: Json) -> Json:
    """The output after the delta (that protocol's "Delta Algorithm"); `output` is ABSENT while there is no value yet.

    Numbers add, strings append, objects merge, arrays join at the last element, null changes nothing, equal booleans
    stay. Where there is no value yet (ABSENT, null, an empty array's items, a new key, an appended item) the delta
    itself is the value, less the leading null of every array in it. Raises DeltaError where the types differ, where
    booleans differ, and where a sum is no finite number.
    """
    try:
        return _combine(output, delta)
    except Clash as clash:
        raise clash.error() from None
    except RecursionError:
        raise DeltaError(TOO_DEEP) from None


def _combine(output: Json, delta: Json) -> Json:
    if delta is None:
        return None if output is ABSENT else output
    if output is ABSENT or output is None:
        return settle(delta)
    if isinstance(output, str):
        if isinstance(delta, str):
            return join_text(output, delta)
    elif isinstance(output, dict):
        if isinstance(delta, dict):
            return _merge(output, delta)
    elif isinstance(output, list):
        if isinstance(delta, list):
            return _extend(output, delta)
    else:
        return combine_scalars(output, delta)
    raise Clash(f"{kind(delta)} cannot be combined with {kind(output)}")


def _merge(output: dict[str, Json], delta: dict[str, Json]) -> dict[str, Json]:
    merged = dict(output)
    for key, part in delta.items():
        try:
            merged[key] = _combine(output.get(key, ABSENT), part)
        except Clash as clash:
            clash.steps.append(key)
            raise
    return merged


def _extend(output: list[Json], delta: list[Json]) -> list[Json]:
    if not delta:
        return output
    if not output:
        return settle_list(delta)
    try:
        joint = _combine(output[-1], delta[0])
    except Clash as clash:
        clash.steps.append(len(output) - 1)
        raise
    return [*output[:-1], joint, *map(settle, delta[1:])]


def combine_scalars(output: Json, delta: Json) -> Json:
    """Number with number, boolean with boolean. Raises Clash for everything else."""
    if isinstance(output, bool) or isinstance(delta, bool):
        if output is delta:
            return output
        if isinstance(output, bool) and isinstance(delta, bool):
            raise Clash("a boolean cannot change")
    elif isinstance(output, int | float) and isinstance(delta, int | float):
        try:
            total = output + delta
        except OverflowError:
            total = float("inf")
        if isinstance(total, float) and not isfinite(total):
            raise Clash("the sum is too large for a number")
        return total
    raise Clash(f"{kind(delta)} cannot be combined with {kind(output)}")


def kind(value: Json) -> str:
    """The JSON type's name, for messages."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names = {type(None): "null", str: "string", dict: "object", list: "array"}
    return names.get(type(value), type(value).__name__)


def settle(delta: Json) -> Json:
    """The value a delta leaves where there was none: `combine(ABSENT, delta)`."""
    if isinstance(delta, list):
        return settle_list(delta)
    if isinstance(delta, dict):
        return {key: settle(part) for key, part in delta.items()}
    return delta


def settle_list(delta: list[Json]) -> list[Json]:
    """`settle` for an array: one leading null means "after whatever is there" and is dropped."""
    return [settle(item) for item in (delta[1:] if delta and delta[0] is None else delta)]


def unsettle(value: Json) -> Json:
    """The delta that leaves `value` where there was none: `settle(unsettle(v)) == v`."""
    if isinstance(value, list):
        items = [unsettle(item) for item in value]
        return [None, *items] if items and items[0] is None else items
    if isinstance(value, dict):
        return {key: unsettle(part) for key, part in value.items()}
    return value


def diff(before: Json | Sentinel, after: Json) -> Json | Literal[Sentinel.NO_DIFF]:
    """A delta d with `combine(before, d)` the same as `after` (in JSON's sense, see `same`), or NO_DIFF.

    There is none where a key or item is gone, a boolean flips, a value becomes null, a type changes, an item that is
    not the last changes, or a non-integer sum does not come out exactly. What has not changed is null, and is left
    out of objects; so the delta is never larger than any other that leads there by more than that one's idle keys.
    Every leaf is checked against the law before it goes in.
    """
    try:
        return NO_DIFF if after is ABSENT else _diff(before, after)
    except RecursionError:
        return NO_DIFF


def _diff(before: Json, after: Json) -> Json:
    """`diff`; null means "the same" unless `before` is ABSENT."""
    if before is ABSENT or before is None:
        return unsettle(after)
    if isinstance(before, str):
        if isinstance(after, str):
            rest = rest_of_text(before, after)
            return NO_DIFF if rest is None else rest or None
    elif isinstance(before, dict):
        if isinstance(after, dict):
            return _diff_objects(before, after)
    elif isinstance(before, list):
        if isinstance(after, list):
            return _diff_arrays(before, after)
    elif same(before, after):
        return None
    elif is_number(before) and is_number(after):
        return difference(before, after)
    return NO_DIFF


def _diff_objects(before: dict[str, Json], after: dict[str, Json]) -> Json:
    if len(after) < len(before) or not before.keys() <= after.keys():
        return NO_DIFF
    delta = {}
    for key, value in after.items():
        old = before.get(key, ABSENT)
        if old is value:
            continue
        part = _diff(old, value)
        if part is NO_DIFF:
            return NO_DIFF
        if part is not None or old is ABSENT:
            delta[key] = part
    return delta or None


def _diff_arrays(before: list[Json], after: list[Json]) -> Json:
    n = len(before)
    if n == 0:
        return unsettle(after) or None
    if len(after) < n or not all(map(same, before[:-1], after)):
        return NO_DIFF
    joint = _diff(before[-1], after[n - 1])
    if joint is NO_DIFF:
        return NO_DIFF
    return None if joint is None and len(after) == n else [joint, *map(unsettle, after[n:])]


def is_number(value: Json) -> bool:
    """True for int and float; a boolean is no number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def difference(before: float, after: float) -> Json:
    """The number that leads from one to the other exactly, type and sign of zero too, or NO_DIFF."""
    if isinstance(before, int) and isinstance(after, int):
        return after - before
    if isinstance(after, int):
        return NO_DIFF
    try:
        step = float(after - before)
        if isfinite(step) and same(before + step, after):
            return step
    except OverflowError:  # an integer beyond any float
        pass
    return NO_DIFF


def compose(d1: Json, d2: Json) -> Json:
    """One delta for two: `combine(combine(o, d1), d2) == combine(o, compose(d1, d2))`.

    The law holds for every `o` for which the left side is defined and all numbers are integers. Leading nulls stay, as
    what `d1` meets is not known here. NO_COMPOSE for two numbers that are not both integers (their sum is not
    associative) and for two deltas that no document can take one after the other.
    """
    try:
        return _compose(d1, d2)
    except RecursionError:
        return NO_COMPOSE


def _compose(d1: Json, d2: Json) -> Json:
    if d1 is None or d2 is None:
        return d2 if d1 is None else d1
    if isinstance(d1, str):
        return join_text(d1, d2) if isinstance(d2, str) else NO_COMPOSE
    if isinstance(d1, dict):
        return _compose_objects(d1, d2) if isinstance(d2, dict) else NO_COMPOSE
    if isinstance(d1, list):
        return _compose_arrays(d1, d2) if isinstance(d2, list) else NO_COMPOSE
    if isinstance(d1, bool):
        return d1 if d1 is d2 else NO_COMPOSE
    return d1 + d2 if type(d1) is int and type(d2) is int else NO_COMPOSE


def _compose_objects(d1: dict[str, Json], d2: dict[str, Json]) -> Json:
    composed = dict(d1)
    for key, part in d2.items():
        both = _compose(d1[key], part) if key in d1 else part
        if both is NO_COMPOSE:
            return NO_COMPOSE
        composed[key] = both
    return composed


def _compose_arrays(d1: list[Json], d2: list[Json]) -> Json:
    if not d1 or not d2:
        return d1 or d2
    joint = _compose(d1[-1], d2[0])
    return NO_COMPOSE if joint is NO_COMPOSE else [*d1[:-1], joint, *d2[1:]]
