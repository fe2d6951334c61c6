"""Core events to `session/update` of version 2: what one client is told of one run.

How the run began, waits and ended is `turn`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER, UpdateAssembly
from adapters.agent_client.codec.updates_out import UpdateEncoder, is_update
from adapters.agent_client.codec.v2 import tool_calls, updates
from adapters.agent_client.codec.v2.agents import speaks_v2
from adapters.agent_client.codec.v2.output_text import END, V2OutputText, start_of
from adapters.agent_client.codec.v2.wire import CHUNK, ORIGIN_V2, UPDATE
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Snapshot
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject, Role, Run

_encode: Final = delta.encode
_OURS: Final = (PROTOCOL, ORIGIN_V2)


class V2UpdateEncoder(UpdateEncoder):
    """One client's view of one run.

    agent: the run's agent; None where it is not known any more. run: its id, from which messages that have no name of
    the agent's get theirs: the same for every client, each time.

    What an agent of version 2 said is sent as it was, one of version 1 in version 2's words. Of any other see
    output_text.py; its tool calls, plans and token counts are told by their own updates.
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
