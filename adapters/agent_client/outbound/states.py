"""Where a prompt is that a session's agent works on, and what its other updates are: a table for each. No IO.

A move that a table does not have is illegal, and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.core.errors import IllegalEvent


class PromptPhase(enum.StrEnum):
    """Where a prompt is."""

    WAITING = "not taken by its agent yet"
    WORKING = "worked on"
    OWED = "given up before its end"
    OVER = "over"


class PromptStep(enum.StrEnum):
    """What happens to it."""

    BEGIN = "begin"
    """What the agent says is the prompt's from here on."""
    WAIT = "wait"
    """It is something else's after all, until the prompt begins."""
    END = "end"
    """The agent has done what it was prompted to."""
    GIVE_UP = "give up"
    """Nobody waits for the end any more."""
    SETTLE = "settle"
    """The end that nobody waited for has come, or its connection has ended."""


PROMPT: Final[dict[tuple[PromptPhase, PromptStep], PromptPhase]] = {
    (PromptPhase.WAITING, PromptStep.BEGIN): PromptPhase.WORKING,
    (PromptPhase.WAITING, PromptStep.END): PromptPhase.OVER,
    (PromptPhase.WAITING, PromptStep.GIVE_UP): PromptPhase.OWED,
    (PromptPhase.WORKING, PromptStep.WAIT): PromptPhase.WAITING,
    (PromptPhase.WORKING, PromptStep.END): PromptPhase.OVER,
    (PromptPhase.WORKING, PromptStep.GIVE_UP): PromptPhase.OWED,
    # until it is settled, the agent may do with it what it does with any
    **{(PromptPhase.OWED, step): PromptPhase.OWED for step in (PromptStep.BEGIN, PromptStep.WAIT, PromptStep.END)},
    (PromptPhase.OWED, PromptStep.SETTLE): PromptPhase.OVER,
    # an agent of version 2 may acknowledge a prompt after its end, and its run may be ended meanwhile
    (PromptPhase.OVER, PromptStep.BEGIN): PromptPhase.OVER,
    (PromptPhase.OVER, PromptStep.END): PromptPhase.OVER,
    (PromptPhase.OVER, PromptStep.GIVE_UP): PromptPhase.OWED,
}


def prompt_after(phase: PromptPhase, step: PromptStep) -> PromptPhase:
    """Where a prompt is after that step. Raises IllegalEvent."""
    after = PROMPT.get((phase, step))
    if after is None:
        raise IllegalEvent(f"{step.value} of a prompt that is {phase.value}")
    return after


class Stray(enum.StrEnum):
    """What updates are that belong to no prompt."""

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
    """What updates are after that step. Raises IllegalEvent."""
    after = STRAY.get((now, step))
    if after is None:
        raise IllegalEvent(f"{step.value} of a session whose updates are {now.value}")
    return after
