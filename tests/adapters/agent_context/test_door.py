"""The inbound half before its first client: it is made when there is something for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_context import ADAPTER
from adapters.agent_context.door import AgentContextDoor
from adapters.agent_context.options import AgentContextServe
from gateway.core.errors import Unavailable
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.adapters.agent_context.directory.rig import ANYBODY, record, session


async def opened(file: Path, **options: Any) -> tuple[Engine, AgentContextDoor]:
    engine = Engine(open_store(f"sqlite:///{file}"))
    door = AgentContextDoor(AgentContextServe(**options), engine)
    engine.agents.host({"agent_context": door})
    await engine.open()
    return engine, door


def made(door: AgentContextDoor) -> bool:
    return door._made is not None


async def test_an_agent_that_joins_another_process_is_there_without_a_client_here(tmp_path: Path) -> None:
    one, first = await opened(tmp_path / "s.db")
    two, second = await opened(tmp_path / "s.db")
    await two.agents.refresh_hosted()
    assert not made(first) and not made(second) and not two.agents.names("test")
    await first.half.directory.register(record("it"), ANYBODY, session())
    await two.agents.refresh_hosted()
    assert made(second) and list(two.agents.names("test")) == ["it"]
    for engine in (two, one):
        await engine.close()
    three, third = await opened(tmp_path / "s.db")  # the agent is kept
    assert made(third) and list(three.agents.names("test")) == ["it"]
    await three.close()


async def test_a_half_that_cannot_be_opened_yet_is_opened_by_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, door = await opened(tmp_path / "s.db")
    kept, keep = engine.records.kept, engine.records.keep

    async def fails(*_: Any, **__: Any) -> Any:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(engine.records, "keep", fails)
    assert door.half is not None
    waiting = asyncio.gather(door.refresh(), door.coordinator.known(), return_exceptions=True)
    assert [type(one) for one in await waiting] == [Unavailable, Unavailable], "whoever waits for it hears why"
    monkeypatch.setattr(engine.records, "keep", keep)
    await door.refresh()
    assert [one.name for one in await kept("agent_context")] == [f"process/{engine.process}"]
    await engine.close()


async def test_a_half_that_is_made_while_the_gateway_stops_serves_nobody(tmp_path: Path) -> None:
    engine, door = await opened(tmp_path / "s.db")
    door.quiet()
    assert door.half.env.runs.quiet
    await engine.close()


async def test_agents_are_announced_from_the_start_on(tmp_path: Path) -> None:
    engine, door = await opened(tmp_path / "s.db", announce=[{"url": "http://127.0.0.1:9/"}])
    assert made(door) and door.half.announcing[0]._task is not None
    await engine.close()


def test_a_door_that_knows_its_clients_is_made_at_once() -> None:
    assert ADAPTER.serve is not None
    options = AgentContextServe.model_validate({"access": {"anonymous": ["read"]}})
    assert hasattr(ADAPTER.serve(options, Engine(open_store("sqlite://"))), "sees")
    assert not hasattr(ADAPTER.serve(AgentContextServe(), Engine(open_store("sqlite://"))), "sees")
