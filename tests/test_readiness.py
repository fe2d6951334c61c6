"""`/readyz`: everybody is told whether the gateway is ready, and only some which agents it has."""

from __future__ import annotations

from gateway.readiness import readiness

AGENTS = {"mail": True, "mail-test": False, "code": True}
COUNTS = {"agents": 3, "ready": 2}


def test_who_may_know_of_no_agent_is_told_how_many_there_are() -> None:
    assert readiness(False, AGENTS, None) == {"ready": False, "counts": COUNTS}


def test_who_may_know_of_some_is_told_those_and_how_many_there_are() -> None:
    told = readiness(True, AGENTS, lambda agent: agent != "code")
    assert told == {"ready": True, "counts": COUNTS, "agents": {"mail": True, "mail-test": False}}
