"""The fold's own copy of a document, and the plan of what a delta will do to it.

A tree is a JSON value in containers of our own, with a Text wherever a string has grown or ends in half a character.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.delta.algebra import TOO_DEEP, Clash, combine_scalars, kind
from gateway.core.delta.pointer import index
from gateway.core.delta.text import Text
from gateway.core.delta.values import ABSENT, Json, sized, sound_key, stitch

DEPTH: Final = 200  # containers in containers, so that reading never meets the interpreter's own limit

Tree = Any
Place = str | int


def owned(value: Json, settled: bool, clean: bool, depth: int) -> Tree:
    """A tree of our own of a value. Raises Clash if it would be deeper than DEPTH.

    `settled` drops the leading nulls of arrays, as for a delta; `clean` promises that all its text is sound.
    """
    if depth > DEPTH:
        raise Clash(TOO_DEEP)
    if isinstance(value, dict):
        return {key if clean else sound_key(key): owned(part, settled, clean, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        items = value[1:] if settled and value and value[0] is None else value
        return [owned(item, settled, clean, depth + 1) for item in items]
    if clean or not isinstance(value, str):
        return value
    text, held = stitch("", value)
    return Text(text, held) if held else text


def value_of(tree: Tree) -> Json:
    """The value of a tree, in containers of its own."""
    shape = type(tree)
    if shape is dict:
        return {key: value_of(part) for key, part in tree.items()}
    if shape is list:
        return [value_of(item) for item in tree]
    return tree.text() if shape is Text else tree


def step(tree: Tree, name: str) -> Tree:
    """One step of a pointer into a tree, or ABSENT."""
    if type(tree) is dict:
        return tree.get(name, ABSENT)
    if type(tree) is list and (at := index(name, len(tree))) is not None:
        return tree[at]
    return ABSENT


class Plan:
    """The effects of a delta on a tree: `values` to put (at None: to append), `chunks` to add to strings.

    Making it may fail and changes nothing; carrying it out (Fold) cannot fail.
    """

    __slots__ = ("chunks", "growth", "values")

    def __init__(self) -> None:
        self.values: list[tuple[Any, Place | None, Tree]] = []
        self.chunks: list[tuple[Any, Place, str, str]] = []  # container, place, chunk, half to hold
        self.growth = 0

    def combine(self, container: Any, at: Place, delta: Json, depth: int) -> Json:
        """Plan `container[at] + delta`. Returns the delta in sound text, the same object if it is so. Raises Clash."""
        node = container.get(at, ABSENT) if type(container) is dict else container[at]
        if delta is None and node is not ABSENT:
            return None
        if node is ABSENT or node is None:
            return self._put(container, at, delta, depth)
        try:
            if isinstance(delta, str) and isinstance(node, str | Text):
                return self._append(container, at, node, delta)
            if isinstance(delta, dict) and type(node) is dict:
                return self._merge(node, delta, depth)
            if isinstance(delta, list) and type(node) is list:
                return self._extend(node, delta, depth)
            if isinstance(node, Text):
                raise Clash(f"{kind(delta)} cannot be combined with string")
            total = combine_scalars(node, delta)
        except Clash as clash:
            clash.steps.append(at)
            raise
        if total is not node:
            self.values.append((container, at, total))
        return delta

    def _put(self, container: Any, at: Place | None, delta: Json, depth: int) -> Json:
        """A value where there was none."""
        clean, size = sized(delta)
        self.values.append((container, at, owned(delta, True, clean is delta, depth)))
        self.growth += size + (len(at) + 4 if isinstance(at, str) else 1)
        return clean

    def _append(self, container: Any, at: Place, node: str | Text, chunk: str) -> str:
        held = node.held if isinstance(node, Text) else ""
        if held or not chunk.isascii():
            sound_chunk, half = stitch(held, chunk)
            if sound_chunk == chunk:
                sound_chunk = chunk
        else:
            sound_chunk, half = chunk, ""
        if sound_chunk or half != held:
            self.chunks.append((container, at, sound_chunk, half))
        self.growth += len(sound_chunk) if sound_chunk.isascii() else len(sound_chunk.encode())
        return sound_chunk

    def _merge(self, node: dict[str, Tree], delta: dict[str, Json], depth: int) -> Json:
        passed_on = {}
        as_given = True
        for key, part in delta.items():
            clean = key if key in node or key.isascii() else sound_key(key)
            passed_on[clean] = self.combine(node, clean, part, depth + 1)
            as_given = as_given and clean == key and passed_on[clean] is part
        return delta if as_given else passed_on

    def _extend(self, node: list[Tree], delta: list[Json], depth: int) -> Json:
        if not delta:
            return delta
        if node:
            passed_on = [self.combine(node, len(node) - 1, delta[0], depth + 1)]
            fresh = delta[1:]
        elif delta[0] is None:
            passed_on, fresh = [None], delta[1:]
        else:
            passed_on, fresh = [], delta
        passed_on += [self._put(node, None, item, depth + 1) for item in fresh]
        return delta if all(a is b for a, b in zip(passed_on, delta, strict=True)) else passed_on
