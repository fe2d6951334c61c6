"""`/readyz`: everybody is told whether the gateway is ready, and only some which agents it has."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from gateway.adapter import InboundOptions
from gateway.adapter.access import Asking, Authentication, Person
from gateway.readiness import Readiness

AGENTS = {"mail": True, "mail-test": False, "code": True}
COUNTS = {"agents": 3, "ready": 2}
DOORS = [
    InboundOptions(),
    Asking(authentication=Authentication(clients=(Person(name="ann", token="first", agents=("mail*",)),))),
    Asking(authentication=Authentication(clients=(Person(name="bob", token="second"),))),
]


def asked(host: str | None = "203.0.113.7", **headers: str) -> dict[str, object]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": pairs, "client": (host, 1) if host is not None else None}
    return Readiness(DOORS).body(True, AGENTS, Request(scope))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_who_asks_from_this_machine_is_told_every_agent(host: str) -> None:
    assert asked(host) == {"ready": True, "counts": COUNTS, "agents": AGENTS}


@pytest.mark.parametrize("host", ["203.0.113.7", "10.0.0.1", "fe80::1%eth0", "0.0.0.0", "nonsense", None])
def test_who_asks_from_elsewhere_is_told_how_many_there_are(host: str | None) -> None:
    assert asked(host) == {"ready": True, "counts": COUNTS}


@pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "x_real_ip"])
def test_a_proxy_on_this_machine_asks_for_somebody_else(header: str) -> None:
    assert "agents" not in asked("127.0.0.1", **{header: "127.0.0.1"})


def test_a_token_of_any_door_is_told_the_agents_that_are_there_for_it() -> None:
    assert asked(authorization="Bearer first")["agents"] == {"mail": True, "mail-test": False}
    assert asked(authorization="Bearer second")["agents"] == AGENTS
    assert asked(authorization="Bearer first")["counts"] == COUNTS


@pytest.mark.parametrize("value", ["Bearer third", "Basic first", "first", "Bearer "])
def test_a_token_of_nobody_is_told_how_many_there_are(value: str) -> None:
    assert asked(authorization=value) == {"ready": True, "counts": COUNTS}
