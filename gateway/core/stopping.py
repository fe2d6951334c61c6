"""Stop reasons, for protocols that have no word for them: one table, and the end of the run that follows from it; and
what is said of a run that was cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.errors import AgentFailed
from gateway.core.types import Failure, StopReason

SHORT: Final[Mapping[StopReason, str]] = {
    StopReason.REFUSAL: "the agent refused",
    StopReason.MAX_TOKENS: "the agent stopped at its limit of tokens",
    StopReason.MAX_TURN_REQUESTS: "the agent stopped at its limit of model requests in a turn",
}
"""Reasons to stop before the work was done, in a sentence for a person or a model."""
MOST_SAID = 500
"""Characters of what an agent has said that its failure repeats."""


def cut_short(reason: StopReason | None) -> str | None:
    """Why a run stopped before its work was done; None where it did not."""
    return None if reason is None else SHORT.get(reason)


def cancelled(reason: str | None) -> str:
    """That a run was cancelled and why, for a person."""
    reason = reason or "cancelled"
    return reason if reason.startswith("cancelled") else f"cancelled: {reason}"


def failure(reason: StopReason, said: str) -> Failure | None:
    """The failure that stopping for this reason is, after the agent has `said` that; None where the run has succeeded.

    A refusal is one whatever was said, which is its reason; a limit only where nothing was said.
    """
    why, said = cut_short(reason), said.strip()
    if why is None or (said and reason is not StopReason.REFUSAL):
        return None
    if not said:
        return Failure(code=AgentFailed.code, message=f"{why} and said nothing")
    shown = said if len(said) <= MOST_SAID else f"{said[: MOST_SAID - 1]}…"
    return Failure(code=AgentFailed.code, message=f"{why}: {shown}")
