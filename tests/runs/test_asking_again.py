"""An agent that gives a question up and asks it again under the same name: each time it is a question of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt
from gateway.store import RunChange
from tests.runs.test_held_back import asks
from tests.runs.test_last_step import Slow
from tests.support.scripted import Scripted, engine, request, route, until

QUESTION = Interrupt(id="q", kind="input")


@pytest.mark.parametrize("written", [False, True])
async def test_who_gives_a_question_up_and_asks_it_again_gets_what_that_one_is_answered(
    tmp_path: Path, written: bool
) -> None:
    """`written`: whether the first was, when it is given up."""
    store = Slow(tmp_path / "store.db", asks)

    async def agent(context: RunContext) -> None:
        given_up = asyncio.create_task(context.ask(QUESTION))
        await store.reached.wait()
        if written:
            store.go.set()
            await until(lambda: bool(context.run.interrupts))
        given_up.cancel()
        await asyncio.wait([given_up])
        again = asyncio.create_task(context.ask(QUESTION))
        await asyncio.sleep(0)  # so that it has asked
        store.go.set()
        answer = await again
        context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} {answer.value}"), e.RunFinished())

    async with engine((route(), Scripted(agent)), store=store) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        await until(lambda: live.ended or [each.id for each in live.run.interrupts] == ["q#2"])
        assert not live.ended, f"it was answered {bytes(live.run.output)!r}"
        await gateway.runs.answer(started.id, Answer(value="yes"))
        await until(lambda: live.ended)
        assert json.loads(bytes(live.run.output)) == {"message": "answered yes"}


def resumes(change: RunChange) -> bool:
    return any(b"resumed" in entry.data for entry in change.events)


async def test_a_question_that_is_asked_again_after_a_restart_while_its_answer_is_written_gets_that(
    tmp_path: Path,
) -> None:
    file = tmp_path / "store.db"

    async def asking(context: RunContext) -> None:
        await context.set_upstream({"id": "u1"})
        await context.ask(QUESTION)

    async with engine((route(), Scripted(asking)), file=file) as gateway:
        started = await gateway.runs.start(request())
        await until(lambda: bool(gateway.live[started.id].run.interrupts))

    store, asked = Slow(file, resumes), asyncio.Event()

    async def attached(context: RunContext) -> None:
        await store.reached.wait()
        again = asyncio.create_task(context.ask(QUESTION))
        await asyncio.sleep(0)  # so that it has asked
        asked.set()
        answer = await again
        context.emit(e.PartDelta(part="text", delta=f"answered {answer.value}"), e.RunFinished())

    async with engine((route(), Scripted(asking, attach=attached)), store=store) as gateway:
        await until(lambda: started.id in gateway.live)
        answering = asyncio.create_task(gateway.runs.answer(started.id, Answer(value="yes")))
        await asyncio.wait_for(asked.wait(), 30)
        store.go.set()
        await answering
        done = await gateway.runs.wait(started.id, 30)
        assert done is not None and not done.interrupts
        assert json.loads(bytes(done.output)) == {"message": "answered yes"}
