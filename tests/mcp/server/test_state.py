"""The states of a client's session."""

from __future__ import annotations

import pytest

from gateway.core.errors import Refused
from gateway.mcp.server.session import McpSessionState, SessionEvent, after


def test_a_session_that_has_ended_does_not_begin_again() -> None:
    with pytest.raises(Refused, match="an answered initialize in a session that is ended"):
        after(McpSessionState.ENDED, SessionEvent.INITIALIZED)
