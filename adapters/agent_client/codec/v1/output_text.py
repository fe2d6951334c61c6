"""Tells version 1 clients the output of an agent of another protocol, as one growing text."""

from __future__ import annotations

from collections import Counter

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.document import DocumentGrowth
from adapters.agent_client.codec.output_text import ForeignOutput
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core import projection
from gateway.core.output import SEPARATOR, PartOf
from gateway.core.types import Agent, Json, Run, RunStatus

_JOIN = 512


class OutputText(ForeignOutput):
    """The output of one run as text to tell. Every method returns text to be told now, maybe none."""

    def __init__(self, agent: Agent | None) -> None:
        super().__init__(agent)
        self.speech = ToldText()
        """The text told so far. More of `open_part` is simply said here."""
        self._others: set[str] = set()
        self._start: int | None = 0  # of the newest text part in the text; None where nobody knows

    @property
    def lossy(self) -> bool:
        return bool(self._losses or self.speech.rewrites)

    @property
    def losses(self) -> Counter[str]:
        return self._losses + Counter({"rewrite": self.speech.rewrites})

    @property
    def open_part(self) -> str | None:
        """The text part whose deltas are simply to be told, and said to `speech`; None if there is none now."""
        return None if self.speech.stale or self.data is not None else self._parts.newest

    def start(self, event: e.PartStarted) -> list[str]:
        """A text or data part starts."""
        what = self._part(event)
        if what is PartOf.DATA:
            return [] if event.value is None else self._tell(self._document.begin(event.value))
        if what is PartOf.TEXT:
            return self._append(event.part, event.value) if event.value else []
        self._others.add(event.part)
        return []

    def grow(self, event: e.PartDelta) -> list[str]:
        """A delta of a text or data part."""
        if event.part == self.data:
            said = self._document.grow(event.delta)
            return [self.speech.say(said)] if type(said) is str else self._tell(said)
        if event.part in self._others or not isinstance(event.delta, str) or self.data is not None:
            return []
        return self._append(event.part, event.delta)

    def replace(self, event: e.PartReplaced) -> list[str]:
        """A part is rewritten."""
        if event.part == self.data:
            text = self._document.replace(event.pointer, event.value)
            if text is not None:
                return [self.speech.catch_up(text)]
            if self._document.unsure:
                self.speech.outdate()
            return []
        if event.part in self._others or not isinstance(event.value, str) or self.data is not None:
            return []
        if event.part not in self._parts.spoken:
            return self._append(event.part, event.value)
        if event.part != self._parts.newest or self._start is None or self.speech.stale:
            self.speech.rewritten()
            return []
        return [self.speech.catch_up(self.speech.told()[: self._start] + event.value)]

    def look(self, snapshot: Snapshot | None) -> list[str]:
        """After a batch: if something was rewritten, the document as it is now may go on from what was told."""
        document = self._current(snapshot) if self.speech.stale else None
        return [] if document is None else self._catch_up(document)

    def finish(self, run: Run) -> tuple[list[str], str | None]:
        """(what is still to be told, the text that is to be told as a new message because it was rewritten)."""
        document, text = self._ended(run)
        if text is not None:
            more = self._catch_up(document)
            if not more and not self.speech.ever:
                more = [self.speech.catch_up(text)]
            return more, text if self.speech.stale else None
        if document in (None, {}, [], "") or run.status is not RunStatus.SUCCESS:
            return [], None
        return [(SEPARATOR if self.speech.ever else "") + event_forms.fenced(document)], None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _append(self, part: str, text: str) -> list[str]:
        if not text:
            return []
        if part not in self._parts.spoken:
            gap = self._parts.speak(part)
            self._start = self.speech.length + len(gap) if not self.speech.stale else None
            return [self.speech.say(gap + text)]
        if part != self._parts.newest:
            self.speech.rewritten()
            return []
        return [self.speech.say(text)]

    def _tell(self, said: DocumentGrowth | str) -> list[str]:
        if isinstance(said, str):
            return [self.speech.say(said)]
        if said.unsure:
            self.speech.outdate()
            return []
        out = [self.speech.say(said.text)]
        for text in said.items:
            self.speech.begin()
            out.append(self.speech.say(text))
        return out

    def _catch_up(self, document: Json) -> list[str]:
        if self.data is None:
            self._start = None
            text, another = projection.text_of(document, self._pointer), False
        else:
            text, another = self._document.look(document)
        if another:
            self.speech.begin()
        return [] if text is None else [self.speech.catch_up(text)]


class ToldText:
    """The text of a run that a client has been told, one message after the other.

    It only grows. All of it together is the text of the output document: the text parts in order, messages a blank line
    apart; or of a data part the text at the agent's text pointer, followed delta by delta (document.py). What rewrites
    text that was told already is not told: then `stale` is true, until the text as it is now turns out to go on from
    what was told (`catch_up`), or the end corrects it. `rewrites` counts what could not be told as it happened.
    """

    def __init__(self) -> None:
        self.stale = False
        self.rewrites = 0
        self._counted = False
        self._blocks: list[str] = []
        self._newest: list[str] = []
        self._length = 0
        self._gap = ""
        self._ever = False

    @property
    def ever(self) -> bool:
        """Whether anything has been told, in any message."""
        return self._ever

    @property
    def length(self) -> int:
        """Characters told in this message."""
        return self._length

    def say(self, text: str) -> str:
        """Text to tell now, for text to add; empty while stale."""
        if self.stale or not text:
            return ""
        self._newest.append(text)
        self._length += len(text)
        if len(self._newest) > _JOIN:
            self._settle()
        self._ever = True
        gap, self._gap = self._gap, ""
        return gap + text

    def begin(self) -> None:
        """Another message begins: what was told until now is not looked at again."""
        if self.stale:
            self.rewritten()
        if self._ever:
            self._gap = SEPARATOR
        self._blocks, self._newest, self._length = [], [], 0
        self.stale = self._counted = False

    def told(self) -> str:
        """All that was told in this message."""
        self._settle()
        self._blocks = ["".join(self._blocks)]
        return self._blocks[0]

    def rewritten(self) -> None:
        """Called when the text no longer begins with what was told."""
        if not self._counted:
            self.rewrites += 1
        self.stale = self._counted = True

    def outdate(self) -> None:
        """It is not known whether what was told still holds."""
        self.stale = True

    def _settle(self) -> None:
        self._blocks.append("".join(self._newest))
        self._newest = []

    def catch_up(self, text: str) -> str:
        """The text is this now: what to tell, if it goes on from what was told; else it is rewritten."""
        if len(text) < self._length or not text.startswith(self.told()):
            self.rewritten()
            return ""
        self.stale = self._counted = False
        return self.say(text[self._length :])
