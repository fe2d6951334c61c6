"""A gateway to kill: says the id of a task once its agent has spoken, then hangs. Started by test_killed.py."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.core.errors import AgentFailed
from tests.adapters.agent_context.coordination.rig import candidate, fails, holds, house, task
from tests.support.scripted import until


async def main(file: Path) -> None:
    agents = {"first": fails(AgentFailed("broken")), "second": holds("half", asyncio.Event())}
    async with house(candidate("first", 9), candidate("second", 5), agents=agents, file=file) as there:
        started = await there.delegate(task("t1"))
        await until(lambda: there.text(started) == "half")
        await there.engine.store.flush()  # what the agent's run is found by is written behind
        print(started.id, flush=True)
        await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1])))
