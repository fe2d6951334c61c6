"""What cannot be written down: an adapter's mistake ends the run, half a surrogate pair of the agent's is replaced."""

import logging

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Failure, Interrupt, RunStatus
from tests.support import aio, scripted
from tests.support.scripted import Scripted, request


async def test_a_run_whose_end_cannot_be_encoded_ends() -> None:
    async def no_json(context: RunContext) -> None:
        context.emit(e.RunFailed(failure=Failure(code="agent_failed", message="x"), origin={"error": object()}))
        await context.drain()

    async with scripted.engine((scripted.route(), Scripted(no_json))) as engine:
        run = await engine.runs.start(request())
        done = await engine.runs.wait(run.id, 30)
        assert done is not None and done.status is RunStatus.ERROR
        assert done.failure is not None and done.failure.code == "internal"
        assert not engine.live


def test_half_a_surrogate_pair_in_anything_that_an_agent_says_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    half = "x\ud83d y"

    async def agent(context: RunContext) -> None:
        context.emit(e.Custom(name="c", data={half: [half]}), e.ToolCallStarted(call="1", name="n", title=half))
        context.emit(e.ToolCallEnded(call="1", output=half))
        answer = await context.ask(Interrupt(id="q", kind="input", message=half, payload={"it": half}))
        context.emit(e.RunFailed(failure=Failure(code="agent_failed", message=f"{half} {answer.value}")))
        await context.drain()

    async def story() -> None:
        async with scripted.engine((scripted.route(), Scripted(agent))) as engine:
            run = await engine.runs.start(request())
            asking = await engine.runs.wait(run.id, 30)
            assert asking is not None and asking.interrupts[0].message == "x\ufffd y"
            await engine.runs.answer(run.id, Answer(value="ok"))
            done = await engine.runs.wait(run.id, 30)
            assert done is not None and done.failure is not None
            assert (done.failure.code, done.failure.message) == ("agent_failed", "x\ufffd y ok")
            said = [
                event
                for _, event in await engine.runs.events(run.id)
                if isinstance(event, e.Custom | e.ToolCallStarted)
            ]
            assert said[0].data == {"x\ufffd y": ["x\ufffd y"]} and said[1].title == "x\ufffd y"

    with caplog.at_level(logging.ERROR):
        aio.run(story())
    assert not caplog.records
