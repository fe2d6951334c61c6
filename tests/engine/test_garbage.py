"""What runs leave in memory once they have ended."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gateway.adapter import RunContext
from gateway.core import events as e
from gateway.engine import garbage
from gateway.engine.live import LiveRun
from tests.engine.test_runs import ended
from tests.support.aio import run
from tests.support.scripted import Scripted, echo, engine, request, route, until


@pytest.fixture
def lazy() -> Iterator[None]:
    """A collector that does nothing of itself, as good as that of a gateway that has few and great messages."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> int:
    return sum(type(each) is LiveRun for each in gc.get_objects())


@pytest.mark.usefixtures("lazy")
def test_a_run_is_gone_from_memory_when_it_has_ended_and_not_with_the_next_collection() -> None:
    async def scene() -> None:
        scripted = Scripted(echo)
        async with engine((route(), scripted)) as gateway:
            await ended(gateway, (await gateway.start(request())).id)
            scripted.contexts.clear()
            await until(lambda: not left())

    run(scene())


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("great", ["what it takes", "what it says"])
def test_great_runs_that_an_adapter_holds_in_a_circle_are_collected(
    great: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "ENOUGH_BYTES", 50_000)
    monkeypatch.setattr(garbage, "LATER_SECONDS", 0.0)

    async def agent(context: RunContext) -> None:
        circle = [context]
        circle.append(circle)  # type: ignore[arg-type]
        context.emit(e.PartDelta(part="text", delta="x" * (60_000 if great == "what it says" else 1)), e.RunFinished())

    async def scene() -> None:
        scripted = Scripted(agent)
        async with engine((route(), scripted)) as gateway:
            for _ in range(3):
                message = "y" * (60_000 if great == "what it takes" else 1)
                await ended(gateway, (await gateway.start(request(message))).id)
                scripted.contexts.clear()
            await until(lambda: left() <= 1)

    run(scene())
