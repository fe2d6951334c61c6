"""Unusual behaviour: what is counted, when it is told, and an agent that is suspended for it."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from adapters.agent_context.directory import evaluation as rules
from adapters.agent_context.directory.evaluation import FAILURES, REFUSALS, REQUESTS, UNUSUAL, ConductMonitor
from adapters.agent_context.options import Conduct as Limits
from gateway.core.errors import Denied
from tests.adapters.agent_context.directory.rig import ANNA, house
from tests.support.aio import Clock, later, on


@on(Clock)
async def test_a_limit_that_is_passed_is_told_once_a_window_and_windows_are_of_the_loops_clock() -> None:
    noticed: Counter[tuple[str, str]] = Counter()
    suspended: list[tuple[str, str, float]] = []
    limits = Limits(window=60, requests=3, refusals=1, suspend=5)
    conduct = ConductMonitor(limits, lambda *what: noticed.update([what]), lambda *whom: suspended.append(whom))
    for _ in range(3):
        conduct.did("it", REQUESTS)
    assert not suspended
    for _ in range(3):
        conduct.did("it", REQUESTS)
    assert suspended == [("it", "more than 3 requests within 60 s", 5.0)]
    assert noticed == {("it", REQUESTS): 6, ("it", UNUSUAL): 1}
    assert conduct.of("it") == {"requests": 6, "refusals": 0, "failures": 0, "window": 60.0}
    await later(60)
    assert conduct.of("it")["requests"] == 0
    conduct.did("it", REFUSALS)
    conduct.did("it", REFUSALS)
    assert suspended[1:] == [("it", "more than 1 refusals within 60 s", 5.0)]


async def test_only_failures_of_the_agents_own_count_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST", 2)

    conduct = ConductMonitor(Limits(), lambda *_: None, lambda *_: None)
    for code in ("invalid", "denied", "agent_failed", "agent_timeout", "unavailable"):
        conduct.failed("it", code)
    assert conduct.of("it")[FAILURES] == 2
    for other in ("one", "two"):
        conduct.did(other, REQUESTS)
    assert (conduct.of("it")[FAILURES], conduct.of("two")[REQUESTS]) == (0, 1)


async def test_a_suspended_agent_is_refused_until_its_time_is_over_on_every_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    options = {"heartbeat": 1000, "conduct": {"refusals": 1, "suspend": 300}}
    async with house(file=tmp_path / "store", **options) as it:
        at = await it.register()
        for _ in range(2):
            it.directory.conduct.did("it", REFUSALS)
        await it.directory.settled()
        assert await it.status() == "revoked" and at.alive
        with pytest.raises(Denied, match="suspended until"):
            it.directory.admit(at)
        with pytest.raises(Denied, match="suspended until"):
            await it.directory.heartbeat("it", "active", ANNA, at)
        ((told),) = (await it.directory.status(lambda _: True, lambda _: True))["revoked"]
        assert told["reason"] == "more than 1 refusals within 60 s" and told["until"] > told["since"]

        async with house(file=tmp_path / "store", clock=it.clock, **options) as other:
            with pytest.raises(Denied, match="suspended until"):
                other.directory.check("it")
            it.clock.pass_(299)
            await it.look()
            assert await it.status() == "revoked"
            it.clock.pass_(2)
            await it.look()
            assert await it.status() == "active"
            it.directory.admit(at)
            await other.look()
            other.directory.check("it")
    assert "agent it behaves unusually: more than 1 refusals within 60 s" in caplog.text
    assert "its suspension is over" in caplog.text


async def test_what_a_person_revoked_stays_revoked_and_a_person_may_lift_a_suspension() -> None:
    async with house(conduct={"failures": 1, "suspend": 300}) as it:
        await it.register()
        for _ in range(2):
            it.directory.conduct.failed("it", "agent_failed")
        await it.directory.settled()
        await it.directory.revoking.restore("it")
        assert await it.status() == "active"
        await it.directory.revoking.revoke("it", "for good")
        it.clock.pass_(61)
        for _ in range(2):
            it.directory.conduct.failed("it", "agent_failed")
        await it.directory.settled()
        it.clock.pass_(1000)
        await it.look()
        assert await it.status() == "revoked"
