"""The seam between a run's questions and a protocol's way to put them to a client."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.core.types import Answer, Interrupt, Json, JsonObject
from gateway.mcp import forms
from gateway.mcp.runs import questions
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import ELICIT


class QuestionFormat(Protocol):
    """Puts questions in the words of a protocol. Keeps no state."""

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        """The request (method, params) that puts the question to the client of that call; None if there is none.

        Cheap, and asked more than once. In a modern revision it is not sent but handed back with the call.
        """

    def again(self, params: JsonObject, why: str) -> JsonObject:
        """The same params once more, to be told with it why the answer to them did not fit."""

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        """The answer in the client's result. Raises the tree's errors or ValueError if there is none: a refusal."""


class Elicitation:
    """`elicitation/create`, as far as the client takes forms and the question has one (gateway/mcp/forms.py)."""

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        params = questions.elicitation(interrupt, call.client)
        return None if params is None else (ELICIT, params)

    def again(self, params: JsonObject, why: str) -> JsonObject:
        return {**params, "message": f"{why}\n\n{params.get('message', '')}"}

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        return forms.elicitation_answer(interrupt, result)


ELICITATION: Final = Elicitation()
