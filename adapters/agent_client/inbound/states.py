"""Where a session is that a client has open: a table for its life, and one for the prompts in it. No IO.

A move that a table does not have is illegal, and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.core.errors import Conflict, IllegalEvent


class Life(enum.StrEnum):
    """Where the session itself is."""

    NEW = "not opened yet"
    OPENING = "being opened"
    REPLAYING = "being told from the record"
    OPENED = "opened, and its client not answered"
    RELOADING = "being told by its agent"
    LIVE = "known to its client"
    CLOSED = "closed"


class Step(enum.StrEnum):
    """What happens to it."""

    OPEN = "open"
    REPLAY = "replay"
    RELOAD = "reload"
    TOLD = "told"
    GO = "go"
    CLOSE = "close"


LIFE: Final[dict[tuple[Life, Step], Life]] = {
    (Life.NEW, Step.OPEN): Life.OPENING,
    (Life.OPENING, Step.REPLAY): Life.REPLAYING,
    (Life.OPENING, Step.TOLD): Life.OPENED,
    (Life.REPLAYING, Step.TOLD): Life.OPENED,
    (Life.OPENED, Step.RELOAD): Life.RELOADING,
    (Life.LIVE, Step.RELOAD): Life.RELOADING,  # the agent's own, which is listened to while it is told
    (Life.RELOADING, Step.TOLD): Life.OPENED,
    (Life.OPENED, Step.GO): Life.LIVE,
    **{(life, Step.CLOSE): Life.CLOSED for life in Life},
    # a client may leave while it is told, or about to be answered
    **{(Life.CLOSED, step): Life.CLOSED for step in (Step.RELOAD, Step.TOLD, Step.GO)},
}


class Prompting(enum.StrEnum):
    """Where the session's prompt is."""

    FREE = "free for a prompt"
    WAITING = "busy with a prompt that is not answered"
    WORKING = "busy with what an answered prompt began"


class Word(enum.StrEnum):
    """What happens to a prompt, or asks whether one waits."""

    PROMPT = "prompt"
    ANSWER = "answer"
    OVER = "over"
    REOPEN = "reopen"


PROMPTING: Final[dict[tuple[Prompting, Word], Prompting]] = {
    (Prompting.FREE, Word.PROMPT): Prompting.WAITING,
    (Prompting.WAITING, Word.ANSWER): Prompting.WORKING,  # of version 2, which answers when it is taken
    (Prompting.WAITING, Word.OVER): Prompting.FREE,
    (Prompting.WORKING, Word.OVER): Prompting.FREE,
    (Prompting.FREE, Word.REOPEN): Prompting.FREE,
    (Prompting.WORKING, Word.REOPEN): Prompting.WORKING,
}


class SessionState:
    """One session's.

    replaying: whether its client is being told what was.
    opened: whether it is known what runs in it, or it could not be opened.
    """

    __slots__ = ("id", "life", "opened", "prompting", "replaying")

    def __init__(self, id: str) -> None:
        self.id = id
        self.life = Life.NEW
        self.prompting = Prompting.FREE
        self.replaying = False
        self.opened = False

    def advance(self, step: Step) -> None:
        """Take one step. Raises IllegalEvent."""
        life = LIFE.get((self.life, step))
        if life is None:
            raise IllegalEvent(f"{step.value} of session {self.id}, which is {self.life.value}")
        self.life = life
        self.replaying = life in (Life.REPLAYING, Life.RELOADING)
        self.opened = self.opened or life in (Life.OPENED, Life.CLOSED)

    def prompt(self, word: Word) -> None:
        """The same for its prompt. Raises Conflict: the client does what it may not do yet."""
        prompting = PROMPTING.get((self.prompting, word))
        if prompting is None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        self.prompting = prompting
