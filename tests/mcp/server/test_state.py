"""The states of a client's session."""

from __future__ import annotations

import pytest

from gateway.core.errors import Refused
from gateway.mcp.server.state import McpSessionState, SessionEvent, after

NEW, READY, ENDED = McpSessionState.NEW, McpSessionState.READY, McpSessionState.ENDED


@pytest.mark.parametrize("state", [NEW, READY])
def test_a_session_is_ready_after_initialize_which_may_come_again(state: McpSessionState) -> None:
    assert after(state, SessionEvent.INITIALIZED) is READY


@pytest.mark.parametrize("state", list(McpSessionState))
def test_a_session_ends_whatever_it_was(state: McpSessionState) -> None:
    assert after(state, SessionEvent.GONE) is ENDED


def test_a_session_that_has_ended_does_not_begin_again() -> None:
    with pytest.raises(Refused, match="an answered initialize in a session that is ended"):
        after(ENDED, SessionEvent.INITIALIZED)
