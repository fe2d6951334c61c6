"""Bursts of events of which one is no good: the others stand, and the log can be read again."""

from __future__ import annotations

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, IllegalEvent
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import RunStatus
from tests.runs.test_runs import ended, watched
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted, engine, request, route


def test_what_came_before_an_illegal_event_of_a_burst_is_logged_and_the_run_goes_on() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c", name="look"))
        context.emit(e.ToolCallEnded(call="c"))
        with pytest.raises(IllegalEvent):
            context.emit(e.PartDelta(part="text", delta="one "), e.ToolCallUpdated(call="c"), e.Custom(name="lost"))
        context.emit(e.PartDelta(part="text", delta="two"), e.RunFinished())

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:
            done = await ended(gateway, (await gateway.runs.start(request())).id)
            assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"one two"}')
            again = Opener()
            for _, event in await watched(gateway, done.id):
                again.replay(event)  # raises where the log is not legal

    run(scene())


def test_what_is_beside_a_delta_that_does_not_fit_the_document_is_logged() -> None:
    async def agent(context: RunContext) -> None:
        with pytest.raises(AgentBroken):
            context.emit(
                e.PartStarted(part="data", message="m", kind="data"),
                e.PartDelta(part="data", delta={"message": "one"}),
                e.PartDelta(part="data", delta={"message": [1]}),
                e.PartStarted(part="other", message="m", kind="thought"),
            )
        context.emit(e.PartDelta(part="other", delta="hm"), e.PartDelta(part="data", delta={"message": " two"}))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:
            done = await ended(gateway, (await gateway.runs.start(request())).id)
            assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"one two"}')
            again, output = Opener(), Output(AGENT)
            for _, event in await watched(gateway, done.id):
                again.replay(event)
                output.apply(event)
            assert output.document == {"message": "one two"}

    run(scene())
