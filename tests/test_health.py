"""The gateway's own pages name agents to this machine, to monitors and to clients of its doors, and to nobody else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from starlette.requests import Request

from gateway.access import Authentication, Authenticator, Person
from gateway.browser_guard import HostNames
from gateway.config.models import Monitors
from gateway.health import Overview, View, VisibleAgents, readiness
from gateway.workers.messages import Gathered, WorkerReport, packed

AGENTS = ("mail", "mail-test", "code")


def door(*people: Person) -> View:
    return Authenticator(Authentication(clients=people) if people else None).sees


DOORS = [
    door(),
    door(Person(name="ann", token="first", agents=("mail*",)), Person(name="eve", token="both", agents=("code",))),
    door(Person(name="bob", token="second"), Person(name="eve", token="both", agents=("mail",))),
]
NONE = Monitors()
MONITORS = Monitors.model_validate({"tokens": ["scraper", "scraper-next"], "networks": ["10.42.0.0/16", "fd00::/8"]})


def asked(client: str | None = "203.0.113.7", monitors: Monitors = NONE, **headers: str) -> list[str] | None:
    """The agents that somebody at that address may know; None: none at all."""
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "headers": pairs, "client": (client, 1) if client is not None else None}
    sees = VisibleAgents(DOORS, monitors, HostNames(("gateway.example",))).to(Request(scope))
    return None if sees is None else [agent for agent in AGENTS if sees(agent)]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_who_asks_from_this_machine_may_know_every_agent(host: str) -> None:
    assert asked(host) == list(AGENTS)


@pytest.mark.parametrize(
    "name", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "gateway.example", "Gateway.Example:1"]
)
def test_so_may_a_browser_that_is_near_and_asks_for_the_gateway(name: str) -> None:
    assert asked("127.0.0.1", host=name) == list(AGENTS)
    assert asked("10.42.0.7", MONITORS, host=name) == list(AGENTS)


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:8080", "localhost.evil.example", "[::1", "127.0.0.1.evil"]
)
def test_one_that_asks_for_another_site_may_know_none(name: str) -> None:
    assert asked("127.0.0.1", host=name) is None
    assert asked("10.42.0.7", MONITORS, host=name) is None


@pytest.mark.parametrize("host", ["203.0.113.7", "10.42.0.7", "fe80::1%eth0", "0.0.0.0", "nonsense", None])
def test_who_asks_from_elsewhere_may_know_none(host: str | None) -> None:
    assert asked(host) is None


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_forwarded_proto", "x_real_ip"]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "10.42.0.7"])
def test_a_proxy_asks_for_somebody_else(host: str, header: str) -> None:
    assert asked(host, MONITORS, **{header: "127.0.0.1"}) is None


def test_a_token_of_any_door_may_know_the_agents_that_are_there_for_it() -> None:
    assert asked(authorization="Bearer first") == ["mail", "mail-test"]
    assert asked(x_api_key="first") == ["mail", "mail-test"]
    assert asked(authorization="Bearer second") == list(AGENTS)


def test_a_token_of_two_doors_may_know_the_agents_of_both() -> None:
    assert asked(authorization="Bearer both") == ["mail", "code"]


@pytest.mark.parametrize("value", ["Bearer third", "Basic first", "first", "Bearer ", "Bearer scrapér"])
def test_a_token_of_nobody_may_know_none(value: str) -> None:
    assert asked(authorization=value, monitors=MONITORS) is None


@pytest.mark.parametrize("token", ["scraper", "scraper-next"])
def test_a_monitor_may_know_every_agent(token: str) -> None:
    assert asked(monitors=MONITORS, authorization=f"Bearer {token}") == list(AGENTS)
    assert asked(authorization=f"Bearer {token}") is None


@pytest.mark.parametrize("host", ["10.42.0.7", "::ffff:10.42.0.7", "fd00::9"])
def test_so_may_who_asks_from_a_network_of_the_monitors(host: str) -> None:
    assert asked(host, MONITORS) == list(AGENTS)


def test_a_monitors_token_opens_no_door() -> None:
    assert [view([(b"authorization", b"Bearer scraper")]) for view in DOORS] == [None] * 3


READY = {"mail": True, "mail-test": False, "code": True}
COUNTS = {"agents": 3, "ready": 2}


def overview(*workers: bool, silent: Mapping[int, float] = {}) -> Overview:
    """Of workers that are ready or are not. `silent` are those that do not answer, by number from 1."""
    reports = {
        number: WorkerReport(
            ready=ready, agents=READY, backlog=number, figures=packed([]), why="" if ready else "the disk is full"
        )
        for number, ready in enumerate(workers, 1)
    }
    return Overview(Gathered(number=1, places=len(workers), reports=reports, silent=silent, ended=packed([])))


def test_who_may_know_of_no_agent_is_told_how_many_there_are() -> None:
    told = {"ready": False, "counts": COUNTS, "reason": "the disk is full"}
    assert readiness(overview(False), None) == told


def test_who_may_know_of_some_is_told_those_and_how_many_there_are() -> None:
    told = readiness(overview(True), lambda agent: agent != "code")
    assert told == {"ready": True, "counts": COUNTS, "agents": {"mail": True, "mail-test": False}}


@pytest.mark.parametrize(
    ("workers", "silent", "ready", "serving"),
    [
        ([True, True], {}, True, 2),
        ([True, False], {}, True, 1),
        ([True, True], {2: 9.0}, True, 1),
        ([False, False], {}, False, 0),
        ([True, False, False], {}, False, 1),
        ([True, True, False, True], {1: 0.5, 2: 0.5}, False, 1),
    ],
)
def test_several_workers_are_ready_while_half_of_them_answer_and_are(
    workers: list[bool], silent: dict[int, float], ready: bool, serving: int
) -> None:
    told = readiness(overview(*workers, silent=silent), None)
    assert (told["ready"], told["workers"]) == (ready, {"all": len(workers), "ready": serving})


def test_what_several_are_not_ready_for_is_said_once_and_of_none_that_answers_that() -> None:
    assert readiness(overview(False, False, True), None)["reason"] == "the disk is full"
    assert readiness(overview(True, True, silent={1: 9.0, 2: 9.0}), None)["reason"] == "too few workers answer"
    assert "reason" not in readiness(overview(False, True), None)


def test_figures_of_a_worker_that_does_not_answer_are_said_to_be_old() -> None:
    assert overview(True, True).remarks == []
    assert overview(True, True, silent={2: 7.4}).remarks == ["Worker 2 does not answer: its figures are 7 seconds old."]
