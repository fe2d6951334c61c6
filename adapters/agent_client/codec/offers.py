"""The options of a permission request, and which one an answer selects."""

from __future__ import annotations

from typing import Final

from gateway.core.types import Json, JsonObject

ANSWER: Final = "_answer"
"""In an answer's value: what a client of this protocol said in full, where that is more than the option."""


def offered(payload: Json) -> list[JsonObject]:
    """The options of a permission request that have an id."""
    options = payload.get("options") if isinstance(payload, dict) else None
    if not isinstance(options, list):
        return []
    return [option for option in options if isinstance(option, dict) and isinstance(option.get("optionId"), str)]


def selected(result: Json) -> str | None:
    """The id of the option that an answer of `session/request_permission` selects, None if it does not."""
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    option_id = outcome.get("optionId")
    return option_id if isinstance(option_id, str) else None


def is_cancelled(result: Json) -> bool:
    """Whether an answer of `session/request_permission` says that the prompt was cancelled."""
    outcome = result.get("outcome") if isinstance(result, dict) else None
    return isinstance(outcome, dict) and outcome.get("outcome") == "cancelled"
