"""`authentication` is one option: the same shape and the same meaning at each door, and `check` and `serve` know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from adapters import agent_client
from gateway import registry
from gateway.access import (
    ANONYMOUS,
    AuthenticatingOptions,
    Authentication,
    Authenticator,
    Principal,
    ScopedGateway,
    Visit,
)
from gateway.access.options import OperatorOptions
from gateway.access.visit import LastingWatch
from gateway.config import load
from gateway.config.exposure import cautions, exposed
from gateway.contract import Adapter
from gateway.core.errors import Conflict, NotFound, Unauthenticated
from gateway.core.types import Identity, RunQuery, Thread, ThreadQuery
from tests.authentication.rig import ADAPTERS, ANA, AUTHENTICATION, BOB, JWT, token
from tests.governance.support import manifest
from tests.support.aio import run
from tests.support.scripted import Scripted, echo, engine, request, route

DOORS = (*ADAPTERS, agent_client.ADAPTER)


@pytest.mark.parametrize("adapter", DOORS, ids=lambda adapter: adapter.name)
def test_each_door_takes_the_same_section(adapter: Adapter) -> None:
    assert issubclass(adapter.serve_options, AuthenticatingOptions)
    found = adapter.serve_options.model_validate({"authentication": AUTHENTICATION})
    assert found.authentication == Authentication.model_validate(AUTHENTICATION)
    assert found.authenticates and not adapter.serve_options().authenticates
    for wrong, why in (
        ({}, "nobody could connect"),
        ({"clients": [{"name": "a", "token": "x"}, {"name": "a", "token": "y"}]}, "twice"),
        ({"clients": [{"name": ANONYMOUS, "token": "x"}]}, "nobody may be called"),
        ({"clients": [{"name": "a", "role": ["x"]}]}, "role"),
        ({"jwt": {**JWT, "key": "short"}}, "too short"),
    ):
        with pytest.raises(ValidationError, match=why):
            adapter.serve_options.model_validate({"authentication": wrong})


def test_operators_are_somebody_and_each_of_them_once() -> None:
    one: dict[str, Any] = {"name": "olga", "token": "x"}
    assert OperatorOptions.model_validate({"clients": [one]}).jwt is None
    assert OperatorOptions.model_validate({"jwt": JWT}).clients == ()
    for wrong, why in (
        ({}, "nobody could operate"),
        ({"clients": [one, {**one, "token": "y"}]}, "twice"),
        ({"clients": [one, {**one, "name": "otto"}]}, "same token"),
    ):
        with pytest.raises(ValidationError, match=why):
            OperatorOptions.model_validate(wrong)


def table(folder: Path, inbound: str) -> Any:
    manifest(folder / "coder", kind="bridge")
    file = folder / "routes.yaml"
    target = "{protocol: agent_protocol, url: 'http://127.0.0.1:1'}"
    file.write_text(f"inbound: {inbound}\nroutes:\n  - {{name: coder, target: {target}, manifest: coder/ACP.md}}\n")
    return load(file, registry.scan())


@pytest.mark.parametrize("adapter", DOORS, ids=lambda adapter: adapter.name)
def test_a_governed_agent_may_be_behind_every_door_that_asks_and_no_other(adapter: Adapter, tmp_path: Path) -> None:
    asking = f"{adapter.name}: {{authentication: {{clients: [{{name: ana, token: x}}]}}}}"
    assert exposed(table(tmp_path, f"{{{asking}}}")) == cautions(table(tmp_path, f"{{{asking}}}")) == ()
    (mistake,) = exposed(table(tmp_path, f"{{{adapter.name}: }}"))
    assert f"those of {adapter.name} are not" in str(mistake)
    (mistake,) = exposed(table(tmp_path, f"{{{asking}, example: }}"))
    assert "those of example are not" in str(mistake)


def test_nobody_is_called_anonymous_and_what_such_a_one_made_is_nobodys() -> None:
    people = Authenticator(Authentication.model_validate(AUTHENTICATION))
    with pytest.raises(Unauthenticated):
        people.principal(token(ANONYMOUS))
    overseer = Principal(Identity(id="olga"), oversees=True)
    assert overseer.has("anybody") and overseer.has("olga")
    assert not overseer.has(ANONYMOUS) and not overseer.has(None) and not overseer.has(7)


def test_a_client_of_the_list_has_its_rights_by_a_jwt_as_well_and_others_those_of_the_token() -> None:
    people = Authenticator(Authentication.model_validate(AUTHENTICATION))
    ana, signed = people.principal(ANA), people.principal(token("ana", groups=["boss"]))
    assert (ana.who, ana.tools, ana.agents) == (signed.who, signed.tools, signed.agents) and ana.same(signed)
    assert ana.who.roles == ("lead",) and signed.expires < ana.expires
    other = people.principal(token(groups="a b"))
    assert (other.who, other.agents, other.oversees) == (
        Identity(id="visitor", roles=("a", "b")),
        ("echo", "held"),
        False,
    )


async def test_lists_and_counts_have_what_is_ones_own_however_it_is_found() -> None:
    options = Authentication.model_validate(AUTHENTICATION)
    people = Authenticator(options)
    agents = [(route(name), Scripted(echo)) for name in ("echo", "asker", "held")]
    async with engine(*agents) as gateway:
        ana, bob = (ScopedGateway(gateway, Visit(people, people.principal(each))) for each in (ANA, BOB))
        narrow = ScopedGateway(gateway, Visit(people, replace_agents(people.principal(ANA), ("echo",))))
        for number, name in enumerate(("echo", "held", "echo", "held", "echo")):
            await ana.runs.start(request(agent=name, metadata={"number": number}))
            await ana.threads.create(Thread(id=f"t{number}", created_at=number, updated_at=0, agent=name))
        await bob.runs.start(request(agent="echo"))
        every = await ana.runs.list(RunQuery(limit=100, oldest_first=True))
        assert [each.request.metadata["number"] for each in every] == [0, 1, 2, 3, 4]
        page = RunQuery(limit=2, offset=1, oldest_first=True)
        assert [each.request.metadata["number"] for each in await ana.runs.list(page)] == [1, 2]
        assert [each.request.metadata["number"] for each in await narrow.runs.list(page)] == [2, 4]
        assert [each.id for each in await narrow.threads.list(ThreadQuery(limit=2, offset=1, oldest_first=True))] == [
            "t2",
            "t4",
        ]
        assert [await each.runs.count(page) for each in (ana, narrow, bob)] == [5, 3, 1]
        assert [await each.threads.count(ThreadQuery(limit=1)) for each in (ana, narrow, bob)] == [5, 3, 0]
        assert await ana.runs.count(RunQuery(metadata={"number": 3})) == 1
        assert await bob.runs.list(RunQuery(thread="t0")) == [] and await bob.runs.count(RunQuery(thread="t0")) == 0
        with pytest.raises(Conflict):
            await bob.threads.create(Thread(id="t0", created_at=0, updated_at=0), or_get=True)
        for call in (
            bob.threads.get("t0"),
            narrow.threads.get("t1"),
            narrow.runs.get(every[1].id),
            bob.threads.history("t0"),
        ):
            with pytest.raises(NotFound):
                await call
        mine = replace(every[0].request, thread="t0")
        with pytest.raises(NotFound, match="no thread t0"):
            await bob.runs.start(mine)


def replace_agents(principal: Principal, agents: tuple[str, ...]) -> Principal:
    return Principal(principal.who, agents, principal.expires, principal.oversees, principal.tools)


def test_who_follows_a_run_without_a_time_limit_follows_it_for_as_long_as_the_token_holds() -> None:
    limits: list[float] = []

    class Quiet:
        async def follow(self, take: Any, timeout: float) -> bool:
            limits.append(timeout)
            return True

    async def scene() -> None:
        door = Authenticator(Authentication.model_validate(AUTHENTICATION))
        watched: Any = Quiet()
        for shown in (ANA, token(seconds=600)):
            await LastingWatch(watched, Visit(door, door.principal(shown))).follow(print)
        await LastingWatch(watched, Visit(door, door.principal(ANA))).follow(print, 0.5)

    run(scene())
    assert min(limits[:2]) > 1 and limits[2] <= 0.5
