"""Core events to `session/update` of version 1: what one client is told of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER
from adapters.agent_client.codec.updates_out import UpdateEncoder, is_update
from adapters.agent_client.codec.v1.from_v2 import V2ForV1, told
from adapters.agent_client.codec.v1.output_text import OutputText
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL
from gateway.contract import Snapshot
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject, Role, Run

_encode: Final = delta.encode
_TEXT_END: Final = b"}}"
_TEXT_START: Final = {
    kind: b'{"sessionUpdate":"' + kind.encode() + b'","content":{"type":"text","text":' for kind in event_forms.CHUNKS
}


class V1UpdateEncoder(UpdateEncoder):
    """One client's view of one run.

    replay: the run is history (`session/load`): the prompt that the agent echoed is left out, since `user` says it.

    An agent of another protocol: its output is told as one text that only grows (output_text.py), without message ids;
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
        return event_forms.beyond(event) if self._native or not self._known else None


def user(blocks: Iterable[JsonObject]) -> list[bytes]:
    """A prompt as `user_message_chunk`s, for the replay."""
    return [_encode(event_forms.chunk(USER, block)) for block in blocks]


def update(value: JsonObject) -> bytes:
    """Any update object encoded, for instance `ThreadUpdate.data` of this protocol."""
    return _encode(told(value)[0])


def text(said: str) -> bytes:
    """A text of the gateway's own as an `agent_message_chunk`."""
    return _TEXT_START[MESSAGE] + _encode(said) + _TEXT_END
