"""What of a run's text a client has been told, where the agent is of another protocol.

The client's text only grows. All it is told together is the text of the output document (gateway/core/output.py): the
text parts in order, messages a blank line apart; or of a data part the text at the agent's text pointer, followed
delta by delta (document.py). What rewrites text that was told already is not told: then `stale` is true, until the text
as it is now turns out to go on from what was told (`catch_up`), or the end corrects it.
"""

from __future__ import annotations

from gateway.core.output import SEPARATOR

_JOIN = 512


class Speech:
    """The text of one message after the other. `rewrites` counts what could not be told as it happened."""

    def __init__(self) -> None:
        self.stale = False
        self.rewrites = 0
        self._counted = False
        self._blocks: list[str] = []
        self._newest: list[str] = []
        self._length = 0
        self._gap = ""
        self._ever = False

    @property
    def ever(self) -> bool:
        """Whether anything has been told, in any message."""
        return self._ever

    @property
    def length(self) -> int:
        """Characters told in this message."""
        return self._length

    def say(self, text: str) -> str:
        """Text to tell now, for text to add; empty while stale."""
        if self.stale or not text:
            return ""
        self._newest.append(text)
        self._length += len(text)
        if len(self._newest) > _JOIN:
            self._settle()
        self._ever = True
        gap, self._gap = self._gap, ""
        return gap + text

    def begin(self) -> None:
        """Another message begins: what was told until now is not looked at again."""
        if self.stale:
            self.rewritten()
        if self._ever:
            self._gap = SEPARATOR
        self._blocks, self._newest, self._length = [], [], 0
        self.stale = self._counted = False

    def told(self) -> str:
        """All that was told in this message."""
        self._settle()
        self._blocks = ["".join(self._blocks)]
        return self._blocks[0]

    def rewritten(self) -> None:
        """What was told is not what the text begins with any more."""
        if not self._counted:
            self.rewrites += 1
        self.stale = self._counted = True

    def _settle(self) -> None:
        self._blocks.append("".join(self._newest))
        self._newest = []

    def catch_up(self, text: str) -> str:
        """The text is this now: what to tell, if it goes on from what was told; else it is rewritten."""
        if len(text) < self._length or not text.startswith(self.told()):
            self.rewritten()
            return ""
        self.stale = self._counted = False
        return self.say(text[self._length :])
