"""Keeps the state and the options that a client of version 2 was last told, and makes the updates of their changes.

Modes are an option of version 2: neither is told without the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from adapters.agent_client.codec.event_forms import CHUNKS
from adapters.agent_client.codec.v2 import conversions, turn, updates
from adapters.agent_client.codec.v2.wire import (
    CHUNK,
    IDLE,
    MODE,
    ORIGIN_V2,
    REQUIRES_ACTION,
    RUNNING,
    STATE,
    UPDATE,
    WHOLE,
)
from adapters.agent_client.inbound import config_options
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core import delta
from gateway.core.types import Json, ThreadUpdate

_KEYS = {UPDATE, "messageId", "content"}


class V2SessionState:
    """The state of one session, for one client.

    state: the last state that the client was told.
    modes, options: the session's, in version 1's words.
    """

    def __init__(self, session: SessionContext) -> None:
        self._session = session
        self.state = IDLE
        self.modes: Json = None
        self.options: Json = None
        self.history = MessageFolding()
        """Of the history, while that is told."""
        self._strand = ("", "")  # what was last said between runs: after which run, and by whom
        self._strands = 0

    def remember(self, said: JsonObject) -> Json:
        self.modes = said.get("modes", self.modes)
        self.options = said.get("configOptions", self.options)
        return self.modes

    def to(self, state: str, *, again: bool = False) -> list[bytes]:
        """The update that says that the session is running, or waits for an action. `again`: even if it was told."""
        if state == self.state and not again:
            return []
        self.state = state
        return [{RUNNING: turn.running, REQUIRES_ACTION: turn.requires_action, IDLE: turn.idle}[state]()]

    def agent_state(self, said: JsonObject, *, works: bool) -> list[bytes]:
        """A `state_update` of an agent of version 2 that says more than which it is. `works`: a run is being told.

        Then it is not idle before the run has ended, and the end of the run says it.
        """
        state = said.get("state")
        if state == IDLE and works:
            return []
        if state in (IDLE, RUNNING, REQUIRES_ACTION):
            self.state = state
        return [delta.encode(said)]

    def ended(self) -> None:
        """Note that the client is told the idle state."""
        self.state = IDLE

    def news(self, update: ThreadUpdate) -> list[bytes]:
        data = update.data
        if update.protocol == ORIGIN_V2 and update.kind == STATE and isinstance(data, dict):
            return self.agent_state(data, works=self._session.busy)
        if update.protocol == PROTOCOL and isinstance(data, dict):
            if update.kind == "config_option_update" and isinstance(data.get("configOptions"), list):
                own = config_options.choice(self._session)
                ids = [option["id"] for option in own]
                rest = [each for each in data["configOptions"] if isinstance(each, dict) and each.get("id") not in ids]
                self.options = [*own, *rest]
                data = {**data, "configOptions": self.options}
            elif update.kind == "current_mode_update" and isinstance(self.modes, dict):
                self.modes = {**self.modes, "currentModeId": data.get("currentModeId")}
            elif update.kept:
                data = self._stray(data, update.after or "session")
        noted = ThreadUpdate(protocol=update.protocol, kind=update.kind, data=data, after=update.after)
        said = updates.told(noted, options=self.options, modes=self.modes)
        if said is None:
            return []
        if self._session.replaying:
            self.history.heard(said)
        return [delta.encode(said)]

    def _stray(self, said: JsonObject, after: str) -> JsonObject:
        """An update said between runs. Chunks without an id that follow one another are one message."""
        kind = said.get(UPDATE)
        if kind not in CHUNKS or said.get("messageId") is not None:
            self._strand = (after, "")
            return said
        if (after, kind) != self._strand:
            self._strands = 1 if after != self._strand[0] else self._strands + 1
            self._strand = (after, kind)
        return {**said, "messageId": f"{after}-more-{self._strands}"}

    def is_mode(self, option: str) -> bool:
        known = len(conversions.options_to_v2(self.options))
        return option == MODE and len(conversions.options_to_v2(self.options, self.modes)) > known


class MessageFolding:
    """History as whole messages: chunks of one message become the message (docs: session-setup, resuming).

    Used for one history. A message that is told in several batches, or runs, goes on by chunks in the later ones."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def heard(self, update: Mapping[str, Any]) -> None:
        """An update that is told as it is."""
        name, kind = update.get("messageId"), update.get(UPDATE)
        if isinstance(name, str) and isinstance(kind, str):
            self._told.add((CHUNK.get(kind, kind), name))

    def fold(self, updates: Sequence[bytes]) -> list[bytes]:
        """The same updates, the chunks of each message in the place of the first."""
        out: list[bytes | _Piece] = []
        open: dict[tuple[str, str], _Piece] = {}
        for update in updates:
            said: Any = msgspec.json.decode(update)
            name, kind = said.get("messageId"), said.get(UPDATE)
            whole = CHUNK.get(kind, kind)
            if not isinstance(name, str) or whole not in WHOLE:
                out.append(update)
            elif kind == whole or said.keys() != _KEYS:
                open.pop((whole, name), None)
                self._told.add((whole, name))
                out.append(update)
            elif (going_on := open.get((whole, name))) is not None:
                _add(going_on.content, said["content"])
            else:
                begins = (whole, name) not in self._told
                open[whole, name] = piece = _Piece(whole if begins else kind, name, begins, [said["content"]])
                self._told.add((whole, name))
                out.append(piece)
        return [each for one in out for each in ([one] if isinstance(one, bytes) else one.encoded())]


@dataclass
class _Piece:
    """A piece of a message: all of it so far, or its continuation."""

    kind: str
    name: str
    begins: bool
    content: list[Any]

    def encoded(self) -> list[bytes]:
        contents = [self.content] if self.begins else self.content
        return [msgspec.json.encode({UPDATE: self.kind, "messageId": self.name, "content": each}) for each in contents]


def _add(content: list[Any], block: Any) -> None:
    last = content[-1]
    if _is_text(last) and _is_text(block):
        content[-1] = {"type": "text", "text": last["text"] + block["text"]}
    else:
        content.append(block)


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"type", "text"} and block["type"] == "text"
