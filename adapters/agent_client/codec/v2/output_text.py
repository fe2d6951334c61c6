"""Tells version 2 clients the output of an agent of another protocol.

Messages keep their names. Thoughts are messages of their own beside them. A rewritten message is told again as a whole
(an upsert).
"""

from __future__ import annotations

from typing import Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.document import DocumentGrowth
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT
from adapters.agent_client.codec.output_text import Around, ForeignOutput
from adapters.agent_client.codec.v2.wire import CHUNK, UPDATE
from gateway.contract import Snapshot
from gateway.core import delta
from gateway.core import events as e
from gateway.core.output import PartOf
from gateway.core.types import Agent, Json, JsonObject, Run, RunStatus

_encode: Final = delta.encode
END: Final = b"}}"


def start_of(kind: str, message_id: str) -> bytes:
    """A chunk of text up to the text itself; END is what comes after."""
    named = b'","messageId":' + _encode(message_id)
    return b'{"sessionUpdate":"' + kind.encode() + named + b',"content":{"type":"text","text":'


class _Message:
    """One message as it was told, part by part: pieces of text, or a block."""

    __slots__ = ("id", "kind", "parts", "start")

    def __init__(self, id: str, kind: str) -> None:
        self.id = id
        self.kind = kind
        self.start = start_of(kind, id)
        self.parts: dict[str, list[str] | JsonObject] = {}

    def pieces(self, part: str) -> list[str]:
        """Those of a text part."""
        found = self.parts.setdefault(part, [])
        assert isinstance(found, list)
        return found

    def text(self, part: str) -> str:
        """A text part as one."""
        pieces = self.pieces(part)
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0] if pieces else ""

    def whole(self) -> bytes:
        """The update that says all of it."""
        blocks = []
        for part, value in self.parts.items():
            if isinstance(value, dict):
                blocks.append(value)
            elif text := self.text(part):
                blocks.append(content.block_of(text))
        return _encode({UPDATE: CHUNK[self.kind], "messageId": self.id, "content": blocks})


