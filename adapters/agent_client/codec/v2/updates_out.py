"""Core events to `session/update` of version 2: what one client is told of one run.

How the run began, waits and ended is `turn`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, USER
from adapters.agent_client.codec.updates_out import Around, DocumentGrowth, ForeignOutput, UpdateEncoder
from adapters.agent_client.codec.v2 import tool_calls, updates
from adapters.agent_client.codec.v2.wire import CHUNK, UPDATE
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Json, JsonObject, Role, Run

_encode: Final = delta.encode
END: Final = b"}}"


class MessageNames:
    """The names of the messages of one run that its agent has not named itself: the same for all clients, each time.

    Clients of version 2 put what they are told of a message where that began, however much came in between. So such a
    message goes on as another after each answer to a question, behind which it stands then.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._answers = 0
        self._told: dict[str, list[str]] = {}  # message -> the names that it was told by

    def of(self, what: str) -> str:
        return f"{self._run}-{what}"

    def answered(self) -> None:
        self._answers += 1

    def now(self, name: str) -> str:
        """The name by which more of a message is told."""
        now = f"{name}-{self._answers}" if self._answers and name.startswith(self.of("")) else name
        told = self._told.setdefault(name, [])
        if now not in told:
            told.append(now)
        return now

    def whole(self, kind: str, name: str, content: list[JsonObject]) -> list[bytes]:
        """The updates that rewrite a message: all of it stands where it began."""
        places = self._told.get(name) or [name]
        return [
            _encode({UPDATE: CHUNK[kind], "messageId": place, "content": content if place is places[0] else []})
            for place in places
        ]


# --- the output of an agent of another protocol ---------------------------------------------------------------------
# Messages keep their names. Thoughts are messages of their own beside them. A rewritten message is told again as a
# whole (an upsert).


def start_of(kind: str, message_id: str) -> bytes:
    """A chunk of text up to the text itself; END is what comes after."""
    named = b'","messageId":' + _encode(message_id)
    return b'{"sessionUpdate":"' + kind.encode() + named + b',"content":{"type":"text","text":'


class _Message:
    """One message as it was told, part by part: pieces of text, or a block."""

    __slots__ = ("_names", "id", "kind", "parts")

    def __init__(self, names: MessageNames, id: str, kind: str) -> None:
        self._names = names
        self.id = id
        self.kind = kind
        self.parts: dict[str, list[str] | JsonObject] = {}

    @property
    def start(self) -> bytes:
        return start_of(self.kind, self._names.now(self.id))

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

    def whole(self) -> list[bytes]:
        blocks = []
        for part, value in self.parts.items():
            if isinstance(value, dict):
                blocks.append(value)
            elif text := self.text(part):
                blocks.append(content.block_of(text))
        return self._names.whole(self.kind, self.id, blocks)


class V2OutputText(ForeignOutput):
    """See `ForeignOutput`."""

    def __init__(
        self, agent: Agent | None, losses: dict[str, int], ready: dict[str, Around], names: MessageNames
    ) -> None:
        super().__init__(agent, losses, ready)
        self._names = names
        self._messages: dict[tuple[str, str], _Message] = {}
        self._of: dict[str, _Message] = {}  # text and thought part -> its message
        self._speech: _Message | None = None  # what the document's text is told as
        self._count = 0

    def _name(self, what: str) -> str:
        return self._names.now(self._names.of(what))

    def _message(self, message: str, kind: str) -> _Message:
        found = self._messages.get((message, kind))
        if found is None:
            name = self._names.of(message if kind == MESSAGE else f"{message}-thought")
            found = self._messages[message, kind] = _Message(self._names, name, kind)
        return found

    def _text(self, event: e.PartStarted) -> None:
        self._of[event.part] = self._message(event.message, self._kinds[event.part])

    def _file(self, event: e.PartStarted, block: JsonObject, out: list[bytes]) -> None:
        message = self._message(event.message, MESSAGE)
        self._ready.pop(next(reversed(message.parts), ""), None)
        message.parts[event.part] = block
        out.append(_encode(event_forms.chunk(MESSAGE, block, self._names.now(message.id))))

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
            out += message.whole()
            return
        start = message.start
        out.append(start + _encode(event.delta) + END)
        self._ready.pop(newest, None)
        self._ready[event.part] = (start, END, pieces.append)

    def _replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        message = self._of[event.part]
        before = message.text(event.part) if event.part in message.parts else ""
        if event.value.startswith(before):
            self.grow(e.PartDelta(part=event.part, delta=event.value[len(before) :]), out)
        else:
            message.pieces(event.part)[:] = [event.value]
            out += message.whole()

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
        name = self._names.of(self._speaking)
        self._speech = _Message(self._names, name if self._count == 1 else f"{name}-{self._count}", MESSAGE)

    def _catch_up(self, text: str, out: list[bytes]) -> None:
        self.stale = False
        message = self._newest()
        told = message.text("")
        if text.startswith(told):
            message.say(text[len(told) :], out)
        else:
            message.pieces("")[:] = [text]
            out += message.whole()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self, run: Run, document: Json, text: str, out: list[bytes]) -> None:
        if self._parts.data is None:
            self._correct(text, out)
        elif not self._look(document, out) and self._speech is None:
            self._say(text, out)

    def _say_document(self, text: str, out: list[bytes]) -> None:
        _Message(self._names, self._names.of("output"), MESSAGE).say(text, out)

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
                out += message.whole()


