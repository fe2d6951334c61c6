"""Asking for what is missing in a run's input, before the run is sent.

The question is an ordinary interrupt of kind `input`, whose answer schema is the form of `gateway.contract.filling`. An
answer that is committed and not yet merged when the gateway dies is given again to the same question; the question that
is open is asked again as it is. What the answers make is committed together with the mark that the run is sent.
"""

from __future__ import annotations

from typing import Final, Protocol

from gateway.agents.entry import Entry
from gateway.contract.filling import Filled, joined
from gateway.core import wording
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Json, Outcome, Run

KIND: Final = "input"
TRIES: Final = 5
"""How often is asked; each answer fits its form, but may not fit the rest of the input."""


class NotGiven(Exception):
    """The question was declined or cancelled: the run ends cancelled."""


class IncompleteRun(Protocol):
    """The run in progress."""

    entry: Entry

    @property
    def run(self) -> Run:
        """The run as it is now."""

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the caller, as `RunContext.ask` does."""


async def completed(run: IncompleteRun, filled: Filled | None) -> Json:
    """The run's input with what was missing. `filled`: what is missing, None if that is not known after a restart.

    Raises NotGiven, Invalid if it still does not fit, the errors of `Entry.need`.
    """
    agent = await run.entry.need()
    filling = run.entry.filling(agent)
    document = run.run.request.input
    open_ = next((asked for asked in run.run.interrupts if asked.kind == KIND), None)
    if open_ is not None:
        filled = Filled(_so_far(open_, document), open_.answer_schema)
    elif filled is None:
        filled = filling.completed(document)
    for _ in range(TRIES):
        if filled.form is None:
            break
        answer = await run.ask(open_ or question(agent.name, filled))
        open_ = None
        if answer.outcome is not Outcome.ANSWERED:
            raise NotGiven(f"the input was not completed: the question was {answer.outcome.value}")
        filled = filling.completed(joined(filled.document, answer.value))
    else:
        if filled.form is not None:
            raise Invalid(filled.why or "the input is not complete", path="/input")
    run.entry.validate("input", agent.input_schema, filled.document, "/input")
    return filled.document


def question(name: str, filled: Filled) -> Interrupt:
    """The question for what is missing; its payload has the form too, and the input as far as it is known."""
    form = filled.form or {}
    names = ", ".join(leaf.name for leaf in wording.leaves(form))
    message = f"{name} needs more input: {names}" if names else f"{name} needs an input: {wording.kind(form)}"
    return Interrupt(
        id=KIND,
        kind=KIND,
        message=f"{filled.why}\n\n{message}" if filled.why else message,
        payload={"message": message, "schema": form, "input": filled.document},
        answer_schema=form,
    )


def _so_far(asked: Interrupt, document: Json) -> Json:
    """The input as it was when the question was asked."""
    return asked.payload.get("input", document) if isinstance(asked.payload, dict) else document
