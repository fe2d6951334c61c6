"""What an agent says while a transition of its run is being written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.store import RunChange
from tests.runs.test_last_step import LONG, Slow
from tests.runs.test_shielded import sound
from tests.support.scripted import Scripted, engine, request, route, until

QUESTION = Interrupt(id="q", kind="input")


def asks(change: RunChange) -> bool:
    return any(b"interrupted" in entry.data for entry in change.events)


@pytest.mark.parametrize("drained", [True, False])
async def test_a_question_stands_and_the_run_fails_where_what_was_said_meanwhile_fits_no_document(
    tmp_path: Path, drained: bool
) -> None:
    store = Slow(tmp_path / "store.db", asks)

    async def agent(context: RunContext) -> None:
        context.emit(
            e.PartStarted(part="data", message="m", kind="data"), e.PartDelta(part="data", delta={"message": "one"})
        )
        asking = asyncio.create_task(context.ask(QUESTION))
        await store.reached.wait()
        context.emit(e.PartDelta(part="data", delta={"message": [1]}))
        context.emit(e.PartDelta(part="data", delta={"message": " two"}))
        assert not context.flowing
        if drained:
            store.go.set()
            await context.drain()
            raise AssertionError("it was told of nothing")
        assert (await asking).outcome is Outcome.ANSWERED
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        if not drained:
            await asyncio.wait_for(store.reached.wait(), LONG)
            store.go.set()
            await until(lambda: gateway.live[started.id].run.status is RunStatus.INTERRUPTED)
            await gateway.runs.answer(started.id, Answer(outcome=Outcome.ANSWERED, value="this"))
        await until(lambda: started.id not in gateway.live)
        done = await gateway.runs.get(started.id)
        assert done.failure is not None
        assert (done.failure.code, bytes(done.output)) == ("bad_delta", b'{"message":"one two"}')
        await sound(gateway, started.id)
        said = [type(event) for _, event in await gateway.runs.events(started.id)]
        assert said.count(e.Interrupted) == 1
