"""Deltas and snapshots: the only place that turns one into the other.

`combine`, `diff` and `compose` are the algebra (algebra.py); `Fold` grows a document from deltas (fold.py); `Differ`
makes deltas of snapshots (changes.py); JSON pointers are in pointer.py, and what a JSON value is in values.py.
"""

from gateway.core.delta.algebra import (
    DeltaError,
    combine,
    compose,
    diff,
    settle,
    settle_list,
)
from gateway.core.delta.changes import UNCHANGED, Change, Differ, Replaced, changes
from gateway.core.delta.cuts import text_at
from gateway.core.delta.fold import Fold
from gateway.core.delta.pointer import escape, join, pointer_get, pointer_set, split
from gateway.core.delta.values import (
    ABSENT,
    NO_COMPOSE,
    NO_DIFF,
    REPLACEMENT,
    Json,
    decode,
    encode,
    same,
    sound,
    stitch,
)
