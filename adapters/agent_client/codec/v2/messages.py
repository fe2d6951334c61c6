"""Messages of version 2: chunks that go on, and updates that say a whole message (RFD: v2 message updates).

A chunk is version 1's. A whole message that was not heard of is chunks of each of its blocks; one that goes on from
what was said is a chunk of the rest; any other replaces what was said: `PartReplaced`, also of parts that have ended.
What is cleared is the empty text. Of files that are not in the new content nothing can be said to other protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.messages import RunMessages
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.wire import ORIGIN_V2, UPDATE, WHOLE
from adapters.agent_client.wire import PROTOCOL
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import JsonObject


class SaidMessage:
    """One message, as far as it was said in this run."""

    __slots__ = ("blocks", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}
        """Its text parts and what each said, in pieces."""
        self.blocks: list[JsonObject] = []
        """Its other blocks."""

    def text(self) -> str:
        """All its text."""
        for pieces in self.parts.values():
            if len(pieces) > 1:
                pieces[:] = ["".join(pieces)]
        return "".join(pieces[0] for pieces in self.parts.values() if pieces)


class V2RunMessages:
    """The messages of one run, by kind of chunk and `messageId`."""

    def __init__(self, messages: RunMessages, known: SessionMemory) -> None:
        self._messages = messages
        self._known = known
        self._said: dict[tuple[str, str | None], SaidMessage] = {}
        self._anew: dict[str, str] = {}  # id of a message of an earlier run that is said anew -> version 1's id
        self.pieces: list[str] = []
        """Of the part that the last text went to: more of it is to be added here."""

    def chunk(self, kind: str, id: str | None, feed: Callable[[str | None], list[e.Event]]) -> list[e.Event]:
        """Events of a chunk of text, that `feed` makes with the id by which version 1 calls its message."""
        events = self._ours(kind, id, feed(self._name(id)))
        return events

    def block(self, kind: str, said: JsonObject) -> list[e.Event] | None:
        """Events of any other chunk; None if core has none for it."""
        named = said.get("messageId")
        id = named if isinstance(named, str) else None
        name = self._name(id)
        events = self._messages.chunk(kind, said if name == id else {**said, "messageId": name})
        return None if events is None else self._ours(kind, id, events, said.get("content"))

    def whole(self, said: JsonObject) -> list[e.Event] | None:
        """Events of an update that says a whole message; None if it says none, or nothing that is not known already."""
        kind, id, content = WHOLE[said[UPDATE]], said.get("messageId"), said.get("content", delta.ABSENT)
        content = [] if content is None else content
        if not isinstance(id, str) or not isinstance(content, list):
            return None
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content):
            return None
        before = self._said.get((kind, id))
        if before is None:
            if content and self._known.heard(id) and id not in self._anew:
                self._anew[id] = self._known.another(id)
            return self._marked(self._blocks(kind, id, content), said)
        texts = [block["text"] for block in content if _is_text(block)]
        text, old = "".join(texts), before.text()
        others = [block for block in content if not _is_text(block)]
        new = [block for block in others if not any(delta.same(block, each) for each in before.blocks)]
        if text.startswith(old) and len(others) - len(new) >= len(before.blocks):
            more = [{"type": "text", "text": text[len(old) :]}] if len(text) > len(old) else []
            return self._marked(self._blocks(kind, id, [*more, *new]), said)
        return self._marked([*self._rewritten(kind, id, before, text), *self._blocks(kind, id, new)], said)

    def close(self) -> None:
        """The run has ended."""
        for _, id in self._said:
            if id is not None:
                self._known.message(id)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _name(self, id: str | None) -> str | None:
        return id if id is None else self._anew.get(id, id)

    def _blocks(self, kind: str, id: str, content: Sequence[JsonObject]) -> list[e.Event]:
        out: list[e.Event] = []
        for block in content:
            chunk = {UPDATE: kind, "messageId": id, "content": block}
            events = self.block(kind, chunk)
            out += [e.Custom(name=PROTOCOL, data=delta.sound(chunk))] if events is None else events
        return out

    def _rewritten(self, kind: str, id: str, before: SaidMessage, text: str) -> list[e.Event]:
        if not before.parts:
            return self._blocks(kind, id, [{"type": "text", "text": text}] if text else [])
        out: list[e.Event] = []
        for part, pieces in before.parts.items():
            out.append(e.PartReplaced(part=part, value="" if out else delta.sound(text), origin=event_forms.SILENT))
            pieces[:] = [] if len(out) > 1 else [text]
        out[0] = replace(out[0], origin=None)
        return out

    def _ours(self, kind: str, id: str | None, events: Sequence[e.Event], block: Any = None) -> list[e.Event]:
        """The events, told of the id, after what they say is remembered."""
        said = self._said.get((kind, id))
        if said is None:
            said = self._said[kind, id] = SaidMessage()
        out: list[e.Event] = []
        for event in events:
            if type(event) is e.PartDelta:
                self.pieces = said.parts.setdefault(event.part, [])
                self.pieces.append(event.delta)
            elif isinstance(event, e.PartStarted) and event.kind == "file":
                said.blocks.append(block)
            elif isinstance(event, e.MessageStarted) and id is not None and id in self._anew:
                event = event_forms.marked(event, {"messageId": id})  # noqa: PLW2901
            out.append(event)
        return out

    def _marked(self, events: list[e.Event], said: JsonObject) -> list[e.Event] | None:
        """The events as those of one update. None if they say nothing."""
        out: list[e.Event] = []
        last = -1
        for event in events:
            if isinstance(event, _SAYING) and not (isinstance(event, e.PartStarted) and event.kind != "file"):
                last = len(out)
                event = event_forms.marked(event, {"silent": True})  # noqa: PLW2901
            out.append(event)
        if last < 0:
            return None
        whole = {
            key: value for key, value in (event_forms.beyond(out[last], ORIGIN_V2) or {}).items() if key != "silent"
        }
        out[last] = replace(
            out[last], origin={**(out[last].origin or {}), ORIGIN_V2: {**whole, "update": delta.sound(said)}}
        )
        return out


_SAYING = (e.PartDelta, e.PartReplaced, e.PartStarted, e.Custom)


def _is_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)
