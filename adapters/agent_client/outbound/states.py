"""Where a turn of a session is with its prompt, and what updates outside of turns are: a table for each. No IO.

A move that a table does not have is illegal, and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.core.errors import IllegalEvent


class TurnPhase(enum.StrEnum):
    """Where a turn's prompt is."""

    WAITING = "not taken by its agent yet"
    WORKING = "worked on"
    OWED = "given up before its end"
    OVER = "over"


class TurnStep(enum.StrEnum):
    """A step of a turn."""

    BEGIN = "begin"
    """The agent's updates belong to the prompt from here on."""
    WAIT = "wait"
    """It is something else's after all, until the prompt begins."""
    END = "end"
    """The agent has done what it was prompted to."""
    GIVE_UP = "give up"
    """The end is no longer waited for."""
    SETTLE = "settle"
    """The end that nobody waited for has come, or its connection has ended."""


TURN: Final[dict[tuple[TurnPhase, TurnStep], TurnPhase]] = {
    (TurnPhase.WAITING, TurnStep.BEGIN): TurnPhase.WORKING,
    (TurnPhase.WAITING, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.WAITING, TurnStep.GIVE_UP): TurnPhase.OWED,
    (TurnPhase.WORKING, TurnStep.WAIT): TurnPhase.WAITING,
    (TurnPhase.WORKING, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.WORKING, TurnStep.GIVE_UP): TurnPhase.OWED,
    # until it is settled, the agent may do with it what it does with any
    **{(TurnPhase.OWED, step): TurnPhase.OWED for step in (TurnStep.BEGIN, TurnStep.WAIT, TurnStep.END)},
    (TurnPhase.OWED, TurnStep.SETTLE): TurnPhase.OVER,
    # an agent of version 2 may acknowledge a prompt after its end, and its run may be ended meanwhile
    (TurnPhase.OVER, TurnStep.BEGIN): TurnPhase.OVER,
    (TurnPhase.OVER, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.OVER, TurnStep.GIVE_UP): TurnPhase.OWED,
}


def turn_after(phase: TurnPhase, step: TurnStep) -> TurnPhase:
    """Where a prompt is after that step. Raises IllegalEvent."""
    after = TURN.get((phase, step))
    if after is None:
        raise IllegalEvent(f"{step.value} of a prompt that is {phase.value}")
    return after


class Stray(enum.StrEnum):
    """The meaning of updates that belong to no prompt."""

    NEWS = "news"
    HISTORY = "history that a client asked for"
    KNOWN = "known already"


class OpeningStep(enum.StrEnum):
    """How the session is opened, as far as the agent tells what was."""

    REPLAY = "replay"
    """For a client that asked for it."""
    RESTORE = "restore"
    """For the gateway, which has a record of it."""
    OPENED = "opened"
    """It is open, or could not be opened."""


STRAY: Final[dict[tuple[Stray, OpeningStep], Stray]] = {
    (Stray.NEWS, OpeningStep.REPLAY): Stray.HISTORY,
    (Stray.NEWS, OpeningStep.RESTORE): Stray.KNOWN,
    (Stray.HISTORY, OpeningStep.OPENED): Stray.NEWS,
    (Stray.KNOWN, OpeningStep.OPENED): Stray.NEWS,
}


def stray_after(now: Stray, step: OpeningStep) -> Stray:
    """The meaning of such updates after that step. Raises IllegalEvent."""
    after = STRAY.get((now, step))
    if after is None:
        raise IllegalEvent(f"{step.value} of a session whose updates are {now.value}")
    return after
