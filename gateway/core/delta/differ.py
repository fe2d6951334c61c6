"""Snapshots in, deltas out."""

from __future__ import annotations

from gateway.core.delta.algebra import combine
from gateway.core.delta.changes import UNCHANGED, Change, changes
from gateway.core.delta.cuts import Segments, find
from gateway.core.delta.values import ABSENT, Json, Sentinel, decode, sound


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
        """The bytes of the last snapshot, and what it adds to the parsed one; None before a text has grown.

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
        if old is not None and not change.replaced and (cuts := find(old, cuts, raw, document)):
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
