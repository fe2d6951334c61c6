"""The output document of a run, folded from its events.

An agent's data part is the document as it is; else the document is all assistant text, in order, at the agent's text
pointer, messages a blank line apart. Files are listed at `/artifacts` of a document that the gateway made itself. The
document of a run that has finished is the agent's final result.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core import projection
from gateway.core.delta import Fold
from gateway.core.types import NULL, Agent, Json, JsonObject, Role

SEPARATOR = "\n\n"


class PartOf(enum.Enum):
    """The role of a part in its run's output."""

    DATA = "the output itself"
    TEXT = "a piece of the output's text"
    BESIDE = "what the assistant says beside the output"
    USER = "the user's"
    OTHERS = "neither the assistant's nor the user's"


class OutputParts(msgspec.Struct, eq=False):
    """Decides which parts of a run are its output: the first data part, unless text came first; else all text of the
    assistant's, in order, messages a blank line apart.

    Told of every message and of every text and data part, in order.

    data: the data part that is the output, if one is.
    spoken: text parts that have said something, in the output's order, and what stands before the text of each.
    """

    data: str | None = None
    spoken: dict[str, str] = {}
    _roles: dict[str, Role] = {}
    _gap: str = ""

    @property
    def newest(self) -> str | None:
        """The text part that the output ends with."""
        return next(reversed(self.spoken), None)

    def message(self, event: e.MessageStarted) -> None:
        """A message starts."""
        self._roles[event.message] = event.role
        if self.spoken and event.role is Role.ASSISTANT:
            self._gap = SEPARATOR

    def start(self, event: e.PartStarted) -> PartOf:
        """A part starts. A text part is a piece of the output once it speaks."""
        role = self._roles.get(event.message, Role.ASSISTANT)
        if role is not Role.ASSISTANT:
            return PartOf.USER if role is Role.USER else PartOf.OTHERS
        if event.kind == "data" and self.data is None and not self.spoken:
            self.data = event.part
            return PartOf.DATA
        return PartOf.BESIDE if event.kind == "data" or self.data is not None else PartOf.TEXT

    def speak(self, part: str) -> str:
        """A text part says its first words. Returns what stands before them."""
        gap, self._gap = self._gap, ""
        self.spoken[part] = gap
        return gap


