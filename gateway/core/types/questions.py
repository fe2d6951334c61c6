"""Interrupts, the questions that agents ask during a run, and their answers."""

import enum

from gateway.core.types.records import Json, JsonObject, Record


class Outcome(enum.StrEnum):
    """How an interrupt ended. Only `answered` carries a value; nothing else is ever approval."""

    ANSWERED = "answered"
    DECLINED = "declined"
    CANCELLED = "cancelled"


class Interrupt(Record, frozen=True, kw_only=True):
    """A question the agent asks in mid-run. `kind` is `permission`, `elicitation`, `input`, or the agent's own name.

    `payload` is the question as the agent put it; `message` the same for a person to read.
    """

    id: str
    kind: str
    payload: Json = None
    message: str = ""
    answer_schema: JsonObject = {}


class Identity(Record, frozen=True, kw_only=True):
    """An authenticated person or program: an id, and the roles that the authentication vouches for."""

    id: str
    roles: tuple[str, ...] = ()


class Answer(Record, frozen=True, kw_only=True):
    """The answer to an interrupt. `value` is None unless `outcome` is answered.

    `by` is the one who answered, None if not authenticated.
    """

    outcome: Outcome = Outcome.ANSWERED
    value: Json = None
    by: Identity | None = None
