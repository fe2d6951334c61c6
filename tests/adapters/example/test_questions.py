"""What an agent is told of its question when nobody says yes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.example.options import ExampleTarget
from adapters.example.outbound import ExampleOutbound
from gateway.core.types import Answer, Outcome, Run, RunRequest
from tests.support.context import FakeContext
from tests.support.raw_http import Exchange, serving

ASK = b'{"ask": {"id": "q1", "question": "Sure?"}}\n'


@pytest.mark.parametrize("outcome", [Outcome.DECLINED, Outcome.CANCELLED])
async def test_an_agent_whose_question_was_refused_or_waved_away_is_told_so(outcome: Outcome) -> None:
    """Else it would wait for ever, and its run with it."""
    told: list[Any] = []
    asked: list[Exchange] = []

    async def agent(exchange: Exchange) -> None:
        if exchange.target.endswith("/answer"):
            told.append(json.loads(exchange.body))
            await exchange.answer(b"{}")
            await asked[0].say(b'{"done": null}\n')
            asked[0].writer.close()
        else:
            asked.append(exchange)
            await exchange.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + ASK)
            await exchange.gone()

    async with serving(agent) as server:
        outbound = ExampleOutbound(ExampleTarget(protocol="example", url=server.url))
        request = RunRequest(agent="a", input={}, protocol="example")
        given = Run(id="r", request=request, created_at=1.0, updated_at=1.0)
        context = FakeContext(await outbound.describe(), given)
        context.answers = [Answer(outcome=outcome)]
        await outbound.run(context)
        await outbound.aclose()
    assert told == [{"run": "r", "id": "q1", "answer": None, "declined": True}]
