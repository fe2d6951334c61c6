"""A gateway process that is killed in the middle of a task."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from adapters.agent_context.coordination.task_record import task_of
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from tests.adapters.agent_context.coordination.rig import candidate, fails, holds, house, task
from tests.adapters.agent_context.coordination.test_restarts import never
from tests.support.scripted import Scripted, until


async def again(context: RunContext) -> None:
    context.emit(e.PartReplaced(part="text", value="half and more"), e.RunFinished())


async def test_a_task_goes_on_after_the_gateway_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(file), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    run_id = (await child.stdout.readline()).decode().strip()
    child.kill()
    await child.wait()
    ranked = candidate("first", 9), candidate("second", 5)
    agents = {"first": never, "second": Scripted(never, attach=again)}
    async with house(*ranked, agents=agents, file=file) as there:
        done = await there.ended(run_id)
        assert json.loads(bytes(done.output))["messages"] == [{"text": "half and more"}]
        tried = [(one["agent"], one["status"]) for one in task_of(done)["attempts"]]
        assert tried == [("first", "failed"), ("second", "completed")]
        assert len(await there.attempts(done)) == 2


async def main(file: Path) -> None:
    """The gateway to kill: says the id of a task once its agent has spoken, then hangs."""
    agents = {"first": fails(AgentFailed("broken")), "second": holds("half", asyncio.Event())}
    async with house(candidate("first", 9), candidate("second", 5), agents=agents, file=file) as there:
        started = await there.delegate(task("t1"))
        await until(lambda: there.text(started) == "half")
        await there.engine.store.flush()  # what the agent's run is found by is written behind
        print(started.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
