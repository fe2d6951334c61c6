"""What runs leave in memory once they have ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from gateway.contract import Batch, RunContext, Watch
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.runs import starting
from gateway.runs.engine import Engine
from gateway.runs.live import LiveRun
from tests.runs.test_runs import ended
from tests.support.scripted import Scripted, echo, engine, request, route, until

Left = Callable[[], int]


@pytest.fixture
def left() -> Iterator[Left]:
    """How many runs of the test are in memory; with a collector that does nothing of itself, as good as that of a
    gateway that has few and great messages.
    """
    gc.collect()
    before = live()
    gc.disable()
    yield lambda: sum(not any(each is other for other in before) for each in live())
    gc.enable()


def live() -> list[LiveRun]:
    return [each for each in gc.get_objects() if type(each) is LiveRun]


async def test_a_run_is_gone_from_memory_when_it_has_ended_and_not_with_the_next_collection(left: Left) -> None:
    scripted = Scripted(echo)
    async with engine((route(), scripted)) as gateway:
        await ended(gateway, (await gateway.runs.start(request())).id)
        scripted.contexts.clear()
        await until(lambda: not left())


async def test_a_watch_that_is_over_is_gone_from_memory_with_what_followed(left: Left) -> None:
    async def followed(gateway: Engine, run_id: str) -> weakref.ref[Watch]:
        async with gateway.runs.watch(run_id) as watch:

            def take(batch: Batch) -> None:
                assert watch.run.id == run_id

            assert await watch.follow(take)
            return weakref.ref(watch)

    async with engine((route(), Scripted(echo))) as gateway:
        over = await followed(gateway, (await gateway.runs.start(request())).id)
        await until(lambda: over() is None)


@pytest.mark.parametrize("great", ["what it takes", "what it says"])
async def test_great_runs_that_their_errors_hold_in_a_circle_are_collected(
    great: str, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "COLLECT_BYTES", 50_000)
    monkeypatch.setattr(starting, "COLLECT_SECONDS", 0.0)

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="x" * (60_000 if great == "what it says" else 1)))
        error = AgentFailed("it is broken")  # its traceback has this frame
        raise error

    scripted = Scripted(agent)
    async with engine((route(), scripted)) as gateway:
        for _ in range(3):
            message = "y" * (60_000 if great == "what it takes" else 1)
            await ended(gateway, (await gateway.runs.start(request(message))).id)
            scripted.contexts.clear()
        await until(lambda: left() <= 1)
