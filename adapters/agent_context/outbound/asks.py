"""Requests of an agent while it runs: questions for a person, and what only a client of its own protocol offers."""

from __future__ import annotations

from typing import Final

from adapters.agent_context.outbound.answers import text_in
from adapters.agent_context.outbound.pools import QUESTIONS
from adapters.agent_context.wire.constants import PROTOCOL, RESPONSE
from gateway.contract import Caller
from gateway.core import delta, projection
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.mcp.client import asks
from gateway.mcp.client.asks import read

__all__ = ["AgentQuestions", "answered", "capabilities", "question", "read"]

INPUT: Final = "input"
"""Kind of an interrupt that the agent did not name."""


def capabilities(caller: Caller | None) -> JsonObject:
    """The capabilities declared for a run: messages, questions, and those of the run's client if it speaks this
    protocol.
    """
    return asks.capabilities(caller, PROTOCOL, QUESTIONS)


class AgentQuestions(asks.Asks):
    """Answers the requests that belong to one run."""

    async def message(self, payload: Json) -> JsonObject:
        """The content that answers a message of type request."""
        interrupt = question(payload, self.numbered("question"))
        return answered(interrupt, await self._ask(interrupt))


def question(payload: Json, id: str) -> Interrupt:
    """The question of a message of type request.

    Its payload may say of which kind it is (`kind`), what the answer looks like (`answerSchema`) and what exactly is
    asked (`question`), as another gateway's does; else any text answers it.
    """
    payload = delta.sound(payload)
    said: JsonObject = payload if isinstance(payload, dict) else {}
    kind, schema = said.get("kind"), said.get("answerSchema")
    asked = payload
    if isinstance(schema, dict) and said.keys() <= {"messages", "kind", "answerSchema", "question"}:
        asked = said.get("question")
    return Interrupt(
        id=id,
        kind=kind if isinstance(kind, str) and kind else INPUT,
        payload=asked,
        message=text_in(payload),
        answer_schema=schema if isinstance(schema, dict) else projection.MESSAGE_SCHEMA,
    )


def answered(interrupt: Interrupt, answer: Answer) -> JsonObject:
    """The content that answers it: the value under `answer`, its text as a message; or the outcome that is none."""
    if answer.outcome is not Outcome.ANSWERED:
        return {"type": RESPONSE, "payload": {"outcome": answer.outcome.value}}
    payload: JsonObject = {"answer": answer.value}
    text = projection.text_of(answer.value, projection.text_pointer(interrupt.answer_schema))
    if text is not None:
        payload = {"messages": [{"text": text}], **payload}
    return {"type": RESPONSE, "payload": payload}
