"""Calls of MCP servers' tools that an agent speaks of in two ways: by events, and by having them done."""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.governance.enforcing.calls import Call, Phase

MOST: Final = 64
"""Calls of one tool that are remembered until they are spoken of in the other way as well."""


class Twins:
    """The calls of one run of which only events, or only acts, have spoken: by server and tool."""

    def __init__(self) -> None:
        self._alone: dict[tuple[str, str], deque[Call]] = {}

    def find(self, call: Call) -> Call | None:
        """The same call: of an act, the one that events speak of, or the other way round. Each is that of one other.

        None where it is not known, or was found before; then this one may be found.
        """
        if call.server is None or call.twin is not None:
            return None
        among = self._alone.setdefault((call.server, call.tool), deque(maxlen=MOST))
        for other in among:
            alike = other.act is not call.act and other.like(call) and (call.act or other.risk >= call.risk)
            if alike and other.phase not in (Phase.REFUSED, Phase.ENDED):
                call.twin, other.twin = other, call
                among.remove(other)
                return other
        if call not in among:
            among.append(call)
        return None
