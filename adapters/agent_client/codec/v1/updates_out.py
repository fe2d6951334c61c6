"""Core events to `session/update` of version 1: what one client is told of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER
from adapters.agent_client.codec.updates_out import DocumentGrowth, ForeignOutput, UpdateEncoder, is_update
from adapters.agent_client.codec.v2 import conversions
from adapters.agent_client.codec.v2.memory import another
from adapters.agent_client.codec.v2.tool_calls import DELETION, UNKNOWN, block_to_v1
from adapters.agent_client.codec.v2.wire import STATE, TERMINAL, TERMINAL_CHUNK, UPDATE, WHOLE
from adapters.agent_client.wire import ORIGIN_V2, OURS, PROTOCOL, meta_of, with_meta
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.output import SEPARATOR, PartOf
from gateway.core.types import Agent, Json, JsonObject, Role, Run, RunStatus

_JOIN = 512
UPDATES: Final = "unknown_update"
OPTION: Final = "unknown_option"
_QUIET: Final = (STATE, "tool_call_content_chunk", TERMINAL, TERMINAL_CHUNK)
"""Updates that a client of version 1 does not need: it learns the same in another way."""
_encode: Final = delta.encode
_TEXT_END: Final = b"}}"
_TEXT_START: Final = {
    kind: b'{"sessionUpdate":"' + kind.encode() + b'","content":{"type":"text","text":' for kind in event_forms.CHUNKS
}


# --- the output of an agent of another protocol, as one growing text ------------------------------------------------


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
    apart; or of a data part the text at the agent's text pointer, followed delta by delta (`DocumentText`). What
    rewrites text that was told already is not told: then `stale` is true, until the text as it is now turns out to go
    on from what was told (`catch_up`), or the end corrects it. `rewrites` counts what could not be told as it happened.
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


# --- agents of version 2, whose events are in version 1's words already ---------------------------------------------
# A rewritten message is told as a new one. Cleared content, terminals and all that version 1 cannot express are counted
# (losses.py). Options that it has no type for are left out, of answers too (`told`).


class V2ForV1:
    """One client's view of one run. `losses` is the encoder's."""

    def __init__(self, losses: Counter[str]) -> None:
        self._losses = losses
        self._names: dict[str, str] = {}  # the agent's id of a message -> that of the one in its place
        self._heard: set[str] = set()
        self._prompt: str | None = None
        self._acknowledged = False

    def count(self, event: e.Event) -> None:
        """Count what an event leaves out."""
        if event.origin is None and not isinstance(event, e.Custom):
            return
        marks = (event.origin or {}).get(ORIGIN_V2)
        for name in marks.get("lost", ()) if isinstance(marks, dict) else ():
            self._losses[name] += 1
        if isinstance(event, e.Custom) and event.name == ORIGIN_V2:
            kind = event.data.get(UPDATE) if isinstance(event.data, dict) else None
            if kind not in _QUIET and not _says_nothing(event.data):
                self._losses[UPDATES] += 1

    def message(self, event: e.MessageStarted, id: str | None) -> str | None:
        """The id by which the client knows a message. The user's first is the prompt."""
        if event.role is Role.USER and not self._acknowledged:
            self._acknowledged, self._prompt = True, id
        if id is None:
            return None
        self._heard.add(id)
        return self._names.get(id, id)

    def is_prompt(self, id: str | None) -> bool:
        """Whether a message of the user's is what started the run, which the client knows."""
        return self._acknowledged and id == self._prompt

    def rewritten(self, event: e.PartReplaced) -> str | None:
        """The text that a part has now, None where there is nothing to tell."""
        marks = (event.origin or {}).get(PROTOCOL)
        if isinstance(marks, dict) and marks.get("silent"):
            return None
        self._losses["rewrite" if event.value else DELETION] += 1
        return event.value if isinstance(event.value, str) and event.value else None

    def another(self, id: str) -> str:
        """The id of a message in the place of that one."""
        base = next((old for old, now in self._names.items() if now == id), id)
        now = self._names[base] = another(base, self._heard)
        self._heard.add(now)
        return now

    def state(self, said: JsonObject) -> JsonObject:
        """An update of a session's state, with what is left out of it counted."""
        found, lossy = told(said)
        if lossy:
            self._losses[OPTION] += 1
        return found

    def sound(self, said: JsonObject | None) -> JsonObject | None:
        """An update without what version 1 does not know in its content; None if nothing is left."""
        if said is None or said.get(event_forms.KEY) not in event_forms.CHUNKS:
            return said
        block = block_to_v1(said.get("content"))
        if block is None:
            self._losses[UNKNOWN] += 1
            return None
        return said if block is said["content"] else {**said, "content": block}


