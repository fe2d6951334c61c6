"""Which route takes a request."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.agents.roster import Router
from gateway.config import Match, Route
from gateway.contract import TargetOptions
from gateway.core.errors import NotFound
from gateway.core.types import agent_id
from gateway.registry import OPERATOR


def route(name: str, agent: str = "", **match: Any) -> Route:
    """A route whose target tells it apart."""
    target = TargetOptions(protocol="p", agent=agent or name)
    return Route(name=name, match=Match.model_validate(match), target=target)


ROUTES = Router(
    [
        route("mail", "door-mail", protocol="door"),
        route("mail", "team-mail", metadata={"team": "x"}),
        route("mail"),
        route("notes", protocol=["door", "window"]),
        route("secret", metadata={"level": 3}),
    ]
)


@pytest.mark.parametrize(
    ("protocol", "agent", "metadata", "target"),
    [
        ("door", "mail", {}, "door-mail"),
        ("door", "mail", {"team": "x"}, "door-mail"),
        ("window", "mail", {"team": "x", "more": 1}, "team-mail"),
        ("window", "mail", {"team": "y"}, "mail"),
        ("window", "mail", None, "mail"),
        ("window", "notes", {}, "notes"),
        ("window", agent_id("notes"), {}, "notes"),
        ("window", agent_id("notes").upper(), {}, "notes"),
        ("window", agent_id("notes").replace("-", ""), {}, "notes"),
        (OPERATOR, "notes", {}, "notes"),
    ],
)
def test_the_first_route_that_fits_wins(protocol: str, agent: str, metadata: Any, target: str) -> None:
    assert ROUTES.match(protocol, agent, metadata).target.agent == target


@pytest.mark.parametrize(
    ("protocol", "agent", "metadata"),
    [
        ("door", "nobody", {}),
        ("door", agent_id("nobody"), {}),
        ("chimney", "notes", {}),
        ("chimney", agent_id("notes"), {}),
        ("door", "secret", {}),
        ("door", "secret", {"level": "3"}),
        ("door", "", {}),
    ],
)
def test_a_request_that_no_route_fits_is_told_the_names_it_may_use(protocol: str, agent: str, metadata: Any) -> None:
    with pytest.raises(NotFound) as raised:
        ROUTES.match(protocol, agent, metadata)
    have = "mail, notes, secret" if protocol == "door" else "mail, secret"
    assert str(raised.value) == f"no agent '{agent}'; have {have}"


def test_names_are_those_of_the_protocol_in_route_order_each_once() -> None:
    assert ROUTES.names("door") == ("mail", "notes", "secret")
    assert ROUTES.names("chimney") == ("mail", "secret")
    assert ROUTES.names(OPERATOR) == ("mail", "notes", "secret")


def test_without_a_name_the_only_agent_that_fits_is_meant() -> None:
    router = Router([route("a", protocol="door"), route("a", "second"), route("b", protocol="window")])
    assert router.match("door", None).target.agent == "a"
    assert router.match("chimney", None).target.agent == "second"
    with pytest.raises(NotFound, match="name an agent; have a, b"):
        router.match("window", None)


def test_without_a_name_and_without_a_route_there_is_nothing_to_mean() -> None:
    with pytest.raises(NotFound, match="no agent takes this request; have none"):
        Router([]).match("door", None)


@pytest.mark.parametrize(
    ("wanted", "given", "fits"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (None, None, True),
        ("a", "b", False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ([1, 2], [1, 2], True),
        ([1], [1, 2], False),
        ([True], [1], False),
        ({"a": 1}, "a", False),
    ],
)
def test_metadata_is_compared_as_json(wanted: Any, given: Any, fits: bool) -> None:
    router = Router([route("a", "special", metadata={"key": wanted}), route("a")])
    assert (router.match("door", "a", {"key": given}).target.agent == "special") is fits


def test_a_name_that_looks_like_another_agents_id_is_a_name() -> None:
    router = Router([route("a"), route(agent_id("a"), "named")])
    assert router.match("door", agent_id("a")).target.agent == "named"


def test_a_thousand_routes_are_no_slower_to_find_in() -> None:
    router = Router([route(f"a{n}") for n in range(1000)])
    began = time.process_time()
    for _ in range(1000):
        router.match("door", "a999", {})
    assert time.process_time() - began < 0.5
