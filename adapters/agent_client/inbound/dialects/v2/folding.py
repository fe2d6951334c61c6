"""History as whole messages: chunks of one message become the message (docs: session-setup, resuming)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from adapters.agent_client.codec.v2.wire import CHUNK, UPDATE, WHOLE

_KEYS = {UPDATE, "messageId", "content"}


class Folding:
    """Used for one history. A message that is told in several batches, or runs, goes on by chunks in the later ones."""

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
    """Of a message: all of it so far, or what goes on."""

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
