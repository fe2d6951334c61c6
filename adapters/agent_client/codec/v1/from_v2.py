"""Encodes runs of version 2 agents for version 1 clients. The events are in version 1's words already.

A rewritten message is told as a new one. Cleared content, terminals and all that version 1 cannot express are
counted (losses.py). Options that it has no type for are left out, of answers too (`told`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.turn import OURS
from adapters.agent_client.codec.v2 import conversions
from adapters.agent_client.codec.v2.memory import another
from adapters.agent_client.codec.v2.tool_calls import DELETION, UNKNOWN, block_to_v1
from adapters.agent_client.codec.v2.wire import STATE, TERMINAL, TERMINAL_CHUNK, UPDATE, WHOLE
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL
from gateway.core import events as e
from gateway.core.types import Json, JsonObject, Role

UPDATES: Final = "unknown_update"
OPTION: Final = "unknown_option"
_QUIET: Final = (STATE, "tool_call_content_chunk", TERMINAL, TERMINAL_CHUNK)
"""Updates that a client of version 1 does not need: it learns the same in another way."""


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
    meta = _object(found.get("_meta"))
    ours = _object(meta.get(OURS))
    lost = sorted({OPTION, *ours.get("lost", ())})
    return {**found, "configOptions": known, "_meta": {**meta, OURS: {**ours, "lost": lost}}}, True


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _says_nothing(said: Json) -> bool:
    """Whether it is a message's update that says nothing of its content."""
    return isinstance(said, dict) and said.get(UPDATE) in WHOLE and not said.get("content")