def told(said: JsonObject) -> tuple[JsonObject, bool]:
    """An answer, or an update of a session's state, without what is version 2's; and whether options were left out.

    That is said in its `_meta`.
    """
    found = {key: value for key, value in said.items() if key != ORIGIN_V2} if ORIGIN_V2 in said else said
    options = found.get("configOptions")
    known = conversions.known_to_v1(options) if isinstance(options, list) else options
    if known is options:
        return found, False
    ours = meta_of(found, OURS)
    lost = sorted({OPTION, *ours.get("lost", ())})
    return with_meta({**found, "configOptions": known}, OURS, {**ours, "lost": lost}), True


def _says_nothing(said: Json) -> bool:
    """Whether it is a message's update that says nothing of its content."""
    return isinstance(said, dict) and said.get(UPDATE) in WHOLE and not said.get("content")


# --- updates --------------------------------------------------------------------------------------------------------


class V1UpdateEncoder(UpdateEncoder):
    """One client's view of one run.

    replay: the run is history (`session/load`): the prompt that the agent echoed is left out, since `user` says it.

    An agent of another protocol: its output is told as one text that only grows (`OutputText`), without message ids;
    thoughts, tool calls, plans and token counts by their own updates; files as resource links.
    """

    def __init__(self, agent: Agent | None, *, replay: bool = False) -> None:
        self._native = agent is not None and PROTOCOL in agent.extra
        self._foreign = None if self._native else OutputText(agent)
        super().__init__(agent, self._foreign)
        self._replay = replay
        self._known = agent is not None
        self._newer = V2ForV1(self._losses) if agent is not None and ORIGIN_V2 in agent.extra else None
        self._of: dict[str, tuple[str, str | None]] = {}  # part -> kind of chunk, message id
        self._messages: dict[str, tuple[Role, str | None]] = {}
        self._quiet: set[str] = set()  # parts that are not told

    def finish(self, run: Run) -> list[bytes]:
        out: list[bytes] = []
        if self._foreign is not None:
            more, corrected = self._foreign.finish(run)
            self._say(more, out)
            if corrected:
                self._say(["\n\n"], out)
                out.append(_encode(event_forms.chunk(MESSAGE, content.block_of(corrected), f"{run.id}-corrected")))
        return out

    # --- events ------------------------------------------------------------------------------------------------------

    def _event(self, event: e.Event, out: list[bytes]) -> None:
        if self._newer is not None:
            self._newer.count(event)
        match event:
            case e.PartDelta():
                self._delta(event, out)
            case e.MessageStarted():
                mine = self._beyond(event) or {}
                message_id = mine.get("messageId")
                if self._newer is not None:
                    message_id = self._newer.message(event, message_id)
                self._messages[event.message] = (event.role, message_id)
                if self._foreign is not None:
                    self._foreign.message(event)
            case e.PartStarted():
                self._part(event, out)
            case e.PartReplaced():
                self._replaced(event, out)
            case e.PartEnded():
                self._ready.pop(event.part, None)
            case e.ArtifactAdded() if self._foreign is not None and event.artifact.agent_created:
                out.append(_encode(event_forms.chunk(MESSAGE, content.link_of(event.artifact))))
            case e.Custom():
                self._custom(event, out)
            case e.RunStarted() | e.MessageEnded():
                pass
            case _:
                if (said := self._assembled(event, self._beyond(event))) is not None:
                    out.append(_encode(said))

    def _look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        if self._foreign is not None and self._foreign.speech.stale:
            self._say(self._foreign.look(snapshot), out)
            self._open()

    def _custom(self, event: e.Custom, out: list[bytes]) -> None:
        if event.name == PROTOCOL and (self._native or not self._known) and is_update(event.data):
            self._put(event.data if self._newer is None else self._newer.state(event.data), out)
        elif self._newer is None or event.name != ORIGIN_V2:
            self._losses["custom"] += 1

    # --- messages ----------------------------------------------------------------------------------------------------

    def _part(self, event: e.PartStarted, out: list[bytes]) -> None:
        role, message_id = self._messages.get(event.message, (Role.ASSISTANT, None))
        if event.kind == "file":
            self._file(event, message_id, out)
            return
        kind = THOUGHT if event.kind == "thought" else USER if role is Role.USER else MESSAGE
        self._of[event.part] = (kind, message_id)
        if kind == USER and self._knows(message_id):
            self._quiet.add(event.part)
        if kind == THOUGHT or self._foreign is None:
            if event.part not in self._quiet:
                self._make_ready(event.part)
            if event.value:
                self._delta(e.PartDelta(part=event.part, delta=event.value), out)
            return
        self._say(self._foreign.start(event), out)
        self._open()

    def _knows(self, message_id: str | None) -> bool:
        """Whether the client was told that message of the user's, or said it itself."""
        if self._newer is not None:
            return self._newer.is_prompt(message_id)
        return self._replay or not self._native

    def _make_ready(self, part: str, told: Callable[[str], object] | None = None) -> None:
        kind, message_id = self._of[part]
        end = _TEXT_END if message_id is None else b'},"messageId":' + _encode(message_id) + b"}"
        self._ready[part] = (_TEXT_START[kind], end, told)

    def _open(self) -> None:
        """Let the deltas of the foreign agent's newest text part take the short way, and of no other."""
        assert self._foreign is not None
        open_part = self._foreign.open_part
        for part in [part for part in self._ready if part != open_part and self._of[part][0] != THOUGHT]:
            del self._ready[part]
        if open_part is not None and open_part not in self._ready:
            self._of.setdefault(open_part, (MESSAGE, None))
            self._make_ready(open_part, self._foreign.speech.say)

    def _delta(self, event: e.PartDelta, out: list[bytes]) -> None:
        foreign = self._foreign
        if foreign is not None and event.part == foreign.data:
            self._say(foreign.grow(event), out)
            return
        kind, message_id = self._of.get(event.part, (MESSAGE, None))
        if kind == THOUGHT or foreign is None:
            if event.part in self._quiet:
                return
            said = event_forms.chunk(kind, content.block_of(event.delta), message_id)
            mine = self._beyond(event)
            self._put(said if mine is None else event_forms.restored(said, mine), out)
            return
        self._say(foreign.grow(event), out)
        self._open()

    def _replaced(self, event: e.PartReplaced, out: list[bytes]) -> None:
        kind, message_id = self._of.get(event.part, (MESSAGE, None))
        if kind == THOUGHT or self._foreign is None:
            if self._newer is None:
                self._losses["rewrite"] += 1
            elif event.part not in self._quiet:
                self._anew(self._newer, event, kind, message_id, out)
            return
        self._say(self._foreign.replace(event), out)
        self._open()

    def _anew(self, newer: V2ForV1, event: e.PartReplaced, kind: str, message_id: str | None, out: list[bytes]) -> None:
        """A message of an agent of version 2 is rewritten: another takes its place, and what is said of it from now."""
        text = newer.rewritten(event)
        if text is None or message_id is None:
            return
        now = newer.another(message_id)
        self._of |= {part: (of, now) for part, (of, id) in self._of.items() if id == message_id}
        self._messages |= {name: (role, now) for name, (role, id) in self._messages.items() if id == message_id}
        for part in [part for part in self._ready if self._of[part][1] == now]:
            self._make_ready(part)
        out.append(_encode(event_forms.chunk(kind, content.block_of("\n\n"), message_id)))
        out.append(_encode(event_forms.chunk(kind, content.block_of(text), now)))

    def _file(self, event: e.PartStarted, message_id: str | None, out: list[bytes]) -> None:
        if self._native or event_forms.is_block(event.value):
            said = event_forms.chunk(MESSAGE, event.value, message_id)
            mine = self._beyond(event)
            self._put(said if mine is None else event_forms.restored(said, mine), out)
            return
        block = content.described(event.value)
        if block is None:
            self._losses["file"] += 1
        else:
            out.append(_encode(event_forms.chunk(MESSAGE, block)))

    def _put(self, said: JsonObject | None, out: list[bytes]) -> None:
        if self._newer is not None:
            said = self._newer.sound(said)
        if said is not None:
            out.append(_encode(said))

    def _say(self, texts: Iterable[str], out: list[bytes]) -> None:
        out += [_TEXT_START[MESSAGE] + _encode(text) + _TEXT_END for text in texts if text]

    def _beyond(self, event: e.Event) -> JsonObject | None:
        """Extras of an agent of this protocol, beyond the core. Another protocol's extras are not ours to read."""
        if event.origin is None or not (self._native or not self._known):
            return None
        return event_forms.beyond(event)


def user(blocks: Iterable[JsonObject]) -> list[bytes]:
    """A prompt as `user_message_chunk`s, for the replay."""
    return [_encode(event_forms.chunk(USER, block)) for block in blocks]


def update(value: JsonObject) -> bytes:
    """Any update object encoded, for instance `ThreadUpdate.data` of this protocol."""
    return _encode(told(value)[0])


def text(said: str) -> bytes:
    """A text of the gateway's own as an `agent_message_chunk`."""
    return _TEXT_START[MESSAGE] + _encode(said) + _TEXT_END
