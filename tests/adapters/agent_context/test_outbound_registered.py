"""Agents that registered on real connections, run for a client of another protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from gateway.contract import next_batch
from gateway.core import events as e
from gateway.core.types import Answer, Run, RunRequest, RunStatus
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import AGENT, Talker, response, text_of

KINDS = pytest.mark.parametrize("kind", ["socket", "http"])
Work = Callable[[Talker, dict[str, Any]], Awaitable[Any]]


def about(asked: dict[str, Any], kind: str, text: str) -> dict[str, Any]:
    """Params of a message about what was asked."""
    content = {"type": kind, "payload": {"messages": [{"text": text}]}}
    meta = {"correlationId": asked["_meta"]["correlationId"]}
    return {"source": asked["target"], "target": asked["source"], "content": content, "meta": meta}


def door(there: Rig, kind: str) -> AbstractAsyncContextManager[Talker]:
    return there.socket(hello=AGENT) if kind == "socket" else there.http(hello=AGENT, listens=True)


async def ran(there: Rig, kind: str, work: Work, *answers: Any) -> Run:
    """A run of an agent that does that work over its connection, to its end."""
    name = work.__name__
    async with door(there, kind) as painter:

        async def asked(params: dict[str, Any]) -> Any:
            return await work(painter, params)

        painter.on["agent/message"] = asked
        await painter.register(name)
        started = await there.engine.runs.start(RunRequest(agent=name, protocol="test", input={"message": "paint"}))
        for answer in answers:
            found = await there.engine.runs.wait(started.id, timeout=30)
            assert found is not None and found.status is RunStatus.INTERRUPTED, found
            await there.engine.runs.answer(found.id, answer)
        found = await there.engine.runs.wait(started.id, timeout=30)
        assert found is not None
        return found


async def events(there: Rig, found: Run, kind: type[Any]) -> list[Any]:
    return [event for _, event in await there.engine.runs.events(found.id) if isinstance(event, kind)]


async def at_once(painter: Talker, asked: dict[str, Any]) -> Any:
    assert text_of(asked) == "paint"
    token = asked["_meta"]["progressToken"]
    await painter.tell("notifications/progress", progressToken=token, progress=1, message="half")
    await painter.tell("agent/message", **about(asked, "update", "red "))
    return response("red blue")


async def later(painter: Talker, asked: dict[str, Any]) -> Any:
    async def afterwards() -> None:
        await painter.tell("agent/message", **about(asked, "update", "red "))
        await painter.ask("agent/message", **about(asked, "response", "red blue"))

    painter.tasks.add(asyncio.create_task(afterwards()))
    return {"status": "accepted"}


async def asking(painter: Talker, asked: dict[str, Any]) -> Any:
    answer = await painter.ask("agent/message", **about(asked, "request", "Which colour?"))
    return response(f"in {answer['content']['payload']['answer']['message']}")


async def failing(painter: Talker, asked: dict[str, Any]) -> Any:
    meta = {"correlationId": asked["_meta"]["correlationId"]}
    await painter.tell("agent/error", error={"code": -32008, "message": "no paint"}, meta=meta)
    return {}


@KINDS
async def test_an_agent_answers_at_once_or_later_asks_and_fails_over_its_connection(kind: str) -> None:
    async with rig() as there:
        for work in (at_once, later):
            done = await ran(there, kind, work)
            assert done.status is RunStatus.SUCCESS, done.failure
            assert bytes(done.output) == b'{"message":"red blue"}'
            assert next(event.delta for event in await events(there, done, e.PartDelta)) == "red "
            told = [event.data["message"] for event in await events(there, done, e.Custom)]
            assert told == (["half"] if work is at_once else [])
        done = await ran(there, kind, asking, Answer(value={"message": "green"}))
        assert bytes(done.output) == b'{"message":"in green"}'
        done = await ran(there, kind, failing)
        assert done.status is RunStatus.ERROR and done.failure is not None
        assert (done.failure.code, done.failure.message) == ("agent_failed", "no paint")


async def test_an_agent_that_leaves_fails_its_acknowledged_runs_and_hears_of_cancelled_ones() -> None:
    async with rig() as there:
        async with there.socket(hello=AGENT) as painter:

            async def taken(params: dict[str, Any]) -> Any:
                await painter.tell("agent/message", **about(params, "update", "so far"))
                return {}

            painter.on["agent/message"] = taken
            await painter.register("painter")
            request = RunRequest(agent="painter", protocol="test", input={"message": "paint"})
            first, second = [await there.engine.runs.start(request) for _ in range(2)]
            for each in (first, second):
                async with there.engine.runs.watch(each.id) as watch:
                    while not await events(there, each, e.PartDelta):
                        await next_batch(watch, 10)
            await there.engine.runs.cancel(first.id, reason="enough")
            (told,) = await painter.hears("notifications/cancelled")
            assert told["_meta"]["correlationId"] == first.id
            ended = await there.engine.runs.wait(first.id, timeout=30)
            assert ended is not None and ended.status is RunStatus.CANCELLED
        ended = await there.engine.runs.wait(second.id, timeout=30)
        assert ended is not None and ended.failure is not None and ended.failure.code == "agent_gone"
