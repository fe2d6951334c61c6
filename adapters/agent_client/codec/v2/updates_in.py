"""`session/update` of version 2 to core events (docs: prompt-lifecycle, tool-calls, agent-plan; schema: SessionUpdate).

One decoder per run, and one `Known` per session. Every update is said in version 1's words, whose codec makes events of
it; what it says beyond them is kept in `origin` (event_forms.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.codec import event_forms, updates_in
from adapters.agent_client.codec.updates_in import OUTPUT, Chunk, RunMessages, SpokenSession, UpdateDecoder
from adapters.agent_client.codec.v2 import updates
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.tool_calls import TERMINAL as LOST_TERMINAL
from adapters.agent_client.codec.v2.tool_calls import block_to_v1
from adapters.agent_client.codec.v2.wire import (
    CALL_CHUNK,
    IDLE,
    REQUIRES_ACTION,
    RUNNING,
    STATE,
    STATES,
    TERMINAL,
    TERMINAL_CHUNK,
    UPDATE,
    USAGE,
    WHOLE,
)
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, without
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject, ThreadUpdate

_SILENT: Final = {"silent": True}
_PLAIN_STATES: Final = (RUNNING, REQUIRES_ACTION, IDLE)


# --- messages of version 2 ------------------------------------------------------------------------------------------
# A chunk is version 1's. A whole message that was not heard of is chunks of each of its blocks; one that goes on from
# what was said is a chunk of the rest; any other replaces what was said: `PartReplaced`, also of parts that have ended.
# What is cleared is the empty text. Of files that are not in the new content nothing can be said to other protocols.


class SaidMessage:
    """One message, as far as it was said in this run."""

    __slots__ = ("blocks", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}
        """Its text parts and what each said, in pieces."""
        self.blocks: list[JsonObject] = []
        """Its other blocks."""

    def text(self) -> str:
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

    def text(self, kind: str, id: str | None, text: str) -> list[e.Event]:
        """Events of a chunk that is text and nothing more."""
        return self._ours(kind, id, self._messages.text(kind, self._name(id), text))

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
        saying = [at for at, event in enumerate(events) if _says(event)]
        if not saying:
            return None
        out = list(events)
        for at in saying:
            marks = {"update": delta.sound(said)} if at == saying[-1] else _SILENT
            out[at] = event_forms.marked(out[at], marks)
        return out


def _says(event: e.Event) -> bool:
    if isinstance(event, e.PartStarted):
        return event.kind == "file"
    return isinstance(event, e.PartDelta | e.PartReplaced | e.Custom)


def _is_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


# --- updates --------------------------------------------------------------------------------------------------------


class V2UpdateDecoder(UpdateDecoder):
    """One run's updates: `feed`, `more`, `begun`, `title` and `close` as version 1's.

    known: what the session has said before; of a run without one nothing was.

    A `state_update` is no event, unless it says more than running or requires_action (`turn.ended` reads an idle one).
    What version 1 has no word for is a Custom named ORIGIN_V2.
    """

    __slots__ = ("_known", "_texts")

    def __init__(self, known: SessionMemory | None = None) -> None:
        super().__init__()
        self._known = known if known is not None else SessionMemory()
        self._texts = V2RunMessages(self._messages, self._known)

    def more(self, chunk: Chunk) -> e.PartDelta | None:
        if chunk.kind == self._kind and chunk.message_id == self._id:
            self._texts.pieces.append(chunk.content.text)
            return e.PartDelta(part=self._part, delta=chunk.content.text)
        return None

    def _text(self, kind: str, id: str | None, text: str) -> list[e.Event]:
        return self._texts.text(kind, id, text)

    def close(self, *, failed: bool = False) -> list[e.Event]:
        out: list[e.Event] = []
        for said in self._known.owed():
            out += self._beside(said)
        if lost := [LOST_TERMINAL] * self._known.unsaid():
            out.append(event_forms.marked(_own({UPDATE: TERMINAL}), {**_SILENT, "lost": lost}))
        self._texts.close()
        self._known.settle()
        return [*out, *super().close(failed=failed)]

    def _slowly(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        said = updates_in.read(update)
        kind = said[UPDATE]
        self._kind = ""
        if kind in STATES:
            return [*updates.thread_updates(said)]
        return [*self._events(kind, said)]

    def _events(self, kind: str, said: JsonObject) -> list[e.Event]:
        if kind in event_forms.CHUNKS:
            events = self._texts.block(kind, said)
            return [updates_in.own(said)] if events is None else events
        if kind in WHOLE:
            if not isinstance(said.get("messageId"), str):
                return self._nameless(said)
            events = self._texts.whole(said)
            return [_own(said)] if events is None else events
        said = delta.sound(said)
        if kind == USAGE and event_forms.is_usage(said):
            return [e.UsageReported(detail=said)]
        if kind == STATE and said.get("state") in _PLAIN_STATES and (said.keys() <= {UPDATE, "state", "stopReason"}):
            return []
        told, lost = self._known.told(said, self._open)
        if told is None or kind in (TERMINAL, TERMINAL_CHUNK):
            own = event_forms.marked(_own(said), {"lost": lost}) if lost else _own(said)
            return [own] if told is None else [own, *self._beside(told)]
        return self._said(told, said, lost)

    def _said(self, told: JsonObject, said: JsonObject, lost: list[str]) -> list[e.Event]:
        """The events of what is `told` of a call or a plan in version 1's words, for what was `said`."""
        events = self._listed(told) or [e.Custom(name=PROTOCOL, data=told)]
        whole = said[UPDATE] == CALL_CHUNK  # its call's content is told anew: nothing of it is the difference
        marks = {"update": said} if whole else event_forms.difference(updates.to_v2(told, ""), said)
        marks |= {"lost": lost} if lost else {}
        return [*events[:-1], event_forms.marked(events[-1], marks) if marks else events[-1]]

    def _open(self, call: str) -> bool:
        """Whether the run knows a call that has not ended."""
        return self._tools.said(call) is not None

    def _nameless(self, said: JsonObject) -> list[e.Event]:
        """A whole message without the id that it has to have: a message by itself, named as chunks without one are."""
        out = self._messages.tool_called()
        for chunk in _chunks(said):
            out += self._events(chunk[UPDATE], chunk)
        return [*out, *self._messages.tool_called()]

    def _beside(self, told: JsonObject) -> list[e.Event]:
        """Events of an update to a call that only version 1 clients are sent."""
        events = self._tools.update(told) if self._open(told["toolCallId"]) else None
        return [event_forms.marked(event, _SILENT) for event in events or [e.Custom(name=PROTOCOL, data=told)]]


