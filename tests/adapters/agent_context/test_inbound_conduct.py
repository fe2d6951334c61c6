"""Agents that behave unusually, as clients and operators see it: refusals, floods and failures at a real socket."""

from __future__ import annotations

import json
from typing import Any

from gateway.tracing import metrics
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, Refused, refused, text_of

DENIED = -32003


def counted(agent: str, what: str) -> float:
    return metrics.conduct.value(agent, what)


async def fails(params: Any) -> Any:
    raise Refused({"code": -32008, "message": "it cannot"})


async def test_an_agent_that_is_refused_too_often_is_suspended_and_may_be_restored() -> None:
    metrics.clear()
    async with (
        rig(conduct={"refusals": 2, "suspend": 300}) as there,
        there.socket(hello=AGENT) as painter,
        there.socket() as client,
    ):
        await painter.register("painter")
        for _ in range(2):
            await refused(painter.message("nobody"))
        await painter.tell("agent/message", target="nobody", content={"type": "request", "payload": {}})
        found = await painter.ask("tools/call", name="taskCancel", arguments={"taskId": "none"})
        assert found["isError"]
        await there.inbound.settled()
        await there.inbound.directory.settled()
        error = await refused(painter.message("echo"))
        assert error.code == DENIED and "suspended until" in error.message
        assert (await refused(client.message("painter"))).code in (DENIED, -32002)
        assert counted("painter", "refusals") >= 3 and counted("painter", "unusual") == 1
        assert text_of(await client.message("echo")) == "hello ", "nobody else is"

        await client.ask("agent/restore", agentId="painter")
        assert text_of(await painter.message("echo")) == "hello "


async def test_messages_and_tasks_that_an_agent_fails_are_counted_and_only_told_unless_it_is_to_be_suspended() -> None:
    metrics.clear()
    async with (
        rig(conduct={"failures": 1}, attempts=1) as there,
        there.socket(hello=AGENT) as painter,
        there.socket() as client,
    ):
        painter.on["agent/message"] = fails
        await painter.register("painter")
        await refused(client.message("painter"))
        task = {"id": "t", "type": "x", "payload": {"messages": [{"text": "x"}]}}
        await refused(client.ask("agent/delegate", task=task, target="painter"))
        assert (counted("painter", "failures"), counted("painter", "unusual")) == (2, 1)
        found = await client.ask("resources/read", uri="agent://metrics/painter")
        conduct = json.loads(found["contents"][0]["text"])["conduct"]
        assert (conduct["failures"], conduct["window"]) == (2, 60.0)
        there.inbound.directory.check("painter")


async def test_an_attempt_that_somebody_else_cancels_is_no_failure_of_its_agents() -> None:
    metrics.clear()
    async with rig(attempts=1) as there, there.socket() as client:
        task = {"id": "t", "type": "x", "payload": {"messages": [{"text": "x"}]}}
        asked = await client.begin("agent/delegate", task=task, target="held")
        await there.engine.runs.cancel((await there.newest("held")).id, reason="enough")
        error = await refused(asked)
        assert error.code == -32008 and "enough" in error.message
        assert counted("held", "failures") == 0


async def test_words_of_an_agent_on_its_work_are_no_requests_of_its_own() -> None:
    metrics.clear()
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket() as client:
        await painter.register("painter")

        async def paint(params: Any) -> Any:
            meta = {"correlationId": params["_meta"]["correlationId"]}
            said = {"type": "update", "payload": {"messages": [{"text": "red "}]}}
            for _ in range(5):
                await painter.tell("agent/message", target=params["source"], content=said, meta=meta)
            return {
                "status": "completed",
                "content": {"type": "response", "payload": {"messages": [{"text": "red " * 5}]}},
            }

        painter.on["agent/message"] = paint
        before = counted("painter", "requests")
        assert text_of(await client.message("painter")) == "red " * 5
        assert counted("painter", "requests") == before
        await painter.message("echo")
        assert counted("painter", "requests") == before + 1
