"""Changes that no delta can say: the nearest delta that there is, and the places of the document that a client lacks.

Deltas only add, so a key that was removed or a flag that was flipped cannot be sent, and the client goes on with an old
value there. Such a place is *unsent*. All further deltas for it or below it are held back, since they would be combined
with the wrong value, until the place is compared again and can be said. A path is a tuple of keys and indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.core import delta
from gateway.core.delta import ABSENT, NO_DIFF
from gateway.core.delta.algebra import is_number
from gateway.core.types import Json

Path = tuple[str | int, ...]
Length = Callable[[str], int | None]
"""How many items the array at a JSON pointer has in what was sent."""
Route = Sequence[str | None]
"""How a delta addresses a place: keys, and None for the last item of an array."""
_ALL: Final[dict[str | int, Any]] = {}
"""In the place of a node: the whole value is unsent. A node is never empty."""


def closest_delta(before: Json, after: Json, path: Path, unsaid: list[Path]) -> Json:
    """A delta that takes `before` (ABSENT: nothing) as near to `after` as one can, ABSENT if there is nothing to say.

    Adds to `unsaid` the paths, below `path`, of what none can say.
    """
    whole = delta.diff(before, after)
    if whole is not NO_DIFF:
        return ABSENT if whole is None and before is not ABSENT else whole
    if isinstance(before, dict) and isinstance(after, dict):
        unsaid += [(*path, key) for key in before if key not in after]
        parts = {
            key: closest_delta(before.get(key, ABSENT), value, (*path, key), unsaid) for key, value in after.items()
        }
        return {key: part for key, part in parts.items() if part is not ABSENT} or ABSENT
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        last = len(before) - 1
        unsaid += [(*path, i) for i in range(last) if not delta.same(before[i], after[i])]
        joint = closest_delta(before[last], after[last], (*path, last), unsaid)
        more = [delta.diff(ABSENT, item) for item in after[last + 1 :]]
        return ABSENT if joint is ABSENT and not more else [None if joint is ABSENT else joint, *more]
    if not _same_number(before, after):
        unsaid.append(path)
    return ABSENT


def _same_number(a: Json, b: Json) -> bool:
    """1 and 1.0 are the same to most readers, and a sum may come out as the other."""
    return is_number(a) and is_number(b) and a == b


def nested(value: Json, route: Route) -> Json:
    """The delta that has `value` where the route leads."""
    for step in reversed(route):
        value = [value] if step is None else {step: value}
    return value


class Unsent:
    """The unsent places of one document."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: dict[str | int, Any] | None = None

    def __bool__(self) -> bool:
        return self._root is not None

    def over(self, path: Path) -> Path | None:
        """The unsent place at or above the path, None if there is none."""
        node = self._root
        for depth in range(len(path) + 1):
            if node is None:
                return None
            if node is _ALL:
                return path[:depth]
            if depth < len(path):
                node = node.get(path[depth])
        return None

    def add(self, path: Path) -> None:
        """The value at the path is unsent."""
        if not path:
            self._root = _ALL
            return
        if self._root is _ALL:
            return
        node = self._root = self._root or {}
        for step in path[:-1]:
            inner = node.get(step)
            if inner is _ALL:
                return
            node = node.setdefault(step, {})
        node[path[-1]] = _ALL

    def remove(self, path: Path) -> None:
        """Nothing at or below the path is unsent any more."""
        trail: list[tuple[dict[str | int, Any], str | int]] = []
        node = self._root
        for step in path:
            if node is None or node is _ALL:
                return
            trail.append((node, step))
            node = node.get(step)
        if not trail:
            self._root = None
        while trail:
            node, step = trail.pop()
            node.pop(step, None)
            if node:
                return
            if not trail:
                self._root = None

    def held(self, change: Json, length: Length) -> Json:
        """The part of a delta that may be sent: all but what is for an unsent place. ABSENT if nothing is left."""
        return change if self._root is None else self._held(change, self._root, "", length)

    def _held(self, change: Json, node: dict[str | int, Any], at: str, length: Length) -> Json:
        if node is _ALL:
            return ABSENT
        if isinstance(change, dict):
            out = {}
            for key, part in change.items():
                inner = node.get(key)
                kept = part if inner is None else self._held(part, inner, f"{at}/{delta.escape(key)}", length)
                if kept is not ABSENT:
                    out[key] = kept
            return out or ABSENT
        if isinstance(change, list) and change:
            last = (length(at) or 0) - 1
            inner = node.get(last)
            joint = change[0]
            if inner is not None and joint is not None:
                joint = self._held(joint, inner, f"{at}/{last}", length)
            if len(change) == 1 and joint is ABSENT:
                return ABSENT
            return [None if joint is ABSENT else joint, *change[1:]]
        return change
