"""A delta of which not everything can be combined with the document: what can, and what becomes of the rest.

Costs the size of the delta for each thing in it that does not fit, whatever the size of the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.delta import ABSENT, DeltaError, Fold, Json, split

MOST: Final = 32
"""Things that do not fit in one delta; of one with more, nothing is taken."""


class Fitted:
    """What became of a delta."""

    def __init__(self) -> None:
        self.change: Json = ABSENT
        """What was combined with the document, in sound text; ABSENT if nothing was."""
        self.flipped: list[tuple[str, bool]] = []
        """Flags that were the other before: (JSON pointer, value). They are replaced in the document."""
        self.left_out = False


def fit(fold: Fold, change: Json) -> Fitted:
    """Combine as much as can be."""
    fitted = Fitted()
    for _ in range(MOST):
        try:
            fitted.change = fold.apply(change)
            return fitted
        except DeltaError as error:
            path = split(error.path)
            change, taken, flip = _without(change, path)
            if flip is not ABSENT and _takes(fold, flip):
                fold.replace(error.path, taken)
                fitted.flipped.append((error.path, taken))
            else:
                fitted.left_out = True
            if change is ABSENT:
                return fitted
    fitted.left_out = True
    return fitted


def _without(change: Json, path: Sequence[str]) -> tuple[Json, Json, Json]:
    """A delta less what it has for a place (ABSENT if nothing else is in it); that; and, if that is a flag, the delta
    that says the other, which fits if the place has a flag.
    """
    if not path or not change:
        return ABSENT, change, (not change if isinstance(change, bool) else ABSENT)
    if isinstance(change, dict):
        rest = {key: part for key, part in change.items() if key != path[0]}
        kept, taken, flip = _without(change.get(path[0]), path[1:])
        if kept is not ABSENT:
            rest[path[0]] = kept
        return rest or ABSENT, taken, (ABSENT if flip is ABSENT else {path[0]: flip})
    if isinstance(change, list):
        kept, taken, flip = _without(change[0], path[1:])
        whole = [None if kept is ABSENT else kept, *change[1:]]
        return (ABSENT if whole == [None] else whole), taken, (ABSENT if flip is ABSENT else [flip])
    return ABSENT, change, ABSENT


def _takes(fold: Fold, change: Json) -> bool:
    try:
        fold.apply(change)
    except DeltaError:
        return False
    return True
