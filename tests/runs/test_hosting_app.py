"""The composition root with an inbound half that hosts agents: opened, looked at every moment, closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from gateway import app
from gateway.app import App
from gateway.config import Config, loads
from gateway.contract import Adapter, Gateway, Hosted, Kept, TargetOptions
from gateway.core.errors import InterlinguaError
from gateway.core.types import ModelTraits, Standing
from gateway.transport.pipe import Pipe
from tests.runs.test_roster import spoken
from tests.support.scripted import AGENT, Scripted, echo, until

FILE = """
inbound: %s
store: {url: sqlite:///s.db}
routes:
  - {name: own, target: {protocol: far}}
  - {name: rated, target: {protocol: far}, delegation: {approve: false, quality: 9}, model: {cost: 0.1}}
"""
KNOWN = Standing(approve=True, quality=1.0, security=3.0)


class House:
    """Whoever is kept under `agent/NAME` is an agent, away while another process keeps its connection."""

    def __init__(self, options: object, gateway: Gateway) -> None:
        self.gateway = gateway
        self.seen: Sequence[Kept] = ()
        self.here: dict[str, Hosted] = {}
        self.closed = self.opened = 0

    async def open(self) -> None:
        self.opened += 1
        await self.refresh()

    async def refresh(self) -> None:
        if (now := await self.gateway.records.kept("house")) is self.seen:
            return
        self.seen = now
        names = [kept.name.removeprefix("agent/") for kept in now]
        self.here = {name: self.here.get(name) or Hosted(Scripted(echo)) for name in names}
        self.gateway.agents.hosted_changed("house")

    def hosted(self) -> Mapping[str, Hosted]:
        return self.here

    async def aclose(self) -> None:
        await self.gateway.records.kept("house")  # the store is still open
        self.closed += 1

    def routes(self) -> Sequence[BaseRoute]:
        return []

    def refusal(self, error: InterlinguaError) -> Response:
        return PlainTextResponse(str(error))

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        raise AssertionError


def far(target: TargetOptions) -> Scripted:
    return Scripted(echo, agent=replace(AGENT, standing=KNOWN, model=ModelTraits(speed=1.0)))


ADAPTERS: dict[str, Adapter] = {
    "far": Adapter(name="far", title="Far", call=far),
    "house": Adapter(name="house", title="House", serve=House, socket="/ws"),
}


def read(tmp_path: Path, inbound: str) -> Config:
    config = loads(FILE % inbound, ADAPTERS, {})
    config._path = tmp_path / "routes.yaml"
    return config


@contextlib.asynccontextmanager
async def started(tmp_path: Path, inbound: str = "{house: }") -> AsyncIterator[App]:
    running = App(read(tmp_path, inbound))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def house(running: App) -> House:
    half: Any = running.gateway.agents.hosts["house"]
    assert isinstance(half, House)
    return half


async def test_what_is_registered_at_one_gateway_is_an_agent_at_every_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "HOSTED_SECONDS", 0.01)

    async with started(tmp_path) as first, started(tmp_path, "{}") as second:
        assert not second.gateway.agents.hosts
        half = await second.conversing("house")
        assert half is house(second) and half.opened == house(first).opened == 1
        assert await second.conversing("house") is half
        await first.gateway.records.keep("house", "agent/guest", {}, owner="ann")
        await until(lambda: all("guest" in one.gateway.agents.names("test") for one in (first, second)))
        assert "hello" in await spoken(second.gateway, "guest")
        await second.gateway.records.forget("house", "agent/guest")
        await until(lambda: all("guest" not in one.gateway.agents.names("test") for one in (first, second)))
        await first.gateway.records.keep("house", "agent/lasting", {}, owner="ann")
    assert (half.closed, house(first).closed) == (1, 1)
    async with started(tmp_path) as third:
        assert "lasting" in third.gateway.agents.names("test"), "read before the first request"


async def test_what_a_route_says_of_its_agent_comes_before_what_the_agent_says(tmp_path: Path) -> None:
    async with started(tmp_path) as running:
        own, rated = await asyncio.gather(*(running.gateway.agents.get(name, "test") for name in ("own", "rated")))
        assert (own.standing, own.model) == (KNOWN, ModelTraits(speed=1.0))
        assert rated.standing == Standing(approve=False, quality=9.0, security=3.0)
        assert rated.model == ModelTraits(cost=0.1)
