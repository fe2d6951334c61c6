"""The states of a session that a client has open: one table for its life, one for the prompts in it. No IO.

A step that the table does not have is refused and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.core.errors import Conflict, IllegalEvent


class SessionLife(enum.StrEnum):
    """The state of the session itself."""

    NEW = "not opened yet"
    OPENING = "being opened"
    REPLAYING = "being told from the record"
    OPENED = "opened, and its client not answered"
    RELOADING = "being told by its agent"
    LIVE = "known to its client"
    CLOSED = "closed"


class SessionStep(enum.StrEnum):
    """An event in its life."""

    OPEN = "open"
    REPLAY = "replay"
    """It is told from the record."""
    RELOAD = "reload"
    """It is told by its agent."""
    TOLD = "told"
    """The replay has ended, if there was one."""
    GO = "go"
    """The client has the answer to the request that opened it."""
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
    """The state of the session's prompt."""

    FREE = "free for a prompt"
    WAITING = "busy with a prompt that is not answered"
    WORKING = "busy with what an answered prompt began"


class PromptStep(enum.StrEnum):
    """An event of a prompt; REOPEN asks whether the session may be opened again."""

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


class EditorSessionState:
    """The state of one session.

    replaying: whether a replay is going on.
    opened: whether opening has ended, well or badly.
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
        """Take one step of its prompt. Raises Conflict where the client has to wait."""
        prompting = PROMPTING.get((self.prompting, word))
        if prompting is None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        self.prompting = prompting
