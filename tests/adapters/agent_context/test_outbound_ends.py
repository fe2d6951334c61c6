"""Runs of agents of the protocol that end otherwise than by an answer, and what comes late; and each ends once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest
from msgspec import Raw

from adapters.agent_context import outbound
from adapters.agent_context.outbound import AgentContextTurn
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone, Unavailable
from tests.adapters.agent_context.outbound_rig import BOTH, CORRELATION, RECORD, raw, registered, running, says

WAYS = pytest.mark.parametrize("way", BOTH)


@WAYS
@pytest.mark.parametrize("acknowledged", [False, True])
async def test_a_connection_that_ends_ends_its_runs(way: str, acknowledged: bool) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        if acknowledged:
            await house.agent.answer(asked["id"])
            await house.agent.update("x")
            await context.until(lambda it: it.output == {"message": "x"})
        await house.agent.hang_up()
        with pytest.raises(AgentGone):
            await house.done(task)
        assert not any(isinstance(event, e.TERMINAL) for event in context.events)


@WAYS
@pytest.mark.parametrize("acknowledged", [False, True])
async def test_a_cancelled_run_is_taken_back(way: str, acknowledged: bool) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        if acknowledged:
            await house.agent.answer(asked["id"])
            await house.agent.update("x")
            await context.until(lambda it: it.output == {"message": "x"})
        context.cancel_now("enough")
        await house.outbound.cancel(context)
        told = (await house.agent.hear("notifications/cancelled"))["params"]
        await house.done(task)
        assert context.end == e.RunCancelled(reason="enough")
        if acknowledged:
            assert told["_meta"] == {"correlationId": CORRELATION}
        if way == "piped" or not acknowledged:
            assert told["requestId"] == asked["id"]


@WAYS
async def test_what_is_said_after_the_end_is_dropped_and_counted(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)
        count = len(context.events)
        await house.agent.update("late")
        await house.agent.respond("late")
        await house.agent.fail()
        token = asked["params"]["_meta"]["progressToken"]
        await house.agent.tell("notifications/progress", {"progressToken": token, "progress": 1})
        following = running()  # by when this has begun, all of it has been heard
        task, asked = await house.begun(following)
        await house.agent.answer(asked["id"], says("again"))
        await house.done(task)
        assert len(context.events) == count
        assert following.output == {"message": "again"} or not following.said(e.PartDelta)


@WAYS
async def test_a_wrong_correlation_id_is_reported_to_the_agent(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        house.agent.correlation = "corr-none"
        await house.agent.respond("for nobody")
        told = (await house.agent.hear("agent/error"))["params"]
        assert told["error"]["code"] == -32002 and told["error"]["details"]["received"] == "corr-none"
        assert told["_meta"] == {"correlationId": "corr-none"}
        await house.agent.fail()  # an error is never answered with one
        house.agent.correlation = CORRELATION
        await house.agent.answer(asked["id"], says("right"))
        await house.done(task)
        assert isinstance(context.end, e.RunFinished) and not context.said(e.PartDelta)


async def test_an_agent_that_cannot_be_asked_now_is_unavailable_and_one_that_left_is_gone() -> None:
    async with registered() as house:
        assert house.session is not None
        assert house.outbound.reachable is True  # type: ignore[attr-defined]
        house.session.can_ask = False
        assert house.outbound.reachable is False  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            await house.outbound.run(running())
        house.session.alive = False
        with pytest.raises(AgentGone):
            await house.outbound.run(running())


async def test_another_session_cannot_speak_about_a_run() -> None:
    async with registered() as house, registered() as stranger:
        assert house.session is not None and stranger.session is not None
        context = running()
        task, asked = await house.begun(context)
        await stranger.agent.respond("mine")
        assert (await stranger.agent.hear("agent/error"))["params"]["error"]["code"] == -32002
        await house.agent.answer(asked["id"], says("yours"))
        await house.done(task)
        assert bytes(context.end.output) == b'{"message":"yours"}'  # type: ignore[attr-defined]


async def test_an_agent_s_message_to_a_third_one_is_not_about_its_run() -> None:
    async with registered() as house:
        assert house.session is not None
        task, asked = await house.begun(running())
        other = house.agent.message("request", {"messages": [{"text": "help"}]}, target="third")
        assert "error" in await house.agent.ask("agent/message", other)
        await house.agent.answer(asked["id"], says("done"))
        await house.done(task)


async def test_a_flood_on_a_session_ends_the_run_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "MOST_AHEAD", 100_000)

    async with registered() as house:
        context = running()

        async def never() -> None:
            await asyncio.Event().wait()

        context.drain = never  # type: ignore[method-assign]
        task, _ = await house.begun(context)
        for _ in range(8):
            await house.agent.update("y" * 100_000)
        with pytest.raises(AgentBroken):
            await house.done(task)
        assert house.session is not None and house.session.alive


STEPS = ("ack", "update", "response", "error", "answer", "refusal")


@WAYS
async def test_any_order_of_words_ends_the_run_exactly_once(way: str) -> None:
    """Every order of an answer to the request (of three kinds) and the messages around it."""
    orders = {
        order[: at + 1]
        for order in itertools.permutations(STEPS, 4)
        for at, step in enumerate(order)
        if step in ("response", "error", "answer", "refusal") and at >= 1
    }

    async def one(house: Any, order: tuple[str, ...], number: int) -> None:
        correlation = f"c-{number}"
        context = running(attributes={"correlationId": correlation})
        task, asked = await house.begun(context)
        agent = house.agent
        agent.correlation = correlation
        for step in order:
            match step:
                case "ack":
                    await agent.answer(asked["id"])
                case "update":
                    await agent.update("u")
                case "response":
                    await agent.respond("message")
                case "error":
                    await agent.fail()
                case "answer":
                    await agent.answer(asked["id"], says("answer"))
                case "refusal":
                    await agent.answer(asked["id"], error={"code": -1, "message": "refused"})
        if not set(order) & {"ack", "answer", "refusal"}:
            await agent.answer(asked["id"])  # nobody leaves a request unanswered for ever
        answered = [step for step in order if step in ("ack", "answer", "refusal")]
        if answered[:1] == ["ack"] and not set(order) & {"response", "error"}:
            await agent.respond("message")  # the second answer to a request is none
        await house.done(task)
        ends = [event for event in context.events if isinstance(event, e.TERMINAL)]
        assert len(ends) == 1 and context.events[-1] is ends[0], order
        assert task.exception() is None

    async with BOTH[way]() as house:
        for number, order in enumerate(sorted(orders)):
            await one(house, order, number)
    assert RECORD["id"] == "it" and len(orders) > 100


async def test_what_comes_while_a_run_is_being_ended_is_counted() -> None:
    class Leaving:
        """A link whose agent says something more while it is let go of."""

        reachable = True

        @asynccontextmanager
        async def open(self, correlation: str, listener: Any, capabilities: Any = None) -> AsyncIterator[Any]:
            yield Answering()
            assert listener.notification("agent/message", raw({"content": {"type": "update", "payload": "x"}})) is None

        async def aclose(self) -> None: ...

    class Answering:
        """A line whose agent answers at once."""

        native = lasting = knows_agents = True
        gateway = registered = False
        capabilities: ClassVar[dict[str, Any]] = {}

        async def request(self, method: str, params: Any) -> Raw:
            return raw(says("done"))

    context = running()
    await AgentContextTurn(context, lambda: cast("Any", Leaving()), RECORD["id"], "auto").run()
    assert context.losses == {"late_message": 1} and not context.said(e.PartDelta)
    assert isinstance(context.end, e.RunFinished)