class V2SpokenSession(SpokenSession):
    """See `SpokenSession`: what the agent has said before in the session, `known`, is remembered."""

    def __init__(self, known: SessionMemory | None = None) -> None:
        self._known = known or SessionMemory()

    def decoder(self) -> V2UpdateDecoder:
        return V2UpdateDecoder(self._known)

    def stray(self, update: Raw | bytes) -> Sequence[ThreadUpdate]:
        said: JsonObject = delta.sound(updates_in.read(update))
        kind = said[UPDATE]
        if kind in STATES:
            return updates.thread_updates(said)
        if kind == STATE:  # of work that is no run's: only clients of this version have a word for it
            return [ThreadUpdate(protocol=ORIGIN_V2, kind=STATE, data=said)]
        if kind in event_forms.CHUNKS or kind in WHOLE:
            return _spoken(kind, said, self._known)
        if kind == USAGE:
            return [ThreadUpdate(protocol=PROTOCOL, kind=kind, data=said)]
        told, _ = self._known.told(said)
        if told is None:
            return [ThreadUpdate(protocol=ORIGIN_V2, kind=OUTPUT, data=said, kept=True)]
        if kind in (TERMINAL, TERMINAL_CHUNK):
            return [ThreadUpdate(protocol=PROTOCOL, kind=OUTPUT, data={**told, ORIGIN_V2: {"update": said}}, kept=True)]
        return [updates.noted(OUTPUT, told, updates.to_v2(told, ""), said, kept=True)]

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        data = update.data
        if not update.kept or not isinstance(data, dict):
            return None
        said = without(data, ORIGIN_V2)
        own = {**data.get(ORIGIN_V2, {}), "aside": True}
        return event_forms.marked(e.Custom(name=update.protocol, data=said), own)


def _chunks(said: JsonObject) -> list[JsonObject]:
    """A whole message that has no id as chunks. Raises AgentBroken where it says nothing."""
    content = said.get("content")
    if not isinstance(content, list):
        raise AgentBroken(f"{said[UPDATE]} without a messageId")
    return [{UPDATE: WHOLE[said[UPDATE]], "content": block} for block in content]


def _spoken(kind: str, said: JsonObject, known: SessionMemory) -> list[ThreadUpdate]:
    """A message, or a piece of one, as pieces for version 1; the first of them has what was said."""
    id: Any = said.get("messageId")
    whole = kind in WHOLE
    if whole and not isinstance(id, str):
        return [each for chunk in _chunks(said) for each in _spoken(chunk[UPDATE], chunk, known)]
    content = said.get("content") if whole else [said.get("content")]
    content = content if isinstance(content, list) else []
    blocks = [block for block in map(block_to_v1, content) if block is not None]
    name = id
    if isinstance(id, str):
        if whole and content and known.heard(id):
            name = known.another(id)
        known.message(id)
    if not blocks:
        return [ThreadUpdate(protocol=ORIGIN_V2, kind=OUTPUT, data=said, kept=True)]
    out = []
    for at, block in enumerate(blocks):
        chunk: JsonObject = {UPDATE: WHOLE.get(kind, kind), "content": block}
        if not whole:
            chunk = {**said, "content": block}
        elif isinstance(name, str):
            chunk["messageId"] = name
        if not whole and block is said["content"]:
            out.append(ThreadUpdate(protocol=PROTOCOL, kind=OUTPUT, data=chunk, kept=True))
            continue
        marks = {"silent": True} if at else {"update": said}
        out.append(ThreadUpdate(protocol=PROTOCOL, kind=OUTPUT, data={**chunk, ORIGIN_V2: marks}, kept=True))
    return out


def _own(said: JsonObject) -> e.Custom:
    return e.Custom(name=ORIGIN_V2, data=delta.sound(said))
