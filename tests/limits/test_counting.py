"""What clients, doors, routes and threads may use, counted with a clock that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.access import UsageLimits
from gateway.access.limits import MOST_RATES, Rates, Turnover
from gateway.access.options import AuthenticatingOptions
from gateway.contract.options import ClientLimits, DoorLimits, InboundOptions, RouteLimits
from gateway.core.errors import Limited, Unavailable
from gateway.core.types import IfBusy, RunRequest
from tests.limits.rig import Clock

FREE = RouteLimits()
TOKEN = "a-token-0123456789"


def door(**limits: Any) -> AuthenticatingOptions:
    """A door with limits of its own, where Ana has some, and bearers of another issuer have others."""
    secret = {"key": "s" * 32, "algorithms": ["HS256"], "audience": "x", "limits": {"runs": 1}}
    clients = [
        {"name": "ana", "token": TOKEN, "limits": {"runs": 2, "requests": 2}},
        {"name": "bob", "token": TOKEN + "b"},
    ]
    return AuthenticatingOptions.model_validate(
        {"limits": limits, "authentication": {"clients": clients, "jwt": secret}}
    )


def started(
    limits: UsageLimits, client: str | None = "ana", *, door: str = "door", route: str = "echo", **more: Any
) -> Any:
    at = more.pop("at", FREE)
    return limits.run(RunRequest(agent=route, input=None, protocol=door, principal=client, **more), route, at)


def refused(limits: UsageLimits, kind: type[Unavailable], client: str | None = "ana", **more: Any) -> float:
    """The seconds that a run is refused with by an error of just this class."""
    with pytest.raises(Unavailable) as found:
        started(limits, client, **more)
    assert type(found.value) is kind
    return found.value.retry_after


def test_a_client_has_no_more_runs_than_it_may_and_one_that_ends_makes_room() -> None:
    told: list[tuple[str, str]] = []
    limits = UsageLimits(client=ClientLimits(runs=2), refused=lambda *what: told.append(what))
    first = started(limits)
    started(limits)
    assert refused(limits, Limited) == 1
    assert told == [("door", "client_runs")]
    started(limits, "bob")
    first.free()
    first.free()
    started(limits)
    refused(limits, Limited)


def test_who_is_refused_is_told_to_come_again_when_a_place_is_likely_to_be_free() -> None:
    clock = Clock()
    limits = UsageLimits(client=ClientLimits(runs=3), now=clock)
    runs = [started(limits) for _ in range(3)]
    assert refused(limits, Limited) == 1, "nothing is known"
    clock.now += 8
    assert refused(limits, Limited) == 8, "nothing has ended for so long"
    clock.now += 2
    runs[0].free()
    runs[0] = started(limits)
    assert refused(limits, Limited) == 10
    clock.now += 4
    assert refused(limits, Limited) == 6, "one has ended each ten seconds"
    runs[1].free()
    runs[1] = started(limits)
    assert refused(limits, Limited) == pytest.approx(8.5)
    clock.now += 1000
    assert refused(limits, Limited) == 60
    for run in runs:
        run.free()
    for _ in range(3):
        started(limits)
    assert refused(limits, Limited) == 1, "nothing is kept of what is not used"


def test_a_client_is_the_same_at_every_door_and_whoever_nobody_asked_is_none() -> None:
    limits = UsageLimits(client=ClientLimits(runs=1, requests=1))
    started(limits, door="one")
    with pytest.raises(Limited):
        started(limits, door="other")
    for client in (None, "anonymous"):
        for _ in range(3):
            started(limits, client, door="one")
            limits.request("one", client)


def test_a_clients_own_limits_come_before_those_of_its_issuer_and_of_all() -> None:
    limits = UsageLimits(client=ClientLimits(runs=3), doors={"door": door()})
    for client, most in (("ana", 2), ("bob", 3), ("somebody", 1)):
        for _ in range(most):
            started(limits, client)
        refused(limits, Limited, client)


def test_a_limit_that_is_left_out_is_the_general_one_and_null_is_none() -> None:
    doors = {
        "given": InboundOptions.model_validate({"limits": {"runs": 2}}),
        "none": InboundOptions.model_validate({"limits": {"runs": None}}),
        "plain": InboundOptions(),
    }
    limits = UsageLimits(door=DoorLimits(runs=1, requests=1), doors=doors)
    for name, most in (("given", 2), ("plain", 1)):
        for _ in range(most):
            started(limits, None, door=name)
        with pytest.raises(Unavailable):
            started(limits, None, door=name)
        limits.request(name, None)
        with pytest.raises(Unavailable):
            limits.request(name, None)
    for _ in range(5):
        started(limits, None, door="none")


def test_a_door_that_is_full_is_unavailable_to_everybody() -> None:
    told: list[tuple[str, str]] = []
    limits = UsageLimits(doors={"door": door(runs=3)}, refused=lambda *what: told.append(what))
    for client in ("ana", "bob", None):
        started(limits, client)
    assert refused(limits, Unavailable, "bob") == 1
    started(limits, "bob", door="other")
    assert told == [("door", "door_runs")]


def test_a_route_is_limited_by_its_own_limits_else_by_those_of_all_routes() -> None:
    told: list[tuple[str, str]] = []
    limits = UsageLimits(route=RouteLimits(runs=1), refused=lambda *what: told.append(what))
    own = RouteLimits(runs=2)
    for _ in range(2):
        started(limits, route="large", at=own)
    refused(limits, Unavailable, route="large", at=own)
    slots = started(limits, route="small")
    refused(limits, Unavailable, route="small")
    slots.free()
    started(limits, route="small")
    assert told == [("door", "route_runs")] * 2


def test_as_many_runs_of_a_route_start_at_once_as_may_in_a_second() -> None:
    told: list[tuple[str, str]] = []
    clock = Clock()
    limits = UsageLimits(now=clock, refused=lambda *what: told.append(what))
    two = RouteLimits(starts=2)
    for _ in range(2):
        started(limits, at=two).free()
    assert refused(limits, Unavailable, at=two) == 0.5
    started(limits, at=two, route="other")
    clock.now += 0.5
    started(limits, at=two)
    assert refused(limits, Unavailable, at=two) == 0.5
    assert told == [("door", "route_starts")] * 2


def test_what_is_refused_counts_for_nothing() -> None:
    clock = Clock()
    limits = UsageLimits(client=ClientLimits(runs=1, requests=2), door=DoorLimits(requests=1), now=clock)
    started(limits)
    for _ in range(5):
        refused(limits, Limited, at=RouteLimits(starts=1))
    started(limits, "bob", at=RouteLimits(starts=1))
    limits.request("door", "ana")
    for _ in range(5):
        with pytest.raises(Unavailable):
            limits.request("door", "ana")
    clock.now += 1
    limits.request("door", "ana")


def test_only_a_run_that_waits_for_its_turn_is_refused_by_the_queue_of_its_thread() -> None:
    told: list[tuple[str, str]] = []
    limits = UsageLimits(queue=2, refused=lambda *what: told.append(what))
    first = started(limits, thread="t")
    started(limits, thread="t", if_busy=IfBusy.ENQUEUE)
    refused(limits, Limited, thread="t", if_busy=IfBusy.ENQUEUE)
    started(limits, thread="other", if_busy=IfBusy.ENQUEUE)
    started(limits, thread="t")
    first.free()
    refused(limits, Limited, thread="t", if_busy=IfBusy.ENQUEUE)
    assert told == [("door", "thread_queue")] * 2


def test_a_run_that_goes_on_from_before_counts_and_is_never_refused() -> None:
    limits = UsageLimits(client=ClientLimits(runs=1), door=DoorLimits(runs=1))
    asked = RunRequest(agent="echo", input=None, protocol="door", principal="ana")
    slots = [limits.goes_on(asked, "echo", FREE) for _ in range(2)]
    refused(limits, Limited)
    slots[0].free()
    refused(limits, Limited)
    slots[1].free()
    started(limits)


def test_a_client_that_is_refused_is_served_after_just_the_time_that_it_is_told() -> None:
    told: list[tuple[str, str]] = []
    clock = Clock()
    limits = UsageLimits(client=ClientLimits(requests=3), now=clock, refused=lambda *what: told.append(what))
    for _ in range(3):
        limits.request("door", "ana")
    for _ in range(20):
        with pytest.raises(Limited) as found:
            limits.request("door", "ana")
        assert str(found.value) == f"too many requests; try again in {found.value.retry_after:g} s"
        assert 0.332 < found.value.retry_after < 0.335
        clock.now += found.value.retry_after
        limits.request("door", "ana")
    clock.now += 0.3
    with pytest.raises(Limited):
        limits.request("door", "ana")
    limits.request("door", "bob")
    assert told == [("door", "client_requests")] * 21


def test_a_door_with_too_many_requests_is_unavailable_as_long_as_it_says() -> None:
    told: list[tuple[str, str]] = []
    clock = Clock()
    limits = UsageLimits(doors={"door": door(requests=0.5)}, now=clock, refused=lambda *what: told.append(what))
    limits.request("door", "bob")
    with pytest.raises(Unavailable) as found:
        limits.request("door", None)
    assert (type(found.value), found.value.retry_after) == (Unavailable, 2)
    limits.request("other", None)
    clock.now += 2
    limits.request("door", None)
    assert told == [("door", "door_requests")]


def test_rates_that_are_used_up_are_forgotten_and_others_are_not() -> None:
    clock = Clock()
    rates = Rates(clock)
    for number in range(MOST_RATES):
        rates.add(("client", str(number)), 1)
    clock.now += 1
    rates.add(("client", "new"), 1)
    assert rates.known == 1
    assert rates.wait(("client", "new"), 1) == 1 and not rates.wait(("client", "0"), 1)


def test_a_door_is_held_to_its_rate_where_its_clients_have_none() -> None:
    limits = UsageLimits(client=ClientLimits(requests=None), doors={"door": door(requests=0.5)}, now=Clock())
    limits.admit("door", "bob")
    with pytest.raises(Unavailable):
        limits.admit("door", "bob")


def test_a_client_is_told_when_to_come_again_by_its_own_sessions() -> None:
    clock = Clock()
    limits = UsageLimits(client=ClientLimits(sessions=1), now=clock)

    def wait(client: str) -> float:
        with pytest.raises(Limited) as found:
            limits.session("door", client, 1, lambda: False)
        return found.value.retry_after

    assert wait("bob") == 1
    clock.now += 8
    assert (wait("carol"), wait("bob")) == (1, 8)


def test_of_very_many_who_are_refused_some_are_forgotten() -> None:
    turnover = Turnover(Rates(Clock()))
    for number in range(MOST_RATES + 2):
        turnover.wait(("client", str(number)))
    assert len(turnover.watched) <= MOST_RATES + 1


def test_connections_are_counted_until_they_are_freed_by_client_and_by_door() -> None:
    told: list[tuple[str, str]] = []
    limits = UsageLimits(
        client=ClientLimits(connections=1, runs=1),
        door=DoorLimits(connections=2),
        refused=lambda *what: told.append(what),
    )
    started(limits)
    first, other = limits.admit("door", "ana"), limits.admit("door", "bob")
    assert first is not None and other is not None
    for client, kind in (("ana", Limited), ("carl", Unavailable), (None, Unavailable)):
        with pytest.raises(Unavailable) as found:
            limits.admit("door", client)
        assert (type(found.value), found.value.retry_after) == (kind, 1)
    first.free()
    assert limits.admit("door", "ana") is not None
    assert limits.admit("other", None) is not None
    assert told == [("door", "client_connections"), *[("door", "door_connections")] * 2]


def test_a_connection_counts_as_a_request_and_one_that_is_refused_as_none() -> None:
    clock = Clock()
    limits = UsageLimits(client=ClientLimits(requests=1, connections=1), now=clock)
    slots = limits.admit("door", "ana")
    assert slots is not None
    with pytest.raises(Limited, match="as many connections"):
        limits.admit("door", "ana")
    slots.free()
    with pytest.raises(Limited, match="too many requests"):
        limits.admit("door", "ana")
    clock.now += 1
    assert limits.admit("door", "ana") is not None
    assert UsageLimits().admit("door", "ana") is None


def test_nothing_is_limited_by_itself_and_no_thread_has_no_queue() -> None:
    for limits in (UsageLimits(), UsageLimits(queue=1)):
        for _ in range(3):
            started(limits, if_busy=IfBusy.ENQUEUE)
    free = UsageLimits()
    for _ in range(3):
        started(free, thread="t", if_busy=IfBusy.ENQUEUE)
