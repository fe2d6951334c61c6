"""What an agent says after a question has been answered is told as another message, so that it stands behind it.

Clients of version 2 put what they are told of a message where that began, however much came in between. So the messages
that the gateway has named begin anew with each answer. One that the agent has named is the agent's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from adapters.agent_client.codec.v2.wire import UPDATE

ANSWERED: Final = b""
"""Stands among updates where a question has been answered."""
_CHUNKS: Final = frozenset(("agent_message_chunk", "agent_thought_chunk"))


class Head(msgspec.Struct, rename="camel"):
    """What an update is about."""

    session_update: str = ""
    message_id: str | None = None


head: Final = msgspec.json.Decoder(Head).decode


class Rounds:
    """Used for one run, by the order of its updates alone: so names are the same for all, each time."""

    def __init__(self, run: str) -> None:
        self._ours = f"{run}-"
        self._count = 0
        self._more: dict[str, list[str]] = {}  # message -> the names of what it went on as

    def named(self, updates: Sequence[bytes]) -> Sequence[bytes]:
        """The updates, ANSWERED left out."""
        if not self._count and ANSWERED not in updates:
            return updates
        out: list[bytes] = []
        for update in updates:
            if update == ANSWERED:
                self._count += 1
            else:
                out += [update] if not self._count else self._renamed(update)
        return out

    def _renamed(self, update: bytes) -> list[bytes]:
        about = head(update)
        name = about.message_id
        if name is None or not name.startswith(self._ours):
            return [update]
        if about.session_update in _CHUNKS:
            other = f"{name}-{self._count}"
            known = self._more.setdefault(name, [])
            if other not in known:
                known.append(other)
            old, new = (b'"messageId":' + msgspec.json.encode(each) for each in (name, other))
            return [update.replace(old, new, 1)]
        emptied = [
            {UPDATE: about.session_update, "messageId": each, "content": []} for each in self._more.get(name, ())
        ]
        return [update, *map(msgspec.json.encode, emptied)]
