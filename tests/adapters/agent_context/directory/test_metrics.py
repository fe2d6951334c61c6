"""agent://metrics/{agentId}: numbers that the gateway measured, and nothing that anybody said."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context.directory.evaluation import seconds_of, speeds_of, times_of
from adapters.agent_context.security import ClientPrincipal
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.core.types import Run, RunRequest, RunStatus, Thread
from tests.adapters.agent_context.directory.rig import house
from tests.support.scripted import Scripted, echo, route

SECRET = "s3cret"


async def gossip(context: Any) -> None:
    """Says what it was told, or fails with it."""
    said = context.run.request.input["message"]
    context.emit(e.PartDelta(part="text", delta=said))
    await context.drain()
    if "fail" in said:
        raise AgentFailed(said, detail=said)
    context.emit(e.RunFinished())


async def test_runs_full_of_secrets_leave_only_numbers() -> None:
    async with house((route("routed"), Scripted(gossip))) as it:
        thread = await it.engine.threads.create(
            Thread(id=f"{SECRET}-thread", created_at=0, updated_at=0, metadata={"a": SECRET})
        )
        for said in (SECRET, f"{SECRET} fail", f"{SECRET} again"):
            request = RunRequest(
                agent="routed",
                protocol="test",
                input={"message": said},
                thread=thread.id,
                metadata={SECRET: SECRET},
                attributes={SECRET: SECRET},
                principal=SECRET,
                creation={SECRET: SECRET},
                config={},
            )
            await it.engine.runs.wait((await it.engine.runs.start(request)).id, timeout=30)
        await it.directory.evaluate("routed", 4, ClientPrincipal(SECRET), SECRET, f"it told {SECRET}")
        found = await it.directory.metrics("routed")
        assert SECRET not in json.dumps(found)
        assert found["agentId"] == "routed" and found["status"] == "active"
        assert found["runs"] == {
            "total": 3, "pending": 0, "running": 0, "interrupted": 0, "success": 2, "error": 1, "cancelled": 0,
            "timeout": 0,
        }  # fmt: skip
        assert found["successRate"] == 0.6667 and found["executionTime"]["runs"] == 2
        assert found["evaluation"] == {"qualityScore": 4, "evaluationCount": 1}
        assert found["lastActive"].endswith("Z")


async def test_metrics_are_looked_up_once_a_second() -> None:
    async with house((route("routed"), Scripted(echo))) as it:
        assert (await it.directory.metrics("routed"))["runs"]["total"] == 0
        await it.ended("routed")
        assert (await it.directory.metrics("routed"))["runs"]["total"] == 0
        it.clock.pass_(1.1)
        assert (await it.directory.metrics("routed"))["runs"]["total"] == 1


def done(took: float, size: int = 400, status: RunStatus = RunStatus.SUCCESS, **request: Any) -> Run:
    """A run that has ended."""
    asked = RunRequest(agent="it", protocol="test", input={}, **request)
    output = Raw(json.dumps("x" * (size - 2)).encode())
    return Run(id="r", request=asked, created_at=100.0, updated_at=100.0 + took, status=status, output=output)


def test_times_are_those_of_runs_that_succeeded_and_do_not_count_the_wait_for_their_start() -> None:
    runs = [done(1), done(3), done(50, status=RunStatus.ERROR), done(12, start_at=110.0)]
    assert [seconds_of(one) for one in runs] == [1, 3, 50, 2]
    found = times_of(runs)
    assert found["averageExecutionTime"] == 2 and found["executionTime"] == {"runs": 3, "p50": 2, "p95": 3, "max": 3}
    assert found["lastActive"] == "1970-01-01T00:02:30Z"


def test_a_speed_is_estimated_from_enough_long_answers_only() -> None:
    assert speeds_of([done(2), done(2), done(2)]) == {"it": 50.0}
    assert not speeds_of([done(2), done(2)])
    assert not speeds_of([done(2, size=20)] * 5) and not speeds_of([replace(done(2), updated_at=100.0)] * 5)
