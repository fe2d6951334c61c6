"""Core events to `session/update` of version 2: what one client is told of one run.

How the run began, waits and ended is `turn`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER
from adapters.agent_client.codec.updates_out import Around, DocumentGrowth, ForeignOutput, UpdateEncoder, is_update
from adapters.agent_client.codec.v2 import tool_calls, updates
from adapters.agent_client.codec.v2.wire import CHUNK, UPDATE
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Json, JsonObject, Role, Run

_encode: Final = delta.encode
END: Final = b"}}"


# --- the output of an agent of another protocol ---------------------------------------------------------------------
# Messages keep their names. Thoughts are messages of their own beside them. A rewritten message is told again as a
# whole (an upsert).


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
        found = self.parts.setdefault(part, [])
        assert isinstance(found, list)
        return found

    def text(self, part: str) -> str:
        pieces = self.pieces(part)
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0] if pieces else ""

    def say(self, text: str, out: list[bytes]) -> None:
        """Tell more of it, of one that is no more than a text."""
        if text:
            self.pieces("").append(text)
            out.append(self.start + _encode(text) + END)

    def whole(self) -> bytes:
        blocks = []
        for part, value in self.parts.items():
            if isinstance(value, dict):
                blocks.append(value)
            elif text := self.text(part):
                blocks.append(content.block_of(text))
        return _encode({UPDATE: CHUNK[self.kind], "messageId": self.id, "content": blocks})


class V2OutputText(ForeignOutput):
    """See `ForeignOutput`. `run` names its messages."""

    def __init__(self, agent: Agent | None, losses: dict[str, int], ready: dict[str, Around], run: str) -> None:
        super().__init__(agent, losses, ready)
        self._run = run
        self._messages: dict[tuple[str, str], _Message] = {}
        self._of: dict[str, _Message] = {}  # text and thought part -> its message
        self._speech: _Message | None = None  # what the document's text is told as
        self._count = 0

    @property
    def told(self) -> set[str]:
        """The ids of the messages that were told."""
        return {each.id for each in (*self._messages.values(), self._speech) if each is not None and each.parts}

    def _name(self, what: str) -> str:
        return f"{self._run}-{what}"

    def _message(self, message: str, kind: str) -> _Message:
        found = self._messages.get((message, kind))
        if found is None:
            name = self._name(message) if kind == MESSAGE else f"{self._name(message)}-thought"
            found = self._messages[message, kind] = _Message(name, kind)
        return found

    def _text(self, event: e.PartStarted) -> None:
        self._of[event.part] = self._message(event.message, self._kinds[event.part])

    def _file(self, event: e.PartStarted, block: JsonObject, out: list[bytes]) -> None:
        message = self._message(event.message, MESSAGE)
        self._ready.pop(next(reversed(message.parts), ""), None)
        message.parts[event.part] = block
        out.append(_encode(event_forms.chunk(MESSAGE, block, message.id)))

    def _grow(self, event: e.PartDelta, out: list[bytes]) -> None:
        message = self._of[event.part]
        if not event.delta:
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

    def _replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        message = self._of[event.part]
        before = message.text(event.part) if event.part in message.parts else ""
        if event.value.startswith(before):
            self.grow(e.PartDelta(part=event.part, delta=event.value[len(before) :]), out)
        else:
            message.pieces(event.part)[:] = [event.value]
            out.append(message.whole())

    # --- the text of a data part -------------------------------------------------------------------------------------

    def _tell(self, said: DocumentGrowth | str, out: list[bytes]) -> None:
        if not self.stale:
            super()._tell(said, out)

    def _say(self, text: str, out: list[bytes]) -> None:
        if text:
            self._newest().say(text, out)

    def _newest(self) -> _Message:
        if self._speech is None:
            self._begin()
        assert self._speech is not None
        return self._speech

    def _begin(self) -> None:
        self._count += 1
        name = self._name(self._speaking)
        self._speech = _Message(name if self._count == 1 else f"{name}-{self._count}", MESSAGE)

    def _catch_up(self, text: str, out: list[bytes]) -> None:
        self.stale = False
        message = self._newest()
        told = message.text("")
        if text.startswith(told):
            message.say(text[len(told) :], out)
        else:
            message.pieces("")[:] = [text]
            out.append(message.whole())

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self, run: Run, document: Json, text: str, out: list[bytes]) -> None:
        if self._parts.data is None:
            self._correct(text, out)
        elif not self._look(document, out) and self._speech is None:
            self._say(text, out)

    def _say_document(self, text: str, out: list[bytes]) -> None:
        _Message(self._name("output"), MESSAGE).say(text, out)

    def _correct(self, text: str, out: list[bytes]) -> None:
        told = "".join(gap + self._of[part].text(part) for part, gap in self._parts.spoken.items())
        part = self._parts.newest
        if told == text:
            return
        if part is None:
            self._say_document(text, out)
        elif text.startswith(told):
            self.grow(e.PartDelta(part=part, delta=text[len(told) :]), out)
        else:
            last = self._of[part]
            others = dict.fromkeys(self._of[each] for each in self._parts.spoken if self._of[each] is not last)
            for message in (*others, last):
                for each, value in message.parts.items():
                    if isinstance(value, list):
                        value[:] = [text] if each == part else []
                out.append(message.whole())


# --- updates --------------------------------------------------------------------------------------------------------


class V2UpdateEncoder(UpdateEncoder):
    """See `UpdateEncoder`. What an agent of version 1 said is told in version 2's words.

    run: its id, from which messages that have no name of the agent's get theirs: the same for every client, each time.
    """

    def __init__(self, agent: Agent | None, *, run: str) -> None:
        self._run = run
        super().__init__(agent)
        self._roles: dict[str, Role] = {}
        self._ids: dict[str, str] = {}
        self._kinds: dict[str, str] = {}  # id of a message -> the kind of chunk that has it
        self._of: dict[str, tuple[str, str]] = {}  # part -> kind of chunk, message id
        self._quiet: set[str] = set()

    @property
    def says_user(self) -> bool:
        """Whether the agent says itself what the user said, as those of version 2 do; else `user` is to be sent."""
        return self._v2

    @property
    def told(self) -> set[str]:
        """The ids of the messages that were told."""
        return self._foreign.told if isinstance(self._foreign, V2OutputText) else {id for _, id in self._of.values()}

    def _listener(self) -> ForeignOutput:
        return V2OutputText(self._agent, self._losses, self._ready, self._run)

    def _words(self, said: JsonObject) -> JsonObject:
        if not self._v2:
            for name in tool_calls.terminals(said):
                self._losses[name] += 1
        return updates.to_v2(said, f"{self._run}-more")

    # --- an agent of this protocol -----------------------------------------------------------------------------------

    def _native(self, event: e.Event, out: list[bytes]) -> None:
        marks = event_forms.beyond(event, ORIGIN_V2) if self._v2 else None
        if marks is not None and ("update" in marks or marks.get("silent")):
            self._assembly.drop()
            self._put(marks.get("update"), None, out)
            return
        v1 = event_forms.beyond(event)
        match event:
            case e.MessageStarted():
                self._roles[event.message] = event.role
                named = {**(v1 or {}), **(marks or {})}.get("messageId")
                self._ids[event.message] = named if isinstance(named, str) else f"{self._run}-{event.message}"
                return
            case e.PartEnded():
                self._ready.pop(event.part, None)
                return
            case e.PartStarted(kind="file"):
                _, id = self._part(event)
                said: JsonObject | None = event_forms.chunk(MESSAGE, event.value, id)
                said = {**event_forms.restored(said or {}, v1 or {}), "messageId": id}
            case e.PartStarted():
                kind, id = self._of[event.part] = self._part(event)
                if kind == USER and not self._v2:
                    self._quiet.add(event.part)
                else:
                    self._ready[event.part] = (start_of(kind, id), END, None)
                if event.value:
                    self._native(e.PartDelta(part=event.part, delta=event.value), out)
                return
            case e.PartDelta():
                if event.part in self._quiet:
                    return
                kind, id = self._of.get(event.part, (MESSAGE, f"{self._run}-more"))
                said = event_forms.chunk(kind, {"type": "text", "text": event.delta}, id)
                said = {**event_forms.restored(said, v1 or {}), "messageId": id}
            case e.PartReplaced():
                said = self._replaced(event, marks)
            case e.Custom():
                said = self._custom(event)
            case _:
                said = self._assembled(event, v1)
                said = None if said is None else self._words(said)
        self._put(said, marks, out)

    def _part(self, event: e.PartStarted) -> tuple[str, str]:
        """The kind of chunk that a part's are, and the id of the message.

        Words and thoughts are different messages here; in version 1 they may have one id.
        """
        role = self._roles.get(event.message, Role.ASSISTANT)
        kind = THOUGHT if event.kind == "thought" else USER if role is Role.USER else MESSAGE
        id = self._ids.get(event.message, f"{self._run}-{event.message}")
        if not self._v2 and self._kinds.setdefault(id, kind) != kind:
            id = f"{id}-{CHUNK[kind].removeprefix('agent_')}"
        return kind, id

    def _replaced(self, event: e.PartReplaced, marks: JsonObject | None) -> JsonObject | None:
        """A part is rewritten, and not by an update of the agent's: by the message that consists of it."""
        if marks is not None or event.part in self._quiet:
            return {}
        kind, id = self._of.get(event.part, (MESSAGE, f"{self._run}-more"))
        alone = [each for each, of in self._of.items() if of == (kind, id)] == [event.part]
        if not alone or not isinstance(event.value, str):
            self._losses["rewrite"] += 1
            return None
        blocks = [{"type": "text", "text": event.value}] if event.value else []
        return {UPDATE: CHUNK[kind], "messageId": id, "content": blocks}

    def _custom(self, event: e.Custom) -> JsonObject | None:
        data = event.data
        if event.name == ORIGIN_V2 and self._v2 and is_update(data):
            own: JsonObject = data
            return own
        if event.name == PROTOCOL and is_update(data):
            if data[UPDATE] == USER and not self._v2:  # what the agent repeats of the prompt
                return None
            return updates.to_v2(data, f"{self._run}-more")
        self._losses["custom"] += 1
        return None

    def _put(self, said: JsonObject | None, marks: JsonObject | None, out: list[bytes]) -> None:
        """An update, as its marks say that the agent said it."""
        if said and marks is not None:
            said = event_forms.restored(said, marks)
        if said:
            out.append(_encode(said))


def user(blocks: Iterable[JsonObject], message_id: str) -> bytes:
    """A prompt as `user_message`: where it stands in the conversation."""
    return _encode({UPDATE: "user_message", "messageId": message_id, "content": list(blocks)})


def text(said: str, message_id: str) -> bytes:
    return _encode({UPDATE: "agent_message", "messageId": message_id, "content": [{"type": "text", "text": said}]})
