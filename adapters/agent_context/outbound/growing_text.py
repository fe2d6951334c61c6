"""The text of a run as it grows, told once though an agent says it again from the start (`Listener.again`)."""

from __future__ import annotations

from gateway.core import events as e


class GrowingText:
    """Of one part. A text that is said again is held back until there is more of it, or until it is another."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._said: list[str] = []
        self._before: str | None = None

    def add(self, text: str) -> list[e.Event]:
        """More of it."""
        self._said.append(text)
        if self._before is None:
            return [e.PartDelta(part=self._part, delta=text)]
        now, before = "".join(self._said), self._before
        if before.startswith(now):
            return []
        self._before = None
        if now.startswith(before):
            return [e.PartDelta(part=self._part, delta=now[len(before) :])]
        return [e.PartReplaced(part=self._part, value=now)]

    def again(self) -> None:
        """From now on it is said again from the start."""
        said = "".join(self._said)
        self._before = max(said, self._before or "", key=len) or None
        self._said = []
