"""The questions of a run that were not granted, for the model that reads the result of its tool call. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core import choices
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome


class Refusals:
    """Fed every event of one run, in order."""

    def __init__(self) -> None:
        self._open: dict[str, Interrupt] = {}
        self._said: dict[str, None] = {}

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> None:
        """Note the questions, and what became of them."""
        for _, event in events:
            if type(event) is e.Interrupted:
                self._open[event.interrupt.id] = event.interrupt
            elif type(event) is e.Resumed:
                asked = self._open.pop(event.interrupt, None)
                if asked is not None and (said := _refusal(asked, event.answer)) is not None:
                    self._said[said] = None

    def told(self, result: JsonObject) -> JsonObject:
        """The result of a tool with a text that says what was refused; as it was if nothing was."""
        if not self._said:
            return result
        return {**result, "content": [*result["content"], {"type": "text", "text": "\n".join(self._said)}]}


def _refusal(asked: Interrupt, answer: Answer) -> str | None:
    """One line about an answer that refuses; None for any other."""
    question = asked.message or f"The agent asks: {asked.kind}"
    if answer.outcome is not Outcome.ANSWERED:
        return f'"{question}" was {answer.outcome.value}.'
    found = choices.offered(asked.answer_schema)
    if found is None:
        return None
    value = answer.value.get(found[1]) if found[1] is not None and isinstance(answer.value, dict) else answer.value
    chosen = next((choice for choice in found[0] if choice.value == value), None)
    return f'"{question}" was answered "{chosen.label}".' if chosen is not None and chosen.refuses else None
