"""Core events to `session/update` of version 1: what one client is told of one run."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER
from adapters.agent_client.codec.updates_out import Around, ForeignOutput, UpdateEncoder
from adapters.agent_client.codec.v2 import conversions
from adapters.agent_client.codec.v2.memory import another
from adapters.agent_client.codec.v2.tool_calls import DELETION, UNKNOWN, block_to_v1
from adapters.agent_client.codec.v2.wire import STATE, TERMINAL, TERMINAL_CHUNK, UPDATE, WHOLE
from adapters.agent_client.wire import ORIGIN_V2, OURS, PROTOCOL, meta_of, with_meta, without
from gateway.core import delta
from gateway.core import events as e
from gateway.core.output import SEPARATOR
from gateway.core.types import Agent, Json, JsonObject, Role, Run

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
# All that was told is the text of the output document, messages a blank line apart. What rewrites text that was told
# already is not told: then it is `stale`, until the text as it is now turns out to go on from what was told, or the end
# corrects it.


class OutputText(ForeignOutput):
    """See `ForeignOutput`. Its chunks have no ids, and it only grows."""

    def __init__(self, agent: Agent | None, losses: dict[str, int], ready: dict[str, Around]) -> None:
        super().__init__(agent, losses, ready)
        self._open: str | None = None  # the text part that is ready
        self._start: int | None = 0  # of the newest text part in the text; None where nobody knows
        self._blocks: list[str] = []  # what was told in the newest message
        self._newest: list[str] = []
        self._length = 0
        self._gap = ""
        self._ever = self._counted = False

    def _text(self, event: e.PartStarted) -> None:
        if event.kind == "thought":
            self._ready[event.part] = (_TEXT_START[THOUGHT], _TEXT_END, None)

    def _file(self, event: e.PartStarted, block: JsonObject, out: list[bytes]) -> None:
        out.append(_encode(event_forms.chunk(MESSAGE, block)))

    def _grow(self, event: e.PartDelta, out: list[bytes]) -> None:
        if self._kinds[event.part] == THOUGHT:
            out.append(_TEXT_START[THOUGHT] + _encode(event.delta) + _TEXT_END)
        elif self._parts.data is None:
            self._append(event.part, event.delta, out)

    def _replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        if self._kinds[event.part] == THOUGHT:
            self._losses["rewrite"] += 1
        elif self._parts.data is not None:
            return
        elif event.part not in self._parts.spoken:
            self._append(event.part, event.value, out)
        elif event.part != self._parts.newest or self._start is None or self.stale:
            self._rewritten()
        else:
            self._catch_up(self._told()[: self._start] + event.value, out)

    def _say(self, said: str, out: list[bytes]) -> None:
        if said and not self.stale:
            out.append(text(self._gap + said))
            self._gap = ""
            self._note(said)

    def _begin(self) -> None:
        if self.stale:
            self._rewritten()
        if self._ever:
            self._gap = SEPARATOR
        self._blocks, self._newest, self._length = [], [], 0
        self.stale = self._counted = False

    def _catch_up(self, now: str, out: list[bytes]) -> None:
        if len(now) < self._length or not now.startswith(self._told()):
            self._rewritten()
        else:
            self.stale = self._counted = False
            self._say(now[self._length :], out)
            self._make_ready()

    def _settle(self, run: Run, document: Json, now: str, out: list[bytes]) -> None:
        """Text that was rewritten is told again, as a new message."""
        if not self._look(document, out) and not self._ever:
            self._catch_up(now, out)
        if self.stale and now:
            out.append(text(SEPARATOR))
            out.append(_encode(event_forms.chunk(MESSAGE, content.block_of(now), f"{run.id}-corrected")))

    def _say_document(self, said: str, out: list[bytes]) -> None:
        out.append(text(SEPARATOR * self._ever + said))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _append(self, part: str, said: str, out: list[bytes]) -> None:
        if not said:
            return
        if part not in self._parts.spoken:
            gap = self._parts.speak(part)
            self._start = None if self.stale else self._length + len(gap)
            self._say(gap + said, out)
        elif part != self._parts.newest:
            self._rewritten()
        else:
            self._say(said, out)
        self._make_ready()

    def _make_ready(self) -> None:
        """Let the deltas of the newest text part take the short way, and of no other."""
        part = None if self.stale or self._parts.data is not None else self._parts.newest
        if part != self._open:
            self._ready.pop(self._open or "", None)
            if part is not None:
                self._ready[part] = (_TEXT_START[MESSAGE], _TEXT_END, self._note)
            self._open = part

    def _note(self, said: str) -> None:
        self._ever = True
        self._length += len(said)
        self._newest.append(said)
        if len(self._newest) > _JOIN:
            self._blocks.append("".join(self._newest))
            self._newest = []

    def _told(self) -> str:
        self._blocks, self._newest = ["".join((*self._blocks, *self._newest))], []
        return self._blocks[0]

    def _rewritten(self) -> None:
        """The text no longer begins with what was told: counted once, until it does again."""
        if not self._counted:
            self._losses["rewrite"] += 1
        self.stale = self._counted = True
        self._start = None
        self._make_ready()


# --- agents of version 2, whose events are in version 1's words already ---------------------------------------------
# A rewritten message is told as a new one. Cleared content, terminals and all that version 1 cannot express are counted
# (losses.py). Options that it has no type for are left out, of answers too (`told`).


class V2ForV1:
    """One client's view of one run. `losses` is the encoder's."""

    def __init__(self, losses: dict[str, int]) -> None:
        self._losses = losses
        self._names: dict[str, str] = {}  # the agent's id of a message -> that of the one in its place
        self._heard: set[str] = set()
        self._prompt: str | None = None
        self._acknowledged = False

    def count(self, event: e.Event) -> None:
        if event.origin is None and not isinstance(event, e.Custom):
            return
        marks = (event.origin or {}).get(ORIGIN_V2)
        for name in marks.get("lost", ()) if isinstance(marks, dict) else ():
            self._losses[name] += 1
        if not isinstance(event, e.Custom) or event.name != ORIGIN_V2:
            return
        if event_forms.kind_of(event.data) not in _QUIET and not _says_nothing(event.data):
            self._losses[UPDATES] += 1

    def known_as(self, role: Role, id: str | None) -> str | None:
        """The id by which the client knows a message. The user's first is the prompt."""
        if role is Role.USER and not self._acknowledged:
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
        base = next((old for old, now in self._names.items() if now == id), id)
        now = self._names[base] = another(base, self._heard)
        self._heard.add(now)
        return now

    def state(self, said: JsonObject) -> JsonObject:
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
    found = without(said, ORIGIN_V2) if ORIGIN_V2 in said else said
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
    """See `UpdateEncoder`.

    replay: the run is history (`session/load`): the prompt that the agent echoed is left out, since `user` says it.
    """

    def __init__(self, agent: Agent | None, *, replay: bool = False) -> None:
        super().__init__(agent)
        self._replay = replay

    @functools.cached_property
    def _newer(self) -> V2ForV1:
        """What an agent of version 2 says more."""
        return V2ForV1(self._losses)

    def _listener(self) -> ForeignOutput:
        return OutputText(self._agent, self._losses, self._ready)

    def _say(self, event: e.Event, said: JsonObject, out: list[bytes]) -> None:
        sound = self._newer.sound(said) if self._v2 else said
        if sound is not None:
            out.append(_encode(sound))

    # --- an agent of this protocol -----------------------------------------------------------------------------------

    def _native(self, event: e.Event, out: list[bytes]) -> None:
        if self._v2:
            self._newer.count(event)
        super()._native(event, out)

    def _known_as(self, message: str, role: Role, kind: str, id: Any) -> str | None:
        return self._newer.known_as(role, id) if self._v2 else id

    def _is_known(self, id: str | None) -> bool:
        return self._newer.is_prompt(id) if self._v2 else self._replay

    def _around(self, kind: str, id: str | None) -> Around:
        return _TEXT_START[kind], _TEXT_END if id is None else b'},"messageId":' + _encode(id) + b"}", None

    def _rewrite(self, event: e.PartReplaced, out: list[bytes]) -> None:
        """A message of an agent of version 2 is rewritten: another takes its place, and what is said of it from now."""
        if not self._v2:
            self._losses["rewrite"] += 1
            return
        kind, message_id = self._of.get(event.part, (MESSAGE, None))
        text_now = self._newer.rewritten(event)
        if text_now is None or message_id is None:
            return
        now = self._newer.another(message_id)
        self._of |= {part: (of, now) for part, (of, id) in self._of.items() if id == message_id}
        for part in [part for part in self._ready if self._of[part][1] == now]:
            self._ready[part] = self._around(*self._of[part])
        out.append(_encode(event_forms.chunk(kind, content.block_of("\n\n"), message_id)))
        out.append(_encode(event_forms.chunk(kind, content.block_of(text_now), now)))

    def _custom(self, event: e.Custom, out: list[bytes]) -> None:
        if event.name == PROTOCOL and event_forms.kind_of(event.data) is not None:
            self._say(event, self._newer.state(event.data) if self._v2 else event.data, out)
        elif not self._v2 or event.name != ORIGIN_V2:
            self._losses["custom"] += 1


def user(blocks: Iterable[JsonObject]) -> list[bytes]:
    return [_encode(event_forms.chunk(USER, block)) for block in blocks]


def update(value: JsonObject) -> bytes:
    """Any update object encoded, for instance `ThreadUpdate.data` of this protocol."""
    return _encode(told(value)[0])


def text(said: str) -> bytes:
    """A text of the gateway's own as an `agent_message_chunk`."""
    return _TEXT_START[MESSAGE] + _encode(said) + _TEXT_END
