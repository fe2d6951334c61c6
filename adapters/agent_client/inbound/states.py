"""Where a session is that a client has open: a table for its life, and one for the prompts in it. No IO.

A move that a table does not have is illegal, and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.core.errors import Conflict, IllegalEvent


class SessionLife(enum.StrEnum):
    """Where the session itself is."""

    NEW = "not opened yet"
    OPENING = "being opened"
    REPLAYING = "being told from the record"
    OPENED = "opened, and its client not answered"
    RELOADING = "being told by its agent"
    LIVE = "known to its client"
    CLOSED = "closed"


class SessionStep(enum.StrEnum):
    """What happens to it."""

    OPEN = "open"
    REPLAY = "replay"
    RELOAD = "reload"
    TOLD = "told"
    GO = "go"
    CLOSE = "close"


LIFE: Final[dict[tuple[SessionLife, SessionStep], SessionLife]] = {
    (SessionLife.NEW, SessionStep.OPEN): SessionLife.OPENING,
    (SessionLife.OPENING, SessionStep.REPLAY): SessionLife.REPLAYING,
    (SessionLife.OPENING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.REPLAYING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.OPENED, SessionStep.RELOAD): SessionLife.RELOADING,
    (SessionLife.LIVE, SessionStep.RELOAD): SessionLife.RELOADING,  # of a session that only the agent knows
    (SessionLife.RELOADING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.OPENED, SessionStep.GO): SessionLife.LIVE,
    **{(life, SessionStep.CLOSE): SessionLife.CLOSED for life in SessionLife},
    # a client may leave while it is told, or about to be answered
    (SessionLife.CLOSED, SessionStep.RELOAD): SessionLife.CLOSED,
    (SessionLife.CLOSED, SessionStep.TOLD): SessionLife.CLOSED,
    (SessionLife.CLOSED, SessionStep.GO): SessionLife.CLOSED,
}


class Prompting(enum.StrEnum):
    """Where the session's prompt is."""

    FREE = "free for a prompt"
    WAITING = "busy with a prompt that is not answered"
    WORKING = "busy with what an answered prompt began"


class PromptStep(enum.StrEnum):
    """What happens to a prompt, or asks whether one waits."""

    PROMPT = "prompt"
    ANSWER = "answer"
    OVER = "over"
    REOPEN = "reopen"


PROMPTING: Final[dict[tuple[Prompting, PromptStep], Prompting]] = {
    (Prompting.FREE, PromptStep.PROMPT): Prompting.WAITING,
    (Prompting.WAITING, PromptStep.ANSWER): Prompting.WORKING,  # of version 2, which answers when it is taken
    (Prompting.WAITING, PromptStep.OVER): Prompting.FREE,
    (Prompting.WORKING, PromptStep.OVER): Prompting.FREE,
    (Prompting.FREE, PromptStep.REOPEN): Prompting.FREE,
    (Prompting.WORKING, PromptStep.REOPEN): Prompting.WORKING,
}


class SessionState:
    """One session's.

    replaying: whether its client is being told what was.
    opened: whether it is known what runs in it, or it could not be opened.
    """

    __slots__ = ("id", "life", "opened", "prompting", "replaying")

    def __init__(self, id: str) -> None:
        self.id = id
        self.life = SessionLife.NEW
        self.prompting = Prompting.FREE
        self.replaying = False
        self.opened = False

    def advance(self, step: SessionStep) -> None:
        """Take one step. Raises IllegalEvent."""
        life = LIFE.get((self.life, step))
        if life is None:
            raise IllegalEvent(f"{step.value} of session {self.id}, which is {self.life.value}")
        self.life = life
        self.replaying = life in (SessionLife.REPLAYING, SessionLife.RELOADING)
        self.opened = self.opened or life in (SessionLife.OPENED, SessionLife.CLOSED)

    def prompt(self, word: PromptStep) -> None:
        """The same for its prompt. Raises Conflict: the client does what it may not do yet."""
        prompting = PROMPTING.get((self.prompting, word))
        if prompting is None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        self.prompting = prompting
