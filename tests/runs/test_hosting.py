"""Agents that inbound halves bring: a third source of the roster, beside found and created ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gateway.config import Route
from gateway.contract import Hosted, Hosting, RunContext, ThreadContext
from gateway.core.errors import Invalid, NotFound, Unsupported
from gateway.core.types import Agent, Run, RunStatus
from gateway.registry import OPERATOR
from gateway.runs import Engine
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore
from tests.runs.test_roster import Many, said_config, spoken
from tests.support import aio, scripted
from tests.support.scripted import AGENT, Scripted, echo, request, until


class House:
    """An inbound half whose agents are in a dictionary; what it is asked is in `asked`."""

    def __init__(self, **agents: Scripted | Hosted) -> None:
        self.agents: dict[str, Hosted] = {}
        self.asked: list[str] = []
        self.failing = False
        self.now(**agents)

    def now(self, **agents: Scripted | Hosted) -> None:
        self.agents = {name: one if isinstance(one, Hosted) else Hosted(one) for name, one in agents.items()}

    async def open(self) -> None:
        self.asked.append("open")

    def hosted(self) -> Mapping[str, Hosted]:
        if self.failing:
            raise RuntimeError("odd")
        return self.agents

    async def refresh(self) -> None:
        self.asked.append("refresh")

    async def aclose(self) -> None:
        self.asked.append("close")


class Away(Scripted):
    """An agent whose connection has gone."""

    reachable: bool | None = False


@contextlib.asynccontextmanager
async def engine(
    *agents: tuple[Route, Scripted], file: Path | None = None, store: SqliteStore | None = None, **halves: Hosting
) -> AsyncIterator[Engine]:
    made = Engine(store or open_store(f"sqlite:///{file}" if file else "sqlite://"))
    made.agents.host(halves)
    scripted.use(made, *agents)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def done(gateway: Engine, run: Run) -> Run:
    ended = await gateway.runs.wait(run.id, 30)
    assert ended is not None
    return ended


def held(gate: asyncio.Event) -> Scripted:
    async def script(context: RunContext) -> None:
        await gate.wait()
        await echo(context)

    return Scripted(script)


async def test_a_hosted_agent_is_there_for_the_clients_of_every_protocol() -> None:
    house = House(guest=Scripted(echo), private=Hosted(Scripted(echo), protocols=("house",)))
    async with engine((scripted.route("own"), Scripted(echo)), house=house) as gateway:
        assert house.asked == ["open"]
        assert list(gateway.agents.names("test")) == ["own", "guest"]
        assert list(gateway.agents.names("house")) == ["own", "guest", "private"]
        assert list(gateway.agents.names(OPERATOR)) == ["own", "guest"]
        assert [agent.name for agent in await gateway.agents.list("test")] == ["own", "guest"]
        assert "hello" in await spoken(gateway, "guest", input={"message": "hello"})
        assert "hello" in await spoken(gateway, gateway_id := (await gateway.agents.get("guest", "x")).id), gateway_id
        with pytest.raises(NotFound):
            await gateway.runs.start(request(agent="private"))
    assert house.asked[-1] == "close"


async def test_its_clients_errors_are_told_as_for_any_route() -> None:
    house = House(guest=Scripted(echo))
    async with engine(house=house) as gateway:
        with pytest.raises(Invalid) as wrong:
            await gateway.runs.start(request(agent="guest", input={"message": 3}))
        assert wrong.value.path == "/input/message"
        with pytest.raises(Unsupported, match="does not speak"):
            await gateway.backchannel.relay("guest", "house", "m", msgspec.Raw(b"{}"))


async def test_a_client_of_its_own_protocol_may_speak_to_it_directly() -> None:
    class Open(Scripted):
        async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
            return msgspec.Raw(json.dumps([context.agent.name, method]).encode())

        async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
            raise AssertionError

    async with engine(house=House(guest=Open(echo))) as gateway:
        answer = await gateway.backchannel.relay("guest", "house", "hi", msgspec.Raw(b"{}"))
        assert json.loads(bytes(answer)) == ["guest", "hi"]
        with pytest.raises(Unsupported):
            await gateway.backchannel.relay("guest", "test", "hi", msgspec.Raw(b"{}"))


async def test_those_that_come_and_go_are_seen_at_once_and_told_to_all() -> None:
    house, told = House(), []
    async with engine(house=house) as gateway:
        gateway.agents.on_change(lambda: told.append(list(gateway.agents.names("test"))))
        one = Scripted(echo)
        house.now(a=one)
        assert not gateway.agents.names("test"), "nobody has been told"
        gateway.agents.hosted_changed("house")
        house.now(a=one, b=Scripted(echo))
        gateway.agents.hosted_changed("house")
        house.now(b=Scripted(echo))
        gateway.agents.hosted_changed("house")
        gateway.agents.hosted_changed("somebody-else")
        assert told == [["a"], ["a", "b"], ["b"], ["b"]]
        with pytest.raises(NotFound):
            await gateway.runs.start(request(agent="a"))
        await until(lambda: one.closed)


async def test_an_agent_that_is_described_in_other_words_is_asked_anew() -> None:
    half = Scripted(echo)
    house = House(guest=half)
    async with engine(house=house) as gateway:
        assert (await gateway.agents.get("guest", "test")).description == "The agent guest, through Interlingua."
        half.agent = replace(AGENT, description="another")
        assert (await gateway.agents.get("guest", "test")).description == "The agent guest, through Interlingua."
        gateway.agents.hosted_changed("house")
        assert (await gateway.agents.get("guest", "test")).description == "another"
        half.agent = replace(AGENT, input_schema={"type": "object", "required": ["other"]})
        gateway.agents.hosted_changed("house", ["somebody"])
        await gateway.runs.start(request(agent="guest"))
        gateway.agents.hosted_changed("house", ["guest", "somebody"])
        with pytest.raises(Invalid):
            await gateway.runs.start(request(agent="guest"))


async def test_a_run_keeps_the_agent_it_began_with_which_is_closed_when_it_has_ended() -> None:
    gate = asyncio.Event()
    first, second = held(gate), Scripted(said_config)
    house = House(guest=first)
    async with engine(house=house) as gateway:
        run = await gateway.runs.start(request("still here", agent="guest"))
        house.now(guest=second)
        gateway.agents.hosted_changed("house")
        assert "[]" in await spoken(gateway, "guest")
        house.now()
        gateway.agents.hosted_changed("house")
        await until(lambda: second.closed)
        assert not first.closed
        gate.set()
        ended = await done(gateway, run)
        assert ended.status is RunStatus.SUCCESS and b"still here" in bytes(ended.output)
        await until(lambda: first.closed)


async def test_every_agent_is_closed_once_whatever_became_of_it() -> None:
    class Counted(Scripted):
        closes = 0

        async def aclose(self) -> None:
            self.closes += 1

    class Slow(Counted):
        async def describe(self) -> Agent:
            asked.set()
            await goes_on.wait()
            return self.agent

    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def hang(context: RunContext) -> None:
        await asyncio.Event().wait()

    slow = Slow(echo)
    house = House(slow=slow)
    async with engine(house=house) as gateway:
        starting = asyncio.ensure_future(gateway.runs.start(request(agent="slow")))
        await asked.wait()
        house.now()
        gateway.agents.hosted_changed("house")
        assert not slow.closes, "it went while a run was about to begin"
        goes_on.set()
        await done(gateway, await starting)
        await until(lambda: slow.closes == 1)
    stays, gone, replaced, busy = (Counted(hang) for _ in range(4))
    house = House(stays=stays, gone=gone, replaced=replaced, busy=busy)
    async with engine(house=house) as gateway:
        for name in ("stays", "busy"):
            await gateway.runs.start(request(agent=name))
        house.now(stays=stays, replaced=Counted(hang))
        gateway.agents.hosted_changed("house")
    assert [one.closes for one in (stays, gone, replaced, busy)] == [1, 1, 1, 1]


async def test_names_of_the_route_table_and_of_found_agents_come_first(caplog: pytest.LogCaptureFixture) -> None:
    taken = {"own": Scripted(said_config), "found": Scripted(said_config), "free": Scripted(said_config)}
    house, other = House(**taken), House(free=Scripted(echo), bee=Scripted(echo))
    many = Many("found")
    own, bee = (scripted.route("own"), Scripted(echo)), (scripted.route("bee"), many)
    with caplog.at_level(logging.WARNING):
        async with engine(own, bee, house=house, other=other) as gateway:
            assert list(gateway.agents.names("test")) == ["own", "found", "free"]
            assert "hello" in await spoken(gateway, "own", input={"message": "hello"})
            assert "hello" in await spoken(gateway, "found", input={"message": "hello"})
            assert "hello" not in await spoken(gateway, "free", input={"message": "hello"})
            assert [gateway.agents.routed(n) for n in ("own", "bee", "found", "free", "no")] == [True] * 3 + [False] * 2
            for _ in range(3):
                gateway.agents.hosted_changed("house")
            warned = [record.message for record in caplog.records if "taken" in record.message]
            assert len(warned) == len(set(warned)) == 4, "each is said once"
            scripted.use(gateway)
            assert list(gateway.agents.names("test")) == ["own", "found", "free", "bee"]
            assert not taken["own"].closed


def test_a_name_that_is_none_and_a_half_that_fails_keep_nobody_back(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        house = House(**{"two words": Scripted(echo), "fine": Scripted(echo)})
        async with engine(house=house) as gateway:
            assert list(gateway.agents.names("test")) == ["fine"]
            house.failing = True
            gateway.agents.hosted_changed("house")
            assert list(gateway.agents.names("test")) == ["fine"]

    aio.run(story())
    assert "'two words' of house is not served" in caplog.text


async def test_the_bounds_of_a_hosted_agent_are_those_it_came_with() -> None:
    async def hang(context: RunContext) -> None:
        await asyncio.Event().wait()

    slow = Scripted(hang)
    house = House(slow=Hosted(slow, timeout=0.01, protocols=("test",)))
    async with engine(house=house) as gateway:
        run = await gateway.runs.start(request(agent="slow"))
        assert (await done(gateway, run)).status is RunStatus.TIMEOUT
        entry = gateway.agents.entry("slow", "test")
        house.agents["slow"] = Hosted(slow, timeout=None, lossy=True)
        gateway.agents.hosted_changed("house")
        assert gateway.agents.entry("slow", "other") is entry
        assert (entry.route.timeout, entry.route.lossy) == (None, "allow")
        assert not slow.closed


async def test_an_agent_is_reachable_as_far_as_is_known() -> None:
    away = Away(echo)
    private = Hosted(Scripted(echo), protocols=("house",))
    async with engine(house=House(here=Scripted(echo), away=away, private=private)) as gateway:
        names = ("here", "away", "private", "nobody")
        assert [gateway.agents.reachable(name, "test") for name in names] == [True, False, False, False]
        away.reachable = True
        assert gateway.agents.reachable("away", "test") and gateway.agents.reachable("private", "house")
        away.reachable = None
        assert not gateway.agents.reachable("away", "test") or (await gateway.agents.get("away", "test"))
