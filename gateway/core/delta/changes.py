"""Changes of a document, of two values or of its snapshots: a delta as far as one can say it, and replaced subtrees for
the rest."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.core.delta.algebra import TOO_DEEP, DeltaError, combine, difference, is_number, unsettle
from gateway.core.delta.cuts import Segments, find, likely
from gateway.core.delta.pointer import join
from gateway.core.delta.values import ABSENT, NO_DIFF, Json, Sentinel, decode, rest_of_text, same, sound

Path = tuple[str | int, ...]


class Replaced(msgspec.Struct, frozen=True):
    """The value at `pointer` is now `value`."""

    pointer: str
    value: Json


class Change(msgspec.Struct, frozen=True):
    """A change of a document: first combine it with `delta` (ABSENT: none), then put each of `replaced` in its place.

    They do not overlap. A change without either is empty, and false.
    """

    delta: Any = ABSENT
    replaced: tuple[Replaced, ...] = ()

    def __bool__(self) -> bool:
        return self.delta is not ABSENT or bool(self.replaced)


UNCHANGED: Final = Change()
OVERHEAD: Final = 16  # of saying one more part, beside its value and pointer


def changes(before: Json | Sentinel, after: Json) -> Change:
    """The change from one document to the other; whatever `diff` can say is in the delta.

    What it cannot is replaced, in the smallest subtrees, unless their common parent is smaller than they together. A
    key or item that is gone takes its object or array with it: nothing smaller can say that. Raises DeltaError for a
    document that is nested too deep.
    """
    replaced: list[Replaced] = []
    try:
        if before is ABSENT:
            return Change(unsettle(after))
        delta = _delta(before, after, (), replaced)
    except RecursionError:
        raise DeltaError(TOO_DEEP) from None
    if delta is None and not replaced:
        return UNCHANGED
    return Change(ABSENT if delta is None else delta, tuple(replaced))


def _delta(before: Json, after: Json, path: Path, replaced: list[Replaced]) -> Json:
    """The delta from `before`; null for nothing. What it does not say goes into `replaced`."""
    if before is None:
        return unsettle(after)
    if isinstance(before, str) and isinstance(after, str):
        rest = rest_of_text(before, after)
        if rest is not None:
            return rest or None
    elif isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
        return _object_delta(before, after, path, replaced)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        return _array_delta(before, after, path, replaced)
    elif same(before, after):
        return None
    elif is_number(before) and is_number(after):
        step = difference(before, after)
        if step is not NO_DIFF:
            return step
    replaced.append(Replaced(join(path), after))
    return None


def _object_delta(before: dict[str, Json], after: dict[str, Json], path: Path, replaced: list[Replaced]) -> Json:
    delta = {}
    inside: list[Replaced] = []
    for key, value in after.items():
        old = before.get(key, ABSENT)
        if old is ABSENT:
            delta[key] = unsettle(value)
        elif old is not value and (part := _delta(old, value, (*path, key), inside)) is not None:
            delta[key] = part
    if _worth(inside, after):
        replaced += inside
        return delta or None
    replaced.append(Replaced(join(path), after))
    return None


def _array_delta(before: list[Json], after: list[Json], path: Path, replaced: list[Replaced]) -> Json:
    n = len(before)
    if n == 0:
        return unsettle(after) or None
    inside: list[Replaced] = []
    for i in range(n - 1):  # a delta reaches only the last item
        if not same(before[i], after[i]):
            _replace(before[i], after[i], (*path, i), inside)
    joint = _delta(before[-1], after[n - 1], (*path, n - 1), inside)
    if _worth(inside, after):
        replaced += inside
        return None if joint is None and len(after) == n else [joint, *map(unsettle, after[n:])]
    replaced.append(Replaced(join(path), after))
    return None


def _replace(before: Json, after: Json, path: Path, replaced: list[Replaced]) -> None:
    """Say it without a delta."""
    inside: list[Replaced] = []
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
        for key, value in after.items():
            old = before.get(key, ABSENT)
            if not same(old, value):
                _replace(old, value, (*path, key), inside)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, value) in enumerate(zip(before, after, strict=True)):
            if not same(old, value):
                _replace(old, value, (*path, i), inside)
    if inside and _worth(inside, after):
        replaced += inside
    else:
        replaced.append(Replaced(join(path), after))


def _worth(inside: list[Replaced], whole: Json) -> bool:
    """True if the replaced parts are no larger than the whole would be."""
    if len(inside) < 2:
        return True
    parts = sum(weight(part.value) + len(part.pointer) + OVERHEAD for part in inside)
    return parts <= weight(whole)


def weight(value: Json) -> int:
    """A size near that of the value's JSON."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return 2 + sum(len(key) + 4 + weight(part) for key, part in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + weight(item) for item in value)
    return 4


class Differ:
    """Tells what each snapshot of a document has changed, as deltas wherever there is one.

    A snapshot that only lets a few strings grow is recognised by its bytes: one comparison, and only what is new is
    decoded. Every other one is parsed and compared as a value. Text is sound (values.py): half a character at the end
    of a string is not told until the next snapshot has the other half. Folding the changes in order gives each
    snapshot.
    """

    __slots__ = ("_document", "_raw", "segments")

    def __init__(self) -> None:
        self._document: Json = ABSENT  # the last snapshot that was parsed
        self._raw: bytes | None = None  # its bytes, unless they are in `_segments`
        self.segments: Segments | None = None
        """The bytes of the last snapshot, and what it adds to the parsed one; None while no text is known to grow.

        Snapshots may be given to `grow`, and are then known to be JSON documents; after them `told` is called.
        """

    def feed(self, raw: bytes) -> Change:
        """The change since the last snapshot; `raw` is a whole JSON document in UTF-8.

        Raises AgentBroken if it is none, and changes nothing then.
        """
        segments = self.segments
        if segments is not None:
            if segments.grow(raw, 0, len(raw)):
                delta = segments.told()
                return UNCHANGED if delta is None else Change(delta)
        elif raw == self._raw:
            return UNCHANGED
        document = sound(decode(raw))
        change = changes(self.document(), document)
        old = self.raw
        cuts = [] if segments is None else segments.cuts()
        self._keep(document, raw)
        cuts = likely(raw, document) if old is None or change.replaced else find(old, cuts, raw, document)
        if cuts:
            self._raw = None
            self.segments = Segments(raw, cuts)
        return change

    @property
    def raw(self) -> bytes | None:
        """The last snapshot as it came; None before the first."""
        return self._raw if self.segments is None else self.segments.raw()

    def document(self) -> Json | Sentinel:
        """The last snapshot as a value, not to be changed; ABSENT before the first."""
        if self.segments is not None:
            for delta in self.segments.since():
                self._document = combine(self._document, delta)
        return self._document

    def _keep(self, document: Json, raw: bytes | None) -> None:
        self._document = document
        self._raw = raw
        self.segments = None
