"""`session/update` to core events: a decoder for each run, here of version 1 (v2/updates_in.py has what differs).

Called by the outbound half with the `update` of each notification, in order. `origin` of the events is this codec's own
(see event_forms.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, USER
from adapters.agent_client.wire import PROTOCOL, without
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject, Role, ThreadUpdate
from gateway.wire import jsonrpc

OUTPUT: Final = "output"
"""Kind of a ThreadUpdate that is said content outside of a run."""
_CONTENT: Final = (*event_forms.CHUNKS, "tool_call", "tool_call_update")


# --- chunks to messages and parts -----------------------------------------------------------------------------------


class _Open(Struct, eq=False):
    """A message that is not over. `part` is its newest part and `kind` the chunks that go there."""

    name: str
    id: str | None
    role: Role
    kind: str = ""
    part: str | None = None
    held: str = ""

    def whole(self, said: str) -> str:
        """Text without half characters: half of one at its end waits for the next text of the message."""
        if self.held or not said.isascii():
            said, self.held = delta.stitch(self.held, said)
        return said

    def begin(self, part: str, kind: str) -> None:
        self.part, self.kind = part, kind

    def end_part(self) -> list[e.Event]:
        """Its part ends, if one is open."""
        part = self.part
        if part is None:
            return []
        ended = [*self.lost(), e.PartEnded(part=part)]
        self.part = None
        return ended

    def lost(self) -> list[e.Event]:
        """What stands for half a character whose other half does not come any more."""
        held, self.held = self.held, ""
        return [e.PartDelta(part=self.part, delta=delta.REPLACEMENT)] if held and self.part is not None else []


class RunMessages(Struct, eq=False):
    """The messages of one run. The agent's words, its thoughts and the user's are three streams.

    In a stream, chunks with the same id are one message, and another id (or none) begins the next; words and thoughts
    with the same id are one message of two parts. Without ids words and thoughts go on the same message until the other
    role speaks or a tool call starts.
    """

    part: str = ""
    """Where the last text went."""
    _last: _Open | None = None
    _streams: dict[str, _Open] = {}
    _names: set[str] = set()
    _parts: int = 0
    _count: int = 0

    @property
    def holding(self) -> bool:
        """Whether the last text ended in half a character, which waits for the other half."""
        return self._last is not None and bool(self._last.held)

    def text(self, kind: str, id: str | None, said: str) -> list[e.Event]:
        message, out = self._turn_to(kind, id)
        return [*out, e.PartDelta(part=self.part, delta=message.whole(said))]

    def chunk(self, kind: str, said: JsonObject) -> list[e.Event] | None:
        """Any chunk; None if core has no event for it."""
        content, id = said.get("content"), said.get("messageId")
        id = id if isinstance(id, str) else None
        if not isinstance(content, dict):
            return None
        if content.get("type") == "text" and isinstance(content.get("text"), str):
            message, out = self._turn_to(kind, id)
            text = message.whole(content["text"])
            if text != content["text"]:
                said = {**said, "content": {**content, "text": text}}
            said = delta.sound(said)
            form = event_forms.chunk(kind, {"type": "text", "text": text}, message.id)
            marks = event_forms.difference(form, said)
            grown = e.PartDelta(part=self.part, delta=text)
            return [*out, event_forms.marked(grown, marks, PROTOCOL) if marks else grown]
        if kind != MESSAGE or not isinstance(content.get("type"), str):
            return None
        message, out = self._turn_to(kind, id, file=True)
        said = delta.sound(said)
        marks = event_forms.difference(event_forms.chunk(kind, said["content"], message.id), said)
        part = self._new_part()
        file = e.PartStarted(part=part, message=message.name, kind="file", value=said["content"])
        file = event_forms.marked(file, marks, PROTOCOL) if marks else file
        return [*out, file, e.PartEnded(part=part)]

    def tool_called(self) -> list[e.Event]:
        """A tool call starts: what is said after it is a new message, unless its id says otherwise."""
        return self._end([message for message in self._now() if message.id is None])

    def close(self) -> list[e.Event]:
        """The run ends, and with it what is open."""
        return [event for message in self._streams.values() for event in message.lost()]

    def _now(self) -> list[_Open]:
        return list(dict.fromkeys(self._streams.values()))

    def _turn_to(self, kind: str, id: str | None, *, file: bool = False) -> tuple[_Open, list[e.Event]]:
        """The message that a chunk goes on, and what has to be said first. A text has its part then."""
        out: list[e.Event] = []
        message = self._streams.get(kind)
        if message is None or message.id != id:
            role = Role.USER if kind == USER else Role.ASSISTANT
            before, message = message, None
            if id is None and self._streams:
                out += self._end([other for other in self._now() if other.id is None and other.role is not role])
            if self._streams:
                message = next((one for one in self._now() if one.id == id and one.role is role), None)
            if message is None:
                message = _Open(self._new_name(id), id, role)
                origin = None if id is None else {PROTOCOL: {"messageId": id}}
                out.append(e.MessageStarted(message=message.name, role=role, origin=origin))
            self._streams[kind] = message
            if before is not None and all(one is not before for one in self._streams.values()):
                out[:0] = self._ended(before)
        if file:
            out += message.end_part()
        elif message.kind != kind or message.part is None:
            out += message.end_part()
            part = self._new_part()
            message.begin(part, kind)
            form = "text" if kind != event_forms.THOUGHT else "thought"
            out.append(e.PartStarted(part=part, message=message.name, kind=form))
        self.part, self._last = message.part or "", message
        return message, out

    def _end(self, messages: list[_Open]) -> list[e.Event]:
        self._streams = {kind: one for kind, one in self._streams.items() if one not in messages}
        return [event for message in messages for event in self._ended(message)]

    def _ended(self, message: _Open) -> list[e.Event]:
        return [*message.end_part(), e.MessageEnded(message=message.name)]

    def _new_part(self) -> str:
        self._parts += 1
        return f"p{self._parts}"

    def _new_name(self, id: str | None) -> str:
        self._count += 1
        name = id or f"m{self._count}"
        while name in self._names:
            name = f"{id or 'm'}-{self._count}"
            self._count += 1
        self._names.add(name)
        return name


# --- tool calls -----------------------------------------------------------------------------------------------------


_ASKED: Final = ("title", "rawInput", "content")
"""What a request for permission may say of its call that core has a word for."""


class ToolCalls(Struct, eq=False):
    """The tool calls of one run. What they return is None where core has no event for it.

    Agents reuse ids within a run: an id that is started again after it ended is a new call. They also start a call
    that is running already, update one that never started, and one that has ended.
    """

    _open: dict[str, str] = {}
    _names: set[str] = set()
    _ended: set[str] = set()
    _said: dict[str, JsonObject] = {}

    def call(self, said: JsonObject) -> list[e.Event] | None:
        id = said.get("toolCallId")
        if not isinstance(id, str):
            return None
        if id in self._open:
            return event_forms.joined(self._going_on(id, said), said)
        return self._start(id, said)

    def update(self, said: JsonObject) -> list[e.Event] | None:
        id = said.get("toolCallId")
        if not isinstance(id, str) or (id in self._ended and id not in self._open):
            return None
        if id not in self._open:
            return self._start(id, said)
        return event_forms.joined(self._going_on(id, said), said)

    def said(self, id: str) -> JsonObject | None:
        return self._said.get(self._open.get(id, ""))

    def asked(self, said: JsonObject, *, told: bool) -> list[e.Event]:
        id = str(said.get("toolCallId"))
        known = self.said(id)
        if known is None:
            return []
        news = {key: said[key] for key in _ASKED if said.get(key) and said[key] != known.get(key)}
        return [replace(one, origin=None if told else event_forms.SILENT) for one in self._going_on(id, news) if news]

    def close(self, failed: bool) -> list[e.Event]:
        """The end of the run, of which the agent says nothing call by call."""
        if not self._open:
            return []
        left, self._open = list(self._open.values()), {}
        return [e.ToolCallEnded(call=name, failed=failed, origin=event_forms.SILENT) for name in left]

    def _start(self, id: str, said: JsonObject) -> list[e.Event]:
        name, count = id, 1
        while name in self._names:
            count += 1
            name = f"{id}#{count}"
        self._names.add(name)
        self._open[id] = name
        title, kind = said.get("title"), said.get("kind")
        title = title if isinstance(title, str) and title else id
        self._said[name] = {"title": title, "rawInput": said.get("rawInput")}
        started = e.ToolCallStarted(
            call=name,
            name=event_forms.named(said),
            title=title,
            kind=kind if isinstance(kind, str) else "other",
            input=said.get("rawInput"),
        )
        more = said.get("content") or said.get("rawOutput") is not None or said.get("status") in event_forms.FINAL
        following = self._going_on(id, without(said, "title", "rawInput")) if more else []
        return event_forms.joined([started, *following], said)

    def _going_on(self, id: str, said: JsonObject) -> list[e.Event]:
        name = self._open[id]
        status, title, content = said.get("status"), said.get("title"), said.get("content")
        final = status in event_forms.FINAL
        updated = e.ToolCallUpdated(
            call=name,
            status=status if isinstance(status, str) and not final else None,
            title=title if isinstance(title, str) else None,
            input=said.get("rawInput"),
            content=content if isinstance(content, list) and content else None,
        )
        if not final:
            news = {"title": updated.title, "rawInput": updated.input, "content": updated.content}
            self._said[name] |= {key: value for key, value in news.items() if value is not None}
            return [updated]
        del self._open[id]
        del self._said[name]
        self._ended.add(id)
        ended = e.ToolCallEnded(call=name, failed=status == "failed", output=said.get("rawOutput"))
        more = (updated.title, updated.input, updated.content)
        return [ended] if more == (None, None, None) else [updated, ended]


# --- updates --------------------------------------------------------------------------------------------------------


class _Text(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """Nearly every update: text, and not a key more. What is refused here is looked at again, slowly."""

    kind: Literal["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"] = msgspec.field(
        name=event_forms.KEY
    )
    content: _Text
    message_id: str | UnsetType = msgspec.field(default=UNSET, name="messageId")


_chunk = msgspec.json.Decoder(Chunk).decode


class UpdateDecoder:
    """One run's updates. Events are for `RunContext.emit`, ThreadUpdates for `RunContext.note`, in the order given.

    Messages: chunks with the same `messageId` are one; without ids a message ends where another role speaks or a tool
    call starts. Files in messages are parts of kind `file` whose value is the block; `content.file_of(event.value)` of
    such a `PartStarted` gives the bytes, if there are any, for `add_artifact`.

    Tool calls: an id that is started again after it ended gets a number behind it ("call_1#2"). What core has no event
    for (an update of a call that has ended, an image as a thought) is a Custom named by the protocol.
    """

    __slots__ = ("_id", "_kind", "_messages", "_part", "_tools")

    def __init__(self) -> None:
        self._messages = RunMessages()
        self._tools = ToolCalls()
        # the chunk before this one: of what kind it was, with which id, and the part that it went to
        self._kind = ""
        self._id: str | UnsetType = UNSET
        self._part = ""

    def feed(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        """Decode one update; empty where it says nothing.

        Raises AgentBroken for anything but an object with a `sessionUpdate`: report it and go on.
        """
        try:
            chunk = _chunk(update)
        except (ValueError, RecursionError):
            return self._slowly(update)
        delta = self.more(chunk)
        return self.begun(chunk) if delta is None else [delta]

    def more(self, chunk: Chunk) -> e.PartDelta | None:
        """Decode a chunk that continues the one before it; None if it begins something (`begun`)."""
        if chunk.kind == self._kind and chunk.message_id == self._id:
            return e.PartDelta(part=self._part, delta=chunk.content.text)
        return None

    def call(self, id: str) -> JsonObject | None:
        """The agent's last title and content of an open tool call: for `questions.permission`."""
        return self._tools.said(id)

    def asked(self, call: JsonObject, *, told: bool) -> list[e.Event]:
        """What a request for permission says of an open tool call. Not `told` to clients of this protocol that are
        asked themselves.
        """
        return self._tools.asked(call, told=told)

    def close(self, *, failed: bool = False) -> list[e.Event]:
        """End the tool calls that the agent left open. Call it before the terminal event, which ends open messages.

        `failed` is whether those count as failed. Clients of this protocol are told of them as much as the agent said;
        without this call, say when the agent died, they are told that the calls failed.
        """
        return [*self._messages.close(), *self._tools.close(failed)]

    def begun(self, chunk: Chunk) -> list[e.Event | ThreadUpdate]:
        """Decode a chunk that begins something."""
        name = None if chunk.message_id is UNSET else chunk.message_id
        out: list[e.Event | ThreadUpdate] = [*self._text(chunk.kind, name, chunk.content.text)]
        if self._messages.holding:
            self._kind = ""
        else:
            self._kind, self._id, self._part = chunk.kind, chunk.message_id, self._messages.part
        return out

    def _text(self, kind: str, id: str | None, text: str) -> list[e.Event]:
        return self._messages.text(kind, id, text)

    def _slowly(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        """Decode an update that is not a plain chunk of text."""
        said = read(update)
        kind = said[event_forms.KEY]
        self._kind = ""
        events: list[e.Event] | None
        if kind in event_forms.CHUNKS:
            events = self._messages.chunk(kind, said)
            return [own(said)] if events is None else [*events]
        said = delta.sound(said)
        if kind in ("tool_call", "tool_call_update", "plan"):
            events = self._listed(said)
        elif kind == "usage_update":
            events = [e.UsageReported(detail=said)] if event_forms.is_usage(said) else None
        else:
            return [ThreadUpdate(protocol=PROTOCOL, kind=kind, data=said)]
        return [own(said)] if events is None else [*events]

    def _listed(self, said: JsonObject) -> list[e.Event] | None:
        """The events of a tool call or a plan; None if core has none for it."""
        if said[event_forms.KEY] == "plan":
            return plan(said)
        events = self._tools.call(said) if said[event_forms.KEY] == "tool_call" else self._tools.update(said)
        if events and isinstance(events[0], e.ToolCallStarted):
            return [*self._messages.tool_called(), *events]
        return events


class SpokenSession:
    """Decodes the updates of one session. In version 1 nothing is remembered."""

    def decoder(self) -> UpdateDecoder:
        """For the updates of one run."""
        return UpdateDecoder()

    def stray(self, update: Raw | bytes) -> Sequence[ThreadUpdate]:
        """Decode an update that belongs to no run, for `note`: said content is `kept`. Raises AgentBroken."""
        said = read(update)
        kind = said[event_forms.KEY]
        content = kind in _CONTENT
        kept = OUTPUT if content else kind
        return (ThreadUpdate(protocol=PROTOCOL, kind=kept, data=delta.sound(said), kept=content),)

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        """Convert a result of `stray` to an event of the run that waits for its prompt to be taken. None to note it."""
        return None


def own(said: JsonObject, name: str = PROTOCOL) -> e.Custom:
    return e.Custom(name=name, data=delta.sound(said))


def read(update: Raw | bytes) -> JsonObject:
    """The update as an object. Its text may hold half characters, with which it cannot be stored."""
    try:
        said: JsonObject = jsonrpc.unpack(update)
    except (ValueError, RecursionError) as error:
        raise AgentBroken("a session/update that cannot be read", detail=str(error)) from None
    if event_forms.kind_of(said) is None:
        raise AgentBroken("a session/update without a sessionUpdate")
    return said


def plan(said: JsonObject) -> list[e.Event] | None:
    entries = said.get("entries")
    if not isinstance(entries, list):
        return None
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            return None
        status, priority = entry.get("status"), entry.get("priority")
        found.append(
            e.PlanEntry(
                content=entry["content"],
                status=status if status in event_forms.PLAN_STATUSES else "pending",
                priority=priority if priority in event_forms.PRIORITIES else "medium",
            )
        )
    return event_forms.joined([e.PlanUpdated(entries=tuple(found))], said)