class V2OutputText(ForeignOutput):
    """One run. Methods append the updates to say to `out`; `ready` gets the parts whose deltas are simply chunks."""

    def __init__(self, agent: Agent | None, run: str, ready: dict[str, Around]) -> None:
        super().__init__(agent)
        self.stale = False
        """Whether what was told of it is not what it begins with, or nobody knows: `look` is to be called."""
        self._run = run
        self._ready = ready
        self._messages: dict[tuple[str, str], _Message] = {}
        self._of: dict[str, _Message] = {}  # text and thought part -> its message
        self._speech: _Message | None = None  # what the document's text is told as
        self._base = ""
        self._count = 0

    def start(self, event: e.PartStarted, out: list[bytes]) -> None:
        """A part starts."""
        if event.kind == "thought":
            self._text(event, THOUGHT, out)
            return
        if event.kind == "file":
            self._file(event, out)
            return
        what = self._part(event)
        if what is PartOf.DATA:
            self._base = self._name(event.message)
            if event.value is not None:
                self._tell(self._document.begin(event.value), out)
        elif what is PartOf.TEXT:
            self._text(event, MESSAGE, out)

    def grow(self, event: e.PartDelta, out: list[bytes]) -> None:
        """A delta of a part that is not ready."""
        if event.part == self.data:
            self._tell(self._document.grow(event.delta), out)
            return
        message = self._of.get(event.part)
        if message is None or not isinstance(event.delta, str) or not event.delta:
            return
        if message.kind == MESSAGE and event.part not in self._parts.spoken:
            self._parts.speak(event.part)
        newest = next(reversed(message.parts), event.part)
        first = event.part not in message.parts
        pieces = message.pieces(event.part)
        pieces.append(event.delta)
        if newest != event.part and not first:  # a chunk would stand behind what follows
            out.append(message.whole())
            return
        out.append(message.start + _encode(event.delta) + END)
        self._ready.pop(newest, None)
        self._ready[event.part] = (message.start, END, pieces.append)

    def replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        """A part is rewritten."""
        if event.part == self.data:
            text = self._document.replace(event.pointer, event.value)
            if text is not None:
                self._catch_up(text, out)
            elif self._document.unsure:
                self.stale = True
            return
        message = self._of.get(event.part)
        if message is None or not isinstance(event.value, str):
            return
        before = message.text(event.part) if event.part in message.parts else ""
        if event.value == before:
            return
        if event.value.startswith(before):
            rest = e.PartDelta(part=event.part, delta=event.value[len(before) :])
            self.grow(rest, out)
            return
        message.pieces(event.part)[:] = [event.value]
        out.append(message.whole())

    def artifact(self, event: e.ArtifactAdded, out: list[bytes]) -> None:
        """A file of the agent's that the gateway serves."""
        if event.artifact.agent_created:
            message = _Message(f"{self._run}-file-{event.artifact.id}", MESSAGE)
            out.append(_encode(event_forms.chunk(MESSAGE, content.link_of(event.artifact), message.id)))

    def look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        """After a batch that left it stale: tell the document's text as it is now."""
        document = None if self.data is None else self._current(snapshot)
        if document is not None:
            self._look(document, out)

    def finish(self, run: Run, out: list[bytes]) -> None:
        """The end: what is told is now the text of the output document; one without text is told as it is."""
        document, text = self._ended(run)
        if text is None:
            if document not in (None, {}, [], "") and run.status is RunStatus.SUCCESS:
                self._say(_Message(f"{self._run}-output", MESSAGE), event_forms.fenced(document), out)
        elif self.data is not None:
            self._look(document, out)
            if self._speech is None and text:
                self._catch_up(text, out)
        else:
            self._correct(text, out)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _name(self, message: str) -> str:
        return f"{self._run}-{message}"

    def _message(self, message: str, kind: str) -> _Message:
        found = self._messages.get((message, kind))
        if found is None:
            name = self._name(message) if kind == MESSAGE else f"{self._name(message)}-thought"
            found = self._messages[message, kind] = _Message(name, kind)
        return found

    def _text(self, event: e.PartStarted, kind: str, out: list[bytes]) -> None:
        self._of[event.part] = self._message(event.message, kind)
        if event.value:
            self.grow(e.PartDelta(part=event.part, delta=event.value), out)

    def _file(self, event: e.PartStarted, out: list[bytes]) -> None:
        block = event.value if event_forms.is_block(event.value) else content.described(event.value)
        if block is None:
            self._losses["file"] += 1
            return
        message = self._message(event.message, MESSAGE)
        self._ready.pop(next(reversed(message.parts), ""), None)
        message.parts[event.part] = block
        out.append(_encode(event_forms.chunk(MESSAGE, block, message.id)))

    def _say(self, message: _Message, text: str, out: list[bytes]) -> None:
        if text:
            message.pieces("").append(text)
            out.append(message.start + _encode(text) + END)

    # the text of a data part

    def _begin(self) -> _Message:
        self._count += 1
        self._speech = _Message(self._base if self._count == 1 else f"{self._base}-{self._count}", MESSAGE)
        return self._speech

    def _tell(self, said: DocumentGrowth | str, out: list[bytes]) -> None:
        if isinstance(said, DocumentGrowth) and said.unsure:
            self.stale = True
        elif not self.stale:
            text, items = (said, []) if isinstance(said, str) else (said.text, said.items)
            if text:
                self._say(self._speech or self._begin(), text, out)
            for item in items:
                self._say(self._begin(), item, out)

    def _look(self, document: Json, out: list[bytes]) -> None:
        text, another = self._document.look(document)
        if another:
            self._begin()
        if text is not None:
            self._catch_up(text, out)

    def _catch_up(self, text: str, out: list[bytes]) -> None:
        """The newest message of the document is this now."""
        self.stale = False
        message = self._speech or self._begin()
        told = message.text("")
        if text.startswith(told):
            self._say(message, text[len(told) :], out)
        else:
            message.pieces("")[:] = [text]
            out.append(message.whole())

    def _correct(self, text: str, out: list[bytes]) -> None:
        """All text that was told is this now."""
        told = "".join(gap + self._of[part].text(part) for part, gap in self._parts.spoken.items())
        if told == text:
            return
        part = self._parts.newest
        if part is None:
            self._say(_Message(f"{self._run}-output", MESSAGE), text, out)
        elif text.startswith(told):
            self.grow(e.PartDelta(part=part, delta=text[len(told) :]), out)
        else:
            last = self._of[part]
            for message in (
                *dict.fromkeys(self._of[each] for each in self._parts.spoken if self._of[each] is not last),
                last,
            ):
                for each, value in message.parts.items():
                    if isinstance(value, list):
                        value[:] = [text] if each == part else []
                out.append(message.whole())
