"""For all tests of the client's end."""

from __future__ import annotations

import pytest

from gateway.mcp.client import calls
from gateway.mcp.client.http import streamable


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session has its stream of news from its beginning, however slow the machine is."""
    monkeypatch.setattr(streamable, "OPEN_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of what is said about a call that was given up does not depend on the machine either."""
    monkeypatch.setattr(calls, "DOUBT_SECONDS", 600.0)
    monkeypatch.setattr(streamable, "CLOSE_SECONDS", 60.0)