# --- updates --------------------------------------------------------------------------------------------------------


class V2UpdateEncoder(UpdateEncoder):
    """See `UpdateEncoder`. What an agent of version 1 said is told in version 2's words.

    run: its id, from which messages that have no name of the agent's get theirs: the same for every client, each time.
    """

    def __init__(self, agent: Agent | None, *, run: str) -> None:
        self._names = MessageNames(run)
        super().__init__(agent)
        self._kinds: dict[str, str] = {}  # id of a message -> the kind of chunk that has it

    @property
    def says_user(self) -> bool:
        """Whether the agent says itself what the user said, as those of version 2 do; else `user` is to be sent."""
        return self._v2

    def answered(self) -> None:
        """A question of the run has been answered. An agent of version 2 names its messages itself."""
        if not self._v2:
            self._names.answered()
            native = [part for part in self._ready if part in self._of]
            self._ready.clear()  # a `ForeignOutput` fills it again
            self._ready |= {part: self._around(*self._of[part]) for part in native}

    def _listener(self) -> ForeignOutput:
        return V2OutputText(self._agent, self._losses, self._ready, self._names)

    def _say(self, event: e.Event, said: JsonObject, out: list[bytes]) -> None:
        if not self._v2:
            for name in tool_calls.terminals(said):
                self._losses[name] += 1
        unnamed = self._now(None) if isinstance(event, e.Custom) else ""  # all other chunks have an id by now
        v2 = updates.to_v2(said, unnamed)
        marks = self._marks(event)
        out.append(_encode(event_forms.restored(v2, marks) if marks else v2))

    def _marks(self, event: e.Event) -> JsonObject:
        return (event_forms.beyond(event, ORIGIN_V2) or {}) if self._v2 else {}

    # --- an agent of this protocol -----------------------------------------------------------------------------------

    def _native(self, event: e.Event, out: list[bytes]) -> None:
        marks = self._marks(event)
        if "update" in marks or marks.get("silent"):
            self._assembly.drop()
            if said := marks.get("update"):
                out.append(_encode(said))
            return
        super()._native(event, out)
        if isinstance(event, e.MessageStarted) and "messageId" in marks:
            self._messages[event.message] = (event.role, marks["messageId"])

    def _known_as(self, message: str, role: Role, kind: str, id: Any) -> str:
        """Words and thoughts are different messages here; in version 1 they may have one id."""
        name = id if isinstance(id, str) else self._names.of(message)
        if not self._v2 and self._kinds.setdefault(name, kind) != kind:
            name = f"{name}-{CHUNK[kind].removeprefix('agent_')}"
        return name

    def _is_known(self, id: str | None) -> bool:
        return not self._v2

    def _now(self, id: str | None) -> str:
        return self._names.now(self._names.of("more") if id is None else id)

    def _chunk(self, kind: str, block: JsonObject, id: str | None, beyond: JsonObject | None) -> JsonObject:
        return {**super()._chunk(kind, block, id, beyond), "messageId": self._now(id)}

    def _around(self, kind: str, id: str | None) -> Around:
        return start_of(kind, self._now(id)), END, None

    def _rewrite(self, event: e.PartReplaced, out: list[bytes]) -> None:
        """By the message that consists of the part."""
        kind, id = self._of.get(event.part, (MESSAGE, None))
        alone = [each for each, of in self._of.items() if of == (kind, id)] == [event.part]
        if alone and id is not None and isinstance(event.value, str):
            out += self._names.whole(kind, id, [content.block_of(event.value)] if event.value else [])
        else:
            self._losses["rewrite"] += 1

    def _custom(self, event: e.Custom, out: list[bytes]) -> None:
        data, kind = event.data, event_forms.kind_of(event.data)
        if self._v2 and event.name == ORIGIN_V2 and kind is not None:
            out.append(_encode(data))
        elif event.name != PROTOCOL or kind is None:
            self._losses["custom"] += 1
        elif self._v2 or kind != USER:  # which an agent of version 1 repeats of the prompt
            self._say(event, data, out)


def user(blocks: Iterable[JsonObject], message_id: str) -> bytes:
    """A prompt as `user_message`: where it stands in the conversation."""
    return _encode({UPDATE: "user_message", "messageId": message_id, "content": list(blocks)})


def text(said: str, message_id: str) -> bytes:
    return _encode({UPDATE: "agent_message", "messageId": message_id, "content": [{"type": "text", "text": said}]})
