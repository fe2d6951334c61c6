"""The states of the session of a client that shook hands, and which event leads from which to which.

It is ready once `initialize` was answered, which may come again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from gateway.core.errors import Refused


class McpSessionState(enum.StrEnum):
    """Where a session is."""

    NEW = "not initialized"
    READY = "initialized"
    ENDED = "ended"


class SessionEvent(enum.StrEnum):
    """The events that change a session's state."""

    INITIALIZED = "an answered initialize"
    GONE = "the end of its connection"


TABLE: Final[Mapping[tuple[McpSessionState, SessionEvent], McpSessionState]] = {
    (McpSessionState.NEW, SessionEvent.INITIALIZED): McpSessionState.READY,
    (McpSessionState.READY, SessionEvent.INITIALIZED): McpSessionState.READY,
    (McpSessionState.NEW, SessionEvent.GONE): McpSessionState.ENDED,
    (McpSessionState.READY, SessionEvent.GONE): McpSessionState.ENDED,
}


def after(state: McpSessionState, event: SessionEvent) -> McpSessionState:
    """Return the state that follows. Raises Refused where the event may not happen."""
    if (state, event) not in TABLE:
        raise Refused(f"{event} in a session that is {state}")
    return TABLE[state, event]
