"""An agent whose connection ends in the middle of a task: another one does it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.wire import PROTOCOL
from gateway.contract import Hosted
from gateway.core.types import JsonObject, RunRequest, RunStatus
from tests.adapters.agent_context.directory.rig import House, house, session
from tests.support.aio import run


def coordinate(it: House, **options: Any) -> Coordinator:
    """As the inbound half puts them together."""
    coordinator = Coordinator(AgentContextServe(**options), it.engine, lambda: it.directory)
    own = it.directory.hosted

    def both() -> Mapping[str, Hosted]:
        return {**coordinator.hosted(), **own()}

    it.directory.hosted = both  # type: ignore[method-assign]
    it.engine.agents.hosted_changed(PROTOCOL)
    it.directory.on_change(lambda uris: coordinator.queue.changed())
    return coordinator


def test_a_task_of_an_agent_that_disconnects_is_done_by_the_next_best() -> None:
    async def scene() -> None:
        async with house() as it:
            coordinator = coordinate(it)
            asked = asyncio.Event()

            async def never(method: str, params: Any) -> Any:
                asked.set()
                await asyncio.Event().wait()

            best = await it.register("best", at=session(never), evaluation={"qualityScore": 10})
            other = await it.register("other", evaluation={"qualityScore": 5})
            task = {
                "id": "t1",
                "type": "analysis",
                "requirements": {"capabilities": ["data-analysis"]},
                "payload": {"messages": [{"text": "go"}]},
            }
            started = await it.engine.runs.start(_request(coordinator.name, task))
            await asked.wait()
            assert not other.asked
            it.hang_up(best)
            done = await it.engine.runs.wait(started.id, timeout=30)
            assert done is not None and done.status is RunStatus.SUCCESS, done
            assert json.loads(bytes(done.output))["messages"] == [{"text": "done"}] and other.asked

    run(scene())


def _request(name: str, task: JsonObject) -> RunRequest:
    return RunRequest(agent=name, protocol=PROTOCOL, input={"task": task}, metadata={"task": task["id"]})
