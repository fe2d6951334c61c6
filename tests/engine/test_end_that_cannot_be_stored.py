"""An adapter's mistake in the last event: it cannot be written down, and the run ends all the same."""

from gateway.adapter import RunContext
from gateway.core import events as e
from gateway.core.types import Failure, RunStatus
from tests.support import aio, scripted
from tests.support.scripted import Scripted, request


def test_a_run_whose_end_cannot_be_encoded_ends() -> None:
    async def half_a_character(context: RunContext) -> None:
        context.emit(e.RunFailed(failure=Failure(code="agent_failed", message="\ud83d")))
        await context.drain()

    async def story() -> None:
        async with scripted.engine((scripted.route(), Scripted(half_a_character))) as engine:
            run = await engine.start(request())
            done = await engine.wait(run.id, 30)
            assert done is not None and done.status is RunStatus.ERROR
            assert done.failure is not None and done.failure.code == "internal"
            assert not engine.live

    aio.run(story())
