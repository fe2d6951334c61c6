"""Core events to `session/update` of version 2: what one client is told of one run.

How the run began, waits and ended is `turn`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER, UpdateAssembly
from adapters.agent_client.codec.updates_out import Around, DocumentGrowth, ForeignOutput, UpdateEncoder, is_update
from adapters.agent_client.codec.v2 import tool_calls, updates
from adapters.agent_client.codec.v2.agents import speaks_v2
from adapters.agent_client.codec.v2.wire import CHUNK, UPDATE
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL
from gateway.contract import Snapshot
from gateway.core import delta
from gateway.core import events as e
from gateway.core.output import PartOf
from gateway.core.types import Agent, Json, JsonObject, Role, Run, RunStatus

_encode: Final = delta.encode
END: Final = b"}}"
_OURS: Final = (PROTOCOL, ORIGIN_V2)


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


# --- updates --------------------------------------------------------------------------------------------------------


class V2UpdateEncoder(UpdateEncoder):
    """One client's view of one run.

    agent: the run's agent; None where it is not known any more. run: its id, from which messages that have no name of
    the agent's get theirs: the same for every client, each time.

    What an agent of version 2 said is sent as it was, one of version 1 in version 2's words. Of any other see
    `V2OutputText`; its tool calls, plans and token counts are told by their own updates.
    """

    def __init__(self, agent: Agent | None, *, run: str) -> None:
        super().__init__(agent, None)
        self._run = run
        self._v2 = speaks_v2(agent)
        self._foreign: V2OutputText | None = None
        self._decided = agent is not None
        if agent is not None and PROTOCOL not in agent.extra:
            self._listen()
        # of an agent of this protocol
        self._roles: dict[str, Role] = {}
        self._ids: dict[str, str] = {}
        self._kinds: dict[str, str] = {}  # id of a message -> the kind of chunk that has it
        self._of: dict[str, tuple[str, str]] = {}  # part -> kind of chunk, message id
        self._quiet: set[str] = set()

    @property
    def says_user(self) -> bool:
        """Whether the agent says itself what the user said, as those of version 2 do; else `user` is to be sent."""
        return self._v2

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        if not self._decided and events:
            self._decide(events)
        return super().feed(events, snapshot)

    def finish(self, run: Run) -> list[bytes]:
        out: list[bytes] = []
        if self._foreign is not None:
            self._foreign.finish(run, out)
        return out

    def _event(self, event: e.Event, out: list[bytes]) -> None:
        if self._foreign is None:
            self._native(event, out)
        else:
            self._of_others(self._foreign, event, out)

    def _look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        if self._foreign is not None and self._foreign.stale:
            self._foreign.look(snapshot, out)

    # --- an agent of another protocol --------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._output = self._foreign = V2OutputText(self._agent, self._run, self._ready)
        self._assembly = UpdateAssembly(foreign=True)

    def _decide(self, events: Sequence[tuple[int, e.Event]]) -> None:
        """Find out from its events which protocol an agent spoke that is not known any more."""
        self._decided = True
        keys = {key for _, event in events for key in event.origin or ()}
        self._v2 = ORIGIN_V2 in keys
        if keys.isdisjoint(_OURS):
            self._listen()

    def _of_others(self, foreign: V2OutputText, event: e.Event, out: list[bytes]) -> None:
        match event:
            case e.PartDelta():
                foreign.grow(event, out)
            case e.MessageStarted():
                foreign.message(event)
            case e.PartStarted():
                foreign.start(event, out)
            case e.PartReplaced():
                foreign.replace(event, out)
            case e.PartEnded():
                self._ready.pop(event.part, None)
            case e.ArtifactAdded():
                foreign.artifact(event, out)
            case e.Custom():
                self._losses["custom"] += 1
            case _:
                self._other(event, None, None, out)

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
                self._other(event, v1, marks, out)
                return
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

    # --- both --------------------------------------------------------------------------------------------------------

    def _other(self, event: e.Event, v1: JsonObject | None, marks: JsonObject | None, out: list[bytes]) -> None:
        said = self._assembled(event, v1)
        if said is not None and not self._v2:
            self._losses.update(tool_calls.terminals(said))
        self._put(None if said is None else updates.to_v2(said, f"{self._run}-more"), marks, out)

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
    """A text of the gateway's own as an `agent_message`."""
    return _encode({UPDATE: "agent_message", "messageId": message_id, "content": [{"type": "text", "text": said}]})
