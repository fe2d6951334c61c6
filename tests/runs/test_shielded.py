"""Who wants a run changed is cancelled while the change is being written: it is carried out all the same."""

from __future__ import annotations

import asyncio

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.stream import Opener
from gateway.core.types import Answer, Interrupt, Run, RunStatus
from gateway.runs import Engine
from tests.support.scripted import Scripted, engine, request, route, until

TURNS = (0, 1, 2, 4)
"""Of the loop, before it is cancelled."""


async def begun(work: asyncio.Task[object], turns: int) -> None:
    """It has begun, and is cancelled."""
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    work.cancel()
    await asyncio.wait([work])


async def sound(gateway: Engine, run_id: str) -> list[tuple[int, e.Event]]:
    """The log that was stored, which has every number once and can be read again; and so has been the end."""
    log = list(await gateway.runs.events(run_id))
    again = Opener()
    for at, (number, event) in enumerate(log, 1):
        assert number == at
        again.replay(event)
    assert isinstance(log[-1][1], e.TERMINAL)
    stored: Run = await gateway.store.run(run_id)
    assert stored.status.ended
    return log


@pytest.mark.parametrize("turns", TURNS)
async def test_a_question_that_is_withdrawn_while_it_is_written_down_costs_the_run_nothing(turns: int) -> None:
    async def agent(context: RunContext) -> None:
        question = Interrupt(id="q", kind="input", message="?", answer_schema={})
        await begun(asyncio.create_task(context.ask(question)), turns)
        context.emit(e.PartDelta(part="text", delta="on"), e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: created.id not in gateway.live)
        done = await gateway.runs.get(created.id)
        assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"on"}')
        await sound(gateway, done.id)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("what", ["answer", "cancel"])
async def test_an_answer_or_a_cancel_whose_client_goes_while_it_is_written_down_counts(what: str, turns: int) -> None:
    async def agent(context: RunContext) -> None:
        answer = await context.ask(Interrupt(id="q", kind="input", message="?", answer_schema={}))
        context.emit(e.PartDelta(part="text", delta=f"{answer.value}"), e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await gateway.runs.wait(created.id, timeout=30)
        change = (
            gateway.runs.answer(created.id, Answer(value="yes"))
            if what == "answer"
            else gateway.runs.cancel(created.id)
        )
        await begun(asyncio.create_task(change), turns)
        await until(lambda: created.id not in gateway.live)
        done = await gateway.runs.get(created.id)
        assert done.status is (RunStatus.SUCCESS if what == "answer" else RunStatus.CANCELLED)
        await sound(gateway, created.id)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_run_whose_adapter_is_given_up_while_its_end_is_written_down_has_ended(turns: int) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())
        await begun(asyncio.create_task(context.drain()), turns)

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        await until(lambda: created.id not in gateway.live)
        assert (await gateway.runs.get(created.id)).status is RunStatus.SUCCESS
        await sound(gateway, created.id)