class Output:
    """Feed it a run's events in order (`apply`), read the document whenever you like.

    Memory: one copy of the document, and a few words per text part.
    """

    _data: str | None = None
    _final: bytes | None = None
    _growing: str | None = None  # the text part that spoke last, if nothing else has since
    _said = ""  # what it said last, if by the short way
    _delta: Json = deltas.ABSENT
    rewritten = ""
    """See `delta`."""

    def __init__(self, agent: Agent) -> None:
        self._fold = Fold()
        self._schema = agent.output_schema
        self._text_at = agent.text_output or ""
        self._inside_out, self._pointer = _ways_to(self._text_at)
        self._parts = OutputParts()
        self._text_parts: dict[str, None] = {}
        self._files: list[JsonObject] = []  # those that are listed once the document is there
        self._spans: dict[str, list[int]] = {}  # text part -> [separator before it, characters]

    @property
    def delta(self) -> Json:
        """The text or delta that the last `apply` that returned true has added; ABSENT where it was no delta but the
        value at the pointer `rewritten` that changed. RunFinished leaves both as they were.
        """
        return self._nested(self._said) if self._said else self._delta

    @property
    def encoded(self) -> bytes:
        """The document as JSON; `null` while there is none."""
        return self._fold.encoded() if self._final is None else self._final

    @property
    def document(self) -> Json:
        """The document as a Python value; None while there is none."""
        if self._final is not None:
            return msgspec.json.decode(self._final)
        return None if self._fold.absent else self._fold.document()

    def text(self, end: e.RunFinished) -> str:
        """The document's text after this end; the whole document as JSON where it has no text."""
        document = self.document if end.output == NULL else msgspec.json.decode(end.output)
        if document is None:
            return ""
        text = projection.text_of(document, self._text_at)
        return msgspec.json.encode(document).decode() if text is None else text

    @property
    def size(self) -> int:
        """Its encoded length in bytes, without encoding it."""
        return self._fold.size if self._final is None else len(self._final)

    @property
    def empty(self) -> bool:
        """True while nothing has been said."""
        return self._final is None and self._fold.absent

    def at(self, pointer: str) -> Json:
        """The value at a pointer of the folded document, ABSENT where there is none."""
        return self._fold.get(pointer)

    def holds(self, part: str) -> bool:
        """Whether what a part says is said in the document."""
        return part == self._data or part in self._text_parts

    def apply(self, event: e.Event) -> bool:
        """Fold one event in. True if the document has changed."""
        if type(event) is e.PartDelta:
            if event.part == self._growing and event.delta and self._fold.grow(event.delta):
                self._said = event.delta
                self._spans[event.part][1] += len(event.delta)
                return True
            self._growing = None
            if event.part == self._data:
                self._delta, self._said = self._fold.apply(event.delta), ""
                return True
            return event.part in self._text_parts and self._append(event.part, event.delta)
        fold = FOLDS.get(type(event))
        if fold is None:
            return False
        self._growing = None
        return fold(self, event)

    def _message(self, event: e.MessageStarted) -> bool:
        self._parts.message(event)
        return False

    def _finished(self, event: e.RunFinished) -> bool:
        before = self.encoded
        return self.finish(event) != before

    def correction(self, end: e.RunFinished) -> e.PartReplaced | None:
        """The final result's change of the streamed data part; None if it is the same."""
        if self._data is None or end.output == NULL or end.output == msgspec.Raw(self.encoded):
            return None
        value = msgspec.json.decode(end.output)
        same = deltas.same(value, self.document)
        return None if same else e.PartReplaced(part=self._data, value=value)

    def finish(self, end: e.RunFinished) -> bytes:
        """Take the final result; returns the document. A text that was never said is the empty text."""
        if end.output != NULL:
            self._final = bytes(end.output)
        elif self._data is None and not self._spans:
            self._grow("")
        return self.encoded

    def _start(self, event: e.PartStarted) -> bool:
        what = self._parts.start(event)
        if what is PartOf.DATA:
            self._data = event.part
            self._text_parts.clear()  # those that have begun and said nothing are beside it
            if event.value is not None:
                self._set(event.value)
                return True
        elif what is PartOf.TEXT and event.kind == "text":
            self._text_parts[event.part] = None
            return bool(event.value) and self._append(event.part, event.value)
        return False

    def _append(self, part: str, text: str) -> bool:
        if not isinstance(text, str):
            raise deltas.DeltaError("a text grows by text alone")
        if not text:
            return False
        span = self._spans.get(part)
        if span is None:
            gap = self._parts.speak(part)
            span = self._spans[part] = [len(gap), 0]
            self._grow(gap + text)
            self._growing = part
        elif part == next(reversed(self._spans)):
            self._added(self._nested(text))
            self._growing = part
        else:  # an earlier part speaks again
            end = self._where(part)[1]
            self._splice(end, end, text)
        span[1] += len(text)
        return True

    def _grow(self, text: str) -> None:
        if self._fold.absent:
            document = projection.wrap(text, self._text_at, self._schema, projection.ASSISTANT)
            self._set({**document, "artifacts": self._files} if self._files else document)
        else:
            self._added(self._nested(text))

    def _nested(self, text: str) -> Json:
        """The delta that lets the document's text grow."""
        more: Json = text
        for step in self._inside_out:
            more = [more] if step is None else {step: more}
        return more

    def _added(self, delta: Json) -> None:
        self._delta = self._fold.apply(delta)
        self._said = ""

    def _set(self, document: Json) -> None:
        self._fold.set(document)
        self._said, self._delta, self.rewritten = "", deltas.ABSENT, ""

    def _put(self, pointer: str, value: Json) -> None:
        self._fold.replace(pointer, value)
        self._said, self._delta, self.rewritten = "", deltas.ABSENT, pointer

    def _where(self, part: str) -> tuple[int, int]:
        at = 0
        for name, (separator, length) in self._spans.items():
            at += separator
            if name == part:
                return at, at + length
            at += length
        raise KeyError(part)

    def _splice(self, start: int, end: int, text: str) -> None:
        whole = deltas.pointer_get(self._fold.document(), self._pointer)
        self._put(self._pointer, whole[:start] + text + whole[end:])

    def _replace(self, event: e.PartReplaced) -> bool:
        if event.part == self._data:
            if event.pointer == "":
                self._set(event.value)
            else:
                self._put(event.pointer, event.value)
            return True
        if event.part not in self._text_parts or not isinstance(event.value, str):
            return False
        if event.part not in self._spans:
            return self._append(event.part, event.value)
        start, end = self._where(event.part)
        self._splice(start, end, event.value)
        self._spans[event.part][1] = len(event.value)
        return True

    def _list_file(self, event: e.ArtifactAdded) -> bool:
        artifact = event.artifact
        if self._data is not None or not artifact.agent_created:
            return False
        if not self._inside_out or self._inside_out[-1] in (None, "artifacts"):
            return False  # the document is a string or an array, or has its text there: it has no room for files
        entry = {"name": artifact.name, "url": artifact.url}
        if self._fold.absent:  # a data part may be the document yet
            self._files.append(entry)
            return False
        self._added({"artifacts": [None, entry]})
        return True


@functools.lru_cache(maxsize=1024)
def _ways_to(text_at: str) -> tuple[tuple[str | None, ...], str]:
    """The steps to a document's text from within, and its pointer where a list has but one item."""
    steps = ["0" if step == projection.LAST else step for step in deltas.split(text_at)]
    return tuple(projection.inside_out(text_at)), deltas.join(steps)


def fewer(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """Events that fold into the same document in fewer steps: those that let one text part grow are a single one."""
    if len(events) < 2:
        return events
    first = events[0]
    if type(first) is not e.PartDelta or type(first.delta) is not str:
        return events
    part = first.part
    texts: list[str] = []
    for event in events:
        if type(event) is not e.PartDelta or event.part != part or type(event.delta) is not str:
            return events
        texts.append(event.delta)
    return [e.PartDelta(part=part, delta="".join(texts))]


FOLDS: Mapping[type[e.Event], Callable[[Output, Any], bool]] = {
    e.PartReplaced: Output._replace,
    e.PartStarted: Output._start,
    e.MessageStarted: Output._message,
    e.ArtifactAdded: Output._list_file,
    e.RunFinished: Output._finished,
}
"""Event -> what it does to the document, and whether it has changed. A delta is `apply`'s; any other does nothing."""
