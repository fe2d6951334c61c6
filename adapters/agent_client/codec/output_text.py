"""The output of an agent of another protocol, as far as both versions follow it alike.

Which parts are the output's is decided in gateway/core/output.py. A data part is told by its text (document.py). How it
is told is `v1/output_text.py`, as one growing text, and `v2/output_text.py`, as messages that may be rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from adapters.agent_client.codec.document import DocumentText
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.output import OutputParts, PartOf
from gateway.core.types import Agent, Json, Run

Around = tuple[bytes, bytes, Callable[[str], object] | None]
"""The bytes before and after a part's text in an update, and a function to call with the text, if any."""
SMALL: Final = 64 * 1024
"""Bytes up to which the whole document is looked up after every batch that rewrote something."""
GROWTH: Final = 1.25
"""A larger one, when it has grown by this factor; what is left is told at the end."""


class ForeignOutput:
    """One run's output.

    data: the data part that is the output, if one is.
    """

    def __init__(self, agent: Agent | None) -> None:
        self.data: str | None = None
        self._losses: Counter[str] = Counter()
        self._pointer = agent.text_output if agent is not None else None
        self._document = DocumentText(self._pointer)
        self._parts = OutputParts()
        self._looked = 0
        self._over = False

    @property
    def lossy(self) -> bool:
        """Whether there are losses."""
        return bool(self._losses)

    @property
    def losses(self) -> Counter[str]:
        """Losses so far."""
        return self._losses

    def message(self, event: e.MessageStarted) -> None:
        """A message starts."""
        self._parts.message(event)

    def _part(self, event: e.PartStarted) -> PartOf:
        """Return what a text or data part belongs to. Counts a loss for a part outside the output."""
        what = self._parts.start(event)
        if what is PartOf.DATA:
            self.data = event.part
        elif what not in (PartOf.TEXT, PartOf.USER):  # the user knows what the user said
            self._losses["beside_output" if what is PartOf.BESIDE else "other_roles"] += 1
        return what

    def _current(self, snapshot: Snapshot | None) -> Json:
        """The document as it is now, if it is time to look it up; None if it is not."""
        if snapshot is None or snapshot.empty or (SMALL < snapshot.size < GROWTH * self._looked):
            return None
        self._looked = snapshot.size
        return delta.decode(snapshot.encoded)

    def _ended(self, run: Run) -> tuple[Json, str | None]:
        """The output document and its text, None if it has none: the first time, and never again."""
        if self._over:
            return None, None
        self._over = True
        document = delta.decode(bytes(run.output))
        return document, None if document is None else projection.text_of(document, self._pointer)
