"""An agent that is a gateway itself: its agent's questions come through, and are answered as they were asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.core import events as e
from gateway.core.types import Interrupt, RunQuery
from tests.adapters.agent_protocol.fake_agent import Agent, calling, says
from tests.adapters.agent_protocol.support import Client, app, say, serving
from tests.support import raw_http
from tests.support.context import DECLINED, context

COLOUR = Interrupt(
    id="q1",
    kind="colour",
    message="Which colour?",
    answer_schema={"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]},
)
NOTE = Interrupt(
    id="q2",
    kind="note",
    message="Which note?",
    answer_schema={"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
CHOICES = "1. red\n2. blue\n\nAnswer with one of these, or its number."
DRIVES = pytest.mark.parametrize("drive", ["all", "one", "auto", "approve"])


async def painter(ctx: Any) -> None:
    """Asks for a colour and a note, and says both."""
    ctx.emit(*say("Let me ask.", "p1", "m1"))
    colour = await ctx.ask(COLOUR)
    note = await ctx.ask(NOTE)
    ctx.emit(*say(f"{colour.value['colour']}: {note.value['message']}", "p2", "m2"), e.RunFinished())
    await ctx.drain()


@asynccontextmanager
async def chain(drive: str) -> AsyncIterator[tuple[Client, AgentProtocolOutbound, Any]]:
    """A client, a gateway, and one behind it whose agent is the painter; the way to the second, and its engine."""
    async with serving(painter) as (_, inner):
        transport = httpx2.ASGITransport(app(inner))
        async with httpx2.AsyncClient(transport=transport, base_url="http://inner") as there:

            async def handle(exchange: raw_http.Exchange) -> None:
                kind = {"content-type": exchange.headers.get("content-type", "application/json")}
                found = await there.request(exchange.method, exchange.target, content=exchange.body, headers=kind)
                await exchange.answer(found.content, f"{found.status_code} X", Content_Type="application/json")

            async with raw_http.serving(handle) as server:
                outbound = AgentProtocolOutbound(
                    AgentProtocolTarget(protocol="agent_protocol", url=f"{server.url}/agent-protocol", drive=drive)
                )
                try:
                    async with serving(outbound) as (client, _outer):
                        yield client, outbound, inner
                finally:
                    await outbound.aclose()


@DRIVES
async def test_an_inner_question_is_asked_once_and_a_wrong_answer_is_told_what_would_fit(drive: str) -> None:
    async with chain(drive) as (client, _, _inner):
        task = await client.task("paint")
        asked = await client.step(task)
        assert (asked["status"], asked["is_last"]) == ("completed", False)
        assert asked["output"] == f"Let me ask.\n\nWhich colour?\n\n{CHOICES}"
        assert asked["additional_output"]["interrupt"]["answer_schema"] == COLOUR.answer_schema
        wrong = await client.call("POST", f"/tasks/{task}/steps", json={"input": "green"})
        assert wrong.status_code == 422
        assert "red, blue" in wrong.json()["message"]
        noted = await client.step(task, "blue")
        assert noted["additional_output"]["interrupt"]["kind"] == "note"
        done = await client.step(task, "a wall")
        assert (done["output"], done["is_last"]) == ("blue: a wall", True)


async def test_a_client_of_another_protocol_answers_in_the_agents_own_form() -> None:
    async with chain("all") as (_, outbound, _inner):
        answers = [{"colour": "red"}, {"message": "a door"}]
        ctx = context(await outbound.describe(), "paint", answers=answers)
        await outbound.run(ctx)
        assert [asked.kind for asked in ctx.asked] == ["colour", "note"]
        assert isinstance(ctx.end, e.RunFinished)
        assert str(ctx.output).count("red: a door") == 1


async def test_declining_ends_the_run_with_a_loss_and_the_next_run_has_a_new_task() -> None:
    async with chain("all") as (_, outbound, inner):
        ctx = context(await outbound.describe(), "paint", thread="t", answers=[DECLINED])
        await outbound.run(ctx)
        assert isinstance(ctx.end, e.RunFinished)
        assert ctx.losses == {"decline_not_in_protocol": 1}
        known = ctx.upstream_thread
        again = context(ctx.agent, "paint", thread="t", upstream_thread=known, answers=[DECLINED])
        await outbound.run(again)
        assert again.asked[0].kind == "colour"
        assert len(await inner.runs.list(RunQuery(limit=10))) == 2


async def test_an_answer_that_only_the_agent_refuses_is_asked_for_again_with_its_reason() -> None:
    question = {"id": "i", "kind": "colour", "message": "Which?", "answer_schema": {"type": "string"}}
    plan: list[dict[str, Any]] = [{"output": "hm", "additional_output": {"interrupt": question}}, {"output": "done"}]
    agent = Agent(plan=plan)
    agent.override["POST /tasks/t1/steps"] = [None, says(422, {"message": "no such colour"}), None]
    async with calling(agent) as (outbound, _):
        ctx = context(await outbound.describe(), "paint", answers=["mauve", "red"])
        await outbound.run(ctx)
        assert [asked.message for asked in ctx.asked] == ["Which?", "no such colour\n\nWhich?"]
        assert len({asked.id for asked in ctx.asked}) == 2
        assert [body["input"] for body in agent.posted()] == ["paint", "mauve", "red"]
        assert isinstance(ctx.end, e.RunFinished)
